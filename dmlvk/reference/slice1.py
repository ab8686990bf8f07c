"""SLICE1 in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common.bits import as_bits
from dmlvk.operators.slice1 import Slice1Desc


def run(desc: Slice1Desc, *, input_tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy the window: output[c] = input[copy_start + window_stride * c].

    The page says: "CopyStart = InputWindowOffsets", and where a stride is negative "CopyStart[i] += InputWindowSizes[i]
    - 1", to "start at the end of the window in this dimension".

    Source: DML_SLICE1_OPERATOR_DESC (directml.h).
    """
    coordinates = []
    for k, size in enumerate(desc.output_tensor.sizes):
        copy_start = desc.input_window_offsets[k]
        if desc.input_window_strides[k] < 0:
            copy_start += desc.input_window_sizes[k] - 1
        coordinates.append(copy_start + desc.input_window_strides[k] * np.arange(size, dtype=np.int64))
    return as_bits(input_tensor)[np.ix_(*coordinates)].view(input_tensor.dtype)
