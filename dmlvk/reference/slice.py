"""SLICE in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common.bits import as_bits
from dmlvk.operators.slice import SliceDesc


def run(desc: SliceDesc, *, input_tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy the slice.

    The page says: "OutputTensor[OutputCoordinates] = InputTensor[Offsets + Strides * OutputCoordinates]".

    Source: DML_SLICE_OPERATOR_DESC (directml.h).
    """
    coordinates = [
        offset + stride * np.arange(size, dtype=np.int64)
        for offset, size, stride in zip(desc.offsets, desc.sizes, desc.strides, strict=True)
    ]
    return as_bits(input_tensor)[np.ix_(*coordinates)].view(input_tensor.dtype)
