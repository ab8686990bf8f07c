"""The cases of the conformance suite, one module an operator."""

from __future__ import annotations

from collections.abc import Iterator

from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import (
    diagonal_matrix1,
    one_hot,
    onnx_backend,
    quantized_linear_convolution,
    slice1,
)

MODULES = (slice1, one_hot, diagonal_matrix1, quantized_linear_convolution, onnx_backend)


def all_cases(default_only: bool = False) -> Iterator[Case]:
    """Every case, lazily and in an order that does not change; or only those that run unless more are asked for."""
    for module in MODULES:
        yield from module.cases(default_only)
