"""Loops over an output's elements and the tensors that step along, shared by the data-movement operators.

A nest starts in the descriptor's terms and is then reordered, merged and cut until a kernel can run each piece
(kernels/data_movement/loop_nest.glsl). All arithmetic is on Python integers, so that nothing wraps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning import builder
from dmlvk.planning.grid import SLOWEST_BYTES_PER_SECOND
from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS

# The widest unit that a kernel moves at once, a uvec4.
BLOCK_SIZE = 16


class Role(Enum):
    """A dimension whose coordinate itself has a meaning. It must not be merged with another dimension."""

    NONE = 0
    AXIS = 1
    X = 2
    Y = 3


@dataclass(frozen=True)
class Dimension:
    """One loop.

    size: number of steps.
    strides: elements that each operand advances in a step. Negative strides go backwards.
    """

    size: int
    strides: tuple[int, ...]
    role: Role = Role.NONE


@dataclass(frozen=True)
class LoopOperand:
    """One tensor: its descriptor field, bytes an element, and the element at which the loops begin."""

    field: str
    element_size: int
    start: int = 0


@dataclass(frozen=True)
class LoopNest:
    """Loops, outermost first, over operands. The first operand is the output.

    In a piece of a larger nest, `origin` is the coordinate where a dimension with a role begins, if that is not 0.
    """

    dimensions: tuple[Dimension, ...]
    operands: tuple[LoopOperand, ...]
    origin: Mapping[Role, int] = field(default_factory=dict)

    @property
    def element_count(self) -> int:
        return math.prod(dimension.size for dimension in self.dimensions)

    @property
    def run_rank(self) -> int:
        """The number of innermost dimensions that are packed in the output: they form runs of consecutive elements."""
        expected, count = 1, 0
        for dimension in reversed(self.dimensions):
            if dimension.strides[0] != expected:
                break
            expected *= dimension.size
            count += 1
        return count

    @property
    def run_length(self) -> int:
        """Elements in one run."""
        return math.prod(dimension.size for dimension in self.dimensions[len(self.dimensions) - self.run_rank :])

    def dimension_with(self, role: Role) -> int | None:
        """Index of the dimension with a role, or None if the dimension was dropped because its size is 1."""
        for index, dimension in enumerate(self.dimensions):
            if dimension.role is role:
                return index
        return None

    def extent(self, role: Role) -> tuple[int, int]:
        """First coordinate and size of the dimension with a role."""
        index = self.dimension_with(role)
        return self.origin.get(role, 0), 1 if index is None else self.dimensions[index].size

    def bounds(self, operand: int) -> tuple[int, int]:
        """First byte and end byte that the loops touch of an operand, counted from its tensor's start."""
        lowest = highest = self.operands[operand].start
        for dimension in self.dimensions:
            reach = (dimension.size - 1) * dimension.strides[operand]
            lowest += min(reach, 0)
            highest += max(reach, 0)
        size = self.operands[operand].element_size
        return lowest * size, (highest + 1) * size

    @property
    def bytes_moved(self) -> int:
        """Bytes of all operands' elements. An element that is broadcast counts once."""
        return sum(
            operand.element_size * math.prod(each.size for each in self.dimensions if each.strides[k])
            for k, operand in enumerate(self.operands)
        )

    def has_whole_units(self, unit: int) -> bool:
        """Whether all rows (along the innermost dimension) begin and end with units of the output.

        unit: elements of the output that lie beside each other.
        """
        distances = [self.operands[0].start, *(dimension.strides[0] for dimension in self.dimensions[:-1])]
        return self.run_rank > 0 and not any(distance % unit for distance in (*distances, self.dimensions[-1].size))

    def units_of_run(self, unit: int) -> int:
        """The most units of the output that a run touches."""
        if self.run_rank == 0:
            return 1  # a single element never lies across two units
        outer = self.dimensions[: len(self.dimensions) - self.run_rank]
        is_aligned = all(dimension.strides[0] % unit == 0 for dimension in outer)
        lead = self.operands[0].start % unit if is_aligned else unit - 1
        return -(-(lead + self.run_length) // unit)


def simplified(nest: LoopNest) -> LoopNest:
    """The same elements with the fewest loops: sizes of 1 dropped, sorted by output stride, neighbours merged."""
    dimensions = [dimension for dimension in nest.dimensions if dimension.size > 1]
    dimensions.sort(key=lambda dimension: -dimension.strides[0])
    merged: list[Dimension] = []
    for dimension in dimensions:
        outer = merged[-1] if merged else None
        if (
            outer is not None
            and outer.role is dimension.role is Role.NONE
            and all(a == b * dimension.size for a, b in zip(outer.strides, dimension.strides, strict=True))
        ):
            merged[-1] = replace(dimension, size=outer.size * dimension.size)
        else:
            merged.append(dimension)
    return replace(nest, dimensions=tuple(merged))


def widened(nest: LoopNest) -> LoopNest:
    """The same bytes in fewer, larger elements of up to 16 bytes, if all operands have consecutive elements.

    Only for nests whose elements are copied whole and whose operands have one element size.
    """
    if not nest.dimensions or any(stride != 1 for stride in nest.dimensions[-1].strides):
        return nest
    innermost = nest.dimensions[-1]
    size = nest.operands[0].element_size
    factor = BLOCK_SIZE // size
    distances = [innermost.size, *(operand.start for operand in nest.operands)]
    distances += [stride for dimension in nest.dimensions[:-1] for stride in dimension.strides]
    factor = math.gcd(factor, *distances)
    if factor == 1:
        return nest
    dimensions = [
        replace(dimension, strides=tuple(stride // factor for stride in dimension.strides))
        for dimension in nest.dimensions[:-1]
    ]
    dimensions.append(replace(innermost, size=innermost.size // factor))
    operands = tuple(
        replace(operand, element_size=size * factor, start=operand.start // factor) for operand in nest.operands
    )
    return simplified(replace(nest, dimensions=tuple(dimensions), operands=operands))


@dataclass(frozen=True)
class WindowLimits:
    """How much of each tensor one dispatch may touch.

    window_size: the most bytes of one window.
    segment_size: a tensor's memory is cut at multiples of this size. A window must not lie across a cut.
    offsets: for each operand, bytes from the start of its first segment to the tensor's start.
    element_count: the most elements of a dispatch.
    """

    window_size: int
    segment_size: int
    offsets: tuple[int, ...]
    element_count: int

    @classmethod
    def of(cls, nest: LoopNest, profile: DeviceProfile, offsets: Mapping[str, int], element_bytes: int) -> WindowLimits:
        """Those of a device.

        offsets: bytes from the start of its memory to a tensor's own start, by field.
        element_bytes: bytes of all operands for an element of the output, by which a dispatch is kept short.
        """
        seconds = MAXIMUM_SUBMISSION_SECONDS
        return cls(
            # The aligned start of a binding may lie before the window's.
            window_size=min(profile.limits.max_storage_buffer_range, builder.LARGEST_WINDOW) - profile.offset_alignment,
            segment_size=profile.segment_size,
            offsets=tuple(offsets.get(operand.field, 0) for operand in nest.operands),
            element_count=max(1, int(SLOWEST_BYTES_PER_SECOND[profile.device_type] * seconds / element_bytes)),
        )


def pieces(nest: LoopNest, limits: WindowLimits) -> Iterator[LoopNest]:
    """Cut a nest into nests within the limits, by halving the dimension that reaches farthest."""

    def parts_of(piece: LoopNest) -> tuple[LoopNest, LoopNest] | None:
        operand = _first_operand_out_of_limits(piece, limits)
        if operand is not None:
            reach = [(d.size - 1) * abs(d.strides[operand]) for d in piece.dimensions]
            return _halves(piece, reach.index(max(reach)))
        if piece.element_count <= limits.element_count:
            return None
        return _halves(piece, next(index for index, dimension in enumerate(piece.dimensions) if dimension.size > 1))

    return map(simplified, builder.pieces(nest, parts_of))


def _first_operand_out_of_limits(nest: LoopNest, limits: WindowLimits) -> int | None:
    for index in range(len(nest.operands)):
        begin, end = nest.bounds(index)
        begin = begin // BLOCK_SIZE * BLOCK_SIZE
        offset = limits.offsets[index]
        crosses = (begin + offset) // limits.segment_size != (end - 1 + offset) // limits.segment_size
        if end - begin > limits.window_size or crosses:
            return index
    return None


def _halves(nest: LoopNest, index: int) -> tuple[LoopNest, LoopNest]:
    dimension = nest.dimensions[index]
    half = dimension.size // 2
    first = replace(dimension, size=half)
    second = replace(dimension, size=dimension.size - half)
    before, after = nest.dimensions[:index], nest.dimensions[index + 1 :]
    operands = tuple(
        replace(operand, start=operand.start + half * stride)
        for operand, stride in zip(nest.operands, dimension.strides, strict=True)
    )
    origin = {**nest.origin, dimension.role: nest.origin.get(dimension.role, 0) + half}
    return (
        replace(nest, dimensions=(*before, first, *after)),
        LoopNest((*before, second, *after), operands, origin),
    )
