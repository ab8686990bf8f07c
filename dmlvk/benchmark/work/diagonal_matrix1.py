"""DIAGONAL_MATRIX1: the part of the input that is not filled is read, and the output is written."""

from __future__ import annotations

import math

from dmlvk.benchmark.work.base import Work, size_of
from dmlvk.operators import DiagonalMatrix1Desc


def work(desc: DiagonalMatrix1Desc) -> Work:
    """Count the bytes that DIAGONAL_MATRIX1 moves."""
    output = desc.output_tensor
    kept = 0 if desc.input_tensor is None else math.prod(output.sizes) - _filled(desc)
    return Work(kept * output.data_type.size_in_bytes, size_of(output))


def _filled(desc: DiagonalMatrix1Desc) -> int:
    """The number of elements that become Value."""
    *batch, rows, columns = desc.output_tensor.sizes

    def below(limit: int) -> int:
        """The number of elements with x - y < limit."""
        return sum(min(columns, max(0, y + limit)) for y in range(rows))

    begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
    count = below(end) - below(begin)
    # Begin > End fills all elements except End <= x - y < Begin.
    return math.prod(batch) * (count if begin <= end else rows * columns + count)
