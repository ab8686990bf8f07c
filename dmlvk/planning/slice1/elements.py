"""SLICE1 in elements: invocations that follow each other copy elements that follow each other in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.data_movement import PieceArguments, has_whole_blocks
from dmlvk.planning.grid import workgroup_size
from dmlvk.planning.loop_nest import BLOCK_SIZE, LoopNest
from dmlvk.planning.slice1.path import (
    LINE_SIZE,
    QUICK_DIVISION,
    Candidate,
    CopyCost,
    CopyPath,
    Loop,
    division,
    loops_of,
    sectors_of_box,
)

WORD_SIZE = 4
# UNITS in elements.comp.
UNITS = 4
# The fewest invocations with units that follow each other, before an invocation's next unit: a subgroup of most GPUs.
NEIGHBOURS = 32

# Instructions, as Mesa's compiler for NVIDIA's GPUs counts them: of an invocation, of a unit, and of each element of a
# unit that is a word of several.
INVOCATION = 40
UNIT = 14
PART = 8


class ElementsPath(CopyPath):
    """Each invocation copies a few elements, or words of several elements, that lie apart."""

    name = "elements"

    def candidate(self, piece: LoopNest, profile: DeviceProfile) -> Candidate | None:
        units = in_units(piece)
        if units is None:
            return None
        loops = loops_of(units)
        split = _split_dimension(loops)
        counts = tuple(-(-loop.size // UNITS) if k == split else loop.size for k, loop in enumerate(loops))
        arguments = PieceArguments(
            kernel="slice1/elements",
            specialization={"SOURCE_SIZE": units.operands[1].element_size, "SPLIT_DIMENSION": split},
            invocation_count=math.prod(counts),
            nest=units,
            counts=counts,
        )
        return Candidate(_cost(piece, units, counts, split, workgroup_size(profile)), arguments)

    def seconds(self, piece: LoopNest, profile: DeviceProfile) -> float:
        """As of any path; infinite also where blocks are as fast or faster."""
        return super().seconds(piece, profile) if _is_for_elements(piece) else math.inf


def _is_for_elements(piece: LoopNest) -> bool:
    """Whether a load for blocks touches more lines, or blocks lie across rows shorter than what a subgroup writes."""
    if not piece.dimensions:
        return False
    element_size = piece.operands[0].element_size
    size, step = piece.dimensions[-1].size, piece.dimensions[-1].strides[1]
    if abs(step) == 1:
        is_short = size * element_size < NEIGHBOURS * BLOCK_SIZE
        return element_size >= WORD_SIZE and is_short and not has_whole_blocks(piece)
    return 0 < abs(step) * element_size < LINE_SIZE


def in_units(piece: LoopNest) -> LoopNest | None:
    """The piece with words of its output in place of smaller elements; None if it does not suit the path."""
    output, source = piece.operands
    if not piece.dimensions or output.element_size > 2 * WORD_SIZE:
        return None
    parts = max(1, WORD_SIZE // output.element_size)
    if parts == 1:
        return piece
    *outer, innermost = piece.dimensions
    distances = [output.start, innermost.size, *(dimension.strides[0] for dimension in outer)]
    if piece.run_rank == 0 or any(distance % parts for distance in distances):
        return None
    dimensions = [replace(each, strides=(each.strides[0] // parts, each.strides[1])) for each in outer]
    dimensions.append(replace(innermost, size=innermost.size // parts, strides=(1, innermost.strides[1] * parts)))
    output = replace(output, element_size=WORD_SIZE, start=output.start // parts)
    return replace(piece, dimensions=tuple(dimensions), operands=(output, source))


def _split_dimension(loops: Sequence[Loop]) -> int:
    """The innermost dimension along which units may lie apart with enough of them between; or else the longest one."""
    neighbours = 1
    for k, loop in enumerate(loops):
        neighbours *= loop.size
        if loop.size >= UNITS and neighbours >= UNITS * NEIGHBOURS:
            return k
    return max(range(len(loops)), key=lambda k: loops[k].size)


def _cost(piece: LoopNest, units: LoopNest, counts: Sequence[int], split: int, workgroup: int) -> CopyCost:
    loops = loops_of(units)
    parts = units.operands[0].element_size // units.operands[1].element_size
    of_unit = UNIT + (parts * PART if parts > 1 else 0)
    invocations = math.prod(counts)
    of_invocation = INVOCATION + (len(loops) - 1) * (division(units) - QUICK_DIVISION)
    # A workgroup reads and writes as many pieces as an invocation has units.
    extents, left = [], workgroup
    for count in counts:
        extents.append(min(count, left))
        left = -(-left // count)
    sectors = sectors_of_box(units, 0, extents) + sectors_of_box(piece, 1, [extents[0] * parts, *extents[1:]])
    # The elements that a load of a subgroup reads lie along the innermost dimension.
    distance = abs(loops[0].source_stride) * units.operands[1].element_size
    lines = units.element_count * parts * min(1.0, distance / LINE_SIZE)
    return CopyCost(sectors, invocations * float(of_invocation + UNITS * of_unit), lines)
