"""SLICE1: the sectors of memory that hold the slice's elements are read, and the output is written."""

from __future__ import annotations

import math

from dmlvk.benchmark.work.base import Work, size_of
from dmlvk.operators import Slice1Desc, SliceDesc

# Memory is read in units of this many bytes.
SECTOR_SIZE = 32


def work(desc: Slice1Desc | SliceDesc) -> Work:
    """Count the bytes that SLICE1 or SLICE moves. With steps, whole sectors of 32 bytes are read."""
    return Work(math.prod(desc.output_tensor.sizes) * _sector_share(desc), size_of(desc.output_tensor))


def _sector_share(desc: Slice1Desc | SliceDesc) -> int:
    """The bytes of the input that are read for each element of the output."""
    size = desc.input_tensor.data_type.size_in_bytes
    distances = [
        abs(stride * step) * size
        for stride, step, extent in zip(
            desc.input_tensor.element_strides, desc.input_window_strides, desc.output_tensor.sizes, strict=True
        )
        if extent > 1 and stride
    ]
    return min(SECTOR_SIZE, min(distances, default=size))
