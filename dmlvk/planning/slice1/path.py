"""A kernel path of SLICE1: whether it suits a piece of the copy, what it would cost, and how it runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dmlvk._common.rates import Rates
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.data_movement import QUICK_RANK, PieceArguments
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.loop_nest import LoopNest

# What a GPU moves between its caches at once.
SECTOR_SIZE = 32
# A GPU looks up one line at a time. Meanwhile each processor does 64 multiplications, which count as two operations.
LINE_SIZE = 128
OPERATIONS_OF_A_LINE = 128
# Half of a copy's instructions are no arithmetic on integers, which a GPU does at half the rate of all instructions.
OPERATIONS_OF_AN_INSTRUCTION = 4 / 3
# Instructions of a division by a number that only the push constants have: a multiplication and a shift where there are
# few dimensions.
DIVISION = 25
QUICK_DIVISION = 2
# Of memory, instructions and lines, one waits for the other hardly ever: the slowest of them decides.
POWER = 4


@dataclass(frozen=True)
class CopyCost:
    """What a device does for a piece.

    sectors: sectors that are read and written. One that two workgroups share counts twice.
    instructions: of all invocations.
    lines: lines that loads look up in the first-level cache, for loads whose invocations do not share lines.
    """

    sectors: float
    instructions: float
    lines: float = 0.0

    def seconds(self, rates: Rates) -> float:
        """An estimate of the time on a device whose workgroups are many."""
        times = (
            self.sectors * SECTOR_SIZE / rates.copy,
            self.instructions * OPERATIONS_OF_AN_INSTRUCTION / rates.integer,
            self.lines * OPERATIONS_OF_A_LINE / rates.integer,
        )
        return math.fsum(time**POWER for time in times) ** (1 / POWER)


@dataclass(frozen=True)
class Candidate:
    """How a path runs a piece, and what that costs."""

    cost: CopyCost
    arguments: PieceArguments


class CopyPath(ABC):
    """One way to run the copy. A path is stateless; all paths give the same bits."""

    name: ClassVar[str]

    @abstractmethod
    def candidate(self, piece: LoopNest, profile: DeviceProfile) -> Candidate | None:
        """How the path runs a piece on a device; None if the piece does not suit it."""

    def seconds(self, piece: LoopNest, profile: DeviceProfile) -> float:
        """An estimate of the time of a piece; infinite if the piece does not suit the path."""
        candidate = self.candidate(piece, profile)
        return math.inf if candidate is None else candidate.cost.seconds(rates_of(profile))


@dataclass(frozen=True)
class Loop:
    """A dimension of a nest: its size and its strides, which count elements."""

    size: int
    output_stride: int
    source_stride: int


def division(nest: LoopNest) -> int:
    """Instructions of a division by the size of one of the nest's dimensions."""
    return QUICK_DIVISION if len(nest.dimensions) <= QUICK_RANK else DIVISION


def loops_of(nest: LoopNest) -> tuple[Loop, ...]:
    """The loops as the kernels count them: the innermost in the output first."""
    return tuple(Loop(dimension.size, *dimension.strides) for dimension in reversed(nest.dimensions))


def sectors_of(size: float, granularity: int) -> float:
    """Sectors that consecutive bytes touch, on the average of all places that are multiples of a number of bytes."""
    return (size + SECTOR_SIZE - math.gcd(granularity, SECTOR_SIZE)) / SECTOR_SIZE


def sectors_of_box(nest: LoopNest, operand: int, extents: Sequence[int]) -> float:
    """Sectors that all boxes of a nest touch in the memory of an operand, each box for itself.

    Gaps of less than a sector are touched as well.

    extents: a box's coordinates along each dimension, from the innermost of the output on.
    """
    start, element_size = nest.operands[operand].start, nest.operands[operand].element_size
    boxes, pieces, moves = 1.0, 1, [start * element_size]
    # An element of the output may be several of the source.
    size = nest.operands[0].element_size
    strides = [dimension.strides[operand] * element_size for dimension in reversed(nest.dimensions)]
    sizes = [dimension.size for dimension in reversed(nest.dimensions)]
    for stride, extent, count in sorted(zip(map(abs, strides), extents, sizes, strict=True)):
        if extent < count:
            boxes *= count / extent
            moves.append(stride * extent)
        if stride < size + SECTOR_SIZE:
            size += (extent - 1) * stride
        else:
            pieces *= extent
            moves.append(stride)
    return boxes * pieces * sectors_of(size, math.gcd(*moves))
