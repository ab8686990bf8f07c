"""SLICE1 on devices, against NumPy's own slicing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, Slice1Desc, TensorDesc
from dmlvk.planning.slice1 import boxes
from dmlvk.tensor_desc import packed_strides
from tests.amount import examples
from tests.kernels.harness import check, input_memory
from tests.layouts import (
    DATA_TYPES,
    input_strides,
    interleaved_output,
    output_strides,
    random_bytes,
    sizes,
    view,
)


def sliced(desc: Slice1Desc, source: np.ndarray) -> np.ndarray:
    """NumPy's slicing with the window's starts, stops and steps."""
    slices = []
    for offset, size, step in zip(
        desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True
    ):
        if step > 0:
            slices.append(slice(offset, offset + size, step))
        else:
            slices.append(slice(offset + size - 1, offset - 1 if offset else None, step))
    return source[tuple(slices)][tuple(slice(size) for size in desc.output_tensor.sizes)]


@st.composite
def descriptors(draw: st.DrawFn) -> Slice1Desc:
    data_type = draw(DATA_TYPES)
    input_sizes = draw(sizes(draw(st.integers(1, 8))))
    offsets, window_sizes, steps, output = [], [], [], []
    for size in input_sizes:
        offsets.append(draw(st.integers(0, size - 1)))
        window_sizes.append(draw(st.one_of(st.just(size - offsets[-1]), st.integers(1, size - offsets[-1]))))
        steps.append(draw(st.sampled_from([1, 1, 1, -1, -1, 2, -2, 3, -(1 << 31), (1 << 31) - 1])))
        most = 1 + (window_sizes[-1] - 1) // abs(steps[-1])
        output.append(draw(st.one_of(st.just(most), st.integers(1, most))))
    return Slice1Desc(
        input_tensor=TensorDesc(data_type, input_sizes, draw(input_strides(input_sizes))),
        output_tensor=TensorDesc(data_type, output, draw(output_strides(tuple(output)))),
        input_window_offsets=offsets,
        input_window_sizes=window_sizes,
        input_window_strides=steps,
    )


def check_against_numpy(
    device: dmlvk.Device, desc: Slice1Desc, offset: int, seed: int, path: str | None = None
) -> None:
    inputs = input_memory(desc, seed)
    expected = sliced(desc, view(inputs["input_tensor"], desc.input_tensor))
    check(device, desc, expected, inputs, offset=offset, seed=seed, path=path)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(3)
def test_any_window_of_any_layout(device: dmlvk.Device, desc: Slice1Desc, blocks: int, seed: int) -> None:
    check_against_numpy(device, desc, 16 * blocks, seed)


@st.composite
def transposes(draw: st.DrawFn) -> Slice1Desc:
    """Three dimensions; input and output run along different ones, with rows of any alignment."""
    data_type = draw(DATA_TYPES)
    rows, columns, outer = draw(st.integers(32, 140)), draw(st.integers(32, 140)), draw(st.integers(1, 3))
    offsets = [draw(st.integers(0, 9)) for _ in range(2)]
    pitch, gap = offsets[1] + columns + draw(st.sampled_from([0, 1, 32])), draw(st.sampled_from([0, 0, 1, 16]))
    input_sizes = [outer, columns + offsets[1], rows + offsets[0]]
    return Slice1Desc(
        # The input runs along dimension 1.
        input_tensor=TensorDesc(data_type, input_sizes, [pitch * (rows + offsets[0]), 1, pitch]),
        output_tensor=TensorDesc(data_type, [outer, columns, rows], [(rows + gap) * columns, rows + gap, 1]),
        input_window_offsets=[0, offsets[1], offsets[0]],
        input_window_sizes=[outer, columns, rows],
        input_window_strides=[draw(st.sampled_from([1, -1])), 1, draw(st.sampled_from([1, -1]))],
    )


@given(transposes(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(1)
def test_tiles_turn_any_alignment(device: dmlvk.Device, desc: Slice1Desc, blocks: int, seed: int) -> None:
    plan = device.plan(desc, "tiles")
    assert {dispatch.kernel for dispatch in plan.dispatches} == {"slice1/tiles"}
    check_against_numpy(device, desc, 16 * blocks, seed, "tiles")


@st.composite
def narrow_transposes(draw: st.DrawFn) -> Slice1Desc:
    """Rows and columns of several small dimensions each, in any order in the input, with any alignment."""
    data_type = draw(DATA_TYPES)
    narrow = st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=2)
    rows, columns = [*draw(narrow), 17], [draw(st.sampled_from([2, 3, 8])), 19]
    outer, shift, gap = draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 5])), draw(st.sampled_from([0, 0, 1, 16]))
    # The output: outer, columns, rows; its innermost dimension is a narrow one.
    output_sizes = [outer, *columns, *rows[::-1]]
    pitch = math.prod(rows) + gap
    output_strides = [math.prod(columns) * pitch]
    output_strides += [step * pitch for step in packed_strides(columns)] + list(packed_strides(rows[::-1]))
    # The input: outer, rows, columns in an order of their own. Its innermost dimension is one of the columns.
    order = draw(st.permutations(range(len(columns))))
    inner = packed_strides([columns[k] for k in order])
    input_strides = [math.prod(rows) * math.prod(columns)] + [0] * len(columns)
    for k, step in zip(order, inner, strict=True):
        input_strides[1 + k] = step
    input_strides += [step * math.prod(columns) for step in packed_strides(rows)[::-1]]
    return Slice1Desc(
        input_tensor=TensorDesc(data_type, [outer, *output_sizes[1:-1], output_sizes[-1] + shift], input_strides),
        output_tensor=TensorDesc(data_type, output_sizes, output_strides),
        input_window_offsets=[0] * (len(output_sizes) - 1) + [shift],
        input_window_sizes=output_sizes,
        input_window_strides=[draw(st.sampled_from([1, -1])), *[1] * (len(output_sizes) - 1)],
    )


@given(narrow_transposes(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(1)
def test_tiles_of_several_narrow_dimensions(device: dmlvk.Device, desc: Slice1Desc, blocks: int, seed: int) -> None:
    plan = device.plan(desc, "tiles")
    assert {dispatch.kernel for dispatch in plan.dispatches} == {"slice1/tiles"}
    check_against_numpy(device, desc, 16 * blocks, seed, "tiles")


@st.composite
def permutations(draw: st.DrawFn) -> Slice1Desc:
    """Small dimensions and a long one, in any order in the input and in the output, forwards and backwards."""
    data_type = draw(DATA_TYPES)
    rank = draw(st.integers(1, 8))
    sizes = [draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8])) for _ in range(rank)]
    long = draw(st.integers(0, rank - 1))
    sizes[long] = 1
    sizes[long] = draw(st.integers(1, max(1, draw(st.sampled_from([500, 5000, 20_000])) // math.prod(sizes))))
    offsets = [draw(st.sampled_from([0, 0, 0, 1, 3])) for _ in range(rank)]
    steps = [draw(st.sampled_from([1, 1, 1, 1, 1, -1, 2, -3])) for _ in range(rank)]
    windows = [1 + (size - 1) * abs(step) for size, step in zip(sizes, steps, strict=True)]
    input_sizes = [offset + window for offset, window in zip(offsets, windows, strict=True)]

    def strides(extents: list[int], gaps: list[int]) -> list[int]:
        found, step = [0] * rank, 1
        for dimension in draw(st.permutations(range(rank))):
            found[dimension] = step
            step = step * extents[dimension] + draw(st.sampled_from(gaps))
        return found

    input_strides = strides(input_sizes, [0, 0, 0, 1, 6])
    if draw(st.integers(0, 9)) == 0:  # broadcast, or rows that overlap
        input_strides[draw(st.integers(0, rank - 1))] = draw(st.sampled_from([0, 1, 3]))
    is_packed = draw(st.booleans())
    output_strides = (
        list(packed_strides(sizes)) if is_packed else strides(sizes, draw(st.sampled_from([[0], [0, 0, 1]])))
    )
    return Slice1Desc(
        input_tensor=TensorDesc(data_type, input_sizes, input_strides),
        output_tensor=TensorDesc(data_type, sizes, output_strides),
        input_window_offsets=offsets,
        input_window_sizes=windows,
        input_window_strides=steps,
    )


@given(permutations(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(1)
def test_boxes_of_any_permutation(device: dmlvk.Device, desc: Slice1Desc, blocks: int, seed: int) -> None:
    check_against_numpy(device, desc, 16 * blocks, seed, "boxes")


@given(permutations(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.5)
def test_boxes_of_a_gpu(gpu_device: dmlvk.Device, desc: Slice1Desc, blocks: int, seed: int) -> None:
    """As small as the planner makes them for a GPU, so that there are several."""
    check_against_numpy(gpu_device, desc, 16 * blocks, seed, "boxes")


@pytest.fixture
def roomy_device(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[dmlvk.Device]:
    """A device that gets the boxes of those with more shared memory: they need 25 KiB of it."""
    if device.profile.limits.max_compute_shared_memory_size < 25 << 10:
        pytest.skip("large boxes need 25 KiB of shared memory")
    monkeypatch.setattr(boxes, "ENOUGH_SHARED_MEMORY", 0)
    with dmlvk.Device(device.name) as roomy:
        yield roomy


@given(permutations(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.4)
def test_large_boxes(roomy_device: dmlvk.Device, desc: Slice1Desc, blocks: int, seed: int) -> None:
    check_against_numpy(roomy_device, desc, 16 * blocks, seed, "boxes")


@given(permutations(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.3)
def test_boxes_across_cuts_in_memory(tight_device: dmlvk.Device, desc: Slice1Desc, blocks: int, seed: int) -> None:
    check_against_numpy(tight_device, desc, 16 * blocks, seed, "boxes")


@pytest.mark.every_driver(data_type=[DataType.UINT8, DataType.UINT64])
@pytest.mark.half_by_day  # each has two of the types: one of UINT16 and UINT8, one of UINT64 and FLOAT32
@pytest.mark.parametrize("data_type", [DataType.UINT16, DataType.UINT8, DataType.UINT64, DataType.FLOAT32])
@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        ((2, 181, 5, 3, 5), (4, 1, 3, 0, 2)),  # one dimension is long pieces of both
        ((16, 7, 8, 337), (2, 1, 3, 0)),
        ((5, 1311, 3), (0, 2, 1)),  # pixels
        ((5, 3, 1311), (0, 2, 1)),
        ((3, 4, 2, 3, 5, 7, 2, 8), (7, 1, 5, 3, 0, 6, 2, 4)),
        ((7, 6, 5, 4, 9, 3), (5, 4, 3, 2, 1, 0)),
    ],
)
def test_boxes_of_several_sizes(
    device: dmlvk.Device, data_type: DataType, sizes: tuple[int, ...], order: tuple[int, ...]
) -> None:
    strides = packed_strides(sizes)
    turned = [sizes[k] for k in order]
    desc = Slice1Desc(
        input_tensor=TensorDesc(data_type, turned, [strides[k] for k in order]),
        input_window_offsets=[0] * len(sizes),
        input_window_sizes=turned,
        input_window_strides=[1] * len(sizes),
    )
    assert {dispatch.kernel for dispatch in device.plan(desc, "boxes").dispatches} == {"slice1/boxes"}
    check_against_numpy(device, desc, 16, 3, "boxes")


@given(descriptors(), st.integers(0, 1 << 20))
@examples(0.5)
def test_boxes_of_other_layouts(device: dmlvk.Device, desc: Slice1Desc, seed: int) -> None:
    check_against_numpy(device, desc, 0, seed, "boxes")


@given(descriptors(), st.integers(0, 1 << 20))
@examples(0.5)
def test_tiles_leave_other_layouts_to_blocks(device: dmlvk.Device, desc: Slice1Desc, seed: int) -> None:
    check_against_numpy(device, desc, 0, seed, "tiles")


@given(DATA_TYPES, interleaved_output(), st.integers(0, 1 << 20))
@example(DataType.INT8, ((3, 2), (2, 3)), 0)
@examples(0.4)
def test_outputs_that_interleave(
    device: dmlvk.Device, data_type: DataType, layout: tuple[tuple[int, ...], tuple[int, ...]], seed: int
) -> None:
    output_sizes, strides = layout
    desc = Slice1Desc(
        input_tensor=TensorDesc(data_type, output_sizes),
        output_tensor=TensorDesc(data_type, output_sizes, strides),
        input_window_offsets=[0, 0],
        input_window_sizes=output_sizes,
        input_window_strides=[-1, 1],
    )
    check_against_numpy(device, desc, 0, seed)


@pytest.mark.half_by_day
@pytest.mark.every_driver
@pytest.mark.parametrize("data_type", DataType)
@pytest.mark.parametrize("step", [1, -1, 2, -3])
def test_long_rows_of_every_type_at_every_misalignment(device: dmlvk.Device, data_type: DataType, step: int) -> None:
    for shift in range(17):
        desc = Slice1Desc(
            input_tensor=TensorDesc(data_type, [3, 97]),
            output_tensor=TensorDesc(data_type, [3, 1 + (79 - 1) // abs(step)]),
            input_window_offsets=[0, shift],
            input_window_sizes=[3, 79],
            input_window_strides=[-1, step],
        )
        check_against_numpy(device, desc, 16, shift)


def test_overlapping_input_rows(device: dmlvk.Device) -> None:
    """The sheared reading with which WebNN builds triangular masks: {H, W} over strides {W - 1, 1}."""
    desc = Slice1Desc(
        input_tensor=TensorDesc(DataType.UINT16, [9, 14], [6, 1]),
        output_tensor=TensorDesc(DataType.UINT16, [9, 7]),
        input_window_offsets=[0, 7],
        input_window_sizes=[9, 7],
        input_window_strides=[1, -1],
    )
    check_against_numpy(device, desc, 0, 1)


def test_nan_payloads_and_negative_zeros_arrive_unchanged(device: dmlvk.Device) -> None:
    bits = np.array([0x7F800001, 0xFFC12345, 0x80000000, 0x00000001, 0x7FBFFFFF], np.uint32)
    moved = dmlvk.slice1(
        bits.view(np.float32),
        input_window_offsets=[0],
        input_window_sizes=[5],
        input_window_strides=[-1],
        device=device,
    )
    assert moved.view(np.uint32).tolist() == bits[::-1].tolist()


def test_more_than_the_storage_buffer_range(device: dmlvk.Device) -> None:
    """300 MB, more than twice what lavapipe binds at once, with a window that starts at an odd byte."""
    source = random_bytes(3, 300_000_001).reshape(1, -1)
    moved = dmlvk.slice1(
        source,
        input_window_offsets=[0, 1],
        input_window_sizes=[1, 300_000_000],
        input_window_strides=[1, 1],
        device=device,
    )
    assert np.array_equal(moved, source[:, 1:])


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.8)
def test_windows_across_cuts_in_memory(tight_device: dmlvk.Device, desc: Slice1Desc, blocks: int, seed: int) -> None:
    check_against_numpy(tight_device, desc, 16 * blocks, seed)


def test_transposing_across_many_windows(tight_device: dmlvk.Device) -> None:
    """Rows and columns that are both much larger than one window."""
    desc = Slice1Desc(
        input_tensor=TensorDesc(DataType.UINT8, [199, 149], [1, 199]),
        output_tensor=TensorDesc(DataType.UINT8, [199, 149]),
        input_window_offsets=[0, 0],
        input_window_sizes=[199, 149],
        input_window_strides=[1, 1],
    )
    for path in ("blocks", "tiles", "boxes"):
        check_against_numpy(tight_device, desc, 32, 4, path)


@pytest.mark.parametrize("data_type", [DataType.UINT8, DataType.UINT16, DataType.UINT64])
def test_rows_far_apart_keep_what_lies_between(device: dmlvk.Device, data_type: DataType) -> None:
    desc = Slice1Desc(
        input_tensor=TensorDesc(data_type, [5, 33], [99_991, 3]),
        output_tensor=TensorDesc(data_type, [5, 33], [100_003, 1]),
        input_window_offsets=[0, 0],
        input_window_sizes=[5, 33],
        input_window_strides=[-1, 1],
    )
    check_against_numpy(device, desc, 16, 8)
