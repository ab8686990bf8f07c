"""ELEMENT_WISE_QUANTIZE_LINEAR in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ElementWiseQuantizeLinearDesc

Array = npt.NDArray[Any]


def run(
    desc: ElementWiseQuantizeLinearDesc,
    *,
    input_tensor: Array,
    scale_tensor: Array,
    zero_point_tensor: Array | None = None,
) -> Array:
    """Quantize floats.

    The page says clamp(round(Input / Scale) + ZeroPoint, Min, Max). The quotient is rounded once to binary32, denormals
    kept, halves then round to even, and a quotient that is no number gives Min: ONNX Runtime's QuantizeLinear.

    Source: DML_ELEMENT_WISE_QUANTIZE_LINEAR_OPERATOR_DESC (directml.h).
    """
    dtype = desc.output_tensor.data_type.numpy_dtype
    limits = np.iinfo(dtype)
    zero_point = np.int64(0) if zero_point_tensor is None else of_output(zero_point_tensor.astype(np.int64))
    low, high = np.float32(limits.min - zero_point), np.float32(limits.max - zero_point)
    with np.errstate(all="ignore"):
        quotient = input_tensor / of_output(scale_tensor)
    # Clamp before the zero point is added: there every value is still a float32, and those in range are small integers.
    clamped = np.clip(np.where(np.isnan(quotient), low, quotient), low, high)
    return (np.rint(clamped).astype(np.int64) + zero_point).astype(dtype)


def of_output(parameter: Array) -> Array:
    """A scale or a zero point that broadcasts to the output: one element of any rank, or the output's sizes."""
    return parameter.reshape(()) if parameter.size == 1 else parameter
