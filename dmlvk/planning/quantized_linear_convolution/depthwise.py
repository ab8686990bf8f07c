"""The path `depthwise` of QUANTIZED_LINEAR_CONVOLUTION: one input channel for each output channel, in words of four
neighbours, channels or columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    DISPATCH_SECONDS,
    Box,
    DispatchBuilder,
    Range,
    View,
    boxes,
    by_dimension,
    dense,
    farthest,
    reach,
    sizes_of,
)
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.division import reciprocals
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.last_step import HAS_TABLE, TABLE_SIZE
from dmlvk.planning.plan import Access, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.estimate import PARAMETER_WAITS, STORES_OF_A_BYTE
from dmlvk.planning.quantized_linear_convolution.operands import (
    BUFFER_COUNT,
    PARAMETER_FIELDS,
    ConvolutionOperands,
    Sources,
)
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP
from dmlvk.planning.quantized_linear_convolution.path import ConvolutionPath, Obstacle, ObstacleError, Problem
from dmlvk.planning.quantized_linear_convolution.stages import Stages
from dmlvk.tensor_desc import TensorFlags

KERNEL = "quantized_linear_convolution/depthwise"
PREPARATION_KERNEL = "quantized_linear_convolution/depthwise_prepare"
# Outputs: image, channel, row, column.
IMAGE, CHANNEL, ROW, COLUMN = range(4)

# Of unrolled loops, which bounds a tile's code and registers: taps, rows or columns of a filter, and strides.
LARGEST_TAP_COUNT, LARGEST_REACH, LARGEST_STRIDE = 49, 16, 4
# Operations of a tap, a multiply-add and two that take its bytes out of words; and taps, four in two rows, of a wait.
OPERATIONS_OF_TAP, TAPS_OF_A_WAIT = 4, 8
# On CPU drivers: multiply-adds in the time of one of the direct kernel's, on lavapipe and on others.
CPU_TAPS_AT_A_TIME, CPU_TAPS_OF_ONE = 8.0, 0.8

# Outputs in planes of whole words, stride 1, above which workgroups had better prepare a channel each, for many tiles.
MOST_PREPARED_PLANES = 1 << 22
# As in kernels/quantized_linear_convolution/depthwise_channel.glsl: channels of a panel, and rows before the weights.
PANEL, PARAMETER_ROWS, PREPARATION_WORKGROUP = 64, 4, 64
# With prepared channels no tensor of parameters is read. So no constant depends on them, and layers share pipelines.
# This push constant says where none of them is; the others of this kind hold something else.
NO_SOURCES = Sources({}, False, False, False)
UNUSED = "bias_start"

# Sums that an invocation holds at a time. A GPU runs more invocations at a time if each takes fewer registers.
LARGEST_SUM_COUNT = 32
# Products of a row of a tile by packed dot products of words of channels: for twice as many, a CPU compiles a second.
LARGEST_PRODUCT_COUNT = 100
# A CPU multiplies so few outputs of so few taps by packed dot products, to do without a table of parameters.
FEW_OUTPUTS, FEW_TAPS = 1 << 15, 9
# Rows of the tallest tiles, which read least of the input twice.
TALLEST_TILE = 28
# Invocations with which a GPU is not idle, by whether words hold channels; and for planes of few columns.
ENOUGH_INVOCATIONS = {True: 3 << 13, False: 1 << 16}
ENOUGH_NARROW_INVOCATIONS, FEW_COLUMNS = 1 << 18, 8
# Invocations of a workgroup: small ones spread over a GPU; the medium one is for planes whose channels are prepared.
SMALL_WORKGROUP, MEDIUM_WORKGROUP = 64, 128
# Channels of a workgroup. Large ones, which prepare weights less often, pay with all channels and with more rows.
SMALL_BLOCK, LARGEST_BLOCK, FEW_ROWS = 16, 64, 4
# Output rows whose input an invocation has registers to fetch, by whether words hold channels; and if these are few.
BATCH, SMALLER_BATCH = {True: 2, False: 4}, {True: 1, False: 2}
# Bytes that every device has, few enough for several workgroups to run side by side.
LARGEST_SHARED_MEMORY = 16 << 10
# Workgroups that keep a CPU, and a GPU, busy: instead of more, an invocation has tiles in turn, at most this many.
ENOUGH_WORKGROUPS, LARGEST_TILE_COUNT = {True: 32, False: 2048}, {True: 64, False: 8}


@dataclass(frozen=True)
class InputWords:
    """How the input is divided into words: of four channels each (`channels_last`), or of four columns.

    Rows begin at words if they are `aligned`.
    """

    channels_last: bool
    aligned: bool

    @property
    def dimension(self) -> int:
        """The dimension of the outputs along which four neighbours belong to one word."""
        return CHANNEL if self.channels_last else COLUMN

    def steps(self, sizes: Sequence[int]) -> list[int]:
        """Sizes of outputs in whole words of the input."""
        return [-(-size // 4) if k == self.dimension else size for k, size in enumerate(sizes)]

    @classmethod
    def of(cls, problem: Problem) -> InputWords | None:
        """The words of an input; None if neither channels nor columns are contiguous in memory."""
        geometry, sizes = problem.desc.geometry, problem.desc.geometry.input_sizes
        source = View("input_tensor", 0, 1, geometry.input_strides)
        if problem.desc.input_tensor.flags & TensorFlags.OWNED_BY_DML:
            source = dense("input_tensor", 0, 1, sizes)  # it is copied
        # The stride of a dimension of size 1 means nothing.
        n, c, h, w = (0 if size == 1 else stride for size, stride in zip(sizes, source.strides, strict=True))
        if c == 1 and geometry.output_channels_per_group == 1 and not any(x % 4 for x in (n, h, w, source.start)):
            return cls(True, True)
        if w == 1 or geometry.input_size[1] == 1:
            return cls(False, not any(x % 4 for x in (n, c, h, source.start)))
        return None


class DepthwisePath(ConvolutionPath[InputWords]):
    """Every output channel sees one input channel: words of four channels or columns, straight from the tensors. On
    every device.
    """

    name = "depthwise"

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        geometry = problem.desc.geometry
        if geometry.input_channels_per_group != 1:
            return Obstacle("input channels of a group", geometry.input_channels_per_group, "1")
        if (taps := math.prod(geometry.filter_size)) > LARGEST_TAP_COUNT:
            return Obstacle("filter taps", taps, f"at most {LARGEST_TAP_COUNT}")
        for size, dilation, stride in zip(geometry.filter_size, geometry.dilations, geometry.strides, strict=True):
            if (extent := (size - 1) * dilation + 1) > LARGEST_REACH:
                return Obstacle("rows or columns of the dilated filter", extent, f"at most {LARGEST_REACH}")
            if stride > LARGEST_STRIDE:
                return Obstacle("stride", stride, f"at most {LARGEST_STRIDE}")
        if InputWords.of(problem) is None:
            return Obstacle("input strides", geometry.input_strides, "four neighbours in a 32-bit word")
        return None

    def tiles(self, problem: Problem) -> tuple[InputWords, ...]:
        words = InputWords.of(problem)
        return () if words is None or self.obstacle_to(problem) is not None else (words,)

    def kernel_seconds(self, problem: Problem, tile: InputWords) -> float:
        geometry, rates = problem.desc.geometry, rates_of(problem.profile)
        outputs = 4 * math.prod(tile.steps(geometry.output_sizes))
        if problem.profile.device_type is DeviceType.CPU:
            is_faster = device_traits.is_faster_with_depthwise(problem.profile)
            return outputs * geometry.tap_count / ((CPU_TAPS_AT_A_TIME if is_faster else CPU_TAPS_OF_ONE) * rates.tap)
        stores = STORES_OF_A_BYTE if not tile.channels_last and _has_ragged_rows(geometry) else 1
        busy = outputs * stores * (OPERATIONS_OF_TAP * geometry.tap_count / rates.integer + 1 / rates.last_step)
        waits = geometry.tap_count / TAPS_OF_A_WAIT + (0 if _is_prepared(problem, tile) else PARAMETER_WAITS)
        return rates.seconds(1, waits, busy)

    def plan(self, problem: Problem, tile: InputWords) -> Plan:
        stages = Stages(problem, problem.desc.geometry, ("input", "filter"))
        table: View | None = None
        prepared: View | None = None
        if _is_prepared(problem, tile) and (made := prepared_channels(stages.operands)) is not None:
            prepared, dispatch = made
            stages.initialization[1].append(dispatch)
        if _is_packed(problem):
            stages.gather_parameters()
        else:
            table = stages.parameter_table()
        depthwise = Depthwise(stages.operands, tile, self.longest_seconds(problem, tile), table, prepared)
        stages.add(depthwise.dispatches())
        return stages.plan(self.name)


def _has_ragged_rows(geometry: ConvolutionGeometry) -> bool:
    return any(size % 4 for size in (geometry.input_size[1], geometry.output_size[1]))


def _is_packed(problem: Problem) -> bool:
    """Whether taps are multiplied four at a time, with float32 last steps and parameters that the kernel computes.

    A CPU's driver makes a dozen instructions of a packed dot product. Without, it needs a table of parameters, which
    costs a dispatch if it is not made once. With emulated dot products the kernel spills where the other one does not:
    up to 181 registers with RADV. With few registers both spill, on Apple's GPUs the other one more.
    """
    profile, geometry = problem.profile, problem.desc.geometry
    if not profile.has_integer_dot_product or device_traits.ROUNDING not in profile.properties:
        return False
    if profile.limits.max_per_stage_descriptor_storage_buffers < BUFFER_COUNT:
        return False
    if profile.device_type is DeviceType.CPU:
        is_small = math.prod(geometry.output_sizes) <= FEW_OUTPUTS and geometry.tap_count <= FEW_TAPS
        return is_small and not problem.has_owned_constants
    return device_traits.has_few_registers(profile) or not device_traits.emulates_dot_products(profile)


def _is_prepared(problem: Problem, words: InputWords) -> bool:
    """Whether channels are given once, and worth working out once."""
    if not problem.has_owned_constants or not _is_packed(problem):
        return False
    if words.channels_last or _has_ragged_rows(problem.desc.geometry) or max(problem.desc.geometry.strides) > 1:
        return True
    return math.prod(problem.desc.geometry.output_sizes) <= MOST_PREPARED_PLANES


def prepared_channels(operands: ConvolutionOperands) -> tuple[View, Dispatch] | None:
    """Panels of channels in persistent memory, and the dispatch that fills them; None if one dispatch cannot do it.

    A panel has rows with a word of each channel, of parameters and of weights. The view has one element, all panels.
    """
    builder, geometry, parameters = operands.builder, operands.geometry, operands.parameters
    channels, (height, width) = geometry.output_channels, geometry.filter_size
    words = height * -(-((width - 1) * geometry.dilations[1] + 1) // 4)
    rows = PARAMETER_ROWS + (2 if parameters.has_filter_zero_point else 1) * words
    size, arena, elements = -(-channels // PANEL) * rows * PANEL * 4, builder.persistent, 4 * words * channels
    shown = [(view.tensor, view.bounds([(0, channels)])) for view in parameters.views.values()]
    shown += [(operands.filter.tensor, operands.filter.bounds(((0, channels), *operands.all_taps)))]
    shown += [(arena.name, (arena.size, arena.size + size))]
    if not all(builder.fits(*each) for each in shown) or elements > builder.elements_per_dispatch:
        return None
    panels = View(arena.name, arena.allocate(size), size, (0,))
    dispatch = DispatchBuilder(PREPARATION_KERNEL)
    dispatch.window(panels.tensor, panels.bounds([(0, 1)]), panels.start, 4, "panels_start", Access.WRITE)
    dispatch.show(operands.filter, ((0, channels), *operands.all_taps), "filter_start")
    parameters.bind(dispatch, (0, channels))
    dispatch.push(
        channels=channels,
        tap_rows=height,
        tap_columns=width,
        dilation_w=geometry.dilations[1],
        **by_dimension("filter_stride", "mhw", (operands.filter.strides[0], *operands.filter.strides[2:])),
    )
    zero_point = int(parameters.has_filter_zero_point)
    return panels, dispatch.finish(
        {LOCAL_SIZE_X: PREPARATION_WORKGROUP, "FILTER_ZERO_POINT": zero_point, **parameters.constants},
        builder.grid(-(-channels // 4) * 4, PREPARATION_WORKGROUP),
        seconds=builder.element_seconds(elements),
        bytes_moved=elements + size,
    )


@dataclass(frozen=True)
class Tiling:
    """The outputs that an invocation and a workgroup compute."""

    # Outputs of a tile.
    rows: int
    columns: int
    tiles: int  # tiles that an invocation computes one after another
    # Channels, or quads of channels, of a workgroup, and the most that there may be in such a pipeline.
    block: int
    most_block: int
    size: int  # invocations of a workgroup

    @property
    def items(self) -> int:
        """Invocations of a workgroup for each channel or quad."""
        return self.size // self.block


@dataclass(frozen=True)
class Depthwise:
    """A depthwise convolution to be cut into dispatches."""

    operands: ConvolutionOperands
    words: InputWords
    # Of the whole convolution: see `ConvolutionPath.longest_seconds`.
    longest_seconds: float
    table: View | None  # the table of parameters, if the device multiplies without packed dot products
    # What follows from the filter and the parameters, if it is worked out once. It fits one window.
    prepared: View | None

    @property
    def geometry(self) -> ConvolutionGeometry:
        return self.operands.geometry

    @property
    def profile(self) -> DeviceProfile:
        return self.operands.builder.profile

    @property
    def is_cpu(self) -> bool:
        return self.profile.device_type is DeviceType.CPU

    @property
    def shares_pipelines(self) -> bool:
        """Whether sizes are push constants. With words of columns, constants are up to a third faster (H200), and on a
        CPU an eighth.
        """
        return self.words.channels_last and not self.is_cpu

    @property
    def holds_weights(self) -> bool:
        """Whether an invocation has registers for the weights of its channels."""
        return not device_traits.has_few_registers(self.profile)

    def dispatches(self) -> list[Dispatch]:
        """All dispatches, in any order.

        Raises ObstacleError: no window holds all that the smallest part of the outputs needs.
        """
        units = [4 if dimension == self.words.dimension else 1 for dimension in (IMAGE, CHANNEL, ROW, COLUMN)]
        return [self.dispatch(box) for box in boxes(self.operands.whole_output, self._cut, units)]

    def _cut(self, box: Box) -> int | None:
        """The dimension along which a box is to be cut; None if it fits a dispatch."""
        builder = self.operands.builder
        hidden = [far for tensor, bounds, far in self._shown(box) if not builder.fits(tensor, bounds)]
        is_short = max(self._grid(box)[:2]) <= GUARANTEED_WORKGROUP_COUNT and self.seconds(box) <= DISPATCH_SECONDS
        if not hidden and is_short:
            return None
        dimension = farthest(hidden[0] if hidden else (0, 0, 0, 0), self.words.steps(sizes_of(box)))
        if dimension is None:
            sizes = tuple(sizes_of(box))
            raise ObstacleError(Obstacle("outputs whose operands a window shows", sizes, "at least the smallest part"))
        return dimension

    def _shown(self, box: Box) -> list[tuple[str, Range, Sequence[int]]]:
        """The bytes of each tensor that a box needs, and how far each dimension stretches them."""
        operands, channels = self.operands, (0, 1, 0, 0)
        source, output, filters = operands.input, operands.output, operands.filter
        shown: list[tuple[str, Range, Sequence[int]]] = [
            (source.tensor, operands.seen_bounds(box, operands.all_taps), operands.input_reach(box)),
            (output.tensor, output.bounds(box), reach(output, box)),
        ]
        if self.prepared is None:
            shown.append((filters.tensor, filters.bounds((box[CHANNEL], *operands.all_taps)), channels))
        if self.table is not None:
            shown.append((self.table.tensor, self.table.bounds([box[CHANNEL]]), channels))
        return shown

    def seconds(self, box: Box) -> float:
        """A box's share of the longest time, by its outputs, with those of steps that are not whole."""
        shares = [math.prod(self.words.steps(sizes_of(each))) for each in (box, self.operands.whole_output)]
        return self.longest_seconds * shares[0] / shares[1]

    def _tile(self, box: Box) -> tuple[int, int]:
        """Rows and columns of a tile."""
        geometry, last, (images, channels, rows, columns) = self.geometry, self.words.channels_last, sizes_of(box)
        extent = (geometry.filter_size[0] - 1) * geometry.dilations[0] + 1
        # Rows of outputs that read one row of the input.
        live = -(-extent // geometry.strides[0])
        width = 4
        if last and self.is_cpu:
            widths = (4, 2) if self.table is None else ()
            width = next((w for w in widths if 4 * w * geometry.tap_count <= LARGEST_PRODUCT_COUNT), 1)
        elif last and (4 * width * live > LARGEST_SUM_COUNT or geometry.strides[1] > 1):
            width = 2 if 4 * 2 * live <= LARGEST_SUM_COUNT or self.holds_weights else 1
        # The height with the fewest input rows to read. The preparation of each tile counts as two rows.
        height = min(
            range(1, TALLEST_TILE + 1),
            key=lambda each: (-(-rows // each) * ((each - 1) * geometry.strides[0] + extent + 2), each),
        )
        if self.is_cpu:
            return height, width
        # Rows that lie under two tiles are read twice. If there are many, columns are divided before the last rows.
        lowest = 2 if last and extent >= 2 * geometry.strides[0] else 1
        enough = ENOUGH_NARROW_INVOCATIONS if not last and columns <= FEW_COLUMNS else ENOUGH_INVOCATIONS[last]

        def is_too_large(height: int, width: int) -> bool:
            return images * self._units(channels) * -(-rows // height) * -(-columns // width) < enough

        while height > lowest and is_too_large(height, width):
            height = -(-height // 2)
        while last and width > 1 and is_too_large(height, width):
            width //= 2
        return height, width

    def _units(self, channels: int) -> int:
        """Quads of channels, or channels."""
        return -(-channels // 4) if self.words.channels_last else channels

    def _tiling(self, box: Box) -> Tiling:
        geometry, last, (images, channels, rows, columns) = self.geometry, self.words.channels_last, sizes_of(box)
        (height, width), units = self._tile(box), self._units(channels)
        available = images * -(-rows // height) * -(-columns // width)
        size, largest_block = self.operands.builder.workgroup_size, LARGEST_BLOCK
        if last and not self.is_cpu and (height <= FEW_ROWS or geometry.strides[0] > 1 or units > LARGEST_BLOCK):
            size, largest_block = min(size, SMALL_WORKGROUP), SMALL_BLOCK
        elif not last and self.prepared is not None and not self.is_cpu:
            size = min(size, MEDIUM_WORKGROUP)
        weights = math.prod(geometry.filter_size) * (2 if self.table is None else 1)
        room = (LARGEST_SHARED_MEMORY - TABLE_SIZE) // (4 * (weights + 4) * (4 if last else 1)) - 1
        if last:
            block = -(-units // -(-units // min(largest_block, size, room)))
            items = min(size // block, available)
        else:
            items = min(size, available)
            block = max(1, min(size // items, units, room))
        used, most = block * items, block
        if self.shares_pipelines:
            # Few different sizes: powers of two.
            used = min(size, 1 << (used - 1).bit_length())
            items = used // block
            most = min(room, next((each for each in (SMALL_BLOCK, LARGEST_BLOCK) if block <= each), room))
        workgroups = -(-available // items) * -(-units // block)
        tiles = max(1, min(workgroups // ENOUGH_WORKGROUPS[self.is_cpu], LARGEST_TILE_COUNT[self.is_cpu]))
        # There is little that several tiles could share if channels are prepared.
        return Tiling(height, width, tiles if self.prepared is None else 1, block, most, used)

    def _grid(self, box: Box) -> tuple[int, int, int]:
        tiling, (images, channels, rows, columns) = self._tiling(box), sizes_of(box)
        tiles = images * -(-rows // tiling.rows) * -(-columns // tiling.columns)
        return -(-tiles // (tiling.items * tiling.tiles)), -(-self._units(channels) // tiling.block), 1

    def _batch(self) -> int:
        if self.is_cpu:
            return 1  # compilers for CPUs take long to compile unrolled loops
        last = self.words.channels_last
        is_room = self.holds_weights if last else device_traits.keeps_four_rows_in_registers(self.profile)
        return BATCH[last] if is_room else SMALLER_BATCH[last]

    def _divisions(self, tiling: Tiling, tile_rows: int, tile_columns: int) -> dict[str, int]:
        """What saves a kernel with prepared channels its divisions, in push constants that it does not need."""
        across = tiling.block if self.words.channels_last else tiling.items
        numbers, shifts = reciprocals(across, tile_columns, tile_rows)
        names = ("input_scale_start", "filter_scale_start", "output_scale_start")
        found = dict(zip(names, numbers, strict=True))
        found |= {"filter_zero_point_start": tiling.items, "output_zero_point_start": 0}
        return {**found, "input_zero_point_start": shifts}

    def dispatch(self, box: Box) -> Dispatch:
        geometry, tiling, words, operands = self.geometry, self._tiling(box), self.words, self.operands
        images, channels, rows, columns = sizes_of(box)
        tile_rows, tile_columns = -(-rows // tiling.rows), -(-columns // tiling.columns)
        dispatch = DispatchBuilder(f"{KERNEL}_dot4" if self.table is None else f"{KERNEL}_integer")
        image, _, first_row, first_column = operands.corner(box, operands.all_taps)
        shift = first_column % 4 if words.aligned and not words.channels_last else 0
        first_column -= shift
        source, sources, filter_strides = operands.input, operands.parameters, operands.filter.strides
        if geometry.input_size[1] == 1:
            source = replace(source, strides=(*source.strides[:3], 1))
        bounds = operands.seen_bounds(box, operands.all_taps)
        address = source.address((image, 0, first_row, first_column))
        dispatch.window(source.tensor, bounds, address, 1, "input_start")
        moved = bounds[1] - bounds[0]
        if self.prepared is None:
            moved += dispatch.show(operands.filter, (box[CHANNEL], *operands.all_taps), "filter_start")
        else:
            sources, filter_strides = NO_SOURCES, (0, 0, 0, 0)
            panels = self.prepared.bounds([(0, 1)])
            dispatch.window(self.prepared.tensor, panels, panels[0], 16, "filter_start")
            moved += panels[1] - panels[0]
        moved += dispatch.show(operands.output, box, "output_start", Access.WRITE)
        if self.prepared is not None:
            for _ in PARAMETER_FIELDS:
                dispatch.unread_window(dispatch.windows[1], UNUSED)
            dispatch.push(**self._divisions(tiling, tile_rows, tile_columns))
        elif self.table is None:
            sources.bind(dispatch, box[CHANNEL])
        else:
            dispatch.show(self.table, [box[CHANNEL]], "table_start", unit=4)
        sizes = {"ROWS": tiling.rows, "BLOCK": tiling.block}
        sizes |= {"ROW_LIMIT": geometry.input_size[0], "COLUMN_LIMIT": geometry.input_size[1]}
        dispatch.push(
            images=images,
            channels=channels,
            rows=rows,
            columns=columns,
            tile_rows=tile_rows,
            tile_columns=tile_columns,
            tiles=tiling.tiles,
            first_channel=box[CHANNEL][0],
            first_row=first_row,
            first_column=first_column,
            **by_dimension("input_stride", "nchw", source.strides),
            **by_dimension("output_stride", "nchw", operands.output.strides),
            tile_height=sizes["ROWS"],
            block=sizes["BLOCK"],
            row_limit=sizes["ROW_LIMIT"],
            column_limit=sizes["COLUMN_LIMIT"],
        )
        is_prepared = self.prepared is not None
        specialization = {
            LOCAL_SIZE_X: tiling.size,
            "INPUT_FLIP": UNSIGNED_FLIP * 0x01010101 if operands.parameters.input_unsigned else 0,
            "FILTER_FLIP": UNSIGNED_FLIP if sources.filter_unsigned else 0,
            "OUTPUT_UNSIGNED": int(operands.parameters.output_unsigned),
            "CHANNELS_LAST": int(words.channels_last),
            "TAP_ROWS": geometry.filter_size[0],
            "TAP_COLUMNS": geometry.filter_size[1],
            **by_dimension("STRIDE", "HW", geometry.strides),
            **by_dimension("DILATION", "HW", geometry.dilations),
            "COLUMNS": tiling.columns,
            "MOST_BLOCK": 1 if is_prepared and self.holds_weights else tiling.most_block,
            "SHIFT": shift,
            "ALIGNED": int(words.aligned),
            "WHOLE_WORDS": int(writes_runs(operands.output, box, words.dimension, 4)),
            "FILTER_ZERO_POINT": int(operands.parameters.has_filter_zero_point),
            "BATCH": self._batch(),
            "CHANNELS_OF_GROUP": geometry.output_channels_per_group,
            **by_dimension("FILTER_STRIDE", "MHW", (filter_strides[0], *filter_strides[2:])),
            **{name: 0 if self.shares_pipelines else value for name, value in sizes.items()},
        }
        if self.table is None:
            specialization |= sources.constants
            specialization |= {"HELD": int(self.holds_weights), "PREPARED": int(is_prepared), HAS_TABLE: 0}
        else:
            specialization["AHEAD"] = int(not self.is_cpu)
        operations = 2 * math.prod(sizes_of(box)) * geometry.tap_count
        grid, seconds = self._grid(box), self.seconds(box)
        return dispatch.finish(specialization, grid, seconds=seconds, bytes_moved=moved, operations=operations)


def writes_runs(output: View, box: Box, dimension: int, size: int) -> bool:
    """Whether a box of outputs is whole runs of `size` neighbours along a dimension, each at a multiple of `size`."""
    strides = [0 if high - low == 1 else step for (low, high), step in zip(box, output.strides, strict=True)]
    low, high = box[dimension]
    first = output.address([low for low, _ in box])
    return strides.pop(dimension) == 1 and not any(number % size for number in (*strides, first, high - low))
