"""BYTE_TABLE in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ByteTableDesc

Array = npt.NDArray[Any]


def run(
    desc: ByteTableDesc, *, input_tensor: Array, second_input_tensor: Array | None = None, table_tensor: Array
) -> Array:
    """Look each element up in a table of 256 bytes, or each pair of elements in one of 65,536.

    A byte is an index by its bits, so that -1 in INT8 is 255: the table's last element, as in NumPy. The first input
    has the upper eight bits of a pair's index. With an axis, row k of the tables belongs to index k along it.
    """
    index = input_tensor.view(np.uint8).astype(np.intp)
    if second_input_tensor is not None:
        index = index * 256 + second_input_tensor.view(np.uint8)
    if desc.axis is None:
        return table_tensor[index]
    shape = [1] * index.ndim
    shape[desc.axis] = -1
    return table_tensor[np.arange(index.shape[desc.axis]).reshape(shape), index]
