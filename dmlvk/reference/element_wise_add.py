"""ELEMENT_WISE_ADD in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ElementWiseAddDesc

Array = npt.NDArray[Any]
# What makes a NaN quiet, and the NaN of infinity less infinity.
QUIET, INVALID = np.uint32(1 << 22), np.uint32(0xFFC00000)


def run(desc: ElementWiseAddDesc, *, a_tensor: Array, b_tensor: Array) -> Array:
    """Add, with one rounding to nearest even. What is no number has the bits that x86-64 gives it.

    Source: DML_ELEMENT_WISE_ADD_OPERATOR_DESC (directml.h).
    """
    a, b = (np.ascontiguousarray(each).view(np.uint32) for each in (a_tensor, b_tensor))
    with np.errstate(all="ignore"):
        total = np.asarray(a_tensor + b_tensor, np.float32)
    invalid = np.where(np.isnan(b_tensor), b | QUIET, np.where(np.isnan(a_tensor), a | QUIET, INVALID))
    return np.where(np.isnan(total), invalid, total.view(np.uint32)).view(np.float32)
