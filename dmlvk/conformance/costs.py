"""What a case costs, and parts of a run that cost about the same.

The costs were recorded once, on two drivers that run on a CPU, and come with dmlvk: a case costs the same on every
machine, so that parts of one run fit together wherever they are run. `python -m tools.case_costs` records them. A path
that those drivers lack costs what the group costs on other paths.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from dmlvk._common import files
from dmlvk.conformance.case import Case

COSTS = "costs.json"
# Milliseconds of a case of a group without a record.
UNKNOWN = 50


@dataclass(frozen=True)
class CaseCosts:
    """Recorded costs in milliseconds.

    groups: by group and way: "path=tiles;device=gpu", and "" for all ways without a record.
    cases: by name, for the cases whose cost is far from that of their group.
    """

    groups: Mapping[str, Mapping[str, int]]
    cases: Mapping[str, int]


@cache
def recorded_costs() -> CaseCosts:
    """The costs that come with dmlvk."""
    content = files.packaged_json("dmlvk.conformance", COSTS, {"groups": {}, "cases": {}})
    return CaseCosts(content["groups"], content["cases"])


def way_of(case: Case) -> str:
    """How a case is run, as far as its cost depends on it."""
    parameters = case.parameters
    return ";".join(f"{name}={parameters[name]}" for name in ("path", "device") if name in parameters)


def cost_of(case: Case) -> int:
    """Milliseconds, as recorded for the case, or for its group and way; 1 for a descriptor that is only refused."""
    if case.refusal is not None:
        return 1
    costs = recorded_costs()
    group = costs.groups.get(case.group, {})
    return costs.cases.get(case.name, group.get(way_of(case), group.get("", UNKNOWN)))


def parts_of_equal_cost(cases: Sequence[Case], count: int) -> list[list[Case]]:
    """Cut cases into parts of about equal cost; each case is in one part, and each part in the order of the cases.

    The dearest case first, each goes to the part that is cheapest so far: no two parts differ by more than one case.
    """
    costs = [cost_of(case) for case in cases]
    part_of = [0] * len(cases)
    loads = [(0, part) for part in range(count)]
    for place in sorted(range(len(cases)), key=lambda place: (-costs[place], place)):
        load, part = heapq.heappop(loads)
        part_of[place] = part
        heapq.heappush(loads, (load + costs[place], part))
    parts: list[list[Case]] = [[] for _ in range(count)]
    for case, part in zip(cases, part_of, strict=True):
        parts[part].append(case)
    return parts
