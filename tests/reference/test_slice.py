"""SLICE's reference against the page's examples, NumPy's own slicing and SLICE1's reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlvk.data_type import DataType
from dmlvk.operators import Slice1Desc, SliceDesc
from dmlvk.reference import run
from dmlvk.tensor_desc import TensorDesc

PAGE_INPUT = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)


def describe(array: np.ndarray, offsets, sizes, strides) -> SliceDesc:
    source = TensorDesc(DataType.from_numpy(array.dtype), array.shape)
    return SliceDesc(input_tensor=source, offsets=offsets, sizes=sizes, strides=strides)


@pytest.mark.parametrize(
    ("offsets", "sizes", "strides", "expected"),
    [
        ((0, 0, 1, 2), (1, 1, 3, 2), (1, 1, 1, 1), [[7, 8], [11, 12], [15, 16]]),
        ((0, 0, 1, 0), (1, 1, 2, 2), (1, 1, 2, 3), [[5, 8], [13, 16]]),
    ],
)
def test_page_examples_1_and_2(offsets, sizes, strides, expected) -> None:
    output = run(describe(PAGE_INPUT, offsets, sizes, strides), input_tensor=PAGE_INPUT)
    assert output.dtype == np.float32
    np.testing.assert_array_equal(output, [[expected]])


@st.composite
def slices(draw: st.DrawFn) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """An array, and the offset, size and stride of each dimension."""
    rank = draw(st.integers(1, 8))
    shape = draw(st.tuples(*[st.integers(1, 9 if rank < 4 else 3)] * rank))
    dtype = draw(st.sampled_from(list(DataType))).numpy_dtype
    count = int(np.prod(shape)) * dtype.itemsize
    array = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, count, np.uint8).view(dtype).reshape(shape)
    chosen = []
    for extent in shape:
        offset, stride = draw(st.integers(0, extent - 1)), draw(st.integers(1, extent + 1))
        chosen.append((offset, draw(st.integers(1, 1 + (extent - 1 - offset) // stride)), stride))
    return array, chosen


@given(slices())
def test_it_is_numpy_s_slicing_and_slice1_bit_for_bit(case: tuple[np.ndarray, list[tuple[int, int, int]]]) -> None:
    array, chosen = case
    offsets, sizes, strides = zip(*chosen, strict=True)
    desc = describe(array, offsets, sizes, strides)
    output = run(desc, input_tensor=array)
    cuts = tuple(slice(offset, offset + (size - 1) * stride + 1, stride) for offset, size, stride in chosen)
    assert output.shape == sizes and output.dtype == array.dtype
    assert output.tobytes() == np.ascontiguousarray(array[cuts]).tobytes()
    successor = Slice1Desc(
        input_tensor=desc.input_tensor,
        output_tensor=desc.output_tensor,
        input_window_offsets=offsets,
        input_window_sizes=[(size - 1) * stride + 1 for _, size, stride in chosen],
        input_window_strides=strides,
    )
    assert run(successor, input_tensor=array).tobytes() == output.tobytes()
