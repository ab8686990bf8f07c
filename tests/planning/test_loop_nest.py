"""Merging, widening and cutting must not change where an element goes."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dmlvk.planning.loop_nest import (
    Dimension,
    LoopNest,
    LoopOperand,
    Role,
    WindowLimits,
    pieces,
    simplified,
    widened,
)


@st.composite
def nests(draw: st.DrawFn) -> LoopNest:
    rank = draw(st.integers(1, 4))
    element_size = draw(st.sampled_from([1, 2, 4, 8]))
    dimensions, step = [], 1
    for _ in range(rank):
        size = draw(st.integers(1, 6))
        source = draw(st.sampled_from([step, step, -step, 0, 2, 7]))
        dimensions.append(Dimension(size, (step, source)))
        step = step * size + draw(st.sampled_from([0, 0, 0, 1, 8]))
    start = sum(-min(0, dimension.strides[1]) * dimension.size for dimension in dimensions)
    operands = (
        LoopOperand("output", element_size),
        LoopOperand("source", element_size, start + draw(st.integers(0, 40))),
    )
    return LoopNest(tuple(draw(st.permutations(dimensions))), operands)


def moves(nest: LoopNest) -> list[tuple[int, ...]]:
    """The place of every byte in the output and in the source."""
    pairs = []
    for coordinates in itertools.product(*(range(dimension.size) for dimension in nest.dimensions)):
        elements = [
            operand.start + sum(c * d.strides[i] for c, d in zip(coordinates, nest.dimensions, strict=True))
            for i, operand in enumerate(nest.operands)
        ]
        for byte in range(nest.operands[0].element_size):
            places = (
                element * operand.element_size + byte for element, operand in zip(elements, nest.operands, strict=True)
            )
            pairs.append(tuple(places))
    return sorted(pairs)


@given(nests())
def test_simplifying_keeps_every_move(nest: LoopNest) -> None:
    assert moves(simplified(nest)) == moves(nest)


@given(nests())
def test_widening_keeps_every_move(nest: LoopNest) -> None:
    assert moves(widened(simplified(nest))) == moves(nest)


@given(nests(), st.integers(1, 64), st.sampled_from([16, 64, 256]), st.integers(0, 4), st.integers(1, 50))
def test_pieces_keep_every_move_once_and_the_limits(
    nest: LoopNest, blocks: int, segment_size: int, offset: int, element_count: int
) -> None:
    limits = WindowLimits(blocks * 16, segment_size, (offset * 16, 0), element_count)
    found = []
    for piece in pieces(nest, limits):
        found += moves(piece)
        assert piece.element_count <= element_count
        for index in range(2):
            begin, end = piece.bounds(index)
            begin, end = begin // 16 * 16 + limits.offsets[index], end + limits.offsets[index]
            assert end - begin <= limits.window_size or piece.element_count == 1
            assert begin // segment_size == (end - 1) // segment_size
    assert sorted(found) == moves(nest)


def test_packed_dimensions_merge_into_one() -> None:
    nest = LoopNest(
        (Dimension(2, (60, 60)), Dimension(1, (60, 0)), Dimension(3, (20, 20)), Dimension(20, (1, 1))),
        (LoopOperand("output", 4), LoopOperand("source", 4)),
    )
    assert simplified(nest).dimensions == (Dimension(120, (1, 1)),)


def test_dimensions_with_a_role_do_not_merge() -> None:
    nest = LoopNest(
        (Dimension(3, (20,), Role.Y), Dimension(20, (1,), Role.X)),
        (LoopOperand("output", 4),),
    )
    assert simplified(nest) == nest


def test_aligned_rows_widen_to_sixteen_bytes() -> None:
    nest = LoopNest(
        (Dimension(5, (64, 48)), Dimension(32, (1, 1))), (LoopOperand("output", 1), LoopOperand("source", 1, 16))
    )
    wide = widened(nest)
    assert wide.operands == (LoopOperand("output", 16), LoopOperand("source", 16, 1))
    assert wide.dimensions == (Dimension(5, (4, 3)), Dimension(2, (1, 1)))


def test_an_odd_start_keeps_elements_narrow() -> None:
    nest = LoopNest((Dimension(32, (1, 1)),), (LoopOperand("output", 1), LoopOperand("source", 1, 3)))
    assert widened(nest) == nest


def test_pieces_know_where_a_role_begins() -> None:
    nest = LoopNest((Dimension(8, (1,), Role.X),), (LoopOperand("output", 16),))
    limits = WindowLimits(32, 1 << 30, (0,), 1 << 30)
    found = [(piece.extent(Role.X), piece.operands[0].start) for piece in pieces(nest, limits)]
    assert found == [((0, 2), 0), ((2, 2), 2), ((4, 2), 4), ((6, 2), 6)]


def test_a_role_of_size_one_is_dropped_and_remembered() -> None:
    nest = LoopNest((Dimension(2, (1,), Role.Y),), (LoopOperand("output", 16),))
    limits = WindowLimits(16, 1 << 30, (0,), 1 << 30)
    first, second = pieces(nest, limits)
    assert first.dimensions == second.dimensions == ()
    assert first.extent(Role.Y) == (0, 1)
    assert second.extent(Role.Y) == (1, 1)


def test_runs_end_where_the_output_has_gaps() -> None:
    nest = LoopNest(
        (Dimension(4, (21, 0)), Dimension(5, (4, 0)), Dimension(4, (1, 0))),
        (LoopOperand("output", 1), LoopOperand("source", 1)),
    )
    assert (nest.run_rank, nest.run_length) == (2, 20)
    assert replace(nest, dimensions=(Dimension(4, (2, 0)),)).run_rank == 0
