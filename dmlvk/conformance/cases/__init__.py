"""The cases of the conformance suite: a module for each operator, and one for ONNX's own backend tests, one for
descriptors that have to be refused, and one for what must not change a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dmlvk.conformance.case import Case, CaseSource
from dmlvk.conformance.cases import invalid, invariance, onnx_backend
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import Group
from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import parts

BY_OPERATOR: Mapping[type[OperatorDesc], Sequence[Group]] = parts(
    __name__, "GROUPS", default=lambda desc: [declared_form(desc)]
)
SOURCES: tuple[CaseSource, ...] = (
    *(group.cases for groups in BY_OPERATOR.values() for group in groups),
    onnx_backend.cases,
    invalid.cases,
    *(group.cases for group in invariance.GROUPS),
)


def all_cases(default_only: bool = False) -> Iterator[Case]:
    """All cases, or only those that run by default; lazily, and always in the same order."""
    for cases in SOURCES:
        yield from cases(default_only)
