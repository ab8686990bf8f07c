"""Operators that reduce windows of a tensor: how their outputs, and the taps of their windows, are cut into dispatches.

A dispatch makes a box of outputs from a box of taps: those that its windows on the tensors show, and that it finishes
in time. Where no window shows all taps of an output, several dispatches, one after the other, take its taps in their
order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dmlvk.device_profile import DeviceType
from dmlvk.operators.pooling import PoolingGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    DISPATCH_SECONDS,
    SLOWEST_ELEMENTS_PER_SECOND,
    Box,
    DispatchBuilder,
    Excess,
    PlanBuilder,
    Range,
    View,
    by_dimension,
    output_boxes,
    reach,
    whole,
)
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch

# Of taps, along D, H and W. A Box here is of outputs, along N, C, D, H and W.
TapBox: TypeAlias = tuple[Range, ...]

DIMENSIONS, SPATIAL = "ncdhw", "dhw"
CHANNEL, ROW, COLUMN = 1, 3, 4
WORD_SIZE = 4
# The names of paths; the kernels are those that include the file of that name in kernels/windows.
VECTORS, ROWS, ELEMENTS = "vectors", "rows", "elements"
# What kernels/windows/rows.glsl reads at most for a word of the output: words of a row, and columns of a window.
MOST_WORDS = 8
MOST_COLUMNS = 8
# Columns of taps that kernels/max_pooling2/vectors.comp reads without a loop.
MOST_COLUMNS_OF_VECTORS = 4
# Invocations take several places in turn, if each processor of a GPU has so many workgroups then, which wait for memory
# one after the other. Those of a CPU do not wait.
WORKGROUPS_OF_PROCESSOR = 8
# Positions in the kernels are signed 32-bit numbers, and so are sums of two of them.
LARGEST_POSITION = 1 << 30
# An output takes as long as this number of taps, beside its own. An element of a copy takes as long as this number.
TAPS_OF_OUTPUT = 8
TAPS_OF_ELEMENT = 4


@dataclass(frozen=True)
class WindowsPart:
    """A box of outputs, from a box of taps.

    inside: those of the taps that can lie inside the input: a kernel visits no others.
    seen: the spatial positions of the input that the taps meet, of the first and the last one; None if all is padding.
    """

    box: Box
    taps: TapBox
    inside: TapBox
    seen: tuple[Range, ...] | None

    @property
    def extents(self) -> list[int]:
        return [high - low for low, high in self.box]

    @property
    def count(self) -> int:
        """Outputs."""
        return math.prod(self.extents)

    @property
    def tap_count(self) -> int:
        """Taps that an output has inside the input, at most."""
        return math.prod(high - low for low, high in self.inside)


@dataclass(frozen=True)
class Strips:
    """What a kernel that includes windows/strips.glsl has registers for.

    rows: rows of the output at once.
    tap_rows: rows of taps of these: MOST_TAP_ROWS.
    takes_turns: whether an invocation makes several blocks in turn, of vectors one below the other, of rows in further
        planes; None if the kernel knows no turns.
    is_subgroup: whether a GPU's workgroups are single subgroups.
    """

    rows: int
    tap_rows: int
    takes_turns: bool | None = None
    is_subgroup: bool = False


@dataclass(frozen=True)
class Windows:
    """A tensor's windows, to be cut into dispatches.

    outputs: of equal sizes; the first one is `output_tensor`.
    of_channel: what has one dimension, the channel: scales and zero points.
    most_outputs: the most outputs whose taps are cut: of those, there are intermediate results in memory.
    """

    builder: PlanBuilder
    geometry: PoolingGeometry
    input: View
    outputs: tuple[View, ...]
    of_channel: tuple[View, ...] = ()
    most_outputs: int = 1 << 62

    @property
    def everything(self) -> WindowsPart:
        """All outputs from all taps."""
        return self.part(whole(self.geometry.output_sizes), self.all_taps)

    @property
    def all_taps(self) -> TapBox:
        return whole(self.geometry.window)

    def part(self, box: Box, taps: TapBox) -> WindowsPart:
        """The outputs of a box from a box of taps."""
        geometry, inside, seen = self.geometry, [], []
        nothing = tuple((low, low + 1) for low, _ in taps)
        for k, (first, end) in enumerate(box[2:]):
            # The last output has taps inside from the lowest tap on, the first one up to the highest.
            low, high = geometry.taps_inside(k, end - 1).start, geometry.taps_inside(k, first).stop
            tap, tap_end = max(taps[k][0], low), min(taps[k][1], high)
            if tap >= tap_end:
                return WindowsPart(box, nothing, nothing, None)
            stride, dilation, padding = geometry.strides[k], geometry.dilations[k], geometry.start_padding[k]
            begin = max(first * stride + tap * dilation - padding, 0)
            stop = min((end - 1) * stride + (tap_end - 1) * dilation - padding + 1, geometry.input_size[k])
            if begin >= stop:
                return WindowsPart(box, nothing, nothing, None)
            inside.append((tap, tap_end))
            seen.append((begin, stop))
        part = WindowsPart(box, taps, tuple(inside), tuple(seen))
        # Windows of one size share a pipeline. Only where positions grow too large, taps on padding are left out.
        return part if self._reach(part) < LARGEST_POSITION else WindowsPart(box, part.inside, part.inside, part.seen)

    def _reach(self, part: WindowsPart) -> int:
        """The largest position, or difference of positions, that a kernel computes."""
        geometry = self.geometry
        return max(
            max((end - begin - 1) * geometry.strides[k], (high - low - 1) * geometry.dilations[k], abs(first))
            for k, ((begin, end), (low, high), first) in enumerate(
                zip(part.box[2:], part.taps, self.firsts(part), strict=True)
            )
        )

    def firsts(self, part: WindowsPart) -> list[int]:
        """Positions of the first output's first tap, counted from the first one that is seen."""
        geometry = self.geometry
        if part.seen is None:
            return [0] * len(SPATIAL)
        return [
            part.box[2 + k][0] * geometry.strides[k]
            + part.taps[k][0] * geometry.dilations[k]
            - geometry.start_padding[k]
            - part.seen[k][0]
            for k in range(len(SPATIAL))
        ]

    def first_positions(self, part: WindowsPart) -> list[int]:
        """Positions of the first output's first tap in the input; may lie before it."""
        seen = part.seen or ((0, 1),) * len(SPATIAL)
        return [first + low for first, (low, _) in zip(self.firsts(part), seen, strict=True)]

    def input_bounds(self, part: WindowsPart) -> Range:
        """The bytes of the input that are read; of one element if all is padding."""
        if part.seen is None:
            return self.input.start, self.input.start + self.input.element_size
        return self.input.bounds((*part.box[:2], *part.seen))

    def seconds(self, part: WindowsPart) -> float:
        """The longest time."""
        rate = SLOWEST_ELEMENTS_PER_SECOND[self.builder.profile.device_type] * TAPS_OF_ELEMENT
        return part.count * (part.tap_count + TAPS_OF_OUTPUT) / rate

    def cut(self) -> tuple[list[WindowsPart], list[list[WindowsPart]]]:
        """Parts with all taps, and the parts of each box of outputs whose taps are cut, in order of the taps.

        Boxes of outputs with equal numbers of parts, or not, have no output in common.
        """
        uncut, pieces = output_boxes(
            self.everything.box, self.all_taps, lambda box, taps: self._excess(self.part(box, taps)), self.most_outputs
        )
        parts = [[self.part(box, taps) for taps in of_box] for box, of_box in pieces]
        # All that is left of taps on padding alone: one part makes the output of them.
        inside = [[part for part in of_box if part.seen is not None] or of_box[:1] for of_box in parts]
        return [self.part(box, self.all_taps) for box in uncut], inside

    def _helps(self, part: WindowsPart) -> bool:
        """Whether cutting the outputs alone is enough for a part that is too much, and not too much work."""
        if self._is_too_deep(part):
            return False
        first, end = self.input_bounds(part)
        if end - first <= self.builder.window_limit:  # it lies in two segments, or takes too long
            return self.builder.fits(self.input.tensor, (first, end))
        # If the taps of one output take most of a window, few outputs would share the window.
        first, end = self.input_bounds(self.part(tuple((low, low + 1) for low, _ in part.box), self.all_taps))
        return end - first <= self.builder.window_limit // 2

    def _excess(self, part: WindowsPart) -> Excess | None:
        contributions = self._contributions(part)
        # The outermost taps are cut first: so the parts are in the order of the taps.
        return None if contributions is None else Excess(contributions, [0] * len(SPATIAL), self._helps(part))

    def _contributions(self, part: WindowsPart) -> list[int] | None:
        """How much each dimension of the outputs contributes to a part that is too much; None if it is not.

        All are 0 if it is not a matter of the outputs.
        """
        fits = self.builder.fits
        geometry, extents = self.geometry, [extent - 1 for extent in part.extents]
        steps = (1, 1, *geometry.strides)
        if not fits(self.input.tensor, self.input_bounds(part)):
            return [
                extent * step * stride for extent, step, stride in zip(extents, steps, self.input.strides, strict=True)
            ]
        for output in self.outputs:
            if not fits(output.tensor, output.bounds(part.box)):
                return reach(output, part.box)
        for view in self.of_channel:
            if not fits(view.tensor, view.bounds(part.box[1:2])):
                return [0, extents[CHANNEL] * view.strides[0], 0, 0, 0]
        if part.seen is not None and self._reach(part) >= LARGEST_POSITION:
            return [0, 0, *(extents[2 + k] * geometry.strides[k] for k in range(len(SPATIAL)))]
        if self._is_too_deep(part):
            return [0] * len(DIMENSIONS)
        return [0] * len(DIMENSIONS) if self.seconds(part) > DISPATCH_SECONDS else None

    def _is_too_deep(self, part: WindowsPart) -> bool:
        """Whether an invocation's nested loops, for the elements of a word, exceed the driver's limit of iterations."""
        most = device_traits.loop_iterations(self.builder.profile)
        depth, height, width = (high - low for low, high in part.inside)
        # A loop counts its last test, too.
        return most is not None and WORD_SIZE * depth * (2 + height * (2 + width)) > most

    def path(self) -> str:
        """The path that suits the layout."""
        everything = self.everything
        if self.vector_words(everything):
            return VECTORS
        return ROWS if self.has_rows_of_words(everything) else ELEMENTS

    def lane(self) -> int:
        """The dimension along which invocations follow each other: the one that is packed in the output."""
        strides, sizes = self.outputs[0].strides, self.geometry.output_sizes
        return CHANNEL if strides[CHANNEL] == 1 and (sizes[CHANNEL] > 1 or strides[COLUMN] != 1) else COLUMN

    def dispatch(
        self,
        kernel: str,
        part: WindowsPart,
        *,
        unit: int,
        input_unit: int | None = None,
        lane: int,
        lane_units: int,
        count: int,
        is_only: bool,
        specialization: Mapping[str, int],
        bind: Callable[[DispatchBuilder], None] = lambda dispatch: None,
        size: int | None = None,
        rows: int = 1,
        planes: int = 1,
    ) -> Dispatch:
        """A dispatch of a kernel that includes windows/window.glsl.

        unit, input_unit: bytes that the kernel counts offsets and strides in, those of the output, and of the input if
            they differ.
        lane, lane_units, count: the dimension of the lane, its extent as the kernel counts it, and the number of
            invocations.
        is_only: whether the extents are constants: one pipeline more for each extent.
        bind: binds further windows, after those of input and output, and sets the kernel's own push constants.
        specialization: the kernel's own specialization constants.
        size: the invocations of a workgroup.
        rows, planes: the outputs along H, and along the channels, that an invocation makes.
        """
        geometry, builder = self.geometry, self.builder
        output, input_unit = self.outputs[0], input_unit or unit
        dispatch = DispatchBuilder(kernel)
        address = self.input.address([part.box[0][0], part.box[CHANNEL][0], *self.first_positions(part)])
        dispatch.window(self.input.tensor, self.input_bounds(part), address, input_unit, "input_start", Access.READ)
        bounds = output.bounds(part.box)
        dispatch.window(output.tensor, bounds, bounds[0], unit, "output_start", Access.WRITE)
        extents = part.extents
        extents[lane] = lane_units
        extents[ROW] //= rows
        extents[CHANNEL] //= planes
        limits = [0] * len(SPATIAL) if part.seen is None else [high - low for low, high in part.seen]
        dispatch.push(
            count=count,
            **by_dimension("extent", DIMENSIONS[1:], extents[1:]),
            **by_dimension("input_stride", DIMENSIONS, _in_units(self.input, input_unit, lane)),
            **by_dimension("output_stride", DIMENSIONS, _in_units(output, unit, lane)),
            **by_dimension("first", SPATIAL, self.firsts(part)),
            **by_dimension("limit", SPATIAL, limits),
        )
        bind(dispatch)
        constants = {
            LOCAL_SIZE_X: size or builder.workgroup_size,
            **by_dimension("WINDOW", "DHW", [high - low for low, high in part.taps]),
            **by_dimension("STRIDE", "DHW", geometry.strides),
            # Only of a single tap is it larger, and then it separates nothing.
            **by_dimension("DILATION", "DHW", [min(step, LARGEST_POSITION) for step in geometry.dilations]),
            **by_dimension("EXTENT", "CDHW", extents[1:] if is_only else [0] * 4),
            "LANE_IS_CHANNELS": int(lane == CHANNEL),
        }
        read = self.input_bounds(part)
        return dispatch.finish(
            constants | dict(specialization),
            builder.grid(count, size),
            seconds=self.seconds(part),
            bytes_moved=read[1] - read[0] + part.count * output.element_size,
        )

    def elements(
        self,
        kernel: str,
        part: WindowsPart,
        *,
        is_only: bool,
        specialization: Mapping[str, int],
        bind: Callable[[DispatchBuilder], None] = lambda dispatch: None,
    ) -> Dispatch:
        """A dispatch of a kernel that includes windows/elements.glsl: see `dispatch`."""
        output, lane = self.outputs[0], self.lane()
        per_word = max(1, WORD_SIZE // output.element_size)
        extents = part.extents
        is_flat = per_word > 1 and self._is_flat(part, lane, per_word)
        lane_extent = extents[lane]
        if is_flat:
            first = output.bounds(part.box)[0] // output.element_size
            count = -(-(first % per_word + part.count) // per_word)
            lane_units = lane_extent
        else:
            lane_units = -(-lane_extent // per_word)
            count = part.count // lane_extent * lane_units

        def with_elements(dispatch: DispatchBuilder) -> None:
            dispatch.push(element_count=part.count if is_flat else 0, lane_extent=lane_extent)
            bind(dispatch)

        return self.dispatch(
            kernel,
            part,
            unit=output.element_size,
            lane=lane,
            lane_units=lane_units,
            count=count,
            is_only=is_only,
            bind=with_elements,
            specialization={"IS_FLAT": int(is_flat), **specialization},
        )

    def vector_words(self, part: WindowsPart) -> int:
        """Words of the vectors of channels of which a part consists, in the input and in the output: 4, 1 or 0."""
        output, size = self.outputs[0], self.input.element_size
        seen = part.seen or ((0, 1),) * len(SPATIAL)
        first = self.input.address([part.box[0][0], part.box[1][0], *(low for low, _ in seen)])
        distances = [first, output.bounds(part.box)[0], part.extents[CHANNEL] * size]
        for view in (self.input, output):
            if view.strides[CHANNEL] != 1:
                return 0
            steps = enumerate(zip(view.strides, part.extents, strict=True))
            # Taps step along a dimension in which there is a single output, too.
            has_taps = view is self.input
            distances += [
                step * size
                for k, (step, extent) in steps
                if k != CHANNEL and (extent > 1 or (has_taps and k > CHANNEL))
            ]
        divisor = math.gcd(*distances)
        return 4 if divisor % 16 == 0 else 1 if divisor % 4 == 0 else 0

    def has_rows_of_words(self, part: WindowsPart) -> bool:
        """Whether rows of a part, packed along the columns, are whole words of the output, and suit the kernel."""
        output, size, extents = self.outputs[0], self.input.element_size, part.extents
        if size >= WORD_SIZE or self.input.strides[COLUMN] != 1 or output.strides[COLUMN] != 1:
            return False
        per_word = WORD_SIZE // size
        taps = part.taps[2][1] - part.taps[2][0]
        segment = (per_word - 1) * self.geometry.strides[2] + (taps - 1) * self.geometry.dilations[2] + 1
        distances = [output.bounds(part.box)[0] // size, extents[COLUMN]]
        distances += [step for step, extent in zip(output.strides[:COLUMN], extents, strict=False) if extent > 1]
        return -(-segment // per_word) <= MOST_WORDS and taps <= MOST_COLUMNS and math.gcd(*distances) % per_word == 0

    def vectors(
        self,
        kernel: str,
        part: WindowsPart,
        words: int,
        *,
        is_only: bool,
        specialization: Mapping[str, int],
        strips: Strips,
        bind: Callable[[DispatchBuilder], None] = lambda dispatch: None,
    ) -> Dispatch:
        """A dispatch of a kernel that includes windows/vectors.glsl and windows/strips.glsl: see `dispatch`."""
        unit = words * WORD_SIZE
        lane_units = part.extents[CHANNEL] * self.input.element_size // unit
        count = part.count // part.extents[CHANNEL] * lane_units
        (low, high), (left, right) = part.taps[1:]
        is_plain = part.taps[0][1] - part.taps[0][0] == 1 and self.geometry.dilations[1] == 1
        # Rows of the output share rows of taps, or it would not pay to have fewer invocations.
        shares = is_plain and high - low > self.geometry.strides[1] and right - left <= MOST_COLUMNS_OF_VECTORS
        rows = self._rows_at_once(part, strips) if shares else 1
        blocks = self._turns(count // rows, part.extents[ROW] // rows) if strips.takes_turns and shares else 1

        def with_blocks(dispatch: DispatchBuilder) -> None:
            if strips.takes_turns is not None:
                dispatch.push(blocks=blocks)
            bind(dispatch)

        return self.dispatch(
            kernel,
            part,
            unit=unit,
            lane=CHANNEL,
            lane_units=lane_units,
            count=count // (rows * blocks),
            is_only=is_only,
            bind=with_blocks,
            size=self._invocations(strips),
            rows=rows * blocks,
            specialization={"VECTOR_WORDS": words, **({"ROWS": rows} if strips.rows > 1 else {}), **specialization},
        )

    def rows(
        self,
        kernel: str,
        part: WindowsPart,
        *,
        is_only: bool,
        specialization: Mapping[str, int],
        strips: Strips,
        bind: Callable[[DispatchBuilder], None] = lambda dispatch: None,
    ) -> Dispatch:
        """A dispatch of a kernel that includes windows/rows.glsl and windows/strips.glsl: see `dispatch`."""
        size = self.input.element_size
        per_word = WORD_SIZE // size
        count = part.count // per_word
        rows = self._rows_at_once(part, strips)
        planes = self._turns(count // rows, part.extents[CHANNEL]) if strips.takes_turns else 1

        def with_planes(dispatch: DispatchBuilder) -> None:
            if strips.takes_turns is not None:
                dispatch.push(planes=planes)
            bind(dispatch)

        aligned = self._alignment_of_rows(part)
        low, high = part.seen[2] if part.seen else (0, 1)
        has_pairs = (aligned | high - low) % (2 * per_word) == 0 and self.geometry.strides[2] % 2 == 0
        lead = self.firsts(part)[2] % (2 * per_word if has_pairs else per_word)
        return self.dispatch(
            kernel,
            part,
            unit=WORD_SIZE,
            input_unit=size,
            lane=COLUMN,
            lane_units=part.extents[COLUMN] // per_word,
            count=count // (rows * planes),
            is_only=is_only,
            bind=with_planes,
            size=self._invocations(strips),
            rows=rows,
            planes=planes,
            specialization={
                "IS_ALIGNED": int(aligned % per_word == 0),
                "FIRST_W_OF_PAIR": lead,
                "ROWS": rows,
                "HAS_PAIRS": int(has_pairs),
                **specialization,
            },
        )

    def _alignment_of_rows(self, part: WindowsPart) -> int:
        """The largest number that divides the places, in elements, of all rows of the input that a part meets."""
        if part.seen is None:
            return 1
        first = self.input.address([part.box[0][0], part.box[CHANNEL][0], *(low for low, _ in part.seen)])
        ranges = (*part.box[:2], *part.seen[:2])
        steps = [step for step, (low, high) in zip(self.input.strides, ranges, strict=False) if high - low > 1]
        return math.gcd(first // self.input.element_size, *steps)

    def _rows_at_once(self, part: WindowsPart, strips: Strips) -> int:
        """The rows of the output that an invocation makes together."""
        if part.taps[0][1] - part.taps[0][0] > 1 or self.geometry.dilations[1] > 1:
            return 1
        low, high = part.taps[1]
        most = min(strips.rows, max(1, (strips.tap_rows - (high - low)) // self.geometry.strides[1] + 1))
        return next(rows for rows in range(most, 0, -1) if part.extents[ROW] % rows == 0)

    def _invocations(self, strips: Strips) -> int | None:
        """The invocations of a workgroup; None: as many as usual."""
        profile = self.builder.profile
        is_one = strips.is_subgroup and profile.device_type is not DeviceType.CPU
        return profile.subgroup_size if is_one else None

    def _turns(self, invocations: int, extent: int) -> int:
        """How many of `extent` places along a dimension an invocation takes, one after the other."""
        profile = self.builder.profile
        is_gpu = profile.device_type is not DeviceType.CPU
        enough = rates_of(profile).processors * (WORKGROUPS_OF_PROCESSOR * self.builder.workgroup_size if is_gpu else 1)
        most = max(1, min(extent, int(invocations // enough)))
        return next(turns for turns in range(most, 0, -1) if extent % turns == 0)

    def _is_flat(self, part: WindowsPart, lane: int, per_word: int) -> bool:
        """Whether the outputs are packed in the order of the loops, but their rows do not begin and end with words."""
        output, extents = self.outputs[0], part.extents
        order = [CHANNEL, 4, 3, 2, 0] if lane == CHANNEL else [4, 3, 2, CHANNEL, 0]
        expected = 1
        for k in order:
            if extents[k] > 1 and output.strides[k] != expected:
                return False
            expected *= extents[k]
        first = output.bounds(part.box)[0] // output.element_size
        return bool(extents[lane] % per_word or first % per_word)


def _in_units(view: View, unit: int, lane: int) -> list[int]:
    """Strides of elements as strides of units; along the lane, units are packed."""
    scale = unit // view.element_size
    if scale == 1:
        return list(view.strides)
    return [1 if k == lane else stride // scale for k, stride in enumerate(view.strides)]


def stages_of(
    uncut: Sequence[WindowsPart],
    pieces: Sequence[Sequence[WindowsPart]],
    dispatch: Callable[[WindowsPart, int | None], Dispatch],
) -> tuple[tuple[Dispatch, ...], ...]:
    """First the parts with all taps, then the others, in stages.

    `dispatch` makes that of a part, from its number among the parts of its outputs, or None if it has all taps.
    """
    stages = [tuple(dispatch(part, None) for part in uncut)] if uncut else []
    for number in range(max(map(len, pieces), default=0)):
        stages.append(tuple(dispatch(parts[number], number) for parts in pieces if number < len(parts)))
    return tuple(stages)
