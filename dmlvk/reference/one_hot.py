"""ONE_HOT in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common.bits import as_bits
from dmlvk.operators.one_hot import OneHotDesc


def run(desc: OneHotDesc, *, indices_tensor: npt.NDArray[Any], values_tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Set the element that each index names to OnValue, all others to OffValue.

    The page says: "The 0th element of this tensor is interpreted as the OffValue, and the 1st element along the fastest
    changing dimension of size >1 is interpreted as the OnValue"; a negative index is "relative to the end of the
    sequence"; if an index "exceeds the number of elements along the Axis dimension", then "all elements in that
    sequence will be set to OffValue". An index counts from the end only once: one below minus the number of
    elements is out of range too.

    Source: DML_ONE_HOT_OPERATOR_DESC (directml.h).
    """
    depth = desc.output_tensor.sizes[desc.axis]
    # 64 bits throughout: 2**32 + 1 is out of range, not 1. Unsigned indices stay unsigned: 2**64 - 1 is not -1.
    if desc.indices_tensor.data_type.is_signed_integer:
        signed = indices_tensor.astype(np.int64)
        indices = np.where(signed < 0, signed + depth, signed)
    else:
        indices = indices_tensor.astype(np.uint64)

    shape = [1] * desc.output_tensor.rank
    shape[desc.axis] = depth
    positions = np.arange(depth, dtype=indices.dtype).reshape(shape)

    fastest = max(k for k, size in enumerate(values_tensor.shape) if size > 1)
    values = as_bits(values_tensor)
    off_value = values[(0,) * values.ndim]
    on_value = values[tuple(1 if k == fastest else 0 for k in range(values.ndim))]
    return np.where(indices == positions, on_value, off_value).view(values_tensor.dtype)
