"""The cases of the conformance suite: a module for each operator, and one for ONNX's own backend tests, one for
descriptors that have to be refused, and one for what must not change a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import invalid, invariance, onnx_backend
from dmlvk.operators.registry import parts

SOURCES: tuple[Callable[[bool], Iterator[Case]], ...] = (
    *parts(__name__, "cases").values(),
    onnx_backend.cases,
    invalid.cases,
    invariance.cases,
)


def all_cases(default_only: bool = False) -> Iterator[Case]:
    """All cases, or only those that run by default; lazily, and always in the same order."""
    for cases in SOURCES:
        yield from cases(default_only)
