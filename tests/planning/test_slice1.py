"""The kernel paths of SLICE1: what they offer for a piece of the copy, and what they count."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dmlvk import DataType, Slice1Desc
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.loop_nest import BLOCK_SIZE, Dimension, LoopNest, LoopOperand, simplified
from dmlvk.planning.slice1 import COPY_PATHS, cheapest, nest_of
from dmlvk.planning.slice1.boxes import LARGE, SMALL, Room, boxes, with_larger_elements
from dmlvk.planning.slice1.elements import UNITS, ElementsPath
from dmlvk.planning.slice1.path import LINE_SIZE, SECTOR_SIZE, loops_of, sectors_of, sectors_of_box
from tests import profiles
from tests.planning.test_data_movement import permuted

H200 = profiles.load("nvidia-h200")
BANKS = 32


def nest(
    element_size: int, loops: Sequence[tuple[int, int, int]], output_start: int = 0, source_start: int = 0
) -> LoopNest:
    """A nest of loops with a size, a stride in the output and one in the source, the outermost first."""
    operands = (
        LoopOperand("output_tensor", element_size, output_start),
        LoopOperand("input_tensor", element_size, source_start),
    )
    return LoopNest(tuple(Dimension(size, (output, source)) for size, output, source in loops), operands)


@st.composite
def nests(draw: st.DrawFn) -> LoopNest:
    """A packed output, or one with a gap, and a source with dimensions in any order."""
    element_size = draw(st.sampled_from([1, 2, 4, 8]))
    sizes = draw(st.lists(st.sampled_from([2, 3, 4, 5, 7, 8, 16, 49, 1000]), min_size=1, max_size=8))
    order = draw(st.permutations(range(len(sizes))))
    strides = []
    for places in (range(len(sizes)), order):
        found, step = [0] * len(sizes), 1
        for place in places:
            found[place] = step * draw(st.sampled_from([1, 1, 1, -1]) if places is order else st.just(1))
            step = step * sizes[place] + draw(st.sampled_from([0, 0, 0, 1, 16]))
        strides.append(found)
    start = sum(-(size - 1) * stride for size, stride in zip(sizes, strides[1], strict=True) if stride < 0)
    return simplified(nest(element_size, list(zip(sizes, *strides, strict=True))[::-1], 0, start))


@given(nests(), st.sampled_from([SMALL, LARGE, Room(64, 832, 256)]))
def test_boxes_keep_to_what_their_kernel_can_do(piece: LoopNest, room: Room) -> None:
    for box in boxes(with_larger_elements(piece), room):
        loops = box.loops
        assert box.vectors <= room.vectors and box.period <= room.places and box.group_count <= room.groups
        assert 1 <= box.row_rank <= box.nest.run_rank
        for k, (loop, extent) in enumerate(zip(loops, box.extents, strict=True)):
            assert 1 <= extent <= loop.size
            if k < box.last:
                assert extent == loop.size, "a row's dimensions but the last are whole"
            elif k > box.last and k != box.cut:
                assert extent == (loop.size if k in box.spans else 1)
        assert box.cut is None or (box.cut in box.spans and box.cut >= box.row_rank)
        # A span's vectors hold it wherever it begins: in each of the boxes at an edge, too.
        begins = {box.nest.operands[1].start * box.source_size % BLOCK_SIZE}
        for loop, extent, count in zip(loops, box.extents, box.counts, strict=True):
            step = loop.source_stride * box.source_size * (extent if count > 1 else 1)
            begins |= {(begin + number * step) % BLOCK_SIZE for begin in begins for number in range(min(count, 16))}
        if all(loop.source_stride >= 0 for loop in loops):
            assert max(begins) + box.span_bytes <= box.vectors_of_span * BLOCK_SIZE


@pytest.mark.parametrize(("room", "most"), [(SMALL, 16 << 10), (LARGE, 32 << 10)])
def test_boxes_fit_into_shared_memory(room: Room, most: int) -> None:
    """As boxes.comp declares its arrays."""
    words = room.vectors * 4 * (BANKS + 1) // BANKS + 2 + room.places * (BANKS + 1) // BANKS + 1 + 2 * room.groups
    assert words * 4 <= most
    assert {"MOST_VECTORS", "MOST_PLACES", "MOST_GROUPS"} < set(
        kernel_interface("slice1/boxes").specialization_constants
    )


def test_boxes_are_long_pieces_of_both_tensors() -> None:
    """A row's first five elements are 120 bytes apart in the input. The next five are 32 MiB away."""
    desc = permuted(DataType.INT64, [2, 55924, 5, 3, 5], [4, 1, 3, 0, 2])
    nest = nest_of(desc)
    best = min(boxes(nest, LARGE), key=lambda box: box.cost(256).sectors)
    sectors = [sectors_of_box(nest, operand, best.extents) for operand in range(2)]
    least = math.prod(desc.output_tensor.sizes) * 8 / SECTOR_SIZE
    assert all(least <= touched < 1.1 * least for touched in sectors)


def test_rows_that_begin_anywhere_in_the_source_are_written_in_large_elements() -> None:
    """Rows of 24 bytes, 29 bytes apart: elements of 8 bytes of the output, and of one of the source."""
    larger = with_larger_elements(nest(1, [(1000, 24, 29), (24, 1, 1)], source_start=3))
    assert [operand.element_size for operand in larger.operands] == [8, 1]
    assert loops_of(larger)[0].source_stride == 8
    assert larger.element_count * 8 == 24_000
    # Rows of a single large element remain rows.
    single = with_larger_elements(nest(1, [(1000, 32, 29), (16, 1, 1)]))
    assert (single.operands[0].element_size, single.run_rank, loops_of(single)[0].size) == (16, 1, 1)


def test_rows_of_a_group_have_their_words_at_the_same_places() -> None:
    pixels = nest(1, [(3, 4096, 1), (4096, 1, 3)])
    assert {box.turned for box in boxes(pixels, LARGE)} == {1}
    odd = nest(1, [(3, 4097, 1), (4097, 1, 3)])
    assert {box.turned for box in boxes(odd, LARGE)} == {None}


@given(st.integers(1, 200), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_sectors_are_counted_on_the_average(size: int, granularity: int) -> None:
    begins = range(0, SECTOR_SIZE, granularity)
    size = size * granularity
    touched = [(begin + size - 1) // SECTOR_SIZE + 1 for begin in begins]
    assert sectors_of(size, granularity) == pytest.approx(sum(touched) / len(touched))


def test_a_gap_of_less_than_a_sector_is_moved_as_well() -> None:
    rows = nest(1, [(64, 16, 40), (16, 1, 1)])
    assert sectors_of_box(rows, 1, [16, 64]) == pytest.approx(sectors_of(63 * 40 + 16, 8), rel=0.05)
    far = nest(1, [(64, 16, 400), (16, 1, 1)])
    assert sectors_of_box(far, 1, [16, 64]) == 64 * sectors_of(16, 16)


@given(nests())
def test_elements_are_copied_once_each(piece: LoopNest) -> None:
    """The places of all units of all invocations, as elements.comp finds them, are the piece's."""
    candidate = ElementsPath().candidate(piece, H200)
    if candidate is None:
        assert piece.operands[0].element_size < 4 or not piece.dimensions
        return
    units, counts = candidate.arguments.nest, candidate.arguments.counts
    assert units is not None and counts is not None
    loops, split = loops_of(units), candidate.arguments.specialization["SPLIT_DIMENSION"]
    assume(math.prod(counts) <= 20_000)
    index = np.arange(math.prod(counts))
    assert candidate.arguments.invocation_count == len(index)
    outputs, sources = units.operands[0].start + 0 * index, units.operands[1].start + 0 * index
    for k, (loop, count) in enumerate(zip(loops, counts, strict=True)):
        coordinate, index = index % count, index // count
        if k == split:
            place, distance = coordinate, count
        else:
            outputs, sources = outputs + coordinate * loop.output_stride, sources + coordinate * loop.source_stride
    places = place[:, None] + distance * np.arange(UNITS)
    kept = places < loops[split].size
    outputs = (outputs[:, None] + places * loops[split].output_stride)[kept]
    sources = (sources[:, None] + places * loops[split].source_stride)[kept]
    parts = units.operands[0].element_size // units.operands[1].element_size
    step = loops[0].source_stride // parts
    copied = {
        (output * parts + part, source + part * step)
        for output, source in zip(outputs.tolist(), sources.tolist(), strict=True)
        for part in range(parts)
    }
    assert len(copied) == len(outputs) * parts == piece.element_count
    expected = [np.array([operand.start]) for operand in piece.operands]
    for dimension in piece.dimensions:
        for k, stride in enumerate(dimension.strides):
            expected[k] = (expected[k][:, None] + stride * np.arange(dimension.size)).ravel()
    assert copied == set(zip(*(places.tolist() for places in expected), strict=True))


def test_every_path_has_an_estimate_or_none() -> None:
    desc = permuted(DataType.FLOAT32, [64, 3, 64, 64], [0, 2, 3, 1])
    seconds = {path.name: path.seconds(nest_of(desc), H200) for path in COPY_PATHS}
    assert seconds["tiles"] == math.inf, "three floats are no row of a tile"
    assert seconds["boxes"] < seconds["blocks"]
    assert cheapest(nest_of(desc), H200).name == "boxes"


@pytest.mark.parametrize("device", ["lavapipe-22.3", "swiftshader"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_cpu_drivers_keep_to_blocks(device: str, order: tuple[int, ...]) -> None:
    desc: Slice1Desc = permuted(DataType.UINT8, [300, 7, 50], list(order))
    assert cheapest(nest_of(desc), profiles.load(device)).name == "blocks"


@pytest.mark.parametrize("element_size", [1, 2, 4, 8])
@pytest.mark.parametrize("step", [1, -1, 2, -3, 20, 1000])
def test_steps_are_copied_by_elements_if_loads_share_lines(element_size: int, step: int) -> None:
    rows = nest(element_size, [(1000, 1024, 1 << 20), (1024, 1, step)], source_start=1023 * abs(min(step, 0)))
    name = "elements" if abs(step) > 1 and abs(step) * element_size < LINE_SIZE else "blocks"
    assert cheapest(rows, H200).name == name
    assert cheapest(rows, profiles.load("lavapipe-25.0")).name == "blocks"


@pytest.mark.parametrize(
    ("size", "name"), [(7, "elements"), (101, "elements"), (100, "blocks"), (8, "blocks"), (1021, "blocks")]
)
def test_short_rows_are_copied_by_elements_unless_they_are_whole_blocks(size: int, name: str) -> None:
    assert cheapest(nest(4, [(10_000, size, size + 1), (size, 1, 1)], source_start=1), H200).name == name


@pytest.mark.parametrize("mebibytes", [1, 4, 8, 64])
def test_rows_of_some_words_need_no_boxes(mebibytes: int) -> None:
    piece = nest(4, [((mebibytes << 20) // 28, 7, 9), (7, 1, 1)], source_start=1)
    assert cheapest(piece, H200).name == "elements"


@pytest.mark.parametrize(("size", "name"), [(2184, "elements"), (34_952, "boxes")])
def test_boxes_wait_for_themselves_in_small_tensors(size: int, name: str) -> None:
    """Of 4 MiB elements took 4.1 us and boxes 5.2, of 64 MiB 31.7 and 30.4 (H200, 2026-11-28)."""
    order, sizes = (1, 2, 0, 3), (5, size, 16, 6)
    strides = [math.prod(sizes[k + 1 :]) for k in range(4)]
    outputs = [math.prod(sizes[k] for k in order[place + 1 :]) for place in range(4)]
    loops = [(sizes[k], output, strides[k]) for k, output in zip(order, outputs, strict=True)]
    assert cheapest(simplified(nest(4, loops)), H200).name == name
