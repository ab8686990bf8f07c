"""The one-liners of element-wise operators: how their arguments broadcast, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorDesc
from tests.reference.quantized import float32

X = np.arange(24, dtype=np.uint8).reshape(2, 3, 4) * 10
FLOATS = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)
RANDOM = np.random.default_rng(0)


def test_a_table_of_bytes(device: dmlvk.Device) -> None:
    table = RANDOM.integers(-128, 128, 256).astype(np.int8)
    np.testing.assert_array_equal(dmlvk.byte_table(X, table, device=device), table[X])
    tables = RANDOM.integers(0, 256, (3, 256), np.uint8)
    expected = tables[np.arange(3)[:, np.newaxis], X]
    np.testing.assert_array_equal(dmlvk.byte_table(X, tables, axis=-2, device=device), expected)
    at = dmlvk.byte_table(device.tensor(X), tables, axis=1)
    assert isinstance(at, dmlvk.Tensor)
    np.testing.assert_array_equal(at.numpy(), expected)


@pytest.mark.parametrize("shape", [(256, 256), (65536,)])
def test_a_table_of_pairs_of_bytes_that_broadcast(device: dmlvk.Device, shape: tuple[int, ...]) -> None:
    table = RANDOM.integers(0, 256, shape, np.uint8)
    second = np.array([[1], [2], [250]], np.uint8)
    expected = table.reshape(256, 256)[X, second]
    np.testing.assert_array_equal(dmlvk.byte_table(X, table, second_input=second, device=device), expected)
    swapped = table.reshape(256, 256)[second, X]
    np.testing.assert_array_equal(dmlvk.byte_table(second, table, second_input=X, device=device), swapped)


def test_a_sum_of_arrays_that_broadcast(device: dmlvk.Device) -> None:
    b = np.array([5, -3, 7, 100], np.int8)
    zero_points = {"a_zero_point": 3, "output_zero_point": np.int8(-4)}
    output = dmlvk.quantized_linear_add(X, 0.5, b, 0.25, 1.5, **zero_points, device=device)  # type: ignore[call-overload]
    assert output.dtype == np.int8
    real = (X.astype(float) - 3) * 0.5 + b * 0.25
    assert np.abs(output - np.clip(np.rint(real / 1.5) - 4, -128, 127)).max() <= 1
    again = dmlvk.quantized_linear_add(
        device.tensor(X), 0.5, np.broadcast_to(b, X.shape), float32([0.25]), 1.5, a_zero_point=3,
        output_zero_point=-4, output_dtype="int8",
    )  # fmt: skip
    np.testing.assert_array_equal(again.numpy(), output)
    assert dmlvk.quantized_linear_add(X, 1, X, 1, 2, device=device).dtype == np.uint8


def test_quantizing_with_scales_along_an_axis(device: dmlvk.Device) -> None:
    scale, zero_point = float32([0.1, 0.2, 0.3]), np.array([1, 2, 3], np.int8)
    column = np.s_[:, np.newaxis]
    expected = np.rint(FLOATS / scale[column]).astype(int) + zero_point[column]
    output = dmlvk.quantize_linear(FLOATS, scale, zero_point=zero_point, axis=1, device=device)
    assert output.dtype == np.int8
    np.testing.assert_array_equal(output, expected)
    broadcast = dmlvk.quantize_linear(FLOATS, scale[column], zero_point=zero_point[column], device=device)
    np.testing.assert_array_equal(broadcast, expected)
    assert dmlvk.quantize_linear([1.5, -1, 2.5], 1, zero_point=2, device=device).tolist() == [4, 1, 4]


def test_dequantizing_with_scales_along_an_axis(device: dmlvk.Device) -> None:
    scale = float32([0.1, 0.2, 0.3, 0.4])
    expected = (X.astype(np.float32) - 7) * scale
    for at in (2, -1):
        output = dmlvk.dequantize_linear(X, scale, zero_point=7, axis=at, device=device)
        np.testing.assert_array_equal(output.view(np.uint32), expected.view(np.uint32))
    tensor = dmlvk.dequantize_linear(device.tensor(X), scale[0])
    np.testing.assert_array_equal(tensor.numpy(), X * scale[0])
    one = device.tensor(TensorDesc("float32", (1, 1, 1)))
    one.write(np.full((1, 1, 1), 0.5, np.float32))
    np.testing.assert_array_equal(dmlvk.dequantize_linear(device.tensor(X), one).numpy(), X * np.float32(0.5))


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "float64": (lambda d: dmlvk.quantize_linear(FLOATS.astype(float), 1, device=d), dmlvk.DescriptorError, "FLOAT32"),
    "scales that do not broadcast": (
        lambda d: dmlvk.quantize_linear(FLOATS, [[[1], [2]]], device=d),
        dmlvk.DescriptorError,
        "must have one element, or the sizes of input_tensor",
    ),
    "too few scales for the axis": (
        lambda d: dmlvk.dequantize_linear(X, [1, 2], axis=1, device=d),
        dmlvk.DescriptorError,
        "scale_tensor.sizes",
    ),
    "an axis": (lambda d: dmlvk.dequantize_linear(X, [1, 2], axis=3, device=d), dmlvk.DescriptorError, "axis = 3"),
    "arrays that do not broadcast": (
        lambda d: dmlvk.quantized_linear_add(X, 1, X[:, :2], 1, 1, device=d),
        dmlvk.DescriptorError,
        r"quantized_linear_add\.b = .*must broadcast with a",
    ),
    "a zero point out of range": (
        lambda d: dmlvk.quantize_linear(FLOATS, 1, zero_point=300, device=d),
        dmlvk.DescriptorError,
        r"quantize_linear\.zero_point = 300",
    ),
    "an output type": (
        lambda d: dmlvk.quantize_linear(FLOATS, 1, output_dtype="int16", device=d),
        dmlvk.DescriptorError,
        r"quantize_linear\.output_dtype",
    ),
    "a scale that is a text": (
        lambda d: dmlvk.quantize_linear(FLOATS, "1", device=d),  # type: ignore[call-overload]
        TypeError,
        "scale must be a real number",
    ),
}
# Sizes of a table, its type, the other arguments, and what is said.
TABLES: dict[str, tuple[tuple[int, ...], Any, dict[str, Any], str]] = {
    "255": (
        (255,),
        np.uint8,
        {},
        r"table_tensor\.sizes = \(255,\): must have one element for each byte; expected \(256,\)",
    ),
    "two dimensions": ((16, 16), np.uint8, {}, r"sizes = \(16, 16\): .*expected \(256,\)"),
    "pairs without a second input": ((65536,), np.uint8, {}, r"expected \(256,\)"),
    "bytes with a second input": ((256,), np.uint8, {"second_input": X}, r"each pair of bytes; expected \(65536,\)"),
    "a row too many": ((4, 256), np.uint8, {"axis": 0}, r"a row for each index along dimension 0; expected \(2, 256\)"),
    "rows without an axis": ((2, 256), np.uint8, {}, r"expected \(256,\)"),
    "16 bits": ((256,), np.int16, {}, r"table_tensor\.data_type = 'INT16': .*expected one of INT8, UINT8"),
    "floats": ((256,), np.float32, {}, r"table_tensor\.data_type = 'FLOAT32'"),
    "an axis": ((2, 256), np.uint8, {"axis": 9}, r"byte_table\.axis = 9: must name one of the \d dimensions"),
    "a second input": ((65536,), np.uint8, {"second_input": X[:, :2]}, r"second_input = .*must broadcast with input"),
}


@pytest.mark.parametrize("what", TABLES)
def test_tables_that_are_refused(device: dmlvk.Device, what: str) -> None:
    sizes, dtype, arguments, message = TABLES[what]
    with pytest.raises(dmlvk.DescriptorError, match=message):
        dmlvk.byte_table(X, np.zeros(sizes, dtype), **arguments, device=device)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(device: dmlvk.Device, what: str) -> None:
    call, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        call(device)
