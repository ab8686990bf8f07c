"""QUANTIZED_LINEAR_CONVOLUTION_TABLE in NumPy."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from dmlvk.operators import QuantizedLinearConvolutionTableDesc
from dmlvk.reference import byte_table, quantized_linear_convolution

Array = npt.NDArray[Any]


def run(
    desc: QuantizedLinearConvolutionTableDesc,
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
    table_tensor: Array,
) -> Array:
    """Convolve, quantize, and look up: the two operators, one after the other."""
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
    return byte_table.run(desc.lookup, input_tensor=convolved, table_tensor=table_tensor)
