"""BYTE_TABLE_MEAN in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ByteTableMeanDesc
from dmlvk.operators.byte_table_mean import ALIGNMENT

Array = npt.NDArray[Any]
NO_NUMBER = np.uint32(0x7FC00000)


def run(desc: ByteTableMeanDesc, *, input_tensor: Array, table_tensor: Array) -> Array:
    """Look each element up, add up each plane in the order that the lanes say, and divide by the number of elements."""
    planes = input_tensor.shape[0] * input_tensor.shape[1]
    values = table_tensor[input_tensor.view(np.uint8).astype(np.intp)].reshape(planes, -1)
    count = values.shape[1]
    numbers = np.arange(planes, dtype=np.uint64)
    waiting = -numbers * np.uint64(count) % np.uint64(ALIGNMENT) if desc.lane_count == 8 else 0 * numbers
    waiting = np.minimum(waiting, np.uint64(count)).astype(np.intp)
    sums = np.empty(planes, np.float32)
    with np.errstate(all="ignore"):
        for first in np.unique(waiting):
            sums[waiting == first] = _sums(values[waiting == first], int(first), desc.lane_count)
        means = sums / np.float32(count)
    return np.where(np.isnan(means), NO_NUMBER.view(np.float32), means).reshape(desc.output_tensor.sizes)


def _sums(values: Array, first: int, lane_count: int) -> Array:
    """The sums of planes of which the same number of elements waits."""
    turns = (values.shape[1] - first) // lane_count
    end = first + turns * lane_count
    lanes = _in_order(values[:, first:end].reshape(len(values), turns, lane_count))
    rest = values[:, end:]
    if lane_count == 8:
        lanes = lanes[:, :4] + lanes[:, 4:]
        if rest.shape[1] >= 4:
            lanes, rest = lanes + rest[:, :4], rest[:, 4:]
    total = lanes[:, 0] if lane_count == 1 else (lanes[:, 0] + lanes[:, 2]) + (lanes[:, 1] + lanes[:, 3])
    return _in_order(np.concatenate([total[:, None], values[:, :first], rest], axis=1))


def _in_order(values: Array) -> Array:
    """The sum along dimension 1 from 0 on, one element after the other."""
    zeros = np.zeros((values.shape[0], 1, *values.shape[2:]), np.float32)
    sums: Array = np.add.accumulate(np.concatenate([zeros, values], axis=1), axis=1, dtype=np.float32)
    return sums[:, -1]
