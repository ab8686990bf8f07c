"""How the path `direct` is cut into dispatches: by windows on the tensors, by time, and by the size of sums."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    BLOCK_SIZE,
    DISPATCH_SECONDS,
    Box,
    DispatchBuilder,
    Range,
    View,
    boxes,
    by_dimension,
    largest,
    reach,
)
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import SCRATCH, Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import Operands
from dmlvk.planning.quantized_linear_convolution.parameters import ROW_SIZE, table_bounds

# |x - zx| and |w - zw| are at most 255: the sum of this many products fits 31 bits.
PRODUCTS_IN_32_BITS = (2**31 - 1) // (255 * 255)

# Neighbouring outputs that an invocation computes.
COLUMNS_AT_A_TIME = 4
# The last step of an output costs about as much as this number of taps.
LAST_STEP_TAPS = 10

# At most this many outputs, of 8 bytes each, have sums in progress over several dispatches at a time.
LARGEST_ACCUMULATOR_COUNT = 1 << 20
ACCUMULATOR_SIZE = 8
BEGIN, ADD = 1, 2


class _SingleTapError(Exception):
    """A single tap of some outputs fits no window."""


@dataclass(frozen=True)
class Direct:
    """A convolution to be cut into dispatches of the direct kernel.

    Boxes of outputs are (image, channel, row, column), those of taps (channel of the group, row, column).

    Attributes
    ----------
    operands : Operands
    table : View
        The channels' parameters.
    is_general : bool
        Whether sizes and types are push constants.
    longest_seconds : float
        Of the whole convolution: see `Path.longest_seconds`.
    """

    operands: Operands
    table: View
    is_general: bool
    longest_seconds: float

    def stages(self) -> list[tuple[Dispatch, ...]]:
        """First, in one stage, the outputs whose taps all fit windows. Then the others, box by box of taps."""
        whole: list[Dispatch] = []
        pieces: list[tuple[Box, list[Box]]] = []
        for box in boxes(self.operands.whole_output, self._cut):
            if self._is_whole(box):
                whole.append(self._dispatch(box, self.all_taps, 0, 0))
            else:
                pieces.append((box, self._tap_boxes(box)))
        stages = [tuple(whole)] if whole else []
        return stages + self._accumulating_stages(pieces)

    def _is_whole(self, box: Box) -> bool:
        """Whether one dispatch can take all taps of some outputs."""
        taps = self.all_taps
        return self._violated(box, taps) is None and not self._is_too_long(box, taps) and not self._is_too_deep(taps)

    def _cut(self, box: Box) -> int | None:
        """The dimension along which a box of outputs is to be cut; None if it is whole, or its taps are to be cut."""
        if self._is_too_long(box, self.all_taps) and (cut := _longest(box)) is not None:
            return cut
        if self._is_whole(box):
            return None
        if _count(box) == box[3][1] - box[3][0] <= self._accumulator_limit and self._has_tap_boxes(box):
            # A single row whose taps lie in two segments, for example: as much of it as possible at once.
            return None
        violated = self._violated(box, self.all_taps)
        if violated is not None and self._helps(box, violated):
            cut = self._output_cut(box, violated)
            if cut is not None:
                return cut
        if _count(box) > self._accumulator_limit and (cut := _longest(box)) is not None:
            return cut
        if self._has_tap_boxes(box):
            return None
        cut = _longest(box)
        assert cut is not None, "a single tap of a single output always lies in a window"
        return cut

    def _accumulating_stages(self, pieces: list[tuple[Box, list[Box]]]) -> list[tuple[Dispatch, ...]]:
        """Stages that sum boxes of outputs over several boxes of taps, for as many outputs at once as memory allows."""
        batches: list[list[tuple[Box, list[Box], int]]] = []
        limit = used = self._accumulator_limit
        for box, tap_boxes in pieces:
            if used + _count(box) > limit:
                batches.append([])
                used = 0
            batches[-1].append((box, tap_boxes, used))
            used += _count(box)
        if not batches:
            return []
        capacity = max(sum(_count(box) for box, _, _ in batch) for batch in batches)
        start = self.operands.builder.scratch.allocate(capacity * ACCUMULATOR_SIZE)
        stages: list[tuple[Dispatch, ...]] = []
        for batch in batches:
            for index in range(max(len(tap_boxes) for _, tap_boxes, _ in batch)):
                stages.append(
                    tuple(
                        self._dispatch(box, tap_boxes[index], ADD if index else BEGIN, start + place * ACCUMULATOR_SIZE)
                        for box, tap_boxes, place in batch
                        if index < len(tap_boxes)
                    )
                )
            stages.append(tuple(self._requantize(box, start + place * ACCUMULATOR_SIZE) for box, _, place in batch))
        return stages

    @property
    def _accumulator_limit(self) -> int:
        """The number of accumulators at a time: they fit one window in the rest of the first scratch segment."""
        room = min(
            self.operands.builder.window_limit,
            self.operands.builder.profile.segment_size - self.operands.builder.scratch.size,
        )
        return max(1, min(LARGEST_ACCUMULATOR_COUNT, room // ACCUMULATOR_SIZE - BLOCK_SIZE // ACCUMULATOR_SIZE))

    @property
    def all_taps(self) -> Box:
        height, width = self.operands.geometry.filter_size
        return (0, self.operands.geometry.input_channels_per_group), (0, height), (0, width)

    def _groups(self, box: Box) -> Range:
        of_group = self.operands.geometry.output_channels_per_group
        return box[1][0] // of_group, (box[1][1] - 1) // of_group + 1

    def _seen(self, box: Box, taps: Box) -> tuple[Range, ...] | None:
        """The box of the input that some taps of some outputs read; None if all of it is border."""
        geometry = self.operands.geometry
        groups, of_group = self._groups(box), geometry.input_channels_per_group
        channels = (groups[0] * of_group + taps[0][0], (groups[1] - 1) * of_group + taps[0][1])
        spatial: list[Range] = []
        for k in range(2):
            (first, end), (tap, tap_end) = box[2 + k], taps[1 + k]
            stride, dilation, padding = geometry.strides[k], geometry.dilations[k], geometry.start_padding[k]
            low = max(first * stride + tap * dilation - padding, 0)
            high = min((end - 1) * stride + (tap_end - 1) * dilation - padding + 1, geometry.input_size[k])
            if low >= high:
                return None
            spatial.append((low, high))
        return box[0], channels, spatial[0], spatial[1]

    def _violated(self, box: Box, taps: Box) -> str | None:
        """The operand that does not fit a window."""
        fits = self.operands.builder.fits
        seen = self._seen(box, taps)
        if seen is not None and not fits(self.operands.input.tensor, self.operands.input.bounds(seen)):
            return "input"
        if not fits(self.operands.filter.tensor, self.operands.filter.bounds((box[1], *taps))):
            return "filter"
        if not fits(self.operands.output.tensor, self.operands.output.bounds(box)):
            return "output"
        return None if fits(self.table.tensor, table_bounds(self.table, box[1])) else "table"

    def _contributions(self, box: Box, operand: str | None) -> list[int]:
        """How far each dimension of the outputs stretches the memory of an operand."""
        extents = [high - low - 1 for low, high in box]
        if operand == "output":
            return reach(self.operands.output, box)
        if operand == "filter":
            return [0, extents[1] * self.operands.filter.strides[0], 0, 0]
        if operand == "table":
            return [0, extents[1] * ROW_SIZE, 0, 0]
        groups = self._groups(box)
        strides, geometry = self.operands.input.strides, self.operands.geometry
        return [
            extents[0] * strides[0],
            (groups[1] - groups[0] - 1) * geometry.input_channels_per_group * strides[1],
            extents[2] * geometry.strides[0] * strides[2],
            extents[3] * geometry.strides[1] * strides[3],
        ]

    def _output_cut(self, box: Box, operand: str) -> int | None:
        return largest(self._contributions(box, operand))

    def _helps(self, box: Box, operand: str | None) -> bool:
        """Whether cutting outputs alone can make an operand fit; not if the taps of one output are too far apart."""
        if operand not in ("input", "filter"):
            return True
        single = tuple((low, low + 1) for low, _ in box)
        if operand == "filter":
            bounds = self.operands.filter.bounds((single[1], *self.all_taps))
            return bounds[1] - bounds[0] <= self.operands.builder.window_limit - 16
        geometry = self.operands.geometry
        span = (geometry.input_channels_per_group - 1) * self.operands.input.strides[1]
        for k in range(2):
            taps = (geometry.filter_size[k] - 1) * geometry.dilations[k]
            span += min(taps, geometry.input_size[k] - 1) * self.operands.input.strides[2 + k]
        # If the taps of one output take most of a window, few outputs would share the window.
        return span <= self.operands.builder.window_limit // 2

    def _has_tap_boxes(self, box: Box) -> bool:
        """Whether the taps of some outputs can be cut until they fit windows."""
        try:
            self._tap_boxes(box)
        except _SingleTapError:
            return False
        return True

    def _tap_boxes(self, box: Box) -> list[Box]:
        """Boxes of taps that each fit windows, for a box of outputs."""

        def cut(taps: Box) -> int | None:
            operand = self._violated(box, taps)
            if operand is None and not self._is_too_long(box, taps) and not self._is_too_deep(taps):
                return None
            extents = [high - low - 1 for low, high in taps]
            if operand in ("input", "filter"):
                strides, dilations = self.operands.input.strides, self.operands.geometry.dilations
                steps = [strides[1], strides[2] * dilations[0], strides[3] * dilations[1]]
                if operand == "filter":
                    steps = list(self.operands.filter.strides[1:])
                extents = [extent * step for extent, step in zip(extents, steps, strict=True)]
            dimension = largest(extents) if operand in (None, "input", "filter") else None
            if dimension is None:
                raise _SingleTapError
            return dimension

        return list(boxes(self.all_taps, cut))

    def _operations(self, box: Box, taps: Box) -> int:
        return 2 * _count(box) * _count(taps)

    def _seconds(self, box: Box, taps: Box) -> float:
        """The share of the longest time that some taps of some outputs have."""
        return self.longest_seconds * _work(box, taps) / _work(self.operands.whole_output, self.all_taps)

    def _is_too_long(self, box: Box, taps: Box) -> bool:
        return self._seconds(box, taps) > DISPATCH_SECONDS

    def _is_too_deep(self, taps: Box) -> bool:
        """Whether an invocation's nested loops exceed the driver's limit of iterations."""
        channels, rows, columns = (high - low for low, high in taps)
        # A loop counts its last test, too.
        iterations = channels * (2 + rows * (2 + columns))
        most = device_traits.loop_iterations(self.operands.builder.profile)
        return most is not None and iterations > most

    def _table_window(self, dispatch: DispatchBuilder, box: Box) -> None:
        rows = table_bounds(self.table, box[1])
        dispatch.window(self.table.tensor, rows, rows[0], 4, "table_start", Access.READ)

    def _dispatch(self, box: Box, taps: Box, accumulate: int, accumulators: int) -> Dispatch:
        geometry, extents = self.operands.geometry, [high - low for low, high in box]
        tap_extents = [high - low for low, high in taps]
        seen = self._seen(box, taps)
        first_row, first_column = (
            box[2 + k][0] * geometry.strides[k] + taps[1 + k][0] * geometry.dilations[k] - geometry.start_padding[k]
            for k in range(2)
        )
        groups = self._groups(box)
        first_channel = groups[0] * geometry.input_channels_per_group + taps[0][0]
        dispatch = DispatchBuilder("quantized_linear_convolution/direct")
        bounds = (
            self.operands.input.bounds(seen) if seen else (self.operands.input.start, self.operands.input.start + 1)
        )
        address = self.operands.input.address((box[0][0], first_channel, first_row, first_column))
        dispatch.window(self.operands.input.tensor, bounds, address, 1, "input_start", Access.READ)
        first, last = self.operands.filter.bounds((box[1], *taps))
        dispatch.window(self.operands.filter.tensor, (first, last), first, 1, "filter_start", Access.READ)
        self._table_window(dispatch, box)
        if accumulate:
            written = (accumulators, accumulators + _count(box) * ACCUMULATOR_SIZE)
            dispatch.window(SCRATCH, written, accumulators, ACCUMULATOR_SIZE, "output_start", Access.WRITE)
        else:
            written = self.operands.output.bounds(box)
            dispatch.window(self.operands.output.tensor, written, written[0], 1, "output_start", Access.WRITE)
        count = extents[0] * extents[1] * extents[2] * -(-extents[3] // 4)
        strides = self.operands.input.strides
        dispatch.push(
            count=count,
            channels=extents[1],
            rows=extents[2],
            columns=extents[3],
            first_of_group=box[1][0] % geometry.output_channels_per_group,
            channels_of_group=geometry.output_channels_per_group,
            tap_channels=tap_extents[0],
            first_row=first_row,
            first_column=first_column,
            row_limit=geometry.input_size[0],
            column_limit=geometry.input_size[1],
            input_stride_group=strides[1] * geometry.input_channels_per_group,
            **by_dimension("input_stride", "nchw", strides),
            **by_dimension("filter_stride", "mchw", self.operands.filter.strides),
            **by_dimension("output_stride", "nchw", self.operands.output.strides),
        )
        many_taps = 0
        if _count(taps) > PRODUCTS_IN_32_BITS:
            many_taps = 2 if tap_extents[2] > PRODUCTS_IN_32_BITS else 1
        parameters = self.operands.parameters
        kinds = (parameters.input_unsigned, parameters.filter_unsigned, parameters.output_unsigned)
        types = sum(1 << bit for bit, is_unsigned in enumerate(kinds) if is_unsigned)
        pairs = {"TAP": tap_extents[1:], "STRIDE": geometry.strides, "DILATION": geometry.dilations}
        pushed = {f"{name.lower()}s": rows | columns << 16 for name, (rows, columns) in pairs.items()}
        if self.is_general:
            dispatch.push(unsigned_types=types, **pushed)
            types, pairs = 0, dict.fromkeys(pairs, (1, 1))
        else:
            dispatch.push(unsigned_types=0, **dict.fromkeys(pushed, 0))
        specialization = {
            LOCAL_SIZE_X: self.operands.builder.workgroup_size,
            "MANY_TAPS": many_taps,
            "ACCUMULATE": accumulate,
            "GENERAL": int(self.is_general),
            "TAP_ROWS": pairs["TAP"][0],
            "TAP_COLUMNS": pairs["TAP"][1],
            **by_dimension("STRIDE", "HW", pairs["STRIDE"]),
            **by_dimension("DILATION", "HW", pairs["DILATION"]),
            "UNSIGNED_TYPES": types,
        }
        return dispatch.finish(
            specialization,
            self.operands.builder.grid(count),
            seconds=self._seconds(box, taps),
            bytes_moved=sum(end - begin for begin, end in (bounds, (first, last), written)),
            operations=self._operations(box, taps),
        )

    def _requantize(self, box: Box, accumulators: int) -> Dispatch:
        count, extents = _count(box), [high - low for low, high in box]
        dispatch = DispatchBuilder("quantized_linear_convolution/requantize")
        read = (accumulators, accumulators + count * ACCUMULATOR_SIZE)
        dispatch.window(SCRATCH, read, accumulators, ACCUMULATOR_SIZE, "accumulator_start", Access.READ)
        self._table_window(dispatch, box)
        written = self.operands.output.bounds(box)
        dispatch.window(self.operands.output.tensor, written, written[0], 1, "output_start", Access.WRITE)
        dispatch.push(
            count=count,
            channels=extents[1],
            rows=extents[2],
            columns=extents[3],
            **by_dimension("output_stride", "nchw", self.operands.output.strides),
        )
        return dispatch.finish(
            {
                LOCAL_SIZE_X: self.operands.builder.workgroup_size,
                "OUTPUT_UNSIGNED": int(self.operands.parameters.output_unsigned),
            },
            self.operands.builder.grid(count),
            seconds=self.operands.builder.element_seconds(count),
            bytes_moved=9 * count,
        )


def _work(box: Box, taps: Box) -> int:
    """Multiply-adds, with those of the columns that an invocation computes beside."""
    columns = box[3][1] - box[3][0]
    padded = -(-columns // COLUMNS_AT_A_TIME) * COLUMNS_AT_A_TIME
    return _count(box) // columns * padded * (_count(taps) + LAST_STEP_TAPS)


def _count(box: tuple[Range, ...]) -> int:
    count = 1
    for low, high in box:
        count *= high - low
    return count


def _longest(box: Box) -> int | None:
    """The dimension to cut for a shorter dispatch: the outermost one with several entries."""
    return next((k for k, (low, high) in enumerate(box) if high - low > 1), None)
