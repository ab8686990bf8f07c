"""QUANTIZED_LINEAR_CONVOLUTION of an input with at most four channels, a network's first layer, on matrix units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    DISPATCH_SECONDS,
    DispatchBuilder,
    Range,
    reach,
)
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.boxes import (
    CHANNEL,
    COLUMN,
    IMAGE,
    ROW,
    Box,
    BoxCutter,
    writes_runs,
)
from dmlvk.planning.quantized_linear_convolution.matrix import matrix_of
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP, FilterPacking, PackedFilter

FIRST_LAYER = "first_layer"
KERNEL = "quantized_linear_convolution/first_layer"

# Bytes of a pixel in shared memory.
PIXEL = 4

SUBGROUPS = 4

# The loops over tap rows are unrolled.
LARGEST_TAP_COUNT = 256
LARGEST_HEIGHT = 11
LARGEST_STRIDE = 4

# Vectors of 16 bytes between rows of the filter in shared memory.
FILTER_PADDING = 1

# What a workgroup makes at a time, in units of a subgroup: enough work for what it fetches.
UNITS_OF_SUBGROUP = 1

# Matrices of sums that a subgroup holds at a time: pixels by channels, where words hold channels and where they do not.
PASSES = {True: (2, 4), False: (4, 2)}

ENOUGH_WORKGROUPS = 1500
LARGEST_TILE_COUNT = 4

# Operations a second at the very least.
SLOWEST_RATE = {DeviceType.DISCRETE_GPU: 8e12, DeviceType.CPU: 2e8}


@dataclass(frozen=True)
class FirstLayerTile:
    """How the work is cut.

    Attributes
    ----------
    matrix : CooperativeMatrix
    lanes : int
        The subgroup size.
    stride : int
        Of the columns.
    channels : int
        Output channels of a workgroup.
    rows, units : int
        Rows of outputs, and units of `unit` outputs side by side.
    pass_pixels, pass_channels : int
        Matrices of sums that a subgroup holds at a time.
    """

    matrix: CooperativeMatrix
    lanes: int
    stride: int
    channels: int
    rows: int
    units: int
    pass_pixels: int
    pass_channels: int

    @property
    def phases(self) -> int:
        """Copies of the input's rows: so many outputs further on, runs begin at a multiple of 16 bytes again."""
        return 4 // math.gcd(self.stride, 4)

    @property
    def unit(self) -> int:
        """Outputs side by side that a subgroup makes."""
        return 4 * self.matrix.m

    def row_bytes(self, geometry: ConvolutionGeometry) -> int:
        """A row of taps, in whole matrices."""
        return -(-PIXEL * geometry.filter_size[1] // self.matrix.k) * self.matrix.k

    def shared_memory(self, geometry: ConvolutionGeometry) -> int:
        """Bytes that the kernel declares."""
        row = self.row_bytes(geometry)
        height = geometry.filter_size[0]
        copy = -(-((self.units * self.unit // self.phases - 1) * PIXEL * self.stride * self.phases + row) // 16) * 16
        staged = ((self.rows - 1) * geometry.strides[0] + height) * self.phases * copy
        filters = height * self.channels * (-(-row // 16) + FILTER_PADDING) * 16
        m, n = self.matrix.m, self.matrix.n
        strip = max(m * (n + 4), n * (m + 4))
        return staged + filters + 4 * SUBGROUPS * (strip + self.unit) + 16 * self.channels + 32

    def packing(self, geometry: ConvolutionGeometry) -> FilterPacking:
        """The filter in steps of a row of taps."""
        words = self.row_bytes(geometry) // 4
        return FilterPacking(
            "quantized_linear_convolution/matrix_pack_filter",
            geometry.filter_size[0] * words,
            (words, words, 1, 1),
        )


def first_layer_tile(profile: DeviceProfile, geometry: ConvolutionGeometry) -> FirstLayerTile | str:
    """The tile for a convolution, or why the kernel cannot have it on this device."""
    matrix = matrix_of(profile)
    if matrix is None:
        return f"{profile.name} lists no matrices of signed bytes"
    if geometry.group_count != 1 or geometry.input_channels > PIXEL:
        return f"the input has {geometry.input_channels} channels in {geometry.group_count} groups, not {PIXEL} in one"
    if geometry.dilations != (1, 1):
        return f"dilations {geometry.dilations} are not 1"
    if geometry.tap_count > LARGEST_TAP_COUNT or geometry.filter_size[0] > LARGEST_HEIGHT:
        return f"filters of {geometry.filter_size} are larger than {LARGEST_TAP_COUNT} taps or {LARGEST_HEIGHT} rows"
    if max(geometry.strides) > LARGEST_STRIDE:
        return f"strides {geometry.strides} are more than {LARGEST_STRIDE}"
    if matrix.k % 8:
        return f"rows of matrices are {matrix.k} bytes long, not a multiple of 8"
    lanes, stride = profile.min_subgroup_size, geometry.strides[1]
    limit = device_traits.tile_memory(profile)
    largest_group = min(
        profile.limits.max_compute_work_group_invocations, profile.limits.max_compute_work_group_size[0]
    )
    if SUBGROUPS * lanes > largest_group:
        return f"{SUBGROUPS * lanes} invocations are more than {largest_group}"
    if matrix.m % 4 or matrix.n % 4:
        return f"matrices of {matrix.m}x{matrix.n} are not whole vectors of words"
    # Where words hold channels, four matrices of channels make one of words.
    store_channels = geometry.output_strides[1] == 1 and geometry.output_channels > 1
    step = 4 * matrix.n if store_channels else matrix.n
    channels = max(step, min(64, -(-geometry.output_channels // step) * step) // step * step)
    pass_pixels, pass_channels = PASSES[store_channels]
    if channels // matrix.n % pass_channels:
        pass_channels = 1
    units = 1
    size = 0
    for of_subgroup in range(UNITS_OF_SUBGROUP, 0, -1):
        rows = SUBGROUPS * of_subgroup // units
        tile = FirstLayerTile(matrix, lanes, stride, channels, rows, units, pass_pixels, pass_channels)
        size = tile.shared_memory(geometry)
        if size <= limit:
            return tile
    return f"{size} bytes of shared memory are more than {limit}"


def prefers_first_layer(profile: DeviceProfile) -> bool:
    """Whether the kernel is the best choice for any convolution that it can have: a CPU's matrix units are loops."""
    return profile.device_type is not DeviceType.CPU and matrix_of(profile) is not None


@dataclass(frozen=True)
class FirstLayer(BoxCutter):
    """A first layer to be cut into dispatches."""

    filter: PackedFilter
    tile: FirstLayerTile

    def step(self, dimension: int) -> int:
        """Whole panels, and whole vectors of columns."""
        return {CHANNEL: self.tile.channels, COLUMN: 16}.get(dimension, 1)

    def excess(self, box: Box) -> list[int] | None:
        fits, input_bounds = self.builder.fits, self.input_bounds(box)
        if not fits(self.input.tensor, input_bounds):
            scale, strides, extents = self.geometry.strides, self.input.strides, self.extents(box)
            spatial = (extents[2 + k] * scale[k] * strides[2 + k] for k in (0, 1))
            return self.cuttable(box, [extents[0] * strides[0], 0, *spatial])
        if not fits(self.output.tensor, self.output.bounds(box)):
            return self.cuttable(box, reach(self.output, box))
        if not fits(self.filter.tensor, self.filter.bounds(self._panels(box))):
            return self.cuttable(box, [0, 1, 0, 0])
        if max(self._grid(box)) > GUARANTEED_WORKGROUP_COUNT or self._seconds(box) > DISPATCH_SECONDS:
            # Outermost dimensions first.
            return self.cuttable(box, [8, 4, 2, 1])
        return None

    def _panels(self, box: Box) -> Range:
        return box[CHANNEL][0] // self.tile.channels, -(-box[CHANNEL][1] // self.tile.channels)

    def _grid(self, box: Box) -> tuple[int, int, int]:
        rows, columns = (high - low for low, high in box[ROW:])
        panels = self._panels(box)
        return (
            -(-columns // (self.tile.units * self.tile.unit)),
            -(-rows // (self.tile.rows * self._tiles(box))),
            (box[IMAGE][1] - box[IMAGE][0]) * (panels[1] - panels[0]),
        )

    def _tiles(self, box: Box) -> int:
        """Tiles of a workgroup: several where there are workgroups enough, so that each fetches the filter for more."""
        images, _, rows, columns = (high - low for low, high in box)
        panels = self._panels(box)
        across = -(-columns // (self.tile.units * self.tile.unit))
        workgroups = across * -(-rows // self.tile.rows) * images * (panels[1] - panels[0])
        return max(1, min(workgroups // ENOUGH_WORKGROUPS, LARGEST_TILE_COUNT))

    def _seconds(self, box: Box) -> float:
        images, channels, rows, columns = (-(-(high - low) // self.step(k)) for k, (low, high) in enumerate(box))
        outputs = 4 * images * channels * self.tile.channels * rows * columns
        # The last step and the store of an output cost about as much as some tens of words.
        words = self.geometry.filter_size[0] * self.tile.row_bytes(self.geometry) // 4
        kind = self.builder.profile.device_type
        return outputs * 8 * (words + 30) / SLOWEST_RATE.get(kind, 200e9)

    def dispatch(self, box: Box) -> Dispatch:
        geometry, tile = self.geometry, self.tile
        images, channels, rows, columns = (high - low for low, high in box)
        dispatch = DispatchBuilder(KERNEL, 28)
        first_row, first_column = self.first_tap(box)
        bounds = self.input_bounds(box)
        # Rows and columns are counted from the input's own first ones, which may lie before the window.
        address = self.input.address((box[IMAGE][0], 0, 0, 0))
        dispatch.window(self.input.tensor, bounds, address, 1, 0, Access.READ)
        panels = self._panels(box)
        filter_bounds = self.filter.bounds(panels)
        dispatch.window(self.filter.tensor, filter_bounds, filter_bounds[0], 8, 1, Access.READ)
        written = self.output.bounds(box)
        dispatch.window(self.output.tensor, written, written[0], 1, 2, Access.WRITE)
        self.parameters.bind(dispatch, box[CHANNEL])
        dispatch.push_constants[len(dispatch.windows) :] = [
            panels[1] - panels[0],
            channels,
            rows,
            columns,
            self._tiles(box),
            self.filter.panel_size // 8,
            first_row,
            first_column,
            *geometry.input_size,
            *self.input.strides,
            *self.output.strides,
        ]
        # Words of four channels where channels lie side by side (NHWC), else of four pixels.
        store_channels = self.output.strides[CHANNEL] == 1 and geometry.output_channels > 1
        inner = CHANNEL if store_channels else COLUMN
        specialization = (
            SUBGROUPS * tile.lanes,
            int(self.parameters.output_unsigned),
            int(store_channels),
            UNSIGNED_FLIP if self.parameters.input_unsigned else 0,
            tile.matrix.m,
            tile.matrix.n,
            tile.matrix.k,
            tile.lanes,
            SUBGROUPS,
            tile.channels,
            tile.rows,
            tile.units,
            tile.pass_pixels,
            FILTER_PADDING,
            geometry.input_channels,
            *geometry.filter_size,
            *geometry.strides,
            int(self.parameters.has_filter_zero_point),
            next((size for size in (16, 4) if writes_runs(self.output, box, inner, size)), 1),
            # Compilers for CPUs take long over unrolled loops.
            1 if self.builder.profile.device_type is DeviceType.CPU else geometry.filter_size[0],
            tile.pass_channels,
            *self.parameters.constants,
        )
        outputs = images * channels * rows * columns
        return dispatch.finish(
            specialization,
            self._grid(box),
            seconds=self._seconds(box),
            bytes_moved=sum(end - begin for begin, end in (bounds, filter_bounds, written)),
            operations=2 * outputs * geometry.tap_count,
            subgroup_size=tile.lanes,
        )
