"""QUANTIZED_LINEAR_CONVOLUTION_TABLE in NumPy."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from dmlvk.operators import QuantizedLinearConvolutionTableDesc
from dmlvk.reference import byte_table, quantized_linear_convolution

Array = npt.NDArray[Any]


def run(desc: QuantizedLinearConvolutionTableDesc, *, table_tensor: Array, **operands: Array) -> Array:
    """Convolve, quantize, and look up: the two operators, one after the other."""
    convolved = quantized_linear_convolution.run(desc.convolution, **operands)
    return byte_table.run(desc.lookup, input_tensor=convolved, table_tensor=table_tensor)
