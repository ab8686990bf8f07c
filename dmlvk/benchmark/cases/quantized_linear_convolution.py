"""QUANTIZED_LINEAR_CONVOLUTION on layers of well-known networks, in both layouts.

The cases use the whole operator: zero points that are not 0, a scale for each output channel, a bias, and a quantized
output. All inputs but the image are OWNED_BY_DML: they are given once, before the first dispatch, like a network's
weights. The filter's zero point is 0 in half of the cases, as in most networks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import DataType, QuantizedLinearConvolutionDesc, TensorDesc, TensorFlags, reference
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator

OPERATOR = "quantized_linear_convolution"


@dataclass(frozen=True)
class Layer:
    """A layer with square images and filters. By default, with stride 1, its padding keeps the images' size."""

    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1
    padding: int | None = None

    @property
    def name(self) -> str:
        """Such as "256-64_56x56_1x1" or "144-144_56x56_3x3_depthwise"."""
        padding = "" if self.padding is None else f"_padding{self.padding}"
        stride = f"_stride{self.stride}" if self.stride > 1 else ""
        groups = "_depthwise" if self.groups == self.channels else f"_groups{self.groups}" if self.groups > 1 else ""
        image, kernel = f"{self.size}x{self.size}", f"{self.kernel}x{self.kernel}"
        return f"{self.channels}-{self.filters}_{image}_{kernel}{stride}{groups}{padding}"

    @property
    def margin(self) -> int:
        """The padding on each side."""
        return self.kernel // 2 if self.padding is None else self.padding

    @property
    def output_size(self) -> int:
        """Height and width of the output."""
        return (self.size + 2 * self.margin - self.kernel) // self.stride + 1


LAYERS = (
    Layer(64, 56, 64, 3),
    Layer(256, 56, 64, 1),
    Layer(64, 56, 256, 1),
    Layer(128, 28, 128, 3),
    Layer(256, 14, 256, 3),
    Layer(512, 7, 512, 3),
    Layer(1024, 14, 2048, 1, 2),
    Layer(3, 224, 64, 7, 2),
    Layer(144, 56, 144, 3, 1, 144),
    Layer(512, 28, 512, 3),
)
LAYOUTS = ("nhwc", "nchw")
# The data types of input and output; the filter is INT8. The first one is measured by default.
DATA_TYPES = (DataType.UINT8, DataType.INT8)
FILTER_ZERO_POINTS = (0, 3)
# A batch repeats this many different images: the reference takes a minute for some whole batches.
LARGEST_VARIETY = 4


def workload(layer: Layer, layout: str, data_type: DataType, filter_zero_point: int, scale: Scale) -> Workload:
    """One layer with random data, and the reference's result."""
    batch = scale.batch
    variety = min(batch, LARGEST_VARIETY)
    inputs, expected = _data(layer, variety, data_type, filter_zero_point)
    desc = descriptor(layer, batch, layout, data_type, scale.filter_is_owned, scale.parameters_are_owned)

    def repeated(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return images[np.arange(batch) % variety]

    inputs = {**inputs, "input_tensor": repeated(inputs["input_tensor"])}
    return Workload(desc, inputs, expected=repeated(expected))


def descriptor(
    layer: Layer,
    batch: int,
    layout: str,
    data_type: DataType,
    filter_is_owned: bool = False,
    parameters_are_owned: bool = False,
) -> QuantizedLinearConvolutionDesc:
    """A layer with zero points, a scale for each output channel and a bias."""
    padding, size = layer.margin, layer.output_size
    one, per_channel = [1, 1, 1, 1], [1, layer.filters, 1, 1]
    owned_filter = TensorFlags.OWNED_BY_DML if filter_is_owned else TensorFlags.NONE
    owned = TensorFlags.OWNED_BY_DML if parameters_are_owned else TensorFlags.NONE

    def data(data_type: DataType, sizes: list[int], flags: TensorFlags = TensorFlags.NONE) -> TensorDesc:
        _, channels, height, width = sizes
        strides = [height * width * channels, 1, width * channels, channels] if layout == "nhwc" else None
        return TensorDesc(data_type, sizes, strides, flags=flags)

    return QuantizedLinearConvolutionDesc(
        input_tensor=data(data_type, [batch, layer.channels, layer.size, layer.size]),
        input_scale_tensor=TensorDesc(DataType.FLOAT32, one, flags=owned),
        input_zero_point_tensor=TensorDesc(data_type, one, flags=owned),
        filter_tensor=data(
            DataType.INT8, [layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel], owned_filter
        ),
        filter_scale_tensor=TensorDesc(DataType.FLOAT32, per_channel, flags=owned),
        filter_zero_point_tensor=TensorDesc(DataType.INT8, one, flags=owned),
        bias_tensor=TensorDesc(DataType.INT32, per_channel, flags=owned),
        output_scale_tensor=TensorDesc(DataType.FLOAT32, one, flags=owned),
        output_zero_point_tensor=TensorDesc(data_type, one, flags=owned),
        output_tensor=data(data_type, [batch, layer.filters, size, size]),
        strides=[layer.stride] * 2,
        dilations=[1, 1],
        start_padding=[padding] * 2,
        end_padding=[padding] * 2,
        group_count=layer.groups,
    )


@lru_cache(maxsize=1)
def _data(
    layer: Layer, images: int, data_type: DataType, filter_zero_point: int
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
    """Inputs and output, the same for all layouts. The output's scale makes it use the whole range of a byte."""
    desc = descriptor(layer, images, "nchw", data_type)
    taps = layer.channels // layer.groups * layer.kernel**2
    one, per_channel = [1, 1, 1, 1], [1, layer.filters, 1, 1]
    random = generator(layer.name)
    # Uniformly distributed bytes have a standard deviation of 74. That of the output is about 50. Weights have 7 bits:
    # on x86 processors without VNNI, ONNX Runtime saturates sums of two products to 16 bits.
    spread = 74.0 * 37.0 * taps**0.5
    middle = 128 if data_type is DataType.UINT8 else 0

    def random_bytes(tensor: TensorDesc) -> npt.NDArray[Any]:
        data = random.bytes(int(np.prod(tensor.sizes)))
        return np.frombuffer(data, tensor.data_type.numpy_dtype).reshape(tensor.sizes)

    inputs = {
        "input_tensor": random_bytes(desc.input_tensor),
        "input_scale_tensor": np.full(one, 0.02, np.float32),
        "input_zero_point_tensor": np.full(one, middle - 7, data_type.numpy_dtype),
        "filter_tensor": random_bytes(desc.filter_tensor) >> 1,
        "filter_scale_tensor": (random.integers(50, 200, per_channel) / 1e4).astype(np.float32),
        "filter_zero_point_tensor": np.full(one, filter_zero_point, np.int8),
        "bias_tensor": random.integers(-5000, 5000, per_channel, np.int32),
        "output_scale_tensor": np.full(one, 0.02 * 0.0125 * spread / 50, np.float32),
        "output_zero_point_tensor": np.full(one, middle - 8, data_type.numpy_dtype),
    }
    return inputs, reference.run(desc, **inputs)


def cases(scale: Scale) -> Iterator[Case]:
    """Every layer in every type and layout."""
    for layer, data_type, zero_point, layout in product(LAYERS, DATA_TYPES, FILTER_ZERO_POINTS, LAYOUTS):
        parameters = f"type={data_type.name};filter_zero_point={zero_point};layout={layout}"
        build = partial(workload, layer, layout, data_type, zero_point, scale)
        yield Case(f"{OPERATOR}:{layer.name}:{parameters}", build, is_default=data_type is DATA_TYPES[0])
