"""QUANTIZED_LINEAR_CONVOLUTION: every tensor is moved once; each tap of each output is a multiply-add."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.work.base import Work, random_bits, size_of
from dmlvk.operators import QuantizedLinearConvolutionDesc

# The standard deviation of uniformly distributed bytes, and the one that the output should have.
SPREAD_OF_BYTES, SPREAD_OF_OUTPUT = 74.0, 50.0


def work(desc: QuantizedLinearConvolutionDesc) -> Work:
    """Count the bytes and the operations of a convolution."""
    output = desc.output_tensor
    read = sum(size_of(tensor) for name, tensor in desc.tensors.items() if name != "output_tensor")
    return Work(read, size_of(output), 2 * math.prod(output.sizes) * desc.geometry.tap_count)


def random_inputs(desc: QuantizedLinearConvolutionDesc, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Random bytes, and scales with which the output uses the range of a byte."""
    inputs: dict[str, npt.NDArray[Any]] = {}
    for name in desc.input_fields:
        tensor = desc.tensors.get(name)
        if tensor is None:
            continue
        dtype = tensor.data_type.numpy_dtype
        if name.endswith("scale_tensor"):
            inputs[name] = (random.integers(50, 200, tensor.sizes) / 1e4).astype(dtype)
        elif name == "bias_tensor":
            inputs[name] = random.integers(-5000, 5000, tensor.sizes, dtype)
        else:
            inputs[name] = random_bits(tensor, random)
    spread = SPREAD_OF_BYTES**2 * desc.geometry.tap_count**0.5
    sizes = desc.output_scale_tensor.sizes
    inputs["output_scale_tensor"] = np.full(sizes, 0.0125 * 0.0125 * spread / SPREAD_OF_OUTPUT, np.float32)
    return inputs
