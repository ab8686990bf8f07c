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
    DispatchBuilder,
    Range,
    View,
    by_dimension,
    reach,
)
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.boxes import CHANNEL, COLUMN, IMAGE, Box, BoxCutter, writes_runs
from dmlvk.planning.quantized_linear_convolution.depthwise_channels import PreparedChannels
from dmlvk.planning.quantized_linear_convolution.matrix_sizes import reciprocal_of
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP
from dmlvk.planning.quantized_linear_convolution.parameters import (
    BUFFER_COUNT,
    PARAMETER_FIELDS,
    Sources,
    table_bounds,
)

KERNEL = "quantized_linear_convolution/depthwise"

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

# The last step of an output costs about as much as this number of taps.
LAST_STEP_TAPS = 10


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
class Depthwise(BoxCutter):
    """A depthwise convolution to be cut into dispatches.

    Attributes
    ----------
    filter : View
    table : View, optional
        The table of parameters, if the device multiplies without packed dot products.
    prepared : PreparedChannels, optional
        What follows from the filter and the parameters, if it is worked out once. It fits one window.
    """

    filter: View
    table: View | None
    prepared: PreparedChannels | None

    @property
    def words(self) -> InputWords:
        found = InputWords.of(self.geometry, self.input)
        assert found is not None, "asked for after this was checked"
        return found

    @property
    def shares_pipelines(self) -> bool:
        """Whether sizes are push constants. With words of columns, constants are up to a third faster (H200), and on a
        CPU an eighth.
        """
        return self.words.channels_last and self.builder.profile.device_type is not DeviceType.CPU

    @property
    def holds_weights(self) -> bool:
        """Whether an invocation has registers for the weights of its channels."""
        return not device_traits.has_few_registers(self.builder.profile)

    def step(self, dimension: int) -> int:
        """Whole words of the input."""
        return 4 if dimension == self.words.dimension else 1

    def excess(self, box: Box) -> list[int] | None:
        fits, input_bounds = self.builder.fits, self.input_bounds(box)
        if not fits(self.input.tensor, input_bounds):
            scale, strides, extents = (1, 1, *self.geometry.strides), self.input.strides, self.extents(box)
            return self.cuttable(box, [extents[k] * self.step(k) * scale[k] * strides[k] for k in range(4)])
        if not fits(self.output.tensor, self.output.bounds(box)):
            return self.cuttable(box, reach(self.output, box))
        if self.prepared is None and not fits(self.filter.tensor, self.filter.bounds(self._taps(box))):
            return self.cuttable(box, [0, 1, 0, 0])
        if self.table is not None and not fits(self.table.tensor, table_bounds(self.table, box[CHANNEL])):
            return self.cuttable(box, [0, 1, 0, 0])
        if max(self._grid(box)[:2]) > GUARANTEED_WORKGROUP_COUNT or self.seconds(box) > DISPATCH_SECONDS:
            # Outermost dimensions first.
            return self.cuttable(box, [8, 4, 2, 1])
        return None

    def _taps(self, box: Box) -> tuple[Range, ...]:
        height, width = self.geometry.filter_size
        return box[CHANNEL], (0, 1), (0, height), (0, width)

    def _tiling(self, box: Box) -> Tiling:
        geometry, kind = self.geometry, self.builder.profile.device_type
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
            has_room = 4 * 2 * live <= LARGEST_SUM_COUNT or not device_traits.has_few_registers(self.builder.profile)
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
        size = self.builder.workgroup_size
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
        profile, last = self.builder.profile, self.words.channels_last
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
        geometry, tiling, words = self.geometry, self._tiling(box), self.words
        images, channels, rows, columns = (high - low for low, high in box)
        dispatch = DispatchBuilder(f"{KERNEL}_dot4") if self.table is None else DispatchBuilder(f"{KERNEL}_integer")
        of_group = geometry.output_channels_per_group
        first_row, first_column = self.first_tap(box)
        shift = first_column % 4 if words.aligned and not words.channels_last else 0
        bounds = self.input_bounds(box)
        corner = (box[IMAGE][0], 0, first_row, first_column - shift)
        source = self.input
        if geometry.input_size[1] == 1:
            source = replace(source, strides=(*source.strides[:3], 1))
        dispatch.window(source.tensor, bounds, source.address(corner), 1, "input_start", Access.READ)
        if self.prepared is None:
            sources, filter_strides = self.parameters, (self.filter.strides[0], *self.filter.strides[2:])
            filter_bounds = self.filter.bounds(self._taps(box))
            dispatch.window(self.filter.tensor, filter_bounds, filter_bounds[0], 1, "filter_start", Access.READ)
        else:
            sources, filter_strides = NO_SOURCES, (0, 0, 0)
            filter_bounds = self.prepared.bounds
            dispatch.window(self.prepared.tensor, filter_bounds, filter_bounds[0], 16, "filter_start", Access.READ)
        written = self.output.bounds(box)
        dispatch.window(self.output.tensor, written, written[0], 1, "output_start", Access.WRITE)
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
            **by_dimension("output_stride", "nchw", self.output.strides),
            tile_height=sizes["ROWS"],
            block=sizes["BLOCK"],
            row_limit=sizes["ROW_LIMIT"],
            column_limit=sizes["COLUMN_LIMIT"],
        )
        is_cpu = self.builder.profile.device_type is DeviceType.CPU
        specialization = {
            LOCAL_SIZE_X: tiling.size,
            "INPUT_FLIP": UNSIGNED_FLIP * 0x01010101 if self.parameters.input_unsigned else 0,
            "FILTER_FLIP": UNSIGNED_FLIP if sources.filter_unsigned else 0,
            "OUTPUT_UNSIGNED": int(self.parameters.output_unsigned),
            "CHANNELS_LAST": int(words.channels_last),
            "TAP_ROWS": geometry.filter_size[0],
            "TAP_COLUMNS": geometry.filter_size[1],
            **by_dimension("STRIDE", "HW", geometry.strides),
            **by_dimension("DILATION", "HW", geometry.dilations),
            "COLUMNS": tiling.columns,
            "MOST_BLOCK": 1 if self.prepared is not None and self.holds_weights else tiling.most_block,
            "SHIFT": shift,
            "ALIGNED": int(words.aligned),
            "WHOLE_WORDS": int(writes_runs(self.output, box, CHANNEL if words.channels_last else COLUMN, 4)),
            "FILTER_ZERO_POINT": int(self.parameters.has_filter_zero_point),
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
