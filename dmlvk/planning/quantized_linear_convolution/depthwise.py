"""QUANTIZED_LINEAR_CONVOLUTION where every output channel sees one input channel, by words of four neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    DISPATCH_SECONDS,
    DispatchBuilder,
    Range,
    View,
    reach,
)
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.boxes import (
    CHANNEL,
    COLUMN,
    IMAGE,
    Box,
    BoxCutter,
    writes_runs,
)
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP
from dmlvk.planning.quantized_linear_convolution.parameters import BUFFER_COUNT, table_bounds

DEPTHWISE = "depthwise"
KERNEL = "quantized_linear_convolution/depthwise"

# A tile's loops are unrolled: these keep its code and its registers in bounds.
LARGEST_TAP_COUNT = 49
LARGEST_REACH = 16
LARGEST_STRIDE = 4

# Sums that an invocation holds at a time; with fewer registers a GPU has room for more invocations.
LARGEST_SUM_COUNT = {DeviceType.CPU: 48}

# Taller tiles see less of the input twice, and are fewer: too few where that leaves a GPU idle.
TALLEST_TILE = 28
ENOUGH_INVOCATIONS = 1 << 16

# Output rows' worth of input that is fetched at a time: rows of words of channels take more registers.
BATCH = {True: 2, False: 4}
ROUNDING = "shaderRoundingModeRTEFloat32"

# What every device has; little enough for several workgroups side by side.
LARGEST_SHARED_MEMORY = 16 << 10

# So many workgroups keep a large GPU busy; more of them would only prepare weights once more.
ENOUGH_WORKGROUPS = {DeviceType.CPU: 32}
LARGEST_TILE_COUNT = {DeviceType.CPU: 64}

# Multiply-adds a second at the very least.
SLOWEST_RATE = {
    DeviceType.CPU: 200e6,
    DeviceType.INTEGRATED_GPU: 4e9,
    DeviceType.DISCRETE_GPU: 40e9,
    DeviceType.VIRTUAL_GPU: 4e9,
    DeviceType.OTHER: 200e6,
}


@dataclass(frozen=True)
class InputWords:
    """How the input's words are taken: four channels each, or four columns.

    Attributes
    ----------
    channels_last : bool
        Words hold four channels.
    aligned : bool
        Rows begin at words.
    """

    channels_last: bool
    aligned: bool

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, source: View) -> InputWords | None:
        """None where neither channels nor columns lie side by side."""
        sizes = (geometry.batch, geometry.input_channels, *geometry.input_size)
        # The stride of a dimension of size 1 means nothing.
        n, c, h, w = (0 if size == 1 else stride for size, stride in zip(sizes, source.strides, strict=True))
        if c == 1 and geometry.output_channels_per_group == 1 and not any(x % 4 for x in (n, h, w, source.start)):
            return cls(True, True)
        if w == 1 or geometry.input_size[1] == 1:
            return cls(False, not any(x % 4 for x in (n, c, h, source.start)))
        return None


def obstacle_to_depthwise(geometry: ConvolutionGeometry) -> str | None:
    """Why the kernel cannot have a convolution, whatever its layout; None where it can."""
    if geometry.input_channels_per_group != 1:
        return f"an output channel sees {geometry.input_channels_per_group} input channels, not 1"
    if math.prod(geometry.filter_size) > LARGEST_TAP_COUNT:
        return f"{math.prod(geometry.filter_size)} taps are more than {LARGEST_TAP_COUNT}"
    for k in range(2):
        extent = (geometry.filter_size[k] - 1) * geometry.dilations[k] + 1
        if extent > LARGEST_REACH:
            return f"the dilated filter extends over {extent} rows or columns, of which {LARGEST_REACH} are possible"
        if geometry.strides[k] > LARGEST_STRIDE:
            return f"stride {geometry.strides[k]} is more than {LARGEST_STRIDE}"
    return None


def multiplies_packed(profile: DeviceProfile) -> bool:
    """Whether taps are multiplied four at a time, with float32 last steps and parameters that the kernel works out."""
    return (
        profile.has_integer_dot_product
        and ROUNDING in profile.properties
        and profile.limits.max_per_stage_descriptor_storage_buffers >= BUFFER_COUNT
    )


def prefers_depthwise(profile: DeviceProfile) -> bool:
    """Whether the kernel is the best choice for any convolution that it can have."""
    return device_traits.is_faster_with_depthwise(profile)


@dataclass(frozen=True)
class Tiling:
    """What an invocation and a workgroup make.

    Attributes
    ----------
    rows, columns : int
        Outputs of a tile.
    tiles : int
        Of an invocation, one after another.
    block : int
        Channels of a workgroup, or quads of channels.
    items : int
        Invocations that a channel, or quad, of a workgroup has.
    """

    rows: int
    columns: int
    tiles: int
    block: int
    items: int


@dataclass(frozen=True)
class Depthwise(BoxCutter):
    """A depthwise convolution to be cut into dispatches.

    Attributes
    ----------
    filter : View
    table : View, optional
        The records made of the parameters, where the device multiplies without packed dot products.
    """

    filter: View
    table: View | None

    @property
    def words(self) -> InputWords:
        found = InputWords.of(self.geometry, self.input)
        assert found is not None, "asked for after this was checked"
        return found

    def dispatches(self) -> list[Dispatch] | str:
        if InputWords.of(self.geometry, self.input) is None:
            return f"strides {self.input.strides} leave no four neighbours in a word"
        return super().dispatches()

    def step(self, dimension: int) -> int:
        """Whole words of the input."""
        if dimension == CHANNEL and self.words.channels_last:
            return 4
        if dimension == COLUMN and not self.words.channels_last:
            return 4
        return 1

    def excess(self, box: Box) -> list[int] | None:
        fits, input_bounds = self.builder.fits, self.input_bounds(box)
        if not fits(self.input.tensor, input_bounds):
            scale, strides, extents = (1, 1, *self.geometry.strides), self.input.strides, self.extents(box)
            return self.cuttable(box, [extents[k] * self.step(k) * scale[k] * strides[k] for k in range(4)])
        if not fits(self.output.tensor, self.output.bounds(box)):
            return self.cuttable(box, reach(self.output, box))
        if not fits(self.filter.tensor, self.filter.bounds(self._taps(box))):
            return self.cuttable(box, [0, 1, 0, 0])
        if self.table is not None and not fits(self.table.tensor, table_bounds(self.table, box[CHANNEL])):
            return self.cuttable(box, [0, 1, 0, 0])
        if max(self._grid(box)[:2]) > GUARANTEED_WORKGROUP_COUNT or self._seconds(box) > DISPATCH_SECONDS:
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
        # Rows of outputs that see one row of the input.
        live = -(-extent // geometry.strides[0])
        last = self.words.channels_last
        width = 2 if last and live * 16 > LARGEST_SUM_COUNT.get(kind, 32) else 4
        # Least rows of the input, the one time that each tile prepares itself counted as two.
        height = min(
            range(1, TALLEST_TILE + 1),
            key=lambda each: (-(-rows // each) * ((each - 1) * geometry.strides[0] + extent + 2), each),
        )
        units = -(-channels // 4) if last else channels
        across = images * units * -(-columns // width)
        while height > 1 and kind is not DeviceType.CPU and across * -(-rows // height) < ENOUGH_INVOCATIONS:
            height = -(-height // 2)
        available = images * -(-rows // height) * -(-columns // width)
        size = self.builder.workgroup_size
        weights = geometry.filter_size[0] * geometry.filter_size[1] * (2 if self.table is None else 1)
        room = LARGEST_SHARED_MEMORY // (4 * (weights + 4) * (4 if last else 1)) - 1
        if last:
            widest = min(64, size, room)
            block = -(-units // -(-units // widest))
            items = min(size // block, available)
        else:
            items = min(size, available)
            block = max(1, min(size // items, units, room))
        workgroups = -(-available // items) * -(-units // block)
        enough = ENOUGH_WORKGROUPS.get(kind, 2048)
        tiles = max(1, min(workgroups // enough, LARGEST_TILE_COUNT.get(kind, 8)))
        return Tiling(height, width, tiles, block, items)

    def _grid(self, box: Box) -> tuple[int, int, int]:
        tiling = self._tiling(box)
        images, channels, rows, columns = (high - low for low, high in box)
        tiles = images * -(-rows // tiling.rows) * -(-columns // tiling.columns)
        units = -(-channels // 4) if self.words.channels_last else channels
        return -(-tiles // (tiling.items * tiling.tiles)), -(-units // tiling.block), 1

    def _seconds(self, box: Box) -> float:
        # The last step of an output costs about as much as ten taps.
        images, channels, rows, columns = (-(-(high - low) // self.step(k)) for k, (low, high) in enumerate(box))
        work = 4 * images * channels * rows * columns * (self.geometry.tap_count + 10)
        return work / SLOWEST_RATE[self.builder.profile.device_type]

    def dispatch(self, box: Box) -> Dispatch:
        geometry, tiling, words = self.geometry, self._tiling(box), self.words
        images, channels, rows, columns = (high - low for low, high in box)
        dispatch = (
            DispatchBuilder(f"{KERNEL}_dot4", 28) if self.table is None else DispatchBuilder(f"{KERNEL}_integer", 22)
        )
        of_group = geometry.output_channels_per_group
        first_row, first_column = self.first_tap(box)
        shift = first_column % 4 if words.aligned and not words.channels_last else 0
        bounds = self.input_bounds(box)
        corner = (box[IMAGE][0], box[CHANNEL][0] // of_group, first_row, first_column - shift)
        source = self.input
        if geometry.input_size[1] == 1:
            source = replace(source, strides=(*source.strides[:3], 1))
        dispatch.window(source.tensor, bounds, source.address(corner), 1, 0, Access.READ)
        filter_bounds = self.filter.bounds(self._taps(box))
        dispatch.window(self.filter.tensor, filter_bounds, filter_bounds[0], 1, 1, Access.READ)
        written = self.output.bounds(box)
        dispatch.window(self.output.tensor, written, written[0], 1, 2, Access.WRITE)
        if self.table is None:
            self.parameters.bind(dispatch, box[CHANNEL])
        else:
            records = table_bounds(self.table, box[CHANNEL])
            dispatch.window(self.table.tensor, records, records[0], 4, 3, Access.READ)
        dispatch.push_constants[len(dispatch.windows) :] = [
            images,
            channels,
            rows,
            columns,
            -(-rows // tiling.rows),
            -(-columns // tiling.columns),
            tiling.tiles,
            box[CHANNEL][0] % of_group,
            first_row,
            first_column - shift,
            *source.strides,
            *self.output.strides,
        ]
        specialization = (
            tiling.block * tiling.items,
            UNSIGNED_FLIP * 0x01010101 if self.parameters.input_unsigned else 0,
            UNSIGNED_FLIP if self.parameters.filter_unsigned else 0,
            int(self.parameters.output_unsigned),
            int(words.channels_last),
            *geometry.filter_size,
            *geometry.strides,
            *geometry.dilations,
            tiling.rows,
            tiling.columns,
            tiling.block,
            shift,
            int(words.aligned),
            int(writes_runs(self.output, box, CHANNEL if words.channels_last else COLUMN, 4)),
            int(self.parameters.has_filter_zero_point),
            # Compilers for CPUs take long over unrolled loops.
            1 if self.builder.profile.device_type is DeviceType.CPU else BATCH[words.channels_last],
            of_group,
            *geometry.input_size,
            self.filter.strides[0],
            *self.filter.strides[2:],
            *(self.parameters.constants if self.table is None else ()),
        )
        outputs = images * channels * rows * columns
        return dispatch.finish(
            specialization,
            self._grid(box),
            seconds=self._seconds(box),
            bytes_moved=sum(end - begin for begin, end in (bounds, filter_bounds, written)),
            operations=2 * outputs * geometry.tap_count,
        )
