"""BYTE_RESAMPLE in NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ByteResampleDesc
from dmlvk.operators.byte_resample import LEAST_COORDINATE

Array = npt.NDArray[Any]


def run(desc: ByteResampleDesc, *, input_tensor: Array, coordinate_tensor: Array, threshold_tensor: Array) -> Array:
    """Add up four weighted numbers, and find the threshold by bisection."""
    height = desc.output_tensor.sizes[2]
    rows = _taps(coordinate_tensor[:height], desc.input_tensor.sizes[2])
    columns = _taps(coordinate_tensor[height:], desc.input_tensor.sizes[3])
    scale = np.frombuffer(desc.input_scale_bytes, "<f4")[0]
    values = (input_tensor.astype(np.int32) - desc.input_zero_point).astype(np.float32) * scale
    total = None
    for (row, row_weight), (column, column_weight) in product(rows, columns):
        term = row_weight[:, None] * column_weight * values[:, :, row][:, :, :, column]
        total = term if total is None else total + term
    assert total is not None
    thresholds, sums = _keys(threshold_tensor), _keys(total)
    count = np.zeros(sums.shape, np.intp)
    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        count += np.where(thresholds[count + step - 1] <= sums, step, 0)
    least = np.iinfo(desc.output_tensor.data_type.numpy_dtype).min
    return (count + least).astype(desc.output_tensor.data_type.numpy_dtype)


def _taps(coordinates: Array, size: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The elements between which coordinates lie, and their weights."""
    first, last = _keys(np.array([0, size - 1], np.float32))
    keys = np.clip(_keys(coordinates), first, last)
    places = (keys - (1 << 31)).astype(np.uint32).view(np.float32)
    places = np.where(places < np.float32(LEAST_COORDINATE), np.float32(0), places)
    low = places.astype(np.intp)
    behind = places - low.astype(np.float32)
    before = np.float32(1) - behind
    is_last = low == size - 1
    return (
        (low, np.where(is_last, np.float32(0.5), before)),
        (np.minimum(low + 1, size - 1), np.where(is_last, np.float32(0.5), behind)),
    )


def _keys(numbers: Array) -> Array:
    """Integers in the order of binary32 numbers; 2^31 is that of 0."""
    bits = numbers.view(np.uint32).astype(np.int64)
    magnitude = bits & 0x7FFFFFFF
    return np.where(bits >> 31 == 1, (1 << 31) - magnitude, (1 << 31) + magnitude)
