"""ONE_HOT on devices, against ONNX Runtime's OneHot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, OneHotDesc, TensorDesc
from dmlvk.tensor_desc import packed_strides
from tests.amount import examples
from tests.kernels.harness import check, input_memory
from tests.layouts import DATA_TYPES, input_strides, output_strides, sizes, view
from tests.reference.onnx_runtime import run_node

INDEX_TYPES = st.sampled_from([DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32])


def onnx_one_hot(indices: np.ndarray, depth: int, axis: int) -> np.ndarray:
    """Where ONNX Runtime's OneHot puts the on value. Its indices are signed; larger ones are out of range anyway."""
    if indices.ndim == 0:
        return onnx_one_hot(indices.reshape(1), depth, 1)[0]  # ONNX has no scalar indices
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(1 << 62))
    inputs = [indices.astype(np.int64), np.array(depth, np.int64), np.array([0, 1], np.int64)]
    return run_node("OneHot", inputs, np.int64, 11, axis=axis).astype(bool)


@st.composite
def descriptors(draw: st.DrawFn) -> OneHotDesc:
    rank = draw(st.integers(1, 8))
    output = draw(sizes(rank, 4000))
    axis = draw(st.integers(0, rank - 1))
    indices = tuple(1 if i == axis else size for i, size in enumerate(output))
    values = [draw(st.integers(1, 3)) for _ in range(rank)]
    values[draw(st.integers(0, rank - 1))] = draw(st.integers(2, 4))
    data_type = draw(DATA_TYPES)
    return OneHotDesc(
        indices_tensor=TensorDesc(draw(INDEX_TYPES), indices, draw(input_strides(indices))),
        values_tensor=TensorDesc(data_type, values, draw(input_strides(tuple(values)))),
        output_tensor=TensorDesc(data_type, output, draw(output_strides(output))),
        axis=axis,
    )


def draw_indices(desc: OneHotDesc, memory: np.ndarray, seed: int) -> np.ndarray:
    """Fill the memory of the indices: most in range, some just or far out of range. Returns the indices."""
    tensor = desc.indices_tensor
    dtype = tensor.data_type.numpy_dtype
    depth = desc.output_tensor.sizes[desc.axis]
    information = np.iinfo(dtype)
    candidates = list(range(depth)) * 3
    candidates += [-depth, -1, -depth - 1, depth, 2 * depth, 1 << 31, (1 << 32) + depth - 1, (1 << 32), -(1 << 32)]
    candidates += [information.min, information.max, 1 << 63]
    candidates = [value for value in candidates if information.min <= value <= information.max]
    count = memory.size // dtype.itemsize
    chosen = np.random.default_rng(seed).choice(np.array(candidates, dtype), count)
    memory[: count * dtype.itemsize] = chosen.view(np.uint8)
    return view(memory, tensor).view(dtype)


def check_against_onnx(device: dmlvk.Device, desc: OneHotDesc, offset: int, seed: int, path: str | None = None) -> None:
    inputs = input_memory(desc, seed)
    indices = draw_indices(desc, inputs["indices_tensor"], seed)
    depth = desc.output_tensor.sizes[desc.axis]
    hot = onnx_one_hot(indices.squeeze(desc.axis), depth, desc.axis)
    values = view(inputs["values_tensor"], desc.values_tensor)
    # "The 1st element along the fastest changing dimension of size > 1".
    innermost = max(i for i, size in enumerate(values.shape) if size > 1)
    on_value = values[tuple(int(i == innermost) for i in range(values.ndim))]
    off_value = values[(0,) * values.ndim]
    check(device, desc, np.where(hot, on_value, off_value), inputs, offset=offset, seed=seed, path=path)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(2.4)
def test_any_layout_and_any_index(device: dmlvk.Device, desc: OneHotDesc, blocks: int, seed: int) -> None:
    check_against_onnx(device, desc, 16 * blocks, seed)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.8)
def test_an_axis_across_cuts_in_memory(tight_device: dmlvk.Device, desc: OneHotDesc, blocks: int, seed: int) -> None:
    check_against_onnx(tight_device, desc, 16 * blocks, seed)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.8)
def test_plans_for_a_gpu(gpu_device: dmlvk.Device, desc: OneHotDesc, blocks: int, seed: int) -> None:
    check_against_onnx(gpu_device, desc, 16 * blocks, seed)


@st.composite
def whole_blocks(draw: st.DrawFn) -> OneHotDesc:
    """Rows that begin and end with blocks, along the axis or along the indices, which may have gaps between them."""
    data_type, index_type = draw(DATA_TYPES), draw(INDEX_TYPES)
    per_block = max(1, 16 // data_type.size_in_bytes)
    row, others = per_block * draw(st.integers(2, 40)), draw(st.integers(1, 90))
    axis = draw(st.integers(0, 2))
    sizes = [[others, row], [others, 1, row], [draw(st.integers(1, 3)), others, row]][axis]
    axis = (1, 0, 1)[axis]
    indices = [1 if k == axis else size for k, size in enumerate(sizes)]
    step, gap = draw(st.sampled_from([1, 1, 1, 2, 3])), per_block * draw(st.sampled_from([0, 0, 1]))
    strides = [stride * step for stride in packed_strides(indices)]
    output_strides = [(row + gap) * stride // row for stride in packed_strides(sizes)[:-1]] + [1]
    return OneHotDesc(
        indices_tensor=TensorDesc(index_type, indices, strides),
        values_tensor=TensorDesc(data_type, [1] * (len(sizes) - 1) + [2]),
        output_tensor=TensorDesc(data_type, sizes, output_strides),
        axis=axis,
    )


@given(whole_blocks(), st.sampled_from(["rows", "rows:1", "rows:300"]), st.integers(0, 1 << 20))
@examples(6)  # a missing barrier shows in few of them
def test_whole_rows(device: dmlvk.Device, desc: OneHotDesc, path: str, seed: int) -> None:
    check_against_onnx(device, desc, 16, seed, path)


@given(descriptors(), st.integers(0, 1 << 20))
@examples(0.5)
def test_other_layouts_are_left_to_blocks(device: dmlvk.Device, desc: OneHotDesc, seed: int) -> None:
    check_against_onnx(device, desc, 0, seed, "rows")


@given(whole_blocks(), st.integers(0, 1 << 20))
@examples(0.5)
def test_whole_rows_across_cuts_in_memory(tight_device: dmlvk.Device, desc: OneHotDesc, seed: int) -> None:
    check_against_onnx(tight_device, desc, 0, seed, "rows:1")


@pytest.mark.every_driver
@pytest.mark.parametrize("data_type", DataType)
@pytest.mark.parametrize("axis", [0, 1])
def test_every_type_along_both_axes(device: dmlvk.Device, data_type: DataType, axis: int) -> None:
    output = [37, 53]
    desc = OneHotDesc(
        indices_tensor=TensorDesc(DataType.INT32, [1 if i == axis else size for i, size in enumerate(output)]),
        values_tensor=TensorDesc(data_type, [1, 2]),
        output_tensor=TensorDesc(data_type, output),
        axis=axis,
    )
    check_against_onnx(device, desc, 0, 5)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_that_is_cut(tight_device: dmlvk.Device, axis: int) -> None:
    """Two long sequences, each in many pieces: coordinates along the axis continue where the previous piece ended."""
    output = [9001, 2] if axis == 0 else [2, 9001]
    desc = OneHotDesc(
        indices_tensor=TensorDesc(DataType.INT64, [1 if i == axis else size for i, size in enumerate(output)]),
        values_tensor=TensorDesc(DataType.UINT8, [1, 2]),
        output_tensor=TensorDesc(DataType.UINT8, output),
        axis=axis,
    )
    for seed in range(4):
        check_against_onnx(tight_device, desc, 0, seed)


@pytest.mark.parametrize(
    ("dtype", "index"),
    [
        (np.int64, (1 << 32) + 1),
        (np.uint64, (1 << 32) + 1),
        (np.uint64, 1 << 63),
        (np.int64, -(1 << 63)),
        (np.int64, -5),
        (np.int32, -(1 << 31)),
        (np.uint32, (1 << 32) - 1),
        (np.uint32, 4),
    ],
)
def test_an_index_out_of_range_gives_the_off_value_throughout(device: dmlvk.Device, dtype: type, index: int) -> None:
    result = dmlvk.one_hot(
        np.array([[index]], dtype), np.array([[3, 9]], np.uint8), output_length=4, axis=1, device=device
    )
    assert result.tolist() == [[3, 3, 3, 3]]


def test_a_negative_index_counts_once_from_the_end(device: dmlvk.Device) -> None:
    indices = np.array([[-4], [-1], [-5], [3]], np.int64)
    result = dmlvk.one_hot(indices, np.array([[0, 1]], np.int8), output_length=4, axis=1, device=device)
    assert result.argmax(1).tolist() == [0, 3, 0, 3]
    assert result.sum(1).tolist() == [1, 1, 0, 1]
