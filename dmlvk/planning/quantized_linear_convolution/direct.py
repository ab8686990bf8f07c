"""The paths `direct` and `general` of QUANTIZED_LINEAR_CONVOLUTION: one output at a time, from the tensors in place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.device_profile import DeviceType
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    BLOCK_SIZE,
    DISPATCH_SECONDS,
    Box,
    DispatchBuilder,
    Excess,
    View,
    by_dimension,
    output_boxes,
    reach,
    sizes_of,
)
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import GENERAL_PATH, SCRATCH, Access, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.estimate import SECTOR_SIZE
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands
from dmlvk.planning.quantized_linear_convolution.path import ConvolutionPath, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import packs_channels
from dmlvk.planning.quantized_linear_convolution.stages import Stages

# The taps in whose time an output is scaled, rounded and stored.
LAST_STEP_TAPS = 10
# Neighbouring outputs that an invocation computes.
COLUMNS_AT_A_TIME = 4
# |x - zx| and |w - zw| are at most 255: the sum of this many products fits 31 bits.
PRODUCTS_IN_32_BITS = (2**31 - 1) // (255 * 255)
# Outputs whose sums are in progress over several dispatches at a time, and bytes of a sum.
LARGEST_ACCUMULATOR_COUNT, ACCUMULATOR_SIZE = 1 << 20, 8
BEGIN, ADD = 1, 2
# Two sizes share a push constant.
LARGEST_SIZE = 0xFFFF


class DirectPath(ConvolutionPath[None]):
    """One output at a time, from the tensors in place: for narrow groups, and for convolutions too large for the other
    paths. It takes every convolution on every device.
    """

    name = "direct"
    # Whether the sizes are push constants, so that all layers share a pipeline.
    is_general = False

    def tiles(self, problem: Problem) -> tuple[None, ...]:
        return (None,) if self.obstacle_to(problem) is None else ()

    def kernel_seconds(self, problem: Problem, tile: None) -> float:
        geometry, rates = problem.desc.geometry, rates_of(problem.profile)
        outputs = math.prod(geometry.output_sizes)
        if problem.profile.device_type is DeviceType.CPU:
            return outputs * geometry.tap_count / rates.tap
        # Neighbouring invocations have neighbouring columns. Where these are not neighbours in memory, a load fetches
        # more than it needs: for channels-last tensors a whole sector for a byte, or the channels of a pixel.
        columns = geometry.output_size[1]
        padded = outputs * -(-columns // COLUMNS_AT_A_TIME) * COLUMNS_AT_A_TIME / columns
        scattered = min(SECTOR_SIZE, geometry.output_channels) if packs_channels(geometry) else 1
        busy = scattered * padded * (geometry.tap_count + LAST_STEP_TAPS) / rates.tap
        return rates.seconds(1, geometry.tap_count, busy)

    def plan(self, problem: Problem, tile: None) -> Plan:
        stages = Stages(problem, problem.desc.geometry, ("input", "filter"))
        table, longest_seconds = stages.parameter_table(), self.longest_seconds(problem, tile)
        stages.add(*Direct(stages.operands, table, self.is_general, longest_seconds).stages())
        return stages.plan(self.name)


class GeneralPath(DirectPath):
    """The direct kernel with its sizes in push constants."""

    name = GENERAL_PATH
    is_general = True

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        geometry = problem.desc.geometry
        largest = max(*geometry.filter_size, *geometry.strides, *geometry.dilations)
        if largest > LARGEST_SIZE:
            return Obstacle("the largest filter size, stride or dilation", largest, f"at most {LARGEST_SIZE}")
        return None


@dataclass(frozen=True)
class Direct:
    """A convolution to be cut into dispatches of the direct kernel: by windows on the tensors, by time, by loops.

    Boxes of outputs are (image, channel, row, column), those of taps (channel of the group, row, column).
    """

    operands: ConvolutionOperands
    table: View  # the channels' parameters
    is_general: bool  # whether sizes and types are push constants
    # Of the whole convolution: see `ConvolutionPath.longest_seconds`.
    longest_seconds: float

    def stages(self) -> list[tuple[Dispatch, ...]]:
        """First, in one stage, the outputs whose taps all fit windows. Then the others, box by box of taps.

        Boxes of outputs take turns with the same accumulators: there are few, because each is as large as these allow.
        """
        outputs, taps = self.operands.whole_output, self.operands.all_taps
        whole, parts = output_boxes(outputs, taps, self._excess, self._accumulator_limit)
        stages = [tuple(self._dispatch(box, taps) for box in whole)] if whole else []
        most = max((math.prod(sizes_of(box)) for box, _ in parts), default=0)
        start = self.operands.builder.scratch.allocate(most * ACCUMULATOR_SIZE)
        for box, of_box in parts:
            stages += [(self._dispatch(box, each, ADD if k else BEGIN, start),) for k, each in enumerate(of_box)]
            stages.append((self._requantize(box, start),))
        return stages

    @property
    def _accumulator_limit(self) -> int:
        """The number of accumulators at a time: they fit one window in the rest of the first scratch segment."""
        builder = self.operands.builder
        room = min(builder.window_limit, builder.profile.segment_size - builder.scratch.size)
        return max(1, min(LARGEST_ACCUMULATOR_COUNT, (room - BLOCK_SIZE) // ACCUMULATOR_SIZE))

    def _excess(self, box: Box, taps: Box) -> Excess | None:
        """What is too much for one dispatch about some taps of some outputs."""
        operands, geometry = self.operands, self.operands.geometry
        source, filters, output, builder = operands.input, operands.filter, operands.output, operands.builder
        channels, last_taps = sizes_of(box)[1] - 1, [size - 1 for size in sizes_of(taps)]
        if self._seconds(box, taps) > DISPATCH_SECONDS or self._is_too_deep(taps):
            return Excess((0, 0, 0, 0), last_taps, not self._is_too_deep(taps))
        seen = operands.seen_bounds(box, taps)
        if not builder.fits(source.tensor, seen):
            steps = zip(last_taps, (1, *geometry.dilations), source.strides[1:], strict=True)
            of_taps = [last * dilation * stride for last, dilation, stride in steps]
            # If the taps of one output take most of a window, few outputs would share the window. What a window could
            # show lies in two segments: so may the taps of one output.
            first, end = operands.seen_bounds(tuple((low, low + 1) for low, _ in box), operands.all_taps)
            is_long = seen[1] - seen[0] > builder.window_limit
            return Excess(operands.input_reach(box), of_taps, is_long and end - first <= builder.window_limit // 2)
        if not builder.shows(filters, (box[1], *taps)):
            first, end = filters.bounds(((0, 1), *operands.all_taps))
            of_taps = [last * step for last, step in zip(last_taps, filters.strides[1:], strict=True)]
            return Excess([0, channels * filters.strides[0], 0, 0], of_taps, end - first <= builder.window_limit - 16)
        if not builder.shows(output, box):
            return Excess(reach(output, box), (0, 0, 0))
        return None if builder.shows(self.table, [box[1]]) else Excess((0, channels, 0, 0), (0, 0, 0))

    def _seconds(self, box: Box, taps: Box) -> float:
        """The share of the longest time that some taps of some outputs have."""
        return self.longest_seconds * _work(box, taps) / _work(self.operands.whole_output, self.operands.all_taps)

    def _is_too_deep(self, taps: Box) -> bool:
        """Whether an invocation's nested loops exceed the driver's limit of iterations."""
        channels, rows, columns = sizes_of(taps)
        # A loop counts its last test, too.
        iterations = channels * (2 + rows * (2 + columns))
        most = device_traits.loop_iterations(self.operands.builder.profile)
        return most is not None and iterations > most

    def _dispatch(self, box: Box, taps: Box, accumulate: int = 0, accumulators: int = 0) -> Dispatch:
        """Some taps of some outputs: all of them, or added to accumulators in scratch memory."""
        operands, geometry, source = self.operands, self.operands.geometry, self.operands.input
        sizes, (tap_channels, *tap_sizes) = sizes_of(box), sizes_of(taps)
        dispatch = DispatchBuilder("quantized_linear_convolution/direct")
        corner, bounds = operands.corner(box, taps), operands.seen_bounds(box, taps)
        dispatch.window(source.tensor, bounds, source.address(corner), 1, "input_start")
        moved = bounds[1] - bounds[0] + dispatch.show(operands.filter, (box[1], *taps), "filter_start")
        dispatch.show(self.table, [box[1]], "table_start", unit=4)
        if accumulate:
            size = math.prod(sizes) * ACCUMULATOR_SIZE
            written = (accumulators, accumulators + size)
            dispatch.window(SCRATCH, written, accumulators, ACCUMULATOR_SIZE, "output_start", Access.WRITE)
            moved += size
        else:
            moved += dispatch.show(operands.output, box, "output_start", Access.WRITE)
        count = math.prod(sizes[:3]) * -(-sizes[3] // COLUMNS_AT_A_TIME)
        dispatch.push(
            count=count,
            channels=sizes[1],
            rows=sizes[2],
            columns=sizes[3],
            first_of_group=box[1][0] % geometry.output_channels_per_group,
            channels_of_group=geometry.output_channels_per_group,
            tap_channels=tap_channels,
            first_row=corner[2],
            first_column=corner[3],
            row_limit=geometry.input_size[0],
            column_limit=geometry.input_size[1],
            input_stride_group=source.strides[1] * geometry.input_channels_per_group,
            **by_dimension("input_stride", "nchw", source.strides),
            **by_dimension("filter_stride", "mchw", operands.filter.strides),
            **by_dimension("output_stride", "nchw", operands.output.strides),
        )
        many_taps = 0
        if math.prod(sizes_of(taps)) > PRODUCTS_IN_32_BITS:
            many_taps = 2 if tap_sizes[1] > PRODUCTS_IN_32_BITS else 1
        types = operands.parameters.kinds["UNSIGNED_TYPES"]
        pairs = {"tap": tap_sizes, "stride": geometry.strides, "dilation": geometry.dilations}
        pushed = {f"{name}s": rows | columns << 16 for name, (rows, columns) in pairs.items()}
        if self.is_general:
            dispatch.push(unsigned_types=types, **pushed)
            types, pairs = 0, dict.fromkeys(pairs, (1, 1))
        else:
            dispatch.push(unsigned_types=0, **dict.fromkeys(pushed, 0))
        specialization = {
            LOCAL_SIZE_X: operands.builder.workgroup_size,
            "MANY_TAPS": many_taps,
            "ACCUMULATE": accumulate,
            "GENERAL": int(self.is_general),
            "TAP_ROWS": pairs["tap"][0],
            "TAP_COLUMNS": pairs["tap"][1],
            **by_dimension("STRIDE", "HW", pairs["stride"]),
            **by_dimension("DILATION", "HW", pairs["dilation"]),
            "UNSIGNED_TYPES": types,
        }
        return dispatch.finish(
            specialization,
            operands.builder.grid(count),
            seconds=self._seconds(box, taps),
            bytes_moved=moved,
            operations=2 * math.prod(sizes_of(box)) * math.prod(sizes_of(taps)),
        )

    def _requantize(self, box: Box, accumulators: int) -> Dispatch:
        sizes, builder, output = sizes_of(box), self.operands.builder, self.operands.output
        count, dispatch = math.prod(sizes), DispatchBuilder("quantized_linear_convolution/requantize")
        read = (accumulators, accumulators + count * ACCUMULATOR_SIZE)
        dispatch.window(SCRATCH, read, accumulators, ACCUMULATOR_SIZE, "accumulator_start")
        dispatch.show(self.table, [box[1]], "table_start", unit=4)
        dispatch.show(output, box, "output_start", Access.WRITE)
        strides = by_dimension("output_stride", "nchw", output.strides)
        dispatch.push(count=count, channels=sizes[1], rows=sizes[2], columns=sizes[3], **strides)
        unsigned = int(self.operands.parameters.output_unsigned)
        return dispatch.finish(
            {LOCAL_SIZE_X: builder.workgroup_size, "OUTPUT_UNSIGNED": unsigned},
            builder.grid(count),
            seconds=builder.element_seconds(count),
            bytes_moved=9 * count,
        )


def _work(box: Box, taps: Box) -> int:
    """Multiply-adds, with those of the columns that an invocation computes beside."""
    *others, columns = sizes_of(box)
    padded = -(-columns // COLUMNS_AT_A_TIME) * COLUMNS_AT_A_TIME
    return math.prod(others) * padded * (math.prod(sizes_of(taps)) + LAST_STEP_TAPS)
