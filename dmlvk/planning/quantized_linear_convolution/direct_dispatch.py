"""How the path `direct` is cut into dispatches: by windows on the tensors, by time, and by the size of sums."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    BLOCK_SIZE,
    DISPATCH_SECONDS,
    Builder,
    DispatchBuilder,
    Range,
    View,
    by_dimension,
    halves,
    largest,
    reach,
)
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import SCRATCH, Access, Dispatch
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

# Outputs (image, channel, row, column), taps (channel of the group, row, column).
OutputBox = tuple[Range, ...]
TapBox = tuple[Range, ...]


@dataclass(frozen=True)
class Direct:
    """A convolution to be cut into dispatches of the direct kernel.

    Attributes
    ----------
    longest_seconds : float
        Of the whole convolution: see `Path.longest_seconds`.
    """

    builder: Builder
    geometry: ConvolutionGeometry
    input: View
    filter: View
    table: View
    output: View
    input_unsigned: bool
    filter_unsigned: bool
    output_unsigned: bool
    is_general: bool
    longest_seconds: float

    def stages(self) -> list[tuple[Dispatch, ...]]:
        """First, in one stage, the outputs whose taps all fit windows. Then the others, box by box of taps."""
        pending = [self.all_outputs]
        taps = self.all_taps
        whole: list[Dispatch] = []
        pieces: list[tuple[OutputBox, list[TapBox]]] = []
        while pending:
            box = pending.pop()
            if self._is_too_long(box, taps) and (cut := _longest(box)) is not None:
                pending.extend(halves(box, cut))
                continue
            violated = self._violated(box, taps)
            if violated is None and not self._is_too_long(box, taps) and not self._is_too_deep(taps):
                whole.append(self._dispatch(box, taps, 0, 0))
                continue
            cut = None if violated is None else self._output_cut(box, violated)
            is_row = _count(box) == box[3][1] - box[3][0] <= self._accumulator_limit
            if is_row and (tap_boxes := self._tap_boxes(box)) is not None:
                # A single row whose taps lie in two segments, for example: as much of it as possible at once.
                pieces.append((box, tap_boxes))
                continue
            if cut is not None and self._helps(box, violated):
                pending.extend(halves(box, cut))
                continue
            if _count(box) > self._accumulator_limit and (cut := _longest(box)) is not None:
                pending.extend(halves(box, cut))
                continue
            tap_boxes = self._tap_boxes(box)
            if tap_boxes is None:
                pending.extend(halves(box, self._any_output_cut(box)))
                continue
            pieces.append((box, tap_boxes))
        stages = [tuple(whole)] if whole else []
        return stages + self._accumulating_stages(pieces)

    def _accumulating_stages(self, pieces: list[tuple[OutputBox, list[TapBox]]]) -> list[tuple[Dispatch, ...]]:
        """Stages that sum boxes of outputs over several boxes of taps, for as many outputs at once as memory allows."""
        batches: list[list[tuple[OutputBox, list[TapBox], int]]] = []
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
        start = self.builder.scratch.allocate(capacity * ACCUMULATOR_SIZE)
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
        room = min(self.builder.window_limit, self.builder.profile.segment_size - self.builder.scratch.size)
        return max(1, min(LARGEST_ACCUMULATOR_COUNT, room // ACCUMULATOR_SIZE - BLOCK_SIZE // ACCUMULATOR_SIZE))

    @property
    def all_outputs(self) -> OutputBox:
        geometry = self.geometry
        return tuple((0, size) for size in (geometry.batch, geometry.output_channels, *geometry.output_size))

    @property
    def all_taps(self) -> TapBox:
        height, width = self.geometry.filter_size
        return (0, self.geometry.input_channels_per_group), (0, height), (0, width)

    def _groups(self, box: OutputBox) -> Range:
        of_group = self.geometry.output_channels_per_group
        return box[1][0] // of_group, (box[1][1] - 1) // of_group + 1

    def _seen(self, box: OutputBox, taps: TapBox) -> tuple[Range, ...] | None:
        """The box of the input that some taps of some outputs read; None if all of it is border."""
        geometry = self.geometry
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

    def _violated(self, box: OutputBox, taps: TapBox) -> str | None:
        """The operand that does not fit a window."""
        fits = self.builder.fits
        seen = self._seen(box, taps)
        if seen is not None and not fits(self.input.tensor, self.input.bounds(seen)):
            return "input"
        if not fits(self.filter.tensor, self.filter.bounds((box[1], *taps))):
            return "filter"
        if not fits(self.output.tensor, self.output.bounds(box)):
            return "output"
        return None if fits(self.table.tensor, table_bounds(self.table, box[1])) else "table"

    def _contributions(self, box: OutputBox, operand: str | None) -> list[int]:
        """How far each dimension of the outputs stretches the memory of an operand."""
        extents = [high - low - 1 for low, high in box]
        if operand == "output":
            return reach(self.output, box)
        if operand == "filter":
            return [0, extents[1] * self.filter.strides[0], 0, 0]
        if operand == "table":
            return [0, extents[1] * ROW_SIZE, 0, 0]
        groups = self._groups(box)
        strides, geometry = self.input.strides, self.geometry
        return [
            extents[0] * strides[0],
            (groups[1] - groups[0] - 1) * geometry.input_channels_per_group * strides[1],
            extents[2] * geometry.strides[0] * strides[2],
            extents[3] * geometry.strides[1] * strides[3],
        ]

    def _output_cut(self, box: OutputBox, operand: str) -> int | None:
        return largest(self._contributions(box, operand))

    def _any_output_cut(self, box: OutputBox) -> int:
        cut = _longest(box)
        if cut is None:
            raise AssertionError("a single tap of a single output always lies in a window")
        return cut

    def _helps(self, box: OutputBox, operand: str | None) -> bool:
        """Whether cutting outputs alone can make an operand fit; not if the taps of one output are too far apart."""
        if operand not in ("input", "filter"):
            return True
        single = tuple((low, low + 1) for low, _ in box)
        if operand == "filter":
            bounds = self.filter.bounds((single[1], *self.all_taps))
            return bounds[1] - bounds[0] <= self.builder.window_limit - 16
        geometry = self.geometry
        span = (geometry.input_channels_per_group - 1) * self.input.strides[1]
        for k in range(2):
            taps = (geometry.filter_size[k] - 1) * geometry.dilations[k]
            span += min(taps, geometry.input_size[k] - 1) * self.input.strides[2 + k]
        # If the taps of one output take most of a window, few outputs would share the window.
        return span <= self.builder.window_limit // 2

    def _tap_boxes(self, box: OutputBox) -> list[TapBox] | None:
        """Boxes of taps that each fit windows, for a box of outputs; None if even a single tap does not fit."""
        pending, boxes = [self.all_taps], []
        while pending:
            taps = pending.pop()
            operand = self._violated(box, taps)
            if operand is None and not self._is_too_long(box, taps) and not self._is_too_deep(taps):
                boxes.append(taps)
                continue
            extents = [high - low - 1 for low, high in taps]
            if operand in ("input", "filter"):
                strides, dilations = self.input.strides, self.geometry.dilations
                steps = [strides[1], strides[2] * dilations[0], strides[3] * dilations[1]]
                if operand == "filter":
                    steps = list(self.filter.strides[1:])
                extents = [extent * step for extent, step in zip(extents, steps, strict=True)]
            cut = largest(extents) if operand in (None, "input", "filter") else None
            if cut is None:
                return None
            pending.extend(halves(taps, cut))
        return boxes

    def _operations(self, box: OutputBox, taps: TapBox) -> int:
        return 2 * _count(box) * _count(taps)

    def _seconds(self, box: OutputBox, taps: TapBox) -> float:
        """The share of the longest time that some taps of some outputs have."""
        return self.longest_seconds * _work(box, taps) / _work(self.all_outputs, self.all_taps)

    def _is_too_long(self, box: OutputBox, taps: TapBox) -> bool:
        return self._seconds(box, taps) > DISPATCH_SECONDS

    def _is_too_deep(self, taps: TapBox) -> bool:
        """Whether an invocation's nested loops exceed the driver's limit of iterations."""
        channels, rows, columns = (high - low for low, high in taps)
        # A loop counts its last test, too.
        iterations = channels * (2 + rows * (2 + columns))
        most = device_traits.loop_iterations(self.builder.profile)
        return most is not None and iterations > most

    def _table_window(self, dispatch: DispatchBuilder, box: OutputBox) -> None:
        rows = table_bounds(self.table, box[1])
        dispatch.window(self.table.tensor, rows, rows[0], 4, "table_start", Access.READ)

    def _dispatch(self, box: OutputBox, taps: TapBox, accumulate: int, accumulators: int) -> Dispatch:
        geometry, extents = self.geometry, [high - low for low, high in box]
        tap_extents = [high - low for low, high in taps]
        seen = self._seen(box, taps)
        first_row, first_column = (
            box[2 + k][0] * geometry.strides[k] + taps[1 + k][0] * geometry.dilations[k] - geometry.start_padding[k]
            for k in range(2)
        )
        groups = self._groups(box)
        first_channel = groups[0] * geometry.input_channels_per_group + taps[0][0]
        dispatch = DispatchBuilder("quantized_linear_convolution/direct")
        bounds = self.input.bounds(seen) if seen else (self.input.start, self.input.start + 1)
        address = self.input.address((box[0][0], first_channel, first_row, first_column))
        dispatch.window(self.input.tensor, bounds, address, 1, "input_start", Access.READ)
        first, last = self.filter.bounds((box[1], *taps))
        dispatch.window(self.filter.tensor, (first, last), first, 1, "filter_start", Access.READ)
        self._table_window(dispatch, box)
        if accumulate:
            written = (accumulators, accumulators + _count(box) * ACCUMULATOR_SIZE)
            dispatch.window(SCRATCH, written, accumulators, ACCUMULATOR_SIZE, "output_start", Access.WRITE)
        else:
            written = self.output.bounds(box)
            dispatch.window(self.output.tensor, written, written[0], 1, "output_start", Access.WRITE)
        count = extents[0] * extents[1] * extents[2] * -(-extents[3] // 4)
        strides = self.input.strides
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
            **by_dimension("filter_stride", "mchw", self.filter.strides),
            **by_dimension("output_stride", "nchw", self.output.strides),
        )
        many_taps = 0
        if _count(taps) > PRODUCTS_IN_32_BITS:
            many_taps = 2 if tap_extents[2] > PRODUCTS_IN_32_BITS else 1
        kinds = (self.input_unsigned, self.filter_unsigned, self.output_unsigned)
        types = sum(1 << bit for bit, is_unsigned in enumerate(kinds) if is_unsigned)
        pairs = {"TAP": tap_extents[1:], "STRIDE": geometry.strides, "DILATION": geometry.dilations}
        pushed = {f"{name.lower()}s": rows | columns << 16 for name, (rows, columns) in pairs.items()}
        if self.is_general:
            dispatch.push(unsigned_types=types, **pushed)
            types, pairs = 0, dict.fromkeys(pairs, (1, 1))
        else:
            dispatch.push(unsigned_types=0, **dict.fromkeys(pushed, 0))
        specialization = {
            LOCAL_SIZE_X: self.builder.workgroup_size,
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
            self.builder.grid(count),
            seconds=self._seconds(box, taps),
            bytes_moved=sum(end - begin for begin, end in (bounds, (first, last), written)),
            operations=self._operations(box, taps),
        )

    def _requantize(self, box: OutputBox, accumulators: int) -> Dispatch:
        count, extents = _count(box), [high - low for low, high in box]
        dispatch = DispatchBuilder("quantized_linear_convolution/requantize")
        read = (accumulators, accumulators + count * ACCUMULATOR_SIZE)
        dispatch.window(SCRATCH, read, accumulators, ACCUMULATOR_SIZE, "accumulator_start", Access.READ)
        self._table_window(dispatch, box)
        written = self.output.bounds(box)
        dispatch.window(self.output.tensor, written, written[0], 1, "output_start", Access.WRITE)
        dispatch.push(
            count=count,
            channels=extents[1],
            rows=extents[2],
            columns=extents[3],
            **by_dimension("output_stride", "nchw", self.output.strides),
        )
        return dispatch.finish(
            {LOCAL_SIZE_X: self.builder.workgroup_size, "OUTPUT_UNSIGNED": int(self.output_unsigned)},
            self.builder.grid(count),
            seconds=self.builder.element_seconds(count),
            bytes_moved=9 * count,
        )


def _work(box: OutputBox, taps: TapBox) -> int:
    """Multiply-adds, with those of the columns that an invocation computes beside."""
    columns = box[3][1] - box[3][0]
    padded = -(-columns // COLUMNS_AT_A_TIME) * COLUMNS_AT_A_TIME
    return _count(box) // columns * padded * (_count(taps) + LAST_STEP_TAPS)


def _count(box: tuple[Range, ...]) -> int:
    count = 1
    for low, high in box:
        count *= high - low
    return count


def _longest(box: OutputBox) -> int | None:
    """The dimension to cut for a shorter dispatch: the outermost one with several entries."""
    return next((k for k, (low, high) in enumerate(box) if high - low > 1), None)
