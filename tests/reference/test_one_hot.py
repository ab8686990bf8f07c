"""ONE_HOT's reference against the page's examples and ONNX Runtime's OneHot."""

from __future__ import annotations

import numpy as np
import pytest

from dmlvk.data_type import DataType
from dmlvk.operators import OneHotDesc
from dmlvk.reference import run
from dmlvk.tensor_desc import TensorDesc
from tests.reference.onnx_runtime import run_node


def one_hot(indices: np.ndarray, values: np.ndarray, axis: int, length: int) -> np.ndarray:
    """`values` gets leading dimensions of 1 up to the rank of `indices`."""
    values = values.reshape((1,) * (indices.ndim - values.ndim) + values.shape)
    sizes = (*indices.shape[:axis], length, *indices.shape[axis + 1 :])
    desc = OneHotDesc(
        indices_tensor=TensorDesc(indices.dtype, indices.shape), values_tensor=TensorDesc(values.dtype, values.shape),
        output_tensor=TensorDesc(values.dtype, sizes), axis=axis,
    )  # fmt: skip
    output = run(desc, indices_tensor=indices, values_tensor=values)
    assert output.shape == sizes and output.dtype == values.dtype
    return output


OFF_ON = np.array([0, 1], np.float32)


def test_page_example_1() -> None:
    output = one_hot(np.array([0, 3, 2], np.uint32).reshape(1, 1, 3, 1), OFF_ON, 3, 4)
    np.testing.assert_array_equal(output, [[[[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]]])


def test_page_example_2_uses_another_axis() -> None:
    output = one_hot(np.array([0, 2, 1, 0], np.uint32).reshape(1, 1, 1, 4), OFF_ON, 2, 3)
    np.testing.assert_array_equal(output, [[[[1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]]]])


def test_page_example_3_uses_other_values_and_ignores_the_third() -> None:
    values = np.array([4, 2, 9], np.float32).reshape(1, 1, 3, 1)
    output = one_hot(np.array([0, 3, 2], np.uint32).reshape(1, 1, 3, 1), values, 3, 4)
    np.testing.assert_array_equal(output, [[[[2, 4, 4, 4], [4, 4, 4, 2], [4, 4, 2, 4]]]])


def test_page_example_4_has_negative_and_out_of_range_indices() -> None:
    output = one_hot(np.array([-3, 100, 3], np.int32).reshape(1, 1, 3, 1), OFF_ON, 3, 4)
    np.testing.assert_array_equal(output, [[[[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]]])


@pytest.mark.parametrize(
    ("index_dtype", "value_dtype"), [(np.int64, np.int64), (np.int64, np.float32), (np.int32, np.float32)]
)
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 3, 2, 2, 3)])
def test_it_is_onnx_runtime_s_one_hot(shape: tuple[int, ...], index_dtype: type, value_dtype: type) -> None:
    generator = np.random.default_rng(len(shape))
    for length in (1, 4, 7):
        indices: np.ndarray = generator.integers(-length - 2, length + 3, shape).astype(index_dtype)
        values: np.ndarray = generator.integers(-99, 99, 2).astype(value_dtype)
        for axis in range(len(shape) + 1):
            depth: np.ndarray = np.array([length], index_dtype)
            expected = run_node("OneHot", [indices, depth, values], value_dtype, 11, axis=axis)
            np.testing.assert_array_equal(one_hot(np.expand_dims(indices, axis), values, axis, length), expected)


LARGE_INDICES = [
    (np.uint64, 2**32), (np.uint64, 2**32 + 1), (np.uint64, 2**63), (np.uint64, 2**64 - 1), (np.uint32, 2**32 - 1),
    (np.int64, 2**32 + 1), (np.int64, 2**63 - 1), (np.int64, -(2**63)), (np.int64, -(2**32) + 1), (np.int32, -(2**31)),
    (np.int32, 2**31 - 1), (np.int64, -4), (np.int32, -4), (np.int64, 3), (np.uint32, 3),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "index"), LARGE_INDICES)
def test_all_bits_of_the_index_count(dtype: type, index: int) -> None:
    np.testing.assert_array_equal(one_hot(np.array([index], dtype), OFF_ON, 0, 3), [0, 0, 0])


def test_a_negative_index_counts_once_from_the_end() -> None:
    output = one_hot(np.array([[-1], [-3], [-4]]), OFF_ON, 1, 3)
    np.testing.assert_array_equal(output, [[0, 0, 1], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("shape", [(2, 1, 1), (2, 3, 1), (3, 1, 2), (4, 5, 6)])
def test_on_value_lies_along_the_last_dimension_larger_than_1(shape: tuple[int, ...]) -> None:
    values = np.arange(10, 10 + np.prod(shape)).reshape(shape)
    # In a packed tensor the fastest changing dimension has a stride of 1, so OnValue follows OffValue in memory.
    np.testing.assert_array_equal(one_hot(np.array([[[1]]]), values, 2, 3), [[[10, 11, 10]]])


@pytest.mark.parametrize("data_type", DataType)
def test_values_keep_their_bits(data_type: DataType) -> None:
    size = data_type.size_in_bytes
    off, on = b"\x01" * (size - 1) + b"\xff", b"\x02" + b"\x00" * (size - 1)  # a NaN with a payload, and a denormal
    values = np.frombuffer(off + on, data_type.numpy_dtype)
    assert one_hot(np.array([[1], [0]]), values, 1, 2).tobytes() == off + on + on + off


def test_inputs_may_have_any_strides() -> None:
    indices = np.broadcast_to(np.array([1]), (3, 1))
    values = np.array([1, 0, 0], np.float32)[::-2]
    np.testing.assert_array_equal(one_hot(indices, values, 1, 2), [[0, 1]] * 3)
