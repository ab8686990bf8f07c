"""The layers of a network as work: descriptors whose constants are given once, and random data for them.

The data keep their spread from layer to layer: the images have a standard deviation of LEVELS around a zero point, and
so have the outputs. So the bytes that a layer wrote are a good input for any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import DataType, QuantizedLinearConvolutionDesc, reference
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer, descriptor
from dmlvk.conformance.case import generator

Array = npt.NDArray[Any]
LAYOUTS = ("nhwc", "nchw")
DATA_TYPE = DataType.UINT8

ZERO_POINT, LEVELS = 120, 40.0
# The standard deviation of weights, uniformly distributed over 7 bits: on x86 processors without VNNI, ONNX Runtime
# saturates sums of two products to 16 bits.
WEIGHT_SPREAD = 36.9
SCALE = 0.02
# A batch repeats this many different images.
VARIETY = 2
# Random bytes for memory that no layer has written yet; larger memory repeats them.
NOISE_BYTES = 1 << 22


@dataclass(frozen=True)
class LayerWork:
    """A layer with its data.

    constants: by field: everything but the input.
    images, expected: VARIETY different inputs, and the reference's outputs.
    """

    layer: Layer
    constants: dict[str, Array]
    images: Array
    expected: Array

    def batch(self, images: Array, count: int) -> Array:
        """A batch that repeats images."""
        return images[np.arange(count) % len(images)]


def desc_of(layer: Layer, batch: int, layout: str) -> QuantizedLinearConvolutionDesc:
    """A layer as a model with symmetric weights has it: no filter zero point, and all constants OWNED_BY_DML."""
    desc = descriptor(layer, batch, layout, DATA_TYPE, filter_is_owned=True, parameters_are_owned=True)
    return replace(desc, filter_zero_point_tensor=None)


@lru_cache(maxsize=64)
def work_of(layer: Layer) -> LayerWork:
    """A layer with random data, the same for each batch and layout."""
    desc = desc_of(layer, VARIETY, "nchw")
    constants = constants_of(layer, 0)
    images = noise(f"{layer.name}:images", int(np.prod(desc.input_tensor.sizes))).reshape(desc.input_tensor.sizes)
    return LayerWork(layer, constants, images, reference.run(desc, input_tensor=images, **constants))


def constants_of(layer: Layer, number: int) -> dict[str, Array]:
    """Random weights and what belongs to them. Layers of the same form have different ones by their number."""
    desc = desc_of(layer, 1, "nchw")
    random = generator(f"{layer.name}:{number}")
    one, per_channel = [1, 1, 1, 1], [1, layer.filters, 1, 1]
    taps = layer.channels // layer.groups * layer.kernel**2
    weights = random.integers(-64, 64, desc.filter_tensor.sizes, np.int8)
    spread = random.integers(80, 121, per_channel) / 100
    return {
        "input_scale_tensor": np.full(one, SCALE, np.float32),
        "input_zero_point_tensor": np.full(one, ZERO_POINT, np.uint8),
        "filter_tensor": weights,
        "filter_scale_tensor": (spread / (WEIGHT_SPREAD * taps**0.5)).astype(np.float32),
        "bias_tensor": random.integers(-1000, 1001, per_channel, np.int32),
        "output_scale_tensor": np.full(one, SCALE, np.float32),
        "output_zero_point_tensor": np.full(one, ZERO_POINT, np.uint8),
    }


def noise(name: str, count: int) -> Array:
    """Random levels as those of an image, of about the normal distribution: each is a sum of four random bytes."""
    made = min(count, NOISE_BYTES)
    parts = np.frombuffer(generator(name).bytes(4 * made), np.uint8).reshape(4, made).astype(np.int32)
    # Four bytes have a standard deviation of 147.8 around 510.
    levels = np.rint((parts.sum(0) - 510) * (LEVELS / 147.8)) + ZERO_POINT
    return np.resize(np.clip(levels, 0, 255).astype(np.uint8), count)
