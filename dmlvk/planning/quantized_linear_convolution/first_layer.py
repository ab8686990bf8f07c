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
    by_dimension,
    reach,
)
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.boxes import CHANNEL, COLUMN, IMAGE, ROW, Box, BoxCutter, writes_runs
from dmlvk.planning.quantized_linear_convolution.matrix_shape import packs_channels
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import NO_MATRICES, matrix_of
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP, FilterPacking, PackedFilter
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem
from dmlvk.planning.quantized_linear_convolution.stages import Stages

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

# A tile has at most this many output channels.
LARGEST_CHANNELS = 64

# Matrices of sums that a subgroup holds at a time, as (pixels, channels): True if words hold channels.
PASSES = {True: (2, 4), False: (4, 2)}
PASSES_OF_FEW_REGISTERS = {True: (1, 4), False: (4, 1)}

ENOUGH_WORKGROUPS = 1500
LARGEST_TILE_COUNT = 4

# The share of the matrix units' rate that the kernel reaches.
UNIT_SHARE = 0.28
# Loads that a workgroup waits for: for 64 channels before the first row of taps, and for each row.
FIRST_WAITS, ROW_WAITS = 5.38, 1.95
# An output's last step, in the last steps of the fastest kernel; and how many times that in planes, and in planes whose
# rows are no whole words, which are stored byte by byte.
LAST_STEPS = 2.03
PLANES, RAGGED_PLANES = 0.307, 12.7
# The bytes of the input's rows that workgroups copy into shared memory while a copy moves one.
COPIES = 0.368


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
        Rows of outputs, and units of `unit` neighbouring outputs.
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
        """Copies of the input's rows. After this number of outputs, runs begin at a multiple of 16 bytes again."""
        return 4 // math.gcd(self.stride, 4)

    @property
    def unit(self) -> int:
        """Neighbouring outputs that a subgroup computes."""
        return 4 * self.matrix.m

    def row_bytes(self, geometry: ConvolutionGeometry) -> int:
        """Bytes of a row of taps, in whole matrices."""
        return -(-PIXEL * geometry.filter_size[1] // self.matrix.k) * self.matrix.k

    def shared_memory(self, geometry: ConvolutionGeometry) -> int:
        """Bytes of shared memory that the kernel declares."""
        row = self.row_bytes(geometry)
        height = geometry.filter_size[0]
        copy = -(-((self.units * self.unit // self.phases - 1) * PIXEL * self.stride * self.phases + row) // 16) * 16
        staged = ((self.rows - 1) * geometry.strides[0] + height) * self.phases * copy
        filters = height * self.channels * (-(-row // 16) + FILTER_PADDING) * 16
        m, n = self.matrix.m, self.matrix.n
        strip = max(m * (n + 4), n * (m + 4))
        return staged + filters + 4 * SUBGROUPS * (strip + self.unit) + 16 * self.channels + 32

    def packing(self, geometry: ConvolutionGeometry) -> FilterPacking:
        """How the filter is packed: in steps of a row of taps."""
        words = self.row_bytes(geometry) // 4
        return FilterPacking(
            "quantized_linear_convolution/matrix_pack_filter",
            geometry.filter_size[0] * words,
            {},
            sizes={
                "STEP_WORDS": words,
                "RUN_WORDS": words,
                "RUNS_W": 1,
                "QUADS": 1,
                "IN_ORDER": 0,
                "INTERLEAVED": 0,
            },
        )


def obstacle_to_first_layer(profile: DeviceProfile, geometry: ConvolutionGeometry) -> Obstacle | None:
    """Why the kernel cannot take a convolution on a device that has matrices for it; None if it can."""
    if geometry.group_count != 1:
        return Obstacle("groups", geometry.group_count, "1")
    if geometry.input_channels > PIXEL:
        return Obstacle("input channels", geometry.input_channels, f"at most {PIXEL}")
    if geometry.dilations != (1, 1):
        return Obstacle("dilations", geometry.dilations, "1")
    if geometry.tap_count > LARGEST_TAP_COUNT:
        return Obstacle("filter taps", geometry.tap_count, f"at most {LARGEST_TAP_COUNT}")
    if geometry.filter_size[0] > LARGEST_HEIGHT:
        return Obstacle("filter rows", geometry.filter_size[0], f"at most {LARGEST_HEIGHT}")
    if max(geometry.strides) > LARGEST_STRIDE:
        return Obstacle("strides", geometry.strides, f"at most {LARGEST_STRIDE}")
    size = first_layer_tile(profile, geometry).shared_memory(geometry)
    if size > (limit := device_traits.tile_memory(profile)):
        return Obstacle("bytes of shared memory", size, f"at most {limit}")
    return None


def first_layer_tile(profile: DeviceProfile, geometry: ConvolutionGeometry) -> FirstLayerTile:
    """The tile for a convolution on a device that has matrices for it."""
    matrix = matrix_of(profile)
    assert matrix is not None, "asked for on a device without matrices"
    # If words hold channels, four matrices of channels make one matrix of words.
    store_channels = geometry.output_strides[1] == 1 and geometry.output_channels > 1
    step = 4 * matrix.n if store_channels else matrix.n
    channels = max(step, min(LARGEST_CHANNELS, -(-geometry.output_channels // step) * step) // step * step)
    passes = PASSES_OF_FEW_REGISTERS if device_traits.has_few_registers(profile) else PASSES
    pass_pixels, pass_channels = passes[store_channels]
    if channels // matrix.n % pass_channels:
        pass_channels = 1
    lanes, stride = profile.min_subgroup_size, geometry.strides[1]
    return FirstLayerTile(matrix, lanes, stride, channels, SUBGROUPS, 1, pass_pixels, pass_channels)


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
        if max(self._grid(box)) > GUARANTEED_WORKGROUP_COUNT or self.seconds(box) > DISPATCH_SECONDS:
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
        """Tiles of a workgroup: several if there are enough workgroups, so that one fetch of the filter serves all."""
        images, _, rows, columns = (high - low for low, high in box)
        panels = self._panels(box)
        across = -(-columns // (self.tile.units * self.tile.unit))
        workgroups = across * -(-rows // self.tile.rows) * images * (panels[1] - panels[0])
        return max(1, min(workgroups // ENOUGH_WORKGROUPS, LARGEST_TILE_COUNT))

    def _unrolled_rows(self) -> int:
        """Rows of taps in the code. Compilers for CPUs take long for many, and those for few registers spill some."""
        profile = self.builder.profile
        is_one = profile.device_type is DeviceType.CPU or device_traits.has_few_registers(profile)
        return 1 if is_one else self.geometry.filter_size[0]

    def dispatch(self, box: Box) -> Dispatch:
        geometry, tile = self.geometry, self.tile
        images, channels, rows, columns = (high - low for low, high in box)
        dispatch = DispatchBuilder(KERNEL)
        first_row, first_column = self.first_tap(box)
        bounds = self.input_bounds(box)
        # Rows and columns are counted from the first row and column of the input, which may lie before the window.
        address = self.input.address((box[IMAGE][0], 0, 0, 0))
        dispatch.window(self.input.tensor, bounds, address, 1, "input_start", Access.READ)
        panels = self._panels(box)
        filter_bounds = self.filter.bounds(panels)
        dispatch.window(self.filter.tensor, filter_bounds, filter_bounds[0], 8, "filter_start", Access.READ)
        written = self.output.bounds(box)
        dispatch.window(self.output.tensor, written, written[0], 1, "output_start", Access.WRITE)
        self.parameters.bind(dispatch, box[CHANNEL])
        dispatch.push(
            panels=panels[1] - panels[0],
            channels=channels,
            rows=rows,
            columns=columns,
            tiles=self._tiles(box),
            panel_stride=self.filter.panel_size // 8,
            first_row=first_row,
            first_column=first_column,
            row_limit=geometry.input_size[0],
            column_limit=geometry.input_size[1],
            **by_dimension("input_stride", "nchw", self.input.strides),
            **by_dimension("output_stride", "nchw", self.output.strides),
        )
        # Words hold four channels if channels are contiguous (NHWC), otherwise four pixels.
        store_channels = self.output.strides[CHANNEL] == 1 and geometry.output_channels > 1
        inner = CHANNEL if store_channels else COLUMN
        specialization = {
            LOCAL_SIZE_X: SUBGROUPS * tile.lanes,
            "OUTPUT_UNSIGNED": int(self.parameters.output_unsigned),
            "STORE_CHANNELS": int(store_channels),
            "FLIP": UNSIGNED_FLIP if self.parameters.input_unsigned else 0,
            "MATRIX_M": tile.matrix.m,
            "MATRIX_N": tile.matrix.n,
            "MATRIX_K": tile.matrix.k,
            "LANES": tile.lanes,
            "SUBGROUPS": SUBGROUPS,
            "TILE_CHANNELS": tile.channels,
            "TILE_ROWS": tile.rows,
            "TILE_UNITS": tile.units,
            "PASS_PIXELS": tile.pass_pixels,
            "FILTER_PADDING": FILTER_PADDING,
            "INPUT_CHANNELS": geometry.input_channels,
            "FILTER_HEIGHT": geometry.filter_size[0],
            "FILTER_WIDTH": geometry.filter_size[1],
            **by_dimension("STRIDE", "HW", geometry.strides),
            "FILTER_ZERO_POINT": int(self.parameters.has_filter_zero_point),
            "WHOLE": next((size for size in (16, 4) if writes_runs(self.output, box, inner, size)), 1),
            "UNROLLED_ROWS": self._unrolled_rows(),
            "PASS_CHANNELS": tile.pass_channels,
            **self.parameters.constants,
        }
        outputs = images * channels * rows * columns
        return dispatch.finish(
            specialization,
            self._grid(box),
            seconds=self.seconds(box),
            bytes_moved=sum(end - begin for begin, end in (bounds, filter_bounds, written)),
            operations=2 * outputs * geometry.tap_count,
            subgroup_size=tile.lanes,
        )


class FirstLayerPath(Path[FirstLayerTile]):
    """An input of at most four channels on matrix units, its rows as overlapping rows of matrices. On devices that list
    INT8 matrices.
    """

    name = "first_layer"
    must_answer_first = True

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        matrix = matrix_of(profile)
        if matrix is None:
            return NO_MATRICES
        if matrix.k % 8:
            return Obstacle("bytes of K of a matrix", matrix.k, "a multiple of 8")
        if matrix.m % 4 or matrix.n % 4:
            return Obstacle("rows and columns of a matrix", (matrix.m, matrix.n), "multiples of 4")
        limits = profile.limits
        largest = min(limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])
        if (invocations := SUBGROUPS * profile.min_subgroup_size) > largest:
            return Obstacle("invocations of a workgroup", invocations, f"at most {largest}")
        return None

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        return obstacle_to_first_layer(problem.profile, problem.geometry)

    def tiles(self, problem: Problem) -> tuple[FirstLayerTile]:
        return (first_layer_tile(problem.profile, problem.geometry),)

    def kernel_seconds(self, problem: Problem, tile: FirstLayerTile) -> float:
        geometry, rates = problem.geometry, rates_of(problem.profile)
        rows = -(-geometry.output_size[0] // tile.rows)
        columns = -(-geometry.output_size[1] // (tile.units * tile.unit)) * tile.units * tile.unit
        panels = geometry.batch * -(-geometry.output_channels // tile.channels)
        taps = geometry.filter_size[0] * tile.row_bytes(geometry)
        last_steps = float(panels * tile.channels * math.prod(geometry.output_size))
        if not packs_channels(geometry):
            last_steps *= RAGGED_PLANES if geometry.output_size[1] % 4 else PLANES
        copied_rows = panels * rows * ((tile.rows - 1) * geometry.strides[0] + geometry.filter_size[0])
        copied = copied_rows * columns * geometry.strides[1] * PIXEL * tile.phases
        busy = (
            2 * panels * tile.channels * rows * tile.rows * columns * taps / (UNIT_SHARE * rates.matrix)
            + last_steps * LAST_STEPS / rates.last_step
            + copied / (COPIES * rates.copy)
        )
        waits = (FIRST_WAITS + ROW_WAITS * geometry.filter_size[0]) * tile.channels / 64
        return rates.seconds(1, waits, busy)

    def plan(self, problem: Problem, tile: FirstLayerTile) -> Plan:
        geometry = problem.geometry
        stages = Stages(problem, geometry, ("input_tensor",))
        parameters, packing = stages.gathered_parameters(), tile.packing(geometry)
        first_layer = FirstLayer(
            stages.builder,
            geometry,
            stages.views["input_tensor"],
            stages.views["output_tensor"],
            parameters,
            self.longest_seconds(problem, tile),
            stages.packed_filter(tile.channels, packing),
            tile,
        )
        stages.add(first_layer.dispatches())
        return stages.plan(self.name)
