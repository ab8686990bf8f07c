"""QUANTIZED_LINEAR_CONVOLUTION_ADD in NumPy."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from dmlvk.operators import QuantizedLinearConvolutionAddDesc
from dmlvk.reference import element_wise_quantized_linear_add, quantized_linear_convolution

Array = npt.NDArray[Any]


def run(
    desc: QuantizedLinearConvolutionAddDesc,
    *,
    input_tensor: Array,
    input_scale_tensor: Array,
    input_zero_point_tensor: Array | None = None,
    filter_tensor: Array,
    filter_scale_tensor: Array,
    filter_zero_point_tensor: Array | None = None,
    bias_tensor: Array | None = None,
    output_scale_tensor: Array,
    output_zero_point_tensor: Array | None = None,
    addend_tensor: Array,
    addend_scale_tensor: Array,
    addend_zero_point_tensor: Array | None = None,
    sum_scale_tensor: Array,
    sum_zero_point_tensor: Array | None = None,
) -> Array:
    """Convolve, quantize, add the addend, and quantize again: the two operators, one after the other."""
    convolved = quantized_linear_convolution.run(
        desc.convolution,
        input_tensor=input_tensor,
        input_scale_tensor=input_scale_tensor,
        input_zero_point_tensor=input_zero_point_tensor,
        filter_tensor=filter_tensor,
        filter_scale_tensor=filter_scale_tensor,
        filter_zero_point_tensor=filter_zero_point_tensor,
        bias_tensor=bias_tensor,
        output_scale_tensor=output_scale_tensor,
        output_zero_point_tensor=output_zero_point_tensor,
    )
    operands = [
        (convolved, output_scale_tensor, output_zero_point_tensor),
        (addend_tensor, addend_scale_tensor, addend_zero_point_tensor),
    ]
    a, b = reversed(operands) if desc.addend_comes_first else operands
    return element_wise_quantized_linear_add.run(
        desc.sum,
        a_tensor=a[0],
        a_scale_tensor=a[1],
        a_zero_point_tensor=a[2],
        b_tensor=b[0],
        b_scale_tensor=b[1],
        b_zero_point_tensor=b[2],
        output_scale_tensor=sum_scale_tensor,
        output_zero_point_tensor=sum_zero_point_tensor,
    )
