"""DIAGONAL_MATRIX1's reference against the page's examples, ONNX Runtime's Trilu and EyeLike, and NumPy's tri."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper

from dmlvk.data_type import DataType
from dmlvk.operators import DiagonalMatrix1Desc
from dmlvk.reference import run
from dmlvk.reference.diagonal_matrix1 import is_filled
from dmlvk.tensor_desc import TensorDesc
from tests.reference.onnx_runtime import run_node

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
PAGE_INPUT = np.array([[4, 7, 3, 7, 9], [1, 2, 8, 6, 9], [9, 4, 1, 8, 7], [4, 3, 4, 2, 4]], np.float32)


def diagonal_matrix1(array, value, begin, end, *, sizes=None, data_type=DataType.FLOAT32) -> np.ndarray:
    if array is not None:
        sizes, data_type = array.shape, DataType.from_numpy(array.dtype)
    tensor = TensorDesc(data_type, sizes)
    desc = DiagonalMatrix1Desc(
        input_tensor=None if array is None else tensor, output_tensor=tensor, value=value, diagonal_fill_begin=begin,
        diagonal_fill_end=end,
    )  # fmt: skip
    output = run(desc) if array is None else run(desc, input_tensor=array)
    assert output.shape == tuple(sizes) and output.dtype == data_type.numpy_dtype
    return output


def test_page_example_1_gives_the_value_and_not_the_ones_it_prints() -> None:
    np.testing.assert_array_equal(diagonal_matrix1(None, 7, 0, 1, sizes=(4, 5)), 7 * np.eye(4, 5))


def test_page_example_2_fills_a_strip() -> None:
    expected = [[7, 7, 7, 0, 0], [0, 7, 7, 7, 0], [0, 0, 7, 7, 7], [0, 0, 0, 7, 7]]
    np.testing.assert_array_equal(diagonal_matrix1(None, 7, 0, 3, sizes=(4, 5)), expected)


def test_page_example_3_keeps_the_strictly_upper_triangle() -> None:
    expected = [[0, 7, 3, 7, 9], [0, 0, 8, 6, 9], [0, 0, 0, 8, 7], [0, 0, 0, 0, 4]]
    np.testing.assert_array_equal(diagonal_matrix1(PAGE_INPUT, 0, INT32_MIN, 1), expected)


def test_page_example_4_keeps_the_diagonal() -> None:
    expected = [[4, 0, 0, 0, 0], [0, 2, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 2, 0]]
    np.testing.assert_array_equal(diagonal_matrix1(PAGE_INPUT, 0, 1, 0), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("sizes", [(4, 5), (7, 3), (1, 6), (6, 1)])
def test_filling_one_diagonal_is_onnx_runtime_s_eye_like(sizes: tuple[int, int], dtype: type) -> None:
    for k in range(-7, 8):
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        if dtype == np.uint8:
            expected = np.eye(*sizes, k, dtype=dtype)  # ONNX Runtime has no kernel for this type
        else:
            expected = run_node("EyeLike", [np.zeros(sizes, np.float32)], dtype, 9, k=k, dtype=element)
        output = diagonal_matrix1(None, 1, k, k + 1, sizes=sizes, data_type=DataType.from_numpy(dtype))
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("sizes", [(4, 5), (2, 5, 3), (2, 3, 4, 4)])
def test_zeroing_a_triangle_is_onnx_runtime_s_trilu(sizes: tuple[int, ...], upper: int) -> None:
    array = np.random.default_rng(1).integers(-(2**62), 2**62, sizes)
    for k in range(-6, 7):
        expected = run_node("Trilu", [array, np.array(k, np.int64)], np.int64, 14, upper=upper)
        begin, end = (INT32_MIN, k) if upper else (k + 1, INT32_MAX)
        np.testing.assert_array_equal(diagonal_matrix1(array, 0, begin, end), expected)


def test_any_limits_are_a_difference_of_numpy_s_tri() -> None:
    array = np.arange(1, 21, dtype=np.int16).reshape(4, 5)
    for begin, end in itertools.product([INT32_MIN, -4, -3, -1, 0, 1, 2, 5, 6, INT32_MAX], repeat=2):
        low, high = (max(min(limit, 9), -9) for limit in (begin, end))
        below_begin, below_end = np.tri(4, 5, low - 1, dtype=bool), np.tri(4, 5, high - 1, dtype=bool)
        filled = below_end & ~below_begin if begin <= end else ~(below_begin & ~below_end)
        np.testing.assert_array_equal(diagonal_matrix1(array, -9, begin, end), np.where(filled, -9, array))


def test_begin_equal_to_end_fills_nothing() -> None:
    for limit in (INT32_MIN, -1, 0, 3, INT32_MAX):
        np.testing.assert_array_equal(diagonal_matrix1(PAGE_INPUT, 5, limit, limit), PAGE_INPUT)


@pytest.mark.parametrize("data_type", DataType)
def test_bits_arrive_unchanged(data_type: DataType) -> None:
    size = data_type.size_in_bytes
    bits = np.random.default_rng(2).integers(0, 256, 6 * size, np.uint8)
    bits[: 2 * size] = ([0x01] + [0x00] * (size - 1) + [0x01] * (size - 2) + [0xF0, 0x7F]) if size > 1 else [0x80, 0xFF]
    array = bits.view(data_type.numpy_dtype).reshape(2, 3)
    value = bytes(bits[size : 2 * size])
    output = diagonal_matrix1(array, value, 1, 2)
    expected = bits.reshape(6, size).copy()
    expected[[1, 5]] = bits[size : 2 * size]
    assert output.tobytes() == expected.tobytes()


def test_the_input_may_have_any_strides() -> None:
    column = np.broadcast_to(np.arange(4, dtype=np.float32)[:, np.newaxis], (4, 5))
    np.testing.assert_array_equal(diagonal_matrix1(column, 9, 0, 0), column)
    np.testing.assert_array_equal(diagonal_matrix1(PAGE_INPUT[::-1, ::-1], 9, 0, 0), PAGE_INPUT[::-1, ::-1])


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (0, INT32_MAX, [0, 0, 1, 1, 1]),
        (INT32_MIN, 0, [1, 1, 0, 0, 0]),
        (INT32_MIN, INT32_MAX, [1, 1, 1, 1, 1]),
        (INT32_MAX, 0, [1, 1, 0, 0, 0]),
        (0, INT32_MIN, [0, 0, 1, 1, 1]),
        (INT32_MAX, INT32_MIN, [0, 0, 0, 0, 0]),
    ],
)
def test_the_extreme_limits_are_open_ends(begin: int, end: int, expected: list[int]) -> None:
    top_x = np.array([-(2**32), INT32_MIN - 1, INT32_MAX - 1, INT32_MAX, 2**32])
    np.testing.assert_array_equal(is_filled(top_x, begin, end), np.array(expected, bool))
