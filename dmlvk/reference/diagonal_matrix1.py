"""DIAGONAL_MATRIX1 in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common.bits import as_bits
from dmlvk.operators.declared import INT32_MAX, INT32_MIN
from dmlvk.operators.diagonal_matrix1 import DiagonalMatrix1Desc


def run(desc: DiagonalMatrix1Desc, *, input_tensor: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Fill the elements between (or, inverted, outside) two diagonals with Value.

    The page says: "topX = coordinate.x - coordinate.y", "useValue = (DiagonalFillEnd >= DiagonalFillBegin) ^
    (topX >= DiagonalFillBegin) ^ (topX < DiagonalFillEnd)", and then "if useValue then Value else if InputTensor not
    null then InputTensor[coordinate] else 0".

    Source: DML_DIAGONAL_MATRIX1_OPERATOR_DESC (directml.h).
    """
    sizes, dtype = desc.output_tensor.sizes, desc.output_tensor.data_type.numpy_dtype
    height, width = sizes[-2:]
    top_x = np.arange(width, dtype=np.int64) - np.arange(height, dtype=np.int64)[:, np.newaxis]

    use_value = is_filled(top_x, desc.diagonal_fill_begin, desc.diagonal_fill_end)

    value = np.frombuffer(desc.value_bytes, dtype=f"<u{dtype.itemsize}")[0]
    otherwise = np.zeros((), value.dtype) if input_tensor is None else as_bits(input_tensor)
    output = np.broadcast_to(np.where(use_value, value, otherwise), sizes)
    return np.ascontiguousarray(output).view(dtype)


def is_filled(top_x: npt.NDArray[np.int64], diagonal_fill_begin: int, diagonal_fill_end: int) -> npt.NDArray[np.bool_]:
    """useValue of the page, for each topX.

    INT32_MIN and INT32_MAX are open ends. That matters only for the diagonals of a matrix wider than 2**31.
    """
    open_ends = {INT32_MIN: -math.inf, INT32_MAX: math.inf}
    begin = open_ends.get(diagonal_fill_begin, diagonal_fill_begin)
    end = open_ends.get(diagonal_fill_end, diagonal_fill_end)
    filled: npt.NDArray[np.bool_] = (end >= begin) ^ (top_x >= begin) ^ (top_x < end)
    return filled
