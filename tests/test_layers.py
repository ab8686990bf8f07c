"""A convolution whose constants are given once: the one-liner's bits, for each kind of input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import layers

WINDOWS: dict[str, Any] = {"strides": (2, 1), "dilations": (1, 2), "start_padding": (1, 0), "end_padding": (0, 2)}


def constants(generator: np.random.Generator) -> dict[str, Any]:
    return {
        "input_scale": 0.02,
        "filter_scale": generator.uniform(0.001, 0.003, 6).astype(np.float32),
        "output_scale": np.float32(0.05),
        "input_zero_point": 100,
        "filter_zero_point": generator.integers(-9, 9, 6).astype(np.int8),
        "output_zero_point": 7,
        "bias": generator.integers(-2000, 2000, 6),
        "group_count": 2,
        **WINDOWS,
    }


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(3)


def test_it_has_the_bits_of_the_one_liner_for_each_kind_of_input(
    device: dmlvk.Device, generator: np.random.Generator
) -> None:
    filter, given = generator.integers(-128, 128, (6, 2, 3, 3)).astype(np.int8), constants(generator)
    layer = dmlvk.QuantizedLinearConvolution(filter, **given, device=device)
    kept = filter.copy()
    filter[:] = 0  # the layer has a copy
    given["bias"], bias = given["bias"].copy(), given["bias"]
    bias[:] = 0
    for shape, dtype in (((1, 4, 9, 8), np.uint8), ((3, 4, 5, 11), np.uint8), ((1, 4, 9, 8), np.int8)):
        x = generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        expected = dmlvk.quantized_linear_convolution(x, filter=kept, device=device, **given)
        found = layer(x)
        assert found.dtype == expected.dtype == dtype and len(np.unique(found)) > 20
        assert np.array_equal(found, expected)
        tensor = device.tensor(x)
        assert np.array_equal(layer(tensor).numpy(), expected)
        out = device.tensor(layer.compile(x).desc.output_tensor)
        assert layer(x, out=out) is out and np.array_equal(out.numpy(), expected)


def test_channels_last_and_tensors_as_constants(device: dmlvk.Device, generator: np.random.Generator) -> None:
    filter = generator.integers(0, 256, (3, 5, 1, 1)).astype(np.uint8)
    x = generator.integers(0, 256, (2, 5, 4, 6)).astype(np.uint8)
    given: dict[str, Any] = {"input_scale": 0.1, "filter_scale": 0.01, "output_scale": 1.5, "filter_zero_point": 128}
    layer = dmlvk.QuantizedLinearConvolution(device.tensor(filter), **given)
    assert layer.device is device
    last = device.tensor(dmlvk.TensorDesc("uint8", x.shape, strides=(120, 1, 30, 5)))
    last.write(x)
    expected = dmlvk.quantized_linear_convolution(x, filter=filter, device=device, **given)
    assert np.array_equal(layer(last).numpy(), expected) and np.array_equal(layer(x), expected)


def test_what_it_compiles_can_be_recorded(device: dmlvk.Device, generator: np.random.Generator) -> None:
    filter = generator.integers(-128, 128, (4, 3, 3)).astype(np.int8)
    layer = dmlvk.QuantizedLinearConvolution(
        filter, input_scale=1, filter_scale=0.01, output_scale=1, strides=(2,), device=device
    )
    operator = layer.compile(dmlvk.TensorDesc("uint8", (2, 3, 21)))
    assert layer.compile(np.zeros((2, 3, 21), np.uint8)) is operator
    source, result = device.empty((2, 3, 21), "uint8"), device.tensor(operator.desc.output_tensor)
    sequence = device.sequence([operator.bind(input_tensor=source, output_tensor=result)])
    for _ in range(2):
        x = generator.integers(0, 256, (2, 3, 21)).astype(np.uint8)
        source.write(x)
        sequence.submit()
        expected = dmlvk.quantized_linear_convolution(x, 1, filter, 0.01, 1, strides=(2,), device=device)
        assert np.array_equal(result.numpy(), expected)


def test_the_last_kinds_of_input_are_kept(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "OPERATORS_KEPT", 4)
    layer = dmlvk.QuantizedLinearConvolution(
        np.ones((1, 1, 1), np.int8), input_scale=1, filter_scale=1, output_scale=1, device=device
    )
    first, second = (layer.compile(dmlvk.TensorDesc("uint8", (1, 1, size))) for size in (1, 2))
    for size in range(3, 6):
        layer.compile(dmlvk.TensorDesc("uint8", (1, 1, size)))
        assert layer.compile(dmlvk.TensorDesc("uint8", (1, 1, 1))) is first
    assert layer.compile(dmlvk.TensorDesc("uint8", (1, 1, 2))) is not second


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"filter": np.ones((2, 2, 3, 3), np.float32)}, "filter = 'FLOAT32"),
        ({"filter": np.ones((3, 3), np.int8)}, "filter"),
        ({"filter_scale": "x"}, "filter_scale must be a real number"),
        ({"bias": 2.5}, "bias must be an integer"),
        ({"filter_zero_point": 300}, "filter_zero_point"),
        ({"input_scal": 1.0}, "did you mean"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_made(device: dmlvk.Device, changed: dict[str, Any], words: str) -> None:
    given = {"filter": np.ones((2, 2, 3, 3), np.int8), "input_scale": 1, "filter_scale": 1, "output_scale": 1}
    with pytest.raises((TypeError, ValueError), match=words):
        dmlvk.QuantizedLinearConvolution(**{**given, **changed}, device=device)


def test_an_input_that_does_not_fit_is_refused(device: dmlvk.Device) -> None:
    given: dict[str, Any] = {"input_scale": 1, "filter_scale": 1, "output_scale": 1, "input_zero_point": 200}
    layer = dmlvk.QuantizedLinearConvolution(np.ones((2, 2, 3, 3), np.int8), **given, device=device)
    with pytest.raises(dmlvk.DescriptorError, match="filter_tensor"):
        layer(np.zeros((1, 3, 8, 8), np.uint8))
    with pytest.raises(dmlvk.DescriptorError, match="input_zero_point"):
        layer(np.zeros((1, 2, 8, 8), np.int8))
    with pytest.raises(TypeError, match="cannot be copied"):
        __import__("copy").copy(layer)
