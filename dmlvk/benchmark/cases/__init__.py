"""What is measured: for each operator its cases, in sizes for GPUs, for CPU drivers and for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from dmlvk.benchmark.cases import diagonal_matrix1, one_hot, quantized_linear_convolution, slice1
from dmlvk.conformance.case import Case


@dataclass(frozen=True)
class Scale:
    """How large the cases are.

    Attributes
    ----------
    data_bytes : int
        Bytes of an input of the data movement operators, which move about twice as many. A power of two.
    batch : int
        Images of a convolution.
    """

    data_bytes: int
    batch: int


SCALES = {
    # Several times any cache; a batch that fills a large GPU.
    "full": Scale(1 << 29, 64),
    # All of it in minutes on a CPU driver.
    "small": Scale(1 << 23, 1),
    # Seconds: for trying things out.
    "tiny": Scale(1 << 16, 1),
}

OPERATORS = {
    "slice1": slice1,
    "diagonal_matrix1": diagonal_matrix1,
    "one_hot": one_hot,
    "quantized_linear_convolution": quantized_linear_convolution,
}


def cases(scale: Scale, *, filter_is_owned: bool = True) -> list[Case]:
    """All cases of all operators, those that run only when asked for included."""
    return [
        *slice1.cases(scale.data_bytes),
        *diagonal_matrix1.cases(2 * scale.data_bytes),
        *one_hot.cases(2 * scale.data_bytes),
        *quantized_linear_convolution.cases(scale.batch, filter_is_owned=filter_is_owned),
    ]


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
