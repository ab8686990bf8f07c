"""The measured cases of each operator, in sizes for GPUs, for CPU drivers and for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from dmlvk.benchmark.cases import by_declaration
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case
from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import CURRENT_OPERATORS, parts

__all__ = ["OPERATORS", "SCALES", "Scale", "cases", "select", "without"]


SCALES = {
    # Data several times as large as any cache, and a batch that fills a large GPU.
    "full": Scale(1 << 29, 64),
    # All cases take minutes on a CPU driver.
    "small": Scale(1 << 23, 1),
    # All cases take seconds, for trials.
    "tiny": Scale(1 << 16, 1),
}

SOURCES: Mapping[type[OperatorDesc], Callable[[Scale], Iterator[Case]]] = parts(
    __name__, "cases", CURRENT_OPERATORS, default=by_declaration.cases
)

# The stems of the operators that have cases, as `dmlvk bench --operator` takes them.
OPERATORS = tuple(desc.stem for desc in CURRENT_OPERATORS)


def cases(scale: Scale) -> list[Case]:
    """All cases of all operators, including those that run only on request."""
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
    """Choose cases; an empty argument chooses all.

    A case that does not run by default must be chosen by its whole name or by its type.

    operators: "slice1", "one_hot", ..., in upper or lower case.
    patterns: parts of names, in upper or lower case, with the wildcards *, ? and [].
    types, layouts: values of the parameters `type` and `layout`, in upper or lower case. Cases without the parameter
        are kept.
    path: the kernel path to force on all cases.
    """
    operators, patterns = {name.lower() for name in operators}, tuple(pattern.lower() for pattern in patterns)
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
        if not (case.is_default or case.name.lower() in patterns or wanted["type"]):
            continue
        chosen.append(case if path is None else replace(case, path=path))
    return chosen


def without(case: Case, *dropped: str) -> str:
    """A case's name without some of its parameters. Cases that differ only in these have the same one."""
    groups, _, _ = case.name.rpartition(":")
    return f"{groups}:{';'.join(f'{key}={value}' for key, value in case.parameters.items() if key not in dropped)}"


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name.lower(), f"*{pattern}*")
