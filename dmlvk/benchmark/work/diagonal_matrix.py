"""DIAGONAL_MATRIX: the output is written, and nothing is read."""

from __future__ import annotations

from dmlvk.benchmark.work.base import Work, random_inputs, size_of
from dmlvk.operators import DiagonalMatrixDesc

__all__ = ["random_inputs", "work"]


def work(desc: DiagonalMatrixDesc) -> Work:
    """Count the bytes that DIAGONAL_MATRIX moves."""
    return Work(0, size_of(desc.output_tensor))
