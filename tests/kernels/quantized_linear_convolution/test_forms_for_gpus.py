"""The forms that GPUs of other makers get, on this device: of few registers, and of mixed dot products alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import QuantizedLinearConvolutionDesc, TensorDesc
from dmlvk.planning import device_traits
from tests.convolution_cases import TYPES
from tests.kernels.quantized_linear_convolution.arrays import PLAIN, describe, quantized
from tests.kernels.quantized_linear_convolution.paths import run

KERNELS = {
    "few-registers": "quantized_linear_convolution/vectors_dot4",
    "mixed-dot-product": "quantized_linear_convolution/vectors_dot4_mixed",
    "emulated-dot-product": "quantized_linear_convolution/vectors_float32",
}
INTEGER = "quantized_linear_convolution/vectors_integer"


@pytest.fixture(params=KERNELS)
def form(request: pytest.FixtureRequest) -> str:
    """The name of a GPU's form."""
    return str(request.param)


def case(x_type: str, channels: int, filters: int, taps: int, groups: int, last: bool) -> Any:
    """A padded layer with zero points, some of whose sums take more than 31 bits."""
    generator = np.random.default_rng(channels + filters)
    size, kind = 9, TYPES[x_type]
    bias = generator.integers(-(2**15), 2**15, filters).astype(np.int32)
    bias[::7] = 2**31 - 1
    scales = np.where(np.arange(filters) % 7, 2.0**14, 1.0).astype(np.float32)
    arrays = quantized(
        np.frombuffer(generator.bytes(2 * channels * size * size), kind).reshape(2, channels, size, size),
        generator.integers(-128, 128, (filters, channels // groups, taps, taps)).astype(np.int8),
        input_zero_point_tensor=np.array([17], kind),
        filter_zero_point_tensor=generator.integers(-9, 9, filters).astype(np.int8),
        filter_scale_tensor=scales.reshape(1, filters, 1, 1),
        bias_tensor=bias.reshape(1, filters, 1, 1),
        output_scale_tensor=np.array([2.0**25], np.float32),
    )
    padding = (taps // 2, taps // 2)
    attributes = {**PLAIN, "start_padding": padding, "end_padding": padding, "group_count": groups}
    desc = describe(arrays, np.uint8, attributes)
    if last:
        desc = replace(
            desc, input_tensor=channels_last(desc.input_tensor), output_tensor=channels_last(desc.output_tensor)
        )
    return desc, arrays


def channels_last(tensor: TensorDesc) -> TensorDesc:
    _, channels, height, width = tensor.sizes
    return TensorDesc(tensor.data_type, tensor.sizes, [channels * height * width, 1, width * channels, channels])


def kernels(gpu: dmlvk.Device, desc: QuantizedLinearConvolutionDesc, path: str) -> set[str]:
    return {dispatch.kernel for dispatch in gpu.plan(desc, path).dispatches}


@pytest.mark.half_by_day
@pytest.mark.parametrize(
    ("x_type", "last", "channels", "filters", "taps", "groups", "path"),
    [
        ("u8", True, 32, 40, 3, 1, "vectors/3"),
        ("s8", False, 144, 40, 1, 1, "vectors"),
        ("s8", False, 6, 20, 3, 1, "vectors"),
        ("u8", False, 30, 70, 3, 1, "vectors/2"),
        ("u8", True, 16, 16, 3, 4, "vectors"),
    ],
    ids=["vectors", "planes", "words", "parts of words", "joined groups"],
)
def test_layers_by_vectors(
    gpu: dmlvk.Device,
    form: str,
    x_type: str,
    last: bool,
    channels: int,
    filters: int,
    taps: int,
    groups: int,
    path: str,
) -> None:
    desc, arrays = case(x_type, channels, filters, taps, groups, last)
    expected = dmlvk.reference.run(desc, **arrays)
    assert len(np.unique(expected)) > 20
    # SwiftShader does not say that it rounds to nearest even, as the last step of the other kernels needs it.
    kernel = KERNELS[form] if device_traits.ROUNDING in gpu.profile.properties else INTEGER
    assert kernel in kernels(gpu, desc, path)
    run(gpu, desc, arrays, expected, path)


@pytest.mark.half_by_day
@pytest.mark.parametrize("groups", [1, 24], ids=["first layer", "depthwise"])
def test_layers_of_few_channels(gpu: dmlvk.Device, groups: int) -> None:
    desc, arrays = case("u8", 24 if groups > 1 else 3, 24, 5, groups, last=True)
    run(gpu, desc, arrays, dmlvk.reference.run(desc, **arrays), None)
