"""QUANTIZED_LINEAR_CONVOLUTION_ADD in NumPy."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from dmlvk.operators import QuantizedLinearConvolutionAddDesc
from dmlvk.reference import element_wise_quantized_linear_add, quantized_linear_convolution

Array = npt.NDArray[Any]


def run(desc: QuantizedLinearConvolutionAddDesc, **tensors: Array) -> Array:
    """Convolve, quantize, add the addend, and quantize again: the two operators, one after the other."""
    convolution, addition = desc.convolution, desc.sum
    inputs = {name: array for name, array in tensors.items() if name in convolution.input_fields}
    tensors["output_tensor"] = quantized_linear_convolution.run(convolution, **inputs)
    operands = {name: tensors[field] for name, field in desc.sum_fields.items() if name in addition.input_fields}
    return element_wise_quantized_linear_add.run(addition, **operands)
