"""Writes dmlvk/conformance/costs.json: milliseconds of a case by group, path and type of device.

    python -m tools.case_costs RESULTS.jsonl...

The results are those of `dmlvk conformance --json` on drivers that are far apart; a case counts where it ran. A cost is
the mean over the drivers. `dmlvk conformance --fraction` cuts a run by these costs.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.costs import COSTS, way_of
from dmlvk.conformance.results import Run, Status
from dmlvk.conformance.results_file import read_results

# Milliseconds. A case that is not farther from its group's cost has no record of its own.
LEAST_DIFFERENCE = 20
PLACE = Path(__file__).resolve().parent.parent / "dmlvk" / "conformance" / COSTS


def case_costs(runs: list[Run], cases: list[Case]) -> dict[str, dict[str, Any]]:
    """The content of the file: groups by name and way, "" for all ways; and the cases that are far from their group."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for result in run.results.values():
            if result.status is not Status.NOT_SUPPORTED:
                seconds[result.name].append(result.seconds)
    by_way: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    known = {}
    for case in cases:
        if case.refusal is None and case.name in seconds:
            known[case.name] = max(1, round(1000 * fmean(seconds[case.name])))
            for way in {way_of(case), ""}:
                by_way[case.group][way].append(known[case.name])
    groups = {
        group: {way: max(1, round(fmean(found))) for way, found in sorted(ways.items())}
        for group, ways in by_way.items()
    }
    far = {}
    for case in cases:
        if case.name in known:
            usual = groups[case.group][way_of(case)]
            if abs(known[case.name] - usual) > max(LEAST_DIFFERENCE, usual / 2):
                far[case.name] = known[case.name]
    return {"groups": groups, "cases": far}


def main() -> None:
    """Write the file."""
    runs = [read_results(Path(argument)) for argument in sys.argv[1:]]
    if not runs:
        sys.exit("name results of `dmlvk conformance --json`")
    costs = case_costs(runs, list(all_cases(default_only=True)))
    parts = [
        f"{json.dumps(part)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(cost)}" for name, cost in content.items())
        + "\n}"
        for part, content in costs.items()
    ]
    PLACE.write_text(f"{{\n{','.join(parts)}\n}}\n", encoding="utf-8")
    print(f"{len(costs['groups'])} groups and {len(costs['cases'])} cases in {PLACE.name}")


if __name__ == "__main__":
    main()
