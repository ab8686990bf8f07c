"""What an operator has to do at the very least: bytes and operations, counted from the descriptor alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.operators import (
    DiagonalMatrix1Desc,
    OneHotDesc,
    OperatorDesc,
    QuantizedLinearConvolutionDesc,
    Slice1Desc,
)
from dmlvk.tensor_desc import TensorDesc

# What memory hands over at once.
SECTOR_SIZE = 32


@dataclass(frozen=True)
class Work:
    """Bytes that have to be read and to be written, and operations: multiply-adds times two."""

    bytes_read: int
    bytes_written: int
    operations: int = 0

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


def work_of(desc: OperatorDesc) -> Work:
    """Count an operator's work.

    Notes
    -----
    Each tensor counts once, however often a kernel reads it. SLICE1 with steps counts the 32-byte sectors that hold
    what it takes; DIAGONAL_MATRIX1 does not read what it fills.
    """
    output = desc.tensors["output_tensor"]
    written = _size(output)
    if isinstance(desc, Slice1Desc):
        return Work(math.prod(output.sizes) * _sector_share(desc), written)
    if isinstance(desc, DiagonalMatrix1Desc):
        if desc.input_tensor is None:
            return Work(0, written)
        return Work((math.prod(output.sizes) - _filled(desc)) * output.data_type.size_in_bytes, written)
    if isinstance(desc, OneHotDesc):
        return Work(_size(desc.indices_tensor), written)
    if isinstance(desc, QuantizedLinearConvolutionDesc):
        read = sum(_size(tensor) for name, tensor in desc.tensors.items() if name != "output_tensor")
        return Work(read, written, 2 * math.prod(output.sizes) * desc.geometry.tap_count)
    raise TypeError(f"{type(desc).__name__} is not an operator descriptor")


def _size(tensor: TensorDesc) -> int:
    return math.prod(tensor.sizes) * tensor.data_type.size_in_bytes


def _sector_share(desc: Slice1Desc) -> int:
    """Bytes of the input that each element of the output costs."""
    size = desc.input_tensor.data_type.size_in_bytes
    distances = [
        abs(stride * step) * size
        for stride, step, extent in zip(
            desc.input_tensor.element_strides, desc.input_window_strides, desc.output_tensor.sizes, strict=True
        )
        if extent > 1 and stride
    ]
    return min(SECTOR_SIZE, min(distances, default=size))


def _filled(desc: DiagonalMatrix1Desc) -> int:
    """Elements that become the fill value."""
    *batch, rows, columns = desc.output_tensor.sizes

    def below(limit: int) -> int:
        """Elements with x - y < limit."""
        return sum(min(columns, max(0, y + limit)) for y in range(rows))

    begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
    count = below(end) - below(begin)
    # Begin > End fills all but what lies between.
    return math.prod(batch) * (count if begin <= end else rows * columns + count)
