"""ELEMENT_WISE_QUANTIZE_LINEAR's and ELEMENT_WISE_DEQUANTIZE_LINEAR's references against ONNX Runtime's operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlvk.operators import ElementWiseDequantizeLinearDesc, ElementWiseQuantizeLinearDesc
from dmlvk.reference import run
from tests.reference.onnx_runtime import run_node
from tests.reference.quantized import (
    BYTE_TYPES,
    ODD_SCALES,
    desc_of,
    float32,
    floats_near,
    random_bytes_of,
    random_scales,
)


def of_axis(parameter: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """One value for each index along an axis, with the sizes of the output."""
    one = [1] * len(shape)
    one[axis] = -1
    return np.ascontiguousarray(np.broadcast_to(parameter.reshape(one), shape))


def quantize(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None, dtype: Any) -> np.ndarray:
    arrays = {"input_tensor": x, "scale_tensor": scale}
    arrays |= {} if zero_point is None else {"zero_point_tensor": zero_point}
    tensors: dict[str, Any] = {field: desc_of(array) for field, array in arrays.items()}
    output = desc_of(np.empty(x.shape, dtype))
    return run(ElementWiseQuantizeLinearDesc(**tensors, output_tensor=output), **arrays)


def dequantize(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    arrays = {"input_tensor": x, "scale_tensor": scale}
    arrays |= {} if zero_point is None else {"zero_point_tensor": zero_point}
    tensors: dict[str, Any] = {field: desc_of(array) for field, array in arrays.items()}
    output = desc_of(np.empty(x.shape, np.float32))
    return run(ElementWiseDequantizeLinearDesc(**tensors, output_tensor=output), **arrays)


def assert_same_floats(mine: np.ndarray, theirs: np.ndarray) -> None:
    """The same bits, but for what is no number, of which processors have several."""
    nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(mine), nan)
    np.testing.assert_array_equal(mine.view(np.uint32)[~nan], theirs.view(np.uint32)[~nan])
    assert (mine.view(np.uint32)[nan] == 0x7FC00000).all()


@pytest.mark.parametrize("dtype", BYTE_TYPES)
@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_one_scale_for_all_is_onnx_runtime_s(dtype: Any, kind: int) -> None:
    random = np.random.default_rng(kind)
    every_byte = np.arange(256, dtype=np.uint8).view(dtype)
    for k in range(len(ODD_SCALES) if kind == 3 else 10):
        scale = float32(ODD_SCALES[k][0] if kind == 3 else random_scales(random, kind)[0])
        zero_point = random_bytes_of(random, 1, dtype)
        x = floats_near(random, scale, (2000,))
        theirs = run_node("QuantizeLinear", [x, np.asarray(scale), np.asarray(zero_point[0])], dtype, 21)
        np.testing.assert_array_equal(quantize(x, scale.reshape(1), zero_point, dtype), theirs, err_msg=str(scale))
        floats = run_node(
            "DequantizeLinear", [every_byte, np.asarray(scale), np.asarray(zero_point[0])], np.float32, 21
        )
        assert_same_floats(dequantize(every_byte, scale.reshape(1), zero_point), floats)


@pytest.mark.parametrize("dtype", BYTE_TYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_scale_for_each_index_along_an_axis_is_onnx_runtime_s(dtype: Any, axis: int) -> None:
    random = np.random.default_rng(axis)
    shape = (3, 7, 11)
    scale = np.exp2(random.uniform(-9, 9, shape[axis])).astype(np.float32)
    zero_point = random_bytes_of(random, shape[axis], dtype)
    wide = of_axis(scale, shape, axis)
    parameters = wide, of_axis(zero_point, shape, axis)
    x, q = floats_near(random, wide, shape), random_bytes_of(random, shape, dtype)
    theirs = run_node("QuantizeLinear", [x, scale, zero_point], dtype, 21, axis=axis)
    np.testing.assert_array_equal(quantize(x, *parameters, dtype), theirs)
    floats = run_node("DequantizeLinear", [q, scale, zero_point], np.float32, 21, axis=axis)
    assert_same_floats(dequantize(q, *parameters), floats)


def test_halves_round_to_even_before_the_zero_point_is_added() -> None:
    x = float32([0.5, 1.5, 2.5, -0.5, -1.5])
    one, three = np.ones(1, np.float32), np.array([3], np.uint8)
    assert quantize(x, one, three, np.uint8).tolist() == [3, 5, 5, 3, 1]
    assert quantize(x, one, None, np.int8).tolist() == [0, 2, 2, 0, -2]
