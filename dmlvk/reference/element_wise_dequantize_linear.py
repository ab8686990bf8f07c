"""ELEMENT_WISE_DEQUANTIZE_LINEAR in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ElementWiseDequantizeLinearDesc
from dmlvk.reference.element_wise_quantize_linear import of_output

Array = npt.NDArray[Any]

# The NaN that an invalid operation gives.
QUIET_NAN = np.uint32(0x7FC00000).view(np.float32)


def run(
    desc: ElementWiseDequantizeLinearDesc,
    *,
    input_tensor: Array,
    scale_tensor: Array,
    zero_point_tensor: Array | None = None,
) -> Array:
    """Turn quantized numbers into floats: (Input - ZeroPoint) * Scale.

    The difference is exact, and the product is rounded once to binary32, to nearest even, denormals kept. A product
    that is no number has the bits 0x7FC00000.

    Source: DML_ELEMENT_WISE_DEQUANTIZE_LINEAR_OPERATOR_DESC (directml.h).
    """
    zero_point = np.int64(0) if zero_point_tensor is None else of_output(zero_point_tensor.astype(np.int64))
    with np.errstate(all="ignore"):
        product = (input_tensor.astype(np.int64) - zero_point).astype(np.float32) * of_output(scale_tensor)
    return np.where(np.isnan(product), QUIET_NAN, product)
