"""QUANTIZED_LINEAR_CONVOLUTION: every tensor is moved once; each tap of each output is a multiply-add."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.work import base
from dmlvk.benchmark.work.base import Work
from dmlvk.operators import QuantizedLinearConvolutionDesc

# The standard deviation of uniformly distributed bytes, and the one that the output should have.
SPREAD_OF_BYTES, SPREAD_OF_OUTPUT = 74.0, 50.0


def work(desc: QuantizedLinearConvolutionDesc) -> Work:
    """Count the bytes and the operations of a convolution."""
    return replace(base.work(desc), operations=2 * math.prod(desc.output_tensor.sizes) * desc.geometry.tap_count)


def random_inputs(desc: QuantizedLinearConvolutionDesc, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Random bytes, and scales with which the output uses the range of a byte."""
    inputs = base.random_inputs(desc, random)
    spread = SPREAD_OF_BYTES**2 * desc.geometry.tap_count**0.5
    sizes = desc.output_scale_tensor.sizes
    inputs["output_scale_tensor"] = np.full(sizes, 0.0125 * 0.0125 * spread / SPREAD_OF_OUTPUT, np.float32)
    return inputs
