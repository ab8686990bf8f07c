"""How the path `depthwise` is cut into dispatches, by words of four neighbours."""

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
    by_dimension,
    halves,
    largest,
    pieces,
    reach,
)
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.depthwise_channels import PreparedChannels
from dmlvk.planning.quantized_linear_convolution.operands import Operands
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP
from dmlvk.planning.quantized_linear_convolution.parameters import BUFFER_COUNT, PARAMETER_FIELDS, Sources, table_bounds
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, ObstacleError
from dmlvk.planning.quantized_linear_convolution.tiled_dispatch import reciprocal_of

KERNEL = "quantized_linear_convolution/depthwise"

# Outputs: image, channel, row, column.
IMAGE, CHANNEL, ROW, COLUMN = range(4)

# With prepared channels no tensor of parameters is read. So no constant depends on them, and layers share pipelines.
# This push constant says where none of them is; the others of this kind hold something else.
NO_SOURCES = Sources({}, False, False, False)
UNUSED = "bias_start"

# Sums that an invocation holds at a time. A GPU runs more invocations at a time if each takes fewer registers.
LARGEST_SUM_COUNT = 32
# With packed dot products, products of a row of a tile of words of channels. A CPU's compiler takes a second for twice
# as many. Without, a tile is one column wide there: two compile twice as long and are hardly faster.
LARGEST_PRODUCT_COUNT = 100
FEW_OUTPUTS, FEW_TAPS = 1 << 15, 9

# Taller tiles read less of the input twice. There are also fewer of them, and too few leave a GPU idle. (By whether
# words hold channels.) Planes of few columns are faster with more of them.
TALLEST_TILE = 28
ENOUGH_INVOCATIONS = {True: 3 << 13, False: 1 << 16}
ENOUGH_NARROW_INVOCATIONS, FEW_COLUMNS = 1 << 18, 8

# Small workgroups spread over a large GPU. Large ones prepare the weights less often. They are faster if they hold all
# channels of neighbouring pixels, and if tiles are taller than a few rows. The second one is for words of columns whose
# channels are prepared.
SMALL_WORKGROUP, MEDIUM_WORKGROUP = 64, 128
SMALL_BLOCK = 16
LARGEST_BLOCK = 64
FEW_ROWS = 4

# Output rows whose input is fetched at a time, by whether words hold channels, whose rows take more registers.
BATCH = {True: 2, False: 4}
SMALLER_BATCH = {True: 1, False: 2}

# Every device has this much. It is small enough for several workgroups to run side by side.
LARGEST_SHARED_MEMORY = 16 << 10

# This many workgroups keep a large GPU busy. Further ones would only prepare the weights again.
ENOUGH_WORKGROUPS = {DeviceType.CPU: 32}
LARGEST_TILE_COUNT = {DeviceType.CPU: 64}


@dataclass(frozen=True)
class InputWords:
    """How the input is divided into words: of four channels each, or of four columns.

    Attributes
    ----------
    channels_last : bool
        Words hold four channels.
    aligned : bool
        Rows begin at words.
    """

    channels_last: bool
    aligned: bool

    @property
    def dimension(self) -> int:
        """The dimension of the outputs along which four neighbours belong to one word."""
        return CHANNEL if self.channels_last else COLUMN

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, source: View) -> InputWords | None:
        """The words of an input; None if neither channels nor columns are contiguous in memory."""
        sizes = (geometry.batch, geometry.input_channels, *geometry.input_size)
        # The stride of a dimension of size 1 means nothing.
        n, c, h, w = (0 if size == 1 else stride for size, stride in zip(sizes, source.strides, strict=True))
        if c == 1 and geometry.output_channels_per_group == 1 and not any(x % 4 for x in (n, h, w, source.start)):
            return cls(True, True)
        if w == 1 or geometry.input_size[1] == 1:
            return cls(False, not any(x % 4 for x in (n, c, h, source.start)))
        return None


def multiplies_packed(profile: DeviceProfile) -> bool:
    """Whether taps are multiplied four at a time, with float32 last steps and parameters that the kernel computes."""
    return (
        profile.has_integer_dot_product
        and not _needs_registers_to_emulate(profile)
        and device_traits.ROUNDING in profile.properties
        and profile.limits.max_per_stage_descriptor_storage_buffers >= BUFFER_COUNT
    )


def _needs_registers_to_emulate(profile: DeviceProfile) -> bool:
    """Whether emulated dot products make the kernel spill where another one does not: up to 181 registers with RADV.

    With few registers both kernels spill, on Apple's GPUs the other one more.
    """
    is_cpu = profile.device_type is DeviceType.CPU
    return not is_cpu and device_traits.emulates_dot_products(profile) and not device_traits.has_few_registers(profile)


def is_worth_a_table(geometry: ConvolutionGeometry) -> bool:
    """Whether a CPU is faster without packed dot products, although it then has to prepare a table of parameters.

    A CPU's driver makes a dozen instructions of a dot product. The table costs a dispatch if it is not made once.
    """
    outputs = geometry.batch * geometry.output_channels * math.prod(geometry.output_size)
    return outputs > FEW_OUTPUTS or geometry.tap_count > FEW_TAPS


@dataclass(frozen=True)
class Tiling:
    """The outputs that an invocation and a workgroup compute.

    Attributes
    ----------
    rows, columns : int
        Outputs of a tile.
    tiles : int
        Tiles that an invocation computes one after another.
    block : int
        Channels, or quads of channels, of a workgroup.
    most_block : int
        The most that `block` may be in such a pipeline.
    size : int
        Invocations of a workgroup.
    """

    rows: int
    columns: int
    tiles: int
    block: int
    most_block: int
    size: int

    @property
    def items(self) -> int:
        """Invocations of a workgroup for each channel or quad."""
        return self.size // self.block


@dataclass(frozen=True)
class Depthwise:
    """A depthwise convolution to be cut into dispatches.

    Attributes
    ----------
    operands : Operands
    longest_seconds : float
        Of the whole convolution: see `Path.longest_seconds`.
    table : View, optional
        The table of parameters, if the device multiplies without packed dot products.
    prepared : PreparedChannels, optional
        What follows from the filter and the parameters, if it is worked out once. It fits one window.
    """

    operands: Operands
    longest_seconds: float
    table: View | None
    prepared: PreparedChannels | None

    @property
    def words(self) -> InputWords:
        found = InputWords.of(self.operands.geometry, self.operands.input)
        assert found is not None, "asked for after this was checked"
        return found

    @property
    def shares_pipelines(self) -> bool:
        """Whether sizes are push constants. With words of columns, constants are up to a third faster (H200), and on a
        CPU an eighth.
        """
        return self.words.channels_last and self.operands.builder.profile.device_type is not DeviceType.CPU

    @property
    def holds_weights(self) -> bool:
        """Whether an invocation has registers for the weights of its channels."""
        return not device_traits.has_few_registers(self.operands.builder.profile)

    def dispatches(self) -> list[Dispatch]:
        """All dispatches, in any order.

        Raises
        ------
        ObstacleError
            No window holds all that the smallest part of the outputs needs.
        """
        return [self.dispatch(box) for box in pieces(self.operands.whole_output, self._parts_of)]

    def _parts_of(self, box: Box) -> list[Box] | None:
        """Halves of a box that is too large for a dispatch, at multiples of the steps."""
        contributions = self.excess(box)
        if contributions is None:
            return None
        dimension = largest(contributions)
        if dimension is None:
            extents = tuple(high - low for low, high in box)
            raise ObstacleError(
                Obstacle("outputs whose operands a window shows", extents, "at least the smallest part")
            )
        step, (low, high) = self.step(dimension), box[dimension]
        scaled = (*box[:dimension], (low // step, -(-high // step)), *box[dimension + 1 :])
        return [
            (
                *part[:dimension],
                (part[dimension][0] * step, min(part[dimension][1] * step, high)),
                *part[dimension + 1 :],
            )
            for part in halves(scaled, dimension)
        ]

    def step(self, dimension: int) -> int:
        """Whole words of the input."""
        return 4 if dimension == self.words.dimension else 1

    def excess(self, box: Box) -> list[int] | None:
        fits, input_bounds = self.operands.builder.fits, self.input_bounds(box)
        if not fits(self.operands.input.tensor, input_bounds):
            scale, strides, extents = (
                (1, 1, *self.operands.geometry.strides),
                self.operands.input.strides,
                self.extents(box),
            )
            return self.cuttable(box, [extents[k] * self.step(k) * scale[k] * strides[k] for k in range(4)])
        if not fits(self.operands.output.tensor, self.operands.output.bounds(box)):
            return self.cuttable(box, reach(self.operands.output, box))
        if self.prepared is None and not fits(
            self.operands.filter.tensor, self.operands.filter.bounds(self._taps(box))
        ):
            return self.cuttable(box, [0, 1, 0, 0])
        if self.table is not None and not fits(self.table.tensor, table_bounds(self.table, box[CHANNEL])):
            return self.cuttable(box, [0, 1, 0, 0])
        if max(self._grid(box)[:2]) > GUARANTEED_WORKGROUP_COUNT or self.seconds(box) > DISPATCH_SECONDS:
            # Outermost dimensions first.
            return self.cuttable(box, [8, 4, 2, 1])
        return None

    def seconds(self, box: Box) -> float:
        """A box's share of the longest time, by its outputs, with those of steps that are not whole."""
        return self.longest_seconds * self._steps(box) / self._steps(self.operands.whole_output)

    def _steps(self, box: Box) -> int:
        return math.prod(-(-(high - low) // self.step(dimension)) for dimension, (low, high) in enumerate(box))

    def cuttable(self, box: Box, contributions: list[int]) -> list[int]:
        """The contributions of the dimensions along which a box can be cut; 0 for other dimensions."""
        return [size if extent > 0 else 0 for size, extent in zip(contributions, self.extents(box), strict=True)]

    def extents(self, box: Box) -> list[int]:
        """For each dimension, the extent of a box from its first step to its last one."""
        return [-(-(high - low) // self.step(dimension)) - 1 for dimension, (low, high) in enumerate(box)]

    def seen(self, box: Box) -> tuple[Range, ...] | None:
        """The box of the input under a box of outputs; None if all of it is border."""
        geometry = self.operands.geometry
        spatial: list[Range] = []
        for k in range(2):
            first, end = box[ROW + k]
            low = max(first * geometry.strides[k] - geometry.start_padding[k], 0)
            last = (end - 1) * geometry.strides[k] + (geometry.filter_size[k] - 1) * geometry.dilations[k]
            high = min(last - geometry.start_padding[k] + 1, geometry.input_size[k])
            if low >= high:
                return None
            spatial.append((low, high))
        of_group = geometry.output_channels_per_group
        first_group, last_group = box[CHANNEL][0] // of_group, (box[CHANNEL][1] - 1) // of_group
        seen_of_group = geometry.input_channels_per_group
        return box[IMAGE], (first_group * seen_of_group, (last_group + 1) * seen_of_group), spatial[0], spatial[1]

    def input_bounds(self, box: Box) -> Range:
        """The bytes of the input under a box of outputs; one byte if all of it is border."""
        seen = self.seen(box)
        return self.operands.input.bounds(seen) if seen else (self.operands.input.start, self.operands.input.start + 1)

    def first_tap(self, box: Box) -> tuple[int, int]:
        """The input's row and column under the first output's first tap; may be negative."""
        geometry = self.operands.geometry
        row, column = (box[ROW + k][0] * geometry.strides[k] - geometry.start_padding[k] for k in range(2))
        return row, column

    def _taps(self, box: Box) -> tuple[Range, ...]:
        height, width = self.operands.geometry.filter_size
        return box[CHANNEL], (0, 1), (0, height), (0, width)

    def _tiling(self, box: Box) -> Tiling:
        geometry, kind = self.operands.geometry, self.operands.builder.profile.device_type
        images, channels, rows, columns = (high - low for low, high in box)
        extent = (geometry.filter_size[0] - 1) * geometry.dilations[0] + 1
        # Rows of outputs that read one row of the input.
        live = -(-extent // geometry.strides[0])
        last = self.words.channels_last
        is_cpu = kind is DeviceType.CPU
        width = 4
        if last and is_cpu:
            widths = (4, 2) if self.table is None else ()
            width = next((w for w in widths if 4 * w * geometry.tap_count <= LARGEST_PRODUCT_COUNT), 1)
        elif last and (4 * width * live > LARGEST_SUM_COUNT or geometry.strides[1] > 1):
            has_room = 4 * 2 * live <= LARGEST_SUM_COUNT or not device_traits.has_few_registers(
                self.operands.builder.profile
            )
            width = 2 if has_room else 1
        # The height with the fewest input rows to read. The preparation of each tile counts as two rows.
        height = min(
            range(1, TALLEST_TILE + 1),
            key=lambda each: (-(-rows // each) * ((each - 1) * geometry.strides[0] + extent + 2), each),
        )
        units = -(-channels // 4) if last else channels
        if not is_cpu:
            # Rows that lie under two tiles are read twice. If there are many, columns are divided before the last rows.
            lowest = 2 if last and extent >= 2 * geometry.strides[0] else 1

            is_narrow = not last and columns <= FEW_COLUMNS
            enough = ENOUGH_NARROW_INVOCATIONS if is_narrow else ENOUGH_INVOCATIONS[last]

            def is_too_large(height: int, width: int) -> bool:
                return images * units * -(-rows // height) * -(-columns // width) < enough

            while height > lowest and is_too_large(height, width):
                height = -(-height // 2)
            while last and width > 1 and is_too_large(height, width):
                width //= 2
        available = images * -(-rows // height) * -(-columns // width)
        size = self.operands.builder.workgroup_size
        largest_block = LARGEST_BLOCK
        if last and not is_cpu and (height <= FEW_ROWS or geometry.strides[0] > 1 or units > LARGEST_BLOCK):
            size, largest_block = min(size, SMALL_WORKGROUP), SMALL_BLOCK
        elif not last and self.prepared is not None and not is_cpu:
            size = min(size, MEDIUM_WORKGROUP)
        weights = geometry.filter_size[0] * geometry.filter_size[1] * (2 if self.table is None else 1)
        room = LARGEST_SHARED_MEMORY // (4 * (weights + 4) * (4 if last else 1)) - 1
        if last:
            widest = min(largest_block, size, room)
            block = -(-units // -(-units // widest))
            items = min(size // block, available)
        else:
            items = min(size, available)
            block = max(1, min(size // items, units, room))
        used = block * items
        if self.shares_pipelines:
            # Few different sizes.
            used = min(size, power_of_two(used))
            items = used // block
        workgroups = -(-available // items) * -(-units // block)
        enough = ENOUGH_WORKGROUPS.get(kind, 2048)
        tiles = max(1, min(workgroups // enough, LARGEST_TILE_COUNT.get(kind, 8)))
        if self.prepared is not None:
            tiles = 1  # there is little that several could share
        most = block
        if self.shares_pipelines:
            most = min(room, next((each for each in (SMALL_BLOCK, LARGEST_BLOCK) if block <= each), room))
        return Tiling(height, width, tiles, block, most, used)

    def _grid(self, box: Box) -> tuple[int, int, int]:
        tiling = self._tiling(box)
        images, channels, rows, columns = (high - low for low, high in box)
        tiles = images * -(-rows // tiling.rows) * -(-columns // tiling.columns)
        units = -(-channels // 4) if self.words.channels_last else channels
        return -(-tiles // (tiling.items * tiling.tiles)), -(-units // tiling.block), 1

    def _batch(self) -> int:
        profile, last = self.operands.builder.profile, self.words.channels_last
        if profile.device_type is DeviceType.CPU:
            return 1  # compilers for CPUs take long to compile unrolled loops
        is_room = device_traits.keeps_four_rows_in_registers(profile)
        if last:
            is_room = not device_traits.has_few_registers(profile)
        return BATCH[last] if is_room else SMALLER_BATCH[last]

    def _divisions(self, tiling: Tiling, tile_rows: int, tile_columns: int) -> dict[str, int]:
        """What saves a kernel with prepared channels its divisions, in push constants that it does not need."""
        across = tiling.block if self.words.channels_last else tiling.items
        values, shifts = {"filter_zero_point_start": tiling.items, "output_zero_point_start": 0}, 0
        divisors = {"input_scale_start": across, "filter_scale_start": tile_columns, "output_scale_start": tile_rows}
        for place, (name, divisor) in enumerate(divisors.items()):
            values[name], shift = reciprocal_of(divisor)
            shifts |= shift << (5 * place)
        return {**values, "input_zero_point_start": shifts}

    def dispatch(self, box: Box) -> Dispatch:
        geometry, tiling, words = self.operands.geometry, self._tiling(box), self.words
        images, channels, rows, columns = (high - low for low, high in box)
        dispatch = DispatchBuilder(f"{KERNEL}_dot4") if self.table is None else DispatchBuilder(f"{KERNEL}_integer")
        of_group = geometry.output_channels_per_group
        first_row, first_column = self.first_tap(box)
        shift = first_column % 4 if words.aligned and not words.channels_last else 0
        bounds = self.input_bounds(box)
        corner = (box[IMAGE][0], 0, first_row, first_column - shift)
        source = self.operands.input
        if geometry.input_size[1] == 1:
            source = replace(source, strides=(*source.strides[:3], 1))
        dispatch.window(source.tensor, bounds, source.address(corner), 1, "input_start", Access.READ)
        if self.prepared is None:
            sources, filter_strides = (
                self.operands.parameters,
                (self.operands.filter.strides[0], *self.operands.filter.strides[2:]),
            )
            filter_bounds = self.operands.filter.bounds(self._taps(box))
            dispatch.window(
                self.operands.filter.tensor, filter_bounds, filter_bounds[0], 1, "filter_start", Access.READ
            )
        else:
            sources, filter_strides = NO_SOURCES, (0, 0, 0)
            filter_bounds = self.prepared.bounds
            dispatch.window(self.prepared.tensor, filter_bounds, filter_bounds[0], 16, "filter_start", Access.READ)
        written = self.operands.output.bounds(box)
        dispatch.window(self.operands.output.tensor, written, written[0], 1, "output_start", Access.WRITE)
        tile_rows, tile_columns = -(-rows // tiling.rows), -(-columns // tiling.columns)
        if self.prepared is not None:
            for _ in PARAMETER_FIELDS:
                dispatch.unread_window(dispatch.windows[1], UNUSED)
            dispatch.push(**self._divisions(tiling, tile_rows, tile_columns))
        elif self.table is None:
            sources.bind(dispatch, box[CHANNEL])
        else:
            table_rows = table_bounds(self.table, box[CHANNEL])
            dispatch.window(self.table.tensor, table_rows, table_rows[0], 4, "table_start", Access.READ)
        sizes = {
            "ROWS": tiling.rows,
            "BLOCK": tiling.block,
            "ROW_LIMIT": geometry.input_size[0],
            "COLUMN_LIMIT": geometry.input_size[1],
        }
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
            first_column=first_column - shift,
            **by_dimension("input_stride", "nchw", source.strides),
            **by_dimension("output_stride", "nchw", self.operands.output.strides),
            tile_height=sizes["ROWS"],
            block=sizes["BLOCK"],
            row_limit=sizes["ROW_LIMIT"],
            column_limit=sizes["COLUMN_LIMIT"],
        )
        is_cpu = self.operands.builder.profile.device_type is DeviceType.CPU
        specialization = {
            LOCAL_SIZE_X: tiling.size,
            "INPUT_FLIP": UNSIGNED_FLIP * 0x01010101 if self.operands.parameters.input_unsigned else 0,
            "FILTER_FLIP": UNSIGNED_FLIP if sources.filter_unsigned else 0,
            "OUTPUT_UNSIGNED": int(self.operands.parameters.output_unsigned),
            "CHANNELS_LAST": int(words.channels_last),
            "TAP_ROWS": geometry.filter_size[0],
            "TAP_COLUMNS": geometry.filter_size[1],
            **by_dimension("STRIDE", "HW", geometry.strides),
            **by_dimension("DILATION", "HW", geometry.dilations),
            "COLUMNS": tiling.columns,
            "MOST_BLOCK": 1 if self.prepared is not None and self.holds_weights else tiling.most_block,
            "SHIFT": shift,
            "ALIGNED": int(words.aligned),
            "WHOLE_WORDS": int(writes_runs(self.operands.output, box, CHANNEL if words.channels_last else COLUMN, 4)),
            "FILTER_ZERO_POINT": int(self.operands.parameters.has_filter_zero_point),
            "BATCH": self._batch(),
            "CHANNELS_OF_GROUP": of_group,
            **by_dimension("FILTER_STRIDE", "MHW", filter_strides),
            **{name: 0 if self.shares_pipelines else value for name, value in sizes.items()},
        }
        if self.table is None:
            prepared = int(self.prepared is not None)
            specialization |= {"HELD": int(self.holds_weights), "PREPARED": prepared, **sources.constants}
        else:
            specialization["AHEAD"] = int(not is_cpu)
        outputs = images * channels * rows * columns
        return dispatch.finish(
            specialization,
            self._grid(box),
            seconds=self.seconds(box),
            bytes_moved=sum(end - begin for begin, end in (bounds, filter_bounds, written)),
            operations=2 * outputs * geometry.tap_count,
        )


def power_of_two(number: int) -> int:
    """The first power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def padded_count(words: InputWords, extents: Sequence[int]) -> int:
    """The outputs of a box, with those of words that are not whole."""
    return math.prod(-(-size // 4) * 4 if k == words.dimension else size for k, size in enumerate(extents))


def writes_runs(output: View, box: Box, dimension: int, size: int) -> bool:
    """Whether a box of outputs is whole runs of `size` neighbours along a dimension, each at a multiple of `size`."""
    strides = [0 if high - low == 1 else step for (low, high), step in zip(box, output.strides, strict=True)]
    low, high = box[dimension]
    first = output.address([low for low, _ in box])
    return strides.pop(dimension) == 1 and not any(number % size for number in (*strides, first, high - low))
