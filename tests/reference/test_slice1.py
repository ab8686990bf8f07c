"""SLICE1's reference against the page's examples and NumPy's own slicing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlvk.data_type import DataType
from dmlvk.errors import BindingError
from dmlvk.operators import Slice1Desc
from dmlvk.reference import run
from dmlvk.tensor_desc import TensorDesc

PAGE_INPUT = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)


def describe(array: np.ndarray, offsets, sizes, strides, output_sizes) -> Slice1Desc:
    data_type = DataType.from_numpy(array.dtype)
    return Slice1Desc(
        input_tensor=TensorDesc(data_type, array.shape), output_tensor=TensorDesc(data_type, output_sizes),
        input_window_offsets=offsets, input_window_sizes=sizes, input_window_strides=strides,
    )  # fmt: skip


@pytest.mark.parametrize(("stride", "expected"), [(2, [[2, 4], [10, 12]]), (-2, [[14, 16], [6, 8]])])
def test_page_examples_1_and_2(stride: int, expected: list[list[int]]) -> None:
    desc = describe(PAGE_INPUT, (0, 0, 0, 1), (1, 1, 4, 3), (1, 1, stride, 2), (1, 1, 2, 2))
    output = run(desc, input_tensor=PAGE_INPUT)
    assert output.dtype == np.float32
    np.testing.assert_array_equal(output, [[expected]])


@st.composite
def windows(draw: st.DrawFn) -> tuple[np.ndarray, list[tuple[int, int, int, int]]]:
    """An array, and the offset, size, stride and output size of each dimension."""
    rank = draw(st.integers(1, 8))
    shape = draw(st.tuples(*[st.integers(1, 9 if rank < 4 else 3)] * rank))
    dtype = draw(st.sampled_from(list(DataType))).numpy_dtype
    count = int(np.prod(shape)) * dtype.itemsize
    array = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, count, np.uint8).view(dtype).reshape(shape)
    window = []
    for length in shape:
        offset = draw(st.integers(0, length - 1))
        size = draw(st.integers(1, length - offset))
        stride = draw(st.integers(1, size + 1)) * draw(st.sampled_from([1, -1]))
        most = len(range(0, size, abs(stride)))
        window.append((offset, size, stride, draw(st.integers(1, most))))
    if draw(st.booleans()):
        array = np.asarray(np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, -1)), -1, 0))
    return array, window


@given(windows())
def test_it_is_numpy_s_slicing_bit_for_bit(case: tuple[np.ndarray, list[tuple[int, int, int, int]]]) -> None:
    array, window = case
    offsets, sizes, strides, output_sizes = zip(*window, strict=True)
    cuts = []
    for offset, size, stride, count in window:
        part = range(offset, offset + size)[::-1][::-stride] if stride < 0 else range(offset, offset + size)[::stride]
        part = part[:count]
        cuts.append(slice(part[0], None if part[-1] + stride < 0 else part[-1] + stride, stride))
    output = run(describe(array, offsets, sizes, strides, output_sizes), input_tensor=array)
    assert output.shape == output_sizes and output.dtype == array.dtype
    assert output.tobytes() == np.ascontiguousarray(array[tuple(cuts)]).tobytes()


@pytest.mark.parametrize("stride", [-(2**31), 2**31 - 1])
def test_strides_of_any_magnitude(stride: int) -> None:
    output = run(
        describe(PAGE_INPUT, (0, 0, 1, 0), (1, 1, 3, 4), (1, 1, stride, 1), (1, 1, 1, 4)), input_tensor=PAGE_INPUT
    )
    np.testing.assert_array_equal(output[0, 0, 0], PAGE_INPUT[0, 0, 3 if stride < 0 else 1])


def test_run_names_arrays_that_do_not_fit() -> None:
    desc = describe(PAGE_INPUT, (0,) * 4, (1, 1, 4, 4), (1,) * 4, (1, 1, 4, 4))
    with pytest.raises(BindingError, match="needs an array for input_tensor"):
        run(desc)
    with pytest.raises(BindingError, match="has no input output_tensor; expected input_tensor"):
        run(desc, input_tensor=PAGE_INPUT, output_tensor=PAGE_INPUT)
    with pytest.raises(BindingError, match=r"input_tensor is an array of shape .* and dtype float64"):
        run(desc, input_tensor=PAGE_INPUT.astype(np.float64))
    with pytest.raises(BindingError, match=r"input_tensor is an array of shape \(4, 4\)"):
        run(desc, input_tensor=PAGE_INPUT[0, 0])
    with pytest.raises(TypeError, match="operator descriptor"):
        run(TensorDesc(1, (2,)))  # type: ignore[arg-type]
