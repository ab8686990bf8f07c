"""SLICE1 in boxes: some coordinates of each dimension, in long pieces of the output as well as of the input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from dmlvk._common.rates import Rates
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.data_movement import NO_DIMENSION, PieceArguments
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.grid import workgroup_size
from dmlvk.planning.loop_nest import BLOCK_SIZE, Dimension, LoopNest, LoopOperand, simplified
from dmlvk.planning.slice1.path import SECTOR_SIZE, Candidate, CopyCost, CopyPath, Loop, loops_of, sectors_of_box

WORD_SIZE = 4


@dataclass(frozen=True)
class Room:
    """What boxes.comp has shared memory for.

    vectors: of all spans.
    places: elements in the table of a row.
    groups: groups of rows that are read together.
    """

    vectors: int
    places: int
    groups: int


# These need 14 and 25 KiB. Vulkan requires 16. Where a workgroup may have no more than 32, several have no more either.
SMALL = Room(512, 832, 256)
LARGE = Room(1024, 1024, 512)
ENOUGH_SHARED_MEMORY = 48 << 10
# Small tensors have smaller boxes, so that each processor has some; but no smaller ones than this.
LEAST_VECTORS = 64
BOXES_PER_PROCESSOR = 4
# Below this many bytes, paths hardly differ, and each more kernel takes its time to be compiled.
LEAST_BYTES = 1 << 16

# Instructions, as Mesa's compiler for NVIDIA's GPUs counts them: of an invocation, of a vector that is read, of a place
# in a table, and of a word or larger element that is written, by the bytes of an element; and less for each place that
# follows at one distance, in place of a table.
INVOCATION = 150
VECTOR = 34
PLACE = 40
WRITTEN = {1: 72, 2: 46, 4: 30, 8: 34, 16: 42}
# Of the words that are written at a time, one of each row of a group.
WRITTEN_TURNED = {1: 124, 2: 70}
EVEN = {1: 12, 2: 10, 4: 8, 8: 8, 16: 8}
# The loads of a workgroup and its stores take turns. Other workgroups fill most of the pauses.
WAITING = 1.1
# If the source's elements are smaller than the output's and than a word, each word that is written comes of two.
SHIFTED_WORD = 8


@dataclass(frozen=True)
class Boxes:
    """How a piece is cut into boxes, each with some coordinates of each dimension.

    nest: the piece. The elements of its output may be several elements of its source.
    extents: the most coordinates along each dimension, from the innermost dimension of the output on.
    row_rank: the first dimensions are those of a row, packed in the output; a box has all coordinates of all but the
        last.
    spans: the dimensions along which a span runs in the input.
    cut: the dimension, of the spans' but not of the rows', of which a box has some coordinates and not all.
    """

    nest: LoopNest
    extents: tuple[int, ...]
    row_rank: int
    spans: frozenset[int]
    cut: int | None

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        return loops_of(self.nest)

    @property
    def element_size(self) -> int:
        return self.nest.operands[0].element_size

    @property
    def source_size(self) -> int:
        return self.nest.operands[1].element_size

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Boxes along each dimension."""
        return tuple(-(-loop.size // extent) for loop, extent in zip(self.loops, self.extents, strict=True))

    @property
    def last(self) -> int:
        """The last dimension of a row."""
        return self.row_rank - 1

    @property
    def row_length(self) -> int:
        return math.prod(self.extents[: self.row_rank])

    @cached_property
    def turned(self) -> int | None:
        """The dimension along which rows follow each other element by element in the input, if they are read together.

        Their words have to be at the same places in the rows.
        """
        for k in self.spans:
            if k >= self.row_rank and self.loops[k].source_stride == 1 and self.source_size == self.element_size:
                is_at_words = self.loops[k].output_stride * self.element_size % WORD_SIZE == 0
                return k if self.element_size < WORD_SIZE and is_at_words else None
        return None

    @property
    def group(self) -> int:
        """Rows that are read together."""
        return 1 if self.turned is None else WORD_SIZE // self.element_size

    @property
    def group_count(self) -> int:
        rows = math.prod(self.extents[k] for k in self.spans if k >= self.row_rank and k != self.turned)
        return rows if self.turned is None else rows * -(-self.extents[self.turned] // self.group)

    @property
    def words_are_whole(self) -> bool:
        """Whether what is read together is in one word of the tile."""
        if self.source_size >= WORD_SIZE or (self.turned is None and self.element_size < WORD_SIZE):
            return True
        steps = [self.nest.operands[1].start]
        for k, (loop, extent) in enumerate(zip(self.loops, self.extents, strict=True)):
            if k != self.turned:
                steps.append(loop.source_stride)
            elif extent < loop.size:
                steps.append(extent)
        return math.gcd(*steps) * self.source_size % WORD_SIZE == 0

    @property
    def period(self) -> int:
        """The elements of a row whose places in the tile are in the table."""
        return self.row_length // (self.extents[self.last] if self.last in self.spans else 1)

    @property
    def span_count(self) -> int:
        return math.prod(self.extents[k] for k in range(self.row_rank) if k not in self.spans)

    @cached_property
    def span_bytes(self) -> int:
        reach = sum((self.extents[k] - 1) * abs(self.loops[k].source_stride) for k in self.spans)
        return reach * self.source_size + self.element_size

    @cached_property
    def span_granularity(self) -> int:
        """Spans begin in memory at multiples of this number of bytes."""
        return math.gcd(self.nest.operands[1].start * self.source_size, *self._moves(1))

    @cached_property
    def vectors_of_span(self) -> int:
        """At most; fewer if the span begins with a vector."""
        lead = BLOCK_SIZE - math.gcd(BLOCK_SIZE, self.span_granularity)
        return -(-(lead + self.span_bytes) // BLOCK_SIZE)

    @property
    def vectors(self) -> int:
        return self.span_count * self.vectors_of_span

    def _moves(self, operand: int) -> Iterator[int]:
        """Bytes from one row to the next, or from one span to the next, in the same box or in another.

        A span begins with its first element in memory. Along a negative stride that is the last one, at another place
        in a smaller box.
        """
        size = self.nest.operands[operand].element_size
        inside = self.spans if operand else range(self.row_rank)
        for k, (loop, extent) in enumerate(zip(self.loops, self.extents, strict=True)):
            stride = (loop.source_stride if operand else loop.output_stride) * size
            if k not in inside or stride < 0:
                yield stride
            elif extent < loop.size:
                yield stride * extent

    @cached_property
    def row_granularity(self) -> int:
        """Rows begin and end in memory at multiples of this number of bytes."""
        whole = self.row_length * self.element_size
        if self.extents[self.last] < self.loops[self.last].size:
            whole = math.gcd(whole, whole // self.extents[self.last] * self.loops[self.last].size)
        return math.gcd(self.nest.operands[0].start * self.element_size, whole, *self._moves(0))

    @property
    def rows_are_whole(self) -> bool:
        """Whether rows begin and end with words."""
        return self.row_granularity % WORD_SIZE == 0

    @property
    def units_of_row(self) -> int:
        """Words, or larger elements, that a row may touch."""
        elements = max(1, WORD_SIZE // self.element_size)
        return (self.row_length + (0 if self.rows_are_whole else 2 * (elements - 1))) // elements

    def cost(self, workgroup: int) -> CopyCost:
        """What a device does."""
        full = math.prod(self.extents)
        boxes = self.nest.element_count / full
        of_unit = (WRITTEN if self.turned is None else WRITTEN_TURNED)[self.element_size]
        of_unit -= EVEN[self.element_size] if self.period == 1 else 0
        if not self.words_are_whole:
            of_unit += max(self.element_size, self.group * self.group) // WORD_SIZE * SHIFTED_WORD
        units = self.group_count * self.units_of_row
        places = self.period * (2 if self.element_size < WORD_SIZE else 1) + self.group_count
        instructions = float(math.prod(self.counts) * workgroup * INVOCATION)
        instructions += boxes * (max(self.vectors, workgroup) * VECTOR + places * PLACE + units * of_unit)
        sectors = sectors_of_box(self.nest, 0, self.extents) + sectors_of_box(self.nest, 1, self.extents)
        return CopyCost(WAITING * sectors, instructions)


class BoxesPath(CopyPath):
    """Workgroups move boxes by way of shared memory: long pieces of the output and of the input alike."""

    name = "boxes"

    def seconds(self, piece: LoopNest, profile: DeviceProfile) -> float:
        if piece.element_count * piece.operands[0].element_size < LEAST_BYTES:
            return math.inf
        return super().seconds(piece, profile)

    def candidate(self, piece: LoopNest, profile: DeviceProfile) -> Candidate | None:
        if piece.run_rank == 0:
            return None
        is_large = profile.limits.max_compute_shared_memory_size >= ENOUGH_SHARED_MEMORY
        room = LARGE if is_large else SMALL
        best = _best(piece.dimensions, piece.operands, room, workgroup_size(profile), rates_of(profile))
        return None if best is None else Candidate(best[0], _arguments(best[1], room))


@lru_cache(maxsize=256)
def _best(
    dimensions: tuple[Dimension, ...], operands: tuple[LoopOperand, ...], room: Room, workgroup: int, rates: Rates
) -> tuple[CopyCost, Boxes] | None:
    """The box of a piece with the least estimated time. It is asked for twice: for the path, and for its arguments."""
    piece = LoopNest(dimensions, operands)
    vectors = piece.element_count * operands[0].element_size / BLOCK_SIZE
    enough = max(LEAST_VECTORS, int(vectors / (rates.processors * BOXES_PER_PROCESSOR)))
    found = boxes(with_larger_elements(piece), replace(room, vectors=min(room.vectors, enough)))
    costs = ((box.cost(workgroup), box) for box in found)
    return min(costs, key=lambda pair: pair[0].seconds(rates), default=None)


def with_larger_elements(nest: LoopNest) -> LoopNest:
    """The same bytes in larger elements of the output, each of which is several consecutive ones of the source.

    `widened` makes such elements where they begin at multiples of their size in the source as well.
    """
    innermost, (output, source) = nest.dimensions[-1], nest.operands
    if innermost.strides != (1, 1) or output.element_size >= BLOCK_SIZE:
        return nest
    outer = [dimension.strides[0] for dimension in nest.dimensions[:-1]]
    factor = math.gcd(BLOCK_SIZE // output.element_size, innermost.size, output.start, *outer)
    if factor * output.element_size <= WORD_SIZE // 2:
        return nest
    dimensions = [
        replace(dimension, strides=(dimension.strides[0] // factor, dimension.strides[1]))
        for dimension in nest.dimensions[:-1]
    ]
    dimensions.append(Dimension(innermost.size // factor, (1, factor)))
    wide = replace(output, element_size=output.element_size * factor, start=output.start // factor)
    larger = replace(nest, dimensions=tuple(dimensions), operands=(wide, source))
    # A row that is a single element in this way remains a row.
    merged = simplified(larger)
    return merged if merged.run_rank else larger


def boxes(nest: LoopNest, room: Room) -> Iterator[Boxes]:
    """Boxes whose rows have different lengths, each with spans as long as there is room for."""
    loops, element_size = loops_of(nest), nest.operands[0].element_size
    tried = set()
    size = SECTOR_SIZE
    while size <= room.vectors * BLOCK_SIZE:
        rows = _rows(loops, nest.run_rank, size // element_size, element_size)
        size *= 2
        if rows in tried:
            continue
        tried.add(rows)
        box = _with_spans(nest, loops, *rows, room)
        part = 2 * (WORD_SIZE // element_size - 1) if element_size < WORD_SIZE else 0
        if box.vectors <= room.vectors and box.period + part <= room.places and box.group_count <= room.groups:
            yield box


def _rows(loops: tuple[Loop, ...], run_rank: int, wanted: int, element_size: int) -> tuple[tuple[int, ...], int]:
    """Coordinates along each dimension for rows of some length, and the number of their dimensions."""
    extents, length, rank = [1] * len(loops), 1, 0
    while rank < run_rank and (length < wanted or rank == 0):
        extents[rank] = _part(loops[rank].size, -(-wanted // length), length * element_size)
        length *= extents[rank]
        rank += 1
        if extents[rank - 1] < loops[rank - 1].size:
            break
    return tuple(extents), rank


def _part(size: int, wanted: int, step: int, most: int | None = None) -> int:
    """About `wanted` coordinates of `size`: parts of nearly equal size, each of whole sectors if possible.

    step: bytes from one coordinate to the next.
    most: no more than these. Without it, it may be up to twice as many as wanted.
    """
    if wanted >= size or (most is None and 2 * wanted > size):
        return size
    part = -(-size // -(-size // wanted))
    whole = SECTOR_SIZE // math.gcd(SECTOR_SIZE, step)
    rounded = -(-part // whole) * whole
    return rounded if rounded <= (2 * part if most is None else most) and rounded < size else part


def _with_spans(nest: LoopNest, loops: tuple[Loop, ...], rows: tuple[int, ...], row_rank: int, room: Room) -> Boxes:
    """The box with the longest spans that there is room for, given the extents of its rows."""
    output, source = nest.operands
    extents, spans, cut = list(rows), set(), None
    steps = [abs(loop.source_stride) * source.element_size for loop in loops]
    order = sorted(range(len(loops)), key=steps.__getitem__)
    span = _Span(math.prod(extents), output.element_size)
    group_count = 1
    for place, k in enumerate(order):
        if not span.reaches(steps[k]):
            break
        if k >= row_rank:
            most = min(loops[k].size, room.groups // group_count)
            # With all of this dimension, spans may reach further dimensions of the rows, and be fewer then.
            whole = span.along(steps[k], most, is_of_row=False)
            for other in order[place + 1 :]:
                if other < row_rank and whole.reaches(steps[other]):
                    whole = whole.along(steps[other], extents[other], is_of_row=True)
            if most < loops[k].size or whole.vectors > room.vectors:
                bytes_of_span = room.vectors // span.count * BLOCK_SIZE
                more = bytes_of_span - (BLOCK_SIZE - 1) - span.size
                most = min(most, more // steps[k] + 1) if steps[k] else most
            if most < 2:
                break
            extents[k] = _part(loops[k].size, most, steps[k], most)
            group_count *= extents[k]
            cut = k if extents[k] < loops[k].size else None
        span = span.along(steps[k], extents[k], is_of_row=k < row_rank)
        spans.add(k)
        if cut is not None:
            break
    return Boxes(nest, tuple(extents), row_rank, frozenset(spans), cut)


@dataclass(frozen=True)
class _Span:
    """The spans of a box that is still to be extended: how many there are, and the bytes of each."""

    count: int
    size: int

    @property
    def vectors(self) -> int:
        """At most, wherever spans begin."""
        return self.count * -(-(BLOCK_SIZE - 1 + self.size) // BLOCK_SIZE)

    def reaches(self, step: int) -> bool:
        """Whether a span may go on along a dimension.

        Gaps may be as long as what lies between them, since memory is moved by whole sectors.
        """
        return step <= max(2 * self.size, self.size + BLOCK_SIZE)

    def along(self, step: int, extent: int, *, is_of_row: bool) -> _Span:
        """The spans after they went on along a dimension. Those along a dimension of the rows become one."""
        return _Span(self.count // extent if is_of_row else self.count, self.size + (extent - 1) * step)


def _arguments(box: Boxes, room: Room) -> PieceArguments:
    last, cut = box.last, box.cut
    return PieceArguments(
        kernel="slice1/boxes",
        specialization={
            "SOURCE_SIZE": box.source_size,
            "ROW_RANK": box.row_rank,
            "SPAN_DIMENSIONS": sum(1 << k for k in box.spans),
            "GRID_DIMENSIONS": sum(1 << k for k, count in enumerate(box.counts) if count > 1),
            "CUT_DIMENSION": NO_DIMENSION if cut is None else cut,
            "TURNED_DIMENSION": NO_DIMENSION if box.turned is None else box.turned,
            "ROWS_ARE_WHOLE": int(box.rows_are_whole),
            "WORDS_ARE_WHOLE": int(box.words_are_whole),
            "MOST_VECTORS": room.vectors,
            "MOST_PLACES": room.places,
            "MOST_GROUPS": room.groups,
        },
        arguments=(
            box.extents[last],
            box.counts[last],
            1 if cut is None else box.extents[cut],
            1 if cut is None else box.counts[cut],
        ),
        group_count=math.prod(box.counts),
        divisors=(box.units_of_row, box.period),
        grouping=box.vectors_of_span,
        nest=box.nest,
        counts=box.counts,
    )
