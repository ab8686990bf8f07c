"""The conformance cases of QUANTIZED_LINEAR_CONVOLUTION."""

from __future__ import annotations

from collections.abc import Iterator

from dmlvk.conformance.case import Case
from dmlvk.conformance.cases.quantized_linear_convolution.rules import GROUPS


def cases(default_only: bool = False) -> Iterator[Case]:
    """All cases of QUANTIZED_LINEAR_CONVOLUTION, or those that run by default."""
    for group in GROUPS:
        yield from group.cases(default_only)
