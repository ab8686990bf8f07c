"""What is measured: for each operator its cases, in sizes for GPUs, for CPU drivers and for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case
from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import CURRENT_OPERATORS, parts

__all__ = ["OPERATORS", "SCALES", "Scale", "cases", "select", "without"]


SCALES = {
    # Several times any cache; a batch that fills a large GPU.
    "full": Scale(1 << 29, 64),
    # All of it in minutes on a CPU driver.
    "small": Scale(1 << 23, 1),
    # Seconds: for trying things out.
    "tiny": Scale(1 << 16, 1),
}

SOURCES: Mapping[type[OperatorDesc], Callable[[Scale], Iterator[Case]]] = parts(__name__, "cases", CURRENT_OPERATORS)

# The stems of the operators that have cases, as `dmlvk bench --operator` takes them.
OPERATORS = tuple(operator.stem for operator in CURRENT_OPERATORS)


def cases(scale: Scale) -> list[Case]:
    """All cases of all operators, including those that run only when asked for."""
    return [case for source in SOURCES.values() for case in source(scale)]


def select(
    found: Iterable[Case],
    *,
    operators: Iterable[str] = (),
    patterns: Iterable[str] = (),
    types: Iterable[str] = (),
    layouts: Iterable[str] = (),
    path: str | None = None,
) -> list[Case]:
    """Choose cases; what is empty chooses all. Those that are not run by default have to be named whole or by type.

    Parameters
    ----------
    operators : iterable of str
        "slice1", "one_hot", ...
    patterns : iterable of str
        Parts of names, in which *, ? and [] stand for others.
    types, layouts : iterable of str
        Values of the parameters `type` and `layout`, in any case; cases without the parameter stay.
    path : str, optional
        The kernel path to force on all.
    """
    operators, patterns = set(operators), tuple(patterns)
    wanted = {"type": {name.upper() for name in types}, "layout": {name.upper() for name in layouts}}
    chosen = []
    for case in found:
        parameters = case.parameters
        if operators and case.groups[0] not in operators:
            continue
        if patterns and not any(_matches(case.name, pattern) for pattern in patterns):
            continue
        if any(names and key in parameters and parameters[key].upper() not in names for key, names in wanted.items()):
            continue
        if not (case.is_default or case.name in patterns or wanted["type"]):
            continue
        chosen.append(case if path is None else replace(case, path=path))
    return chosen


def without(case: Case, *dropped: str) -> str:
    """A case's name without some of its parameters: the same for cases that differ in these alone."""
    groups, _, _ = case.name.rpartition(":")
    return f"{groups}:{';'.join(f'{key}={value}' for key, value in case.parameters.items() if key not in dropped)}"


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, f"*{pattern}*")
