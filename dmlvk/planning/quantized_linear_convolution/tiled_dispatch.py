"""The product of a QUANTIZED_LINEAR_CONVOLUTION by vectors of K: how the input is read, sizes, and the dispatches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from dmlvk import quirks
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import DISPATCH_SECONDS, Box, DispatchBuilder, Range, View, by_dimension, sizes_of
from dmlvk.planning.division import quick_division
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import CLEAN, Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP, PackedInput
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, ObstacleError
from dmlvk.planning.quantized_linear_convolution.product import COLUMN, GROUP, IMAGE, ROW, ProductCutter
from dmlvk.planning.quantized_linear_convolution.tiles import (
    KERNEL,
    LARGE_TILE,
    PACKED_MATRICES,
    ROW_PADDING,
    VECTOR_SIZE,
    AnyTiledShape,
    Runs,
    Tile,
    TiledShape,
    has_whole_planes,
    matrix_outputs,
    packs_channels,
)

# With so few steps of K the kernel has no loop over them.
UNROLLED_STEPS = 2

# The kernels' push constants; Vulkan guarantees 128 bytes, and all known devices with matrices have 256.
PUSH_CONSTANTS_SIZE = 192

# Ways to read the input. kernels/quantized_linear_convolution/matrix.glsl uses the same numbers.
WORDS, VECTORS, PLANES, BYTES = range(4)
# The bytes in which places of the input are counted then.
UNITS = {WORDS: 4, VECTORS: VECTOR_SIZE, PLANES: 4, BYTES: 1}

# A workgroup computes its channels' parameters once for several tiles, if that leaves no part of a large GPU idle.
# This many workgroups of small tiles run at a time on an H200, three on each multiprocessor. Large tiles take longer
# and lose by it.
LARGEST_TURNS = 8
WORKGROUPS_AT_A_TIME = 396
# The sums of an invocation in these tiles.
SUMS_OF_SMALL_TILES = 64


def fetch_in_place(operands: ConvolutionOperands, shape: TiledShape, plane_seconds: float) -> int | None:
    """How the kernel can read the input in place; None if the input has to be packed first.

    Words need runs of one tap each: a row of taps may reach over the border. Planes stay whole, but larger work is cut.
    `plane_seconds` is the longest time of one image's plane under one panel.
    """
    builder, geometry, source, output = operands.builder, shape.geometry, operands.input, operands.output
    if not builder.fits(source.tensor, source.bounds(operands.whole_input)):
        return None
    channels = geometry.input_channels_per_group
    places = (source.strides[0], *source.strides[2:], source.start)
    if source.strides[1] == 1 and not shape.runs.are_rows_of_taps(geometry):
        if not any(number % VECTOR_SIZE for number in (channels, *places)):
            return VECTORS
        if shape.reads_words and not any(number % 4 for number in (channels, *places)):
            return WORDS
    if shape.reads_bytes:
        return BYTES
    if channels % VECTOR_SIZE:
        return None
    in_words = all(stride % 4 == 0 for stride in (*source.strides[:2], source.start))
    if (
        in_words
        and has_whole_planes(geometry)
        and geometry.input_size[0] * geometry.input_size[1] % 4 == 0
        and source.strides[2:] == (geometry.input_size[1], 1)
        and shape.tile.fetches_planes(shape.rules.lanes)
        and builder.fits(output.tensor, output.bounds(operands.whole_output))
        and plane_seconds <= DISPATCH_SECONDS
        and -(-math.prod(geometry.output_size) // shape.pixels) <= GUARANTEED_WORKGROUP_COUNT
    ):
        return PLANES
    return None


def whole_input(geometry: ConvolutionGeometry, source: View) -> PackedInput:
    """A single part: the whole input, read in place."""
    outputs = geometry.output_size
    return PackedInput(
        source.tensor,
        source.start,
        (0, geometry.batch),
        (0, geometry.group_count),
        (0, outputs[0]),
        (0, outputs[1]),
        *geometry.input_size,
        -(-geometry.input_channels_per_group // 4),
    )


@dataclass(frozen=True)
class TiledCutter(ProductCutter[AnyTiledShape], Generic[AnyTiledShape]):
    """One part's product on matrix units."""

    # How the input is read: WORDS, VECTORS, PLANES or BYTES.
    fetch: int
    source: View | None = None  # the input, if it is read in place

    def shares_pipelines(self, box: Box) -> bool:
        """Whether sizes are push constants."""
        return shares_pipelines(self.operands.builder.profile, self.operations(box))

    def push_sizes(self, dispatch: DispatchBuilder, sizes: Mapping[str, int]) -> None:
        """Pushes the sizes, also those that are constants: the kernel has push constants for all of them."""
        dispatch.push(part_steps=self.part_steps, **size_push_constants(sizes))

    @property
    def part_steps(self) -> int:
        """The steps of a share of K."""
        return -(-self.shape.steps(self.shape.runs) // self.shape.tile.shares)

    def run_words(self, runs: Runs) -> int:
        """Words of a run; only runs in words may end inside a vector."""
        if self.fetch == WORDS and self.source is not None:
            return self.geometry.input_channels_per_group // 4
        if self.fetch == BYTES and self.pixel_channels(runs):
            return runs.words
        return runs.words if self.fetch == WORDS else 4

    def pixel_channels(self, runs: Runs) -> int:
        """The channels of a pixel; 0 if they fill the vectors of a run."""
        channels = self.geometry.input_channels_per_group
        return channels if channels % VECTOR_SIZE or runs.are_rows_of_taps(self.geometry) else 0

    def parameters_fit(self, box: Box) -> bool:
        return True  # parameters that do not fit were gathered before

    @property
    def subgroup_size(self) -> int:
        """The subgroup size that the kernel is specialized for; 0 if any will do."""
        return self.shape.rules.lanes

    def turns(self, box: Box) -> int:
        """Tiles of pixels that a workgroup computes."""
        tile = self.shape.tile
        if tile.turns or tile.parts > 1 or tile.pixels * tile.channels >= LARGE_TILE:
            return tile.turns or 1
        channels, pixels, groups = super().grid(box)

        def tiles_in_turn(turns: int) -> int:
            return -(-channels * -(-pixels // turns) * groups // WORKGROUPS_AT_A_TIME) * turns

        return min(range(LARGEST_TURNS, 0, -1), key=tiles_in_turn)

    def input_pixels(self, box: Box) -> int:
        """The pixels in whose order the kernel finds its input: as many as it computes, or more."""
        return self.pixels(box)

    def more_constants(self, box: Box) -> dict[str, int]:
        """Specialization constants that only this kernel has."""
        return {}

    def grid(self, box: Box) -> tuple[int, int, int]:
        channels, pixels, groups = super().grid(box)
        return channels, -(-pixels // self.turns(box)), groups * self.shape.tile.parts

    def dispatch(self, box: Box) -> Dispatch:
        geometry, shape = self.geometry, self.shape
        tile, runs, extents = shape.tile, shape.runs, sizes_of(box)
        first_row, first_column = self._first_tap(box)
        dispatch = DispatchBuilder(shape.kernel)
        strides, channel_stride = self._input_window(dispatch, box)
        self.show_filter(dispatch, box, VECTOR_SIZE)
        self.show_output(dispatch, box)
        self.operands.parameters.bind(dispatch, self.channels(box))
        self._part_sums_window(dispatch, box)
        dispatch.push(pixels=self.input_pixels(box), first_row=first_row, first_column=first_column)
        sizes = {
            "RUN": runs.vectors,
            **by_dimension("STRIDE", "HW", geometry.strides),
            **by_dimension("DILATION", "HW", geometry.dilations),
            "VECTORS_OF_K": runs.total,
            "ROWS": extents[ROW],
            "COLUMNS": extents[COLUMN],
            "INPUT_STRIDE_N": strides[0],
            "INPUT_STRIDE_GROUP": strides[1],
            "INPUT_STRIDE_H": strides[2] * geometry.strides[0],
            "INPUT_STRIDE_W": strides[3] * geometry.strides[1],
            "TAP_STRIDE_H": strides[2] * geometry.dilations[0],
            "TAP_STRIDE_W": strides[3] * geometry.dilations[1],
            "CHANNEL_STRIDE": channel_stride,
            **by_dimension("OUTPUT_STRIDE", "NCHW", self.operands.output.strides),
            "ROW_LIMIT": geometry.input_size[0],
            "COLUMN_LIMIT": geometry.input_size[1],
            "TURNS": self.turns(box),
            "PARTS": tile.parts,
        }
        self.push_sizes(dispatch, sizes)
        unit_stored = self._store_unit(box, self.stored_in_panels(box))
        constants = {
            **self._constants(shape, tile, runs),
            "WHOLE_STEPS": int(self._fetches_whole_steps(box)),
            "STORE_UNIT": unit_stored,
            **self.operands.parameters.constants,
            **size_constants(sizes, self.shares_pipelines(box)),
            "PREPARED": int(self.packed_filter.rows_after > 1),
            "STORE_MATRICES": int(unit_stored == VECTOR_SIZE and self._stores_matrices(extents)),
            "EVEN_INPUT": int(self._reads_evenly(extents, strides)),
            "EVEN_OUTPUT": int(_is_even(extents, self.operands.output.strides)),
            **self.more_constants(box),
        }
        return dispatch.finish(
            constants,
            self.grid(box),
            seconds=self.seconds(box),
            bytes_moved=self.bytes_moved(box),
            operations=self.operations(box),
            subgroup_size=self.subgroup_size,
        )

    def _first_tap(self, box: Box) -> tuple[int, int]:
        """The input's row and column under the first output's first tap; may be negative."""
        geometry = self.geometry
        row, column = (
            box[dimension][0] * geometry.strides[k] - geometry.start_padding[k]
            for k, dimension in enumerate((ROW, COLUMN))
        )
        return row, column

    def _input_window(self, dispatch: DispatchBuilder, box: Box) -> tuple[list[int], int]:
        """Bind the input under a box, in place or packed. Returns its strides and a channel's, in units of a read."""
        geometry, part, runs = self.geometry, self.part, self.shape.runs
        if self.source is not None:
            unit, strides = UNITS[self.fetch], list(self.source.strides)
            channel_stride = strides[1]
            strides[1] *= geometry.input_channels_per_group
            input_bounds = self.source.bounds(self.operands.whole_input)
            first_channel = box[GROUP][0] * geometry.input_channels_per_group
            address = self.source.address((box[IMAGE][0], first_channel, *self._first_tap(box)))
        else:
            unit, channel_stride = VECTOR_SIZE if runs.aligned else 4, 1
            strides = [4 * stride for k, stride in enumerate(part.strides) if k != 2]
            # The last run of a pixel is read in whole vectors.
            input_bounds = (part.start, part.start + part.size + (0 if runs.aligned else VECTOR_SIZE))
            address = part.place(geometry, *(box[dimension][0] for dimension in (IMAGE, GROUP, ROW, COLUMN)))
        dispatch.window(part.tensor, input_bounds, address, unit, "input_start")
        return [stride // unit for stride in strides], channel_stride // unit

    def _part_sums_window(self, dispatch: DispatchBuilder, box: Box) -> None:
        """Bind the sums of the parts of K, if there are several."""
        tile = self.shape.tile
        if tile.parts > 1:
            size = math.prod(super().grid(box)) * tile.part_sums_size
            start = self.operands.builder.clean.allocate(size)
            if not self.operands.builder.fits(CLEAN, (start, start + size)):
                raise ObstacleError(Obstacle("bytes of the sums of parts of K", size, "at most a window's"))
            dispatch.window(CLEAN, (start, start + size), start, 4, "part_sums_start", Access.WRITE)
        else:
            dispatch.unread_window(dispatch.windows[1], "part_sums_start")

    def _constants(self, shape: TiledShape, tile: Tile, runs: Runs) -> dict[str, int]:
        geometry, parameters = self.geometry, self.operands.parameters
        return {
            LOCAL_SIZE_X: shape.local_size,
            "OUTPUT_UNSIGNED": int(parameters.output_unsigned),
            "STORE_CHANNELS": int(packs_channels(geometry)),
            "FLIP": UNSIGNED_FLIP * 0x01010101 if self.source is not None and parameters.input_unsigned else 0,
            "CHECK_BORDER": int(self._checks_border()),
            "FETCH": self.fetch,
            "MATRIX_M": shape.block.m,
            "MATRIX_N": shape.block.n,
            "MATRIX_K": shape.block.k,
            "LANES": shape.rules.lanes,
            "TILE_PIXELS": tile.pixels,
            "TILE_CHANNELS": tile.channels,
            "SUBGROUP_PIXELS": tile.own_pixels,
            "SUBGROUP_CHANNELS": tile.own_channels,
            "STEP": tile.step // VECTOR_SIZE,
            "RUN_WORDS": self.run_words(runs),
            "RUNS_W": runs.of_row,
            "TAPS": runs.count,
            "FEW_STEPS": steps if (steps := shape.steps(runs)) <= UNROLLED_STEPS else 0,
            "FILTER_ZERO_POINT": int(self._may_have_filter_zero_points()),
            "PADDING": ROW_PADDING,
        }

    def _may_have_filter_zero_points(self) -> bool:
        """Whether the kernel has the code that looks for filter zero points, and subtracts what they add."""
        tile = self.shape.tile
        sums = tile.own_pixels * tile.own_channels // self.shape.rules.lanes
        is_small = self.shape.kernel == KERNEL and sums == SUMS_OF_SMALL_TILES
        return self.operands.parameters.has_filter_zero_point or (
            is_small and device_traits.packs_registers_with_filter_zero_points(self.operands.builder.profile)
        )

    def _checks_border(self) -> bool:
        """Whether the input is read in place, and some tap lies outside it."""
        geometry = self.geometry
        reach = (
            (geometry.output_size[k] - 1) * geometry.strides[k]
            + (geometry.filter_size[k] - 1) * geometry.dilations[k]
            - geometry.start_padding[k]
            for k in range(2)
        )
        beside = any(last >= size for last, size in zip(reach, geometry.input_size, strict=True))
        return self.source is not None and (beside or any(geometry.start_padding))

    def _fetches_whole_steps(self, box: Box) -> bool:
        """Whether fetches need not look for the end of K, because it is the end of a step."""
        # Where they look for the border anyway, layers share a pipeline whose fetches look for both.
        if self._checks_border() and self.shares_pipelines(box):
            return False
        shape = self.shape
        return shape.runs.size % shape.tile.step == 0

    def _store_unit(self, box: Box, stored: Range) -> int:
        """Bytes of one store to the output: 16 or 4 if neighbours in a tile always fill whole units of that size."""
        stride_n, stride_c, stride_h, stride_w = self.operands.output.strides
        if packs_channels(self.geometry):
            units = [*stored, self.geometry.output_channels_per_group, stride_n, stride_h, stride_w]
        else:
            rows, columns = (box[dimension][1] - box[dimension][0] for dimension in (ROW, COLUMN))
            if stride_w != 1 or (rows > 1 and stride_h != columns):
                return 1
            units = [rows * columns, stride_n, stride_c, box[ROW][0] * stride_h + box[COLUMN][0]]
        common = math.gcd(*units, self.operands.output.start)
        return next(unit for unit in (VECTOR_SIZE, 4, 1) if common % unit == 0)

    def _reads_evenly(self, extents: list[int], strides: Sequence[int]) -> bool:
        """Whether the input pixels under a tap are one stride apart, wherever the output pixels lie."""
        steps = [strides[0], strides[1], *(strides[2 + k] * self.geometry.strides[k] for k in range(2))]
        return self.fetch != PLANES and not self._checks_border() and _is_even(extents, steps)

    def _stores_matrices(self, extents: list[int]) -> bool:
        """Whether the rows of a matrix of words always have the same stride."""
        stride_n, _, stride_h, stride_w = self.operands.output.strides
        images, rows, columns = extents[IMAGE], extents[ROW], extents[COLUMN]
        if packs_channels(self.geometry):
            plane = rows * columns * stride_w
            return (rows == 1 or stride_h == columns * stride_w) and (images == 1 or stride_n == plane)
        pixels, _ = matrix_outputs(self.shape.kernel, self.shape.block, in_words=False)
        return rows * columns % (PACKED_MATRICES * pixels) == 0


def _is_even(extents: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the pixels of a box are one stride apart, from one image to the next too."""
    images, rows, columns = extents[IMAGE], extents[ROW], extents[COLUMN]
    step = strides[3]
    return (rows == 1 or strides[2] == columns * step) and (images == 1 or strides[0] == rows * columns * step)


# Sizes that are divisors, with the first bit of their shifts.
DIVISORS = {"ROWS": 0, "COLUMNS": 5, "RUN": 10}
# Dispatches of at most this many operations share pipelines. On an H200 they take 9 us at most, of which constants save
# 1%, and in a network the next layer finds the kernel's code where it is. (ResNet-50 has 231 million operations in a
# layer of one picture.)
SHORT_OPERATIONS = 280_000_000


def shares_pipelines(profile: DeviceProfile, operations: int) -> bool:
    """Whether a dispatch takes its sizes as push constants."""
    return operations <= SHORT_OPERATIONS and not quirks.SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS.applies_to(profile)


def size_push_constants(sizes: Mapping[str, int]) -> dict[str, int]:
    """The push constants of a kernel's sizes: each size, and what replaces the divisions by some of them."""
    values = {name.lower(): value for name, value in sizes.items()}
    shifts = 0
    for name, first_bit in DIVISORS.items():
        reciprocal, shift = reciprocal_of(sizes[name])
        values[f"{name.lower()}_reciprocal"] = reciprocal
        shifts |= shift << first_bit
    return {**values, "reciprocal_shifts": shifts}


def reciprocal_of(divisor: int) -> tuple[int, int]:
    """A number and a shift, for which 2 * n * number >> 32 + shift is n // divisor for all n below 2**31."""
    if divisor == 1:
        return 1 << 31, 0
    multiplier, shift = quick_division(divisor)
    return multiplier, shift + 1


def size_constants(sizes: Mapping[str, int], is_shared: bool) -> dict[str, int]:
    """The specialization constants of sizes: their values, or 0 for those that the kernel takes as push constants."""
    if not is_shared:
        return dict(sizes)
    # One tile in turn, and one part, are constants in any case: less code. So are neighbours.
    alone = {name for name in ("TURNS", "PARTS", "OUTPUT_STRIDE_C") if sizes[name] == 1}
    return {name: value if name in alone else 0 for name, value in sizes.items()}
