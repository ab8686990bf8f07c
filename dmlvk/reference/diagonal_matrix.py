"""DIAGONAL_MATRIX in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators.diagonal_matrix import DiagonalMatrixDesc


def run(desc: DiagonalMatrixDesc) -> npt.NDArray[Any]:
    """Set one diagonal to Value.

    The page says: "OutputTensor[coordinate] = if (coordinate.y + Offset == coordinate.x) then Value else 0".

    Source: DML_DIAGONAL_MATRIX_OPERATOR_DESC (directml.h).
    """
    sizes, dtype = desc.output_tensor.sizes, desc.output_tensor.data_type.numpy_dtype
    height, width = sizes[-2:]
    x, y = np.arange(width, dtype=np.int64), np.arange(height, dtype=np.int64)[:, np.newaxis]

    # The bits of the element, so that a NaN does not change when it is copied.
    value = np.frombuffer(desc.value_bytes, dtype=f"<u{dtype.itemsize}")[0]
    matrix = np.where(y + desc.offset == x, value, np.zeros((), value.dtype))
    return np.ascontiguousarray(np.broadcast_to(matrix, sizes)).view(dtype)
