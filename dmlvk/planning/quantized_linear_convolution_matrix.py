"""The product of a QUANTIZED_LINEAR_CONVOLUTION on matrix units: matrices, tiles, layouts, dispatches."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.plan import Access, Dispatch, PathError
from dmlvk.planning.quantized_linear_convolution_memory import Builder, DispatchBuilder, Range, View
from dmlvk.planning.quantized_linear_convolution_packing import FilterPacking, PackedInput, Words
from dmlvk.planning.quantized_linear_convolution_parameters import table_bounds
from dmlvk.planning.quantized_linear_convolution_product import (
    COLUMN,
    GROUP,
    IMAGE,
    NVIDIA,
    PANEL,
    ROW,
    Order,
    Shape,
)

MATRIX = "matrix"
KERNEL = "quantized_linear_convolution_matrix"

FEATURES = frozenset(("cooperativeMatrix", "vulkanMemoryModel", "shaderInt8"))
# The last step takes float32 products for rounded to nearest even.
ROUNDING = "shaderRoundingModeRTEFloat32"

VECTOR_SIZE = 16

# More loses an NVIDIA device where it should fail, whatever the limit says.
LARGEST_SHARED_MEMORY = 48 << 10

# Rows of shared memory are so many vectors longer than what they hold.
ROW_PADDING = 1

# Fewer workgroups than this leave a large GPU idle, or its last round nearly empty. Large tiles take more turns to even
# out.
ENOUGH_TILES = 192
ENOUGH_LARGE_TILES = 1024
LARGE_TILE = 128 * 128

# Ways to read the input, as kernels/include/quantized_matrix.glsl has them.
WORDS, VECTORS, PLANES = range(3)

# Four matrices lie side by side where bytes are put together to words.
PACKED_MATRICES = 4

# Dispatches cut images apart, never one image's plane in two, as long as an image takes no more than this.
LARGEST_PLANE_OPERATIONS = 1e10

FORCED_TILE = re.compile(r"(\d+)x(\d+)x(\d+):(\d+)x(\d+)")


@dataclass(frozen=True)
class Tile:
    """How the work is cut, in pixels, output channels and bytes of K."""

    pixels: int
    channels: int
    step: int
    subgroup_pixels: int
    subgroup_channels: int

    def subgroups(self) -> int:
        return self.pixels // self.subgroup_pixels * (self.channels // self.subgroup_channels)


@dataclass(frozen=True)
class MatrixShape(Shape):
    """A tile on a device's matrices.

    Attributes
    ----------
    matrix : CooperativeMatrix
    lanes : int
        The subgroup size.
    tile : Tile
    """

    matrix: CooperativeMatrix
    lanes: int
    tile: Tile

    @property
    def input_fetches(self) -> int:
        """Vectors of the input that an invocation fetches in each step."""
        return self.tile.pixels * (self.tile.step // VECTOR_SIZE) // self.local_size


@dataclass(frozen=True)
class Runs:
    """How K lies in memory: runs of words side by side.

    Attributes
    ----------
    quads : int
        Words of a pixel, in the packed input.
    words : int
        Words of a run that count.
    vectors : int
        16-byte vectors that hold a run.
    of_row : int
        Runs in a row of taps.
    count : int
        Runs of the whole filter.
    """

    quads: int
    words: int
    vectors: int
    of_row: int
    count: int

    @property
    def aligned(self) -> bool:
        """Whether every run begins at a multiple of 16 bytes."""
        return self.quads % 4 == 0

    @property
    def total(self) -> int:
        """Vectors of K."""
        return self.vectors * self.count

    @classmethod
    def of(cls, geometry: ConvolutionGeometry) -> Runs:
        """A run a tap, or a run a row of taps where that takes markedly fewer vectors."""
        quads = Words.of(geometry).quads
        height, width = geometry.filter_size
        vectors = -(-quads // 4)
        taps = cls(4 * vectors, 4 * vectors, vectors, width, height * width)
        rows = cls(quads, quads * width, -(-quads * width // 4), 1, height)
        # Loads by words instead of vectors, and the sums' masks, have to be worth it.
        if geometry.dilations[1] == 1 and 4 * rows.total <= 3 * taps.total:
            return rows
        return taps


def matrix_of(profile: DeviceProfile) -> CooperativeMatrix | None:
    """The matrices of signed bytes that a device multiplies, the largest ones; None where it has none to use."""
    if FEATURES - profile.features or not profile.has_integer_dot_product or ROUNDING not in profile.properties:
        return None
    if profile.min_subgroup_size != profile.max_subgroup_size and "subgroupSizeControl" not in profile.features:
        return None
    types = ("sint8", "sint8", "sint32", "sint32")
    usable = [
        entry
        for entry in profile.cooperative_matrices
        if (entry.a_type, entry.b_type, entry.c_type, entry.result_type) == types
        and not entry.saturating
        and entry.scope == "subgroup"
        and entry.m % 8 == entry.n % 8 == entry.k % 8 == 0
        and all(_possible_tiles(profile, entry, channels) for channels in (False, True))
    ]
    return max(usable, key=lambda entry: (entry.m * entry.n * entry.k, entry.k), default=None)


def packs_channels(geometry: ConvolutionGeometry) -> bool:
    """Whether words of the output are four channels, which lie side by side (NHWC), rather than four pixels."""
    return geometry.output_strides[1] == 1 and geometry.output_channels > 1


def tiles_for(profile: DeviceProfile, channels: bool) -> list[Tile]:
    """The tiles that suit a device, the largest first; with `channels` for words of four channels."""
    if profile.device_type is DeviceType.CPU:
        return [Tile(32, 32, 32, 16, 32) if channels else Tile(32, 32, 32, 32, 16)]
    if profile.min_subgroup_size >= 32:
        # 64 sums an invocation: no GPU spills, and a subgroup loads 96 rows for 64 x 32 products. 128 sums are for
        # those with 255 registers.
        large = [Tile(128, 128, 64, 64, 64)] if profile.vendor_id == NVIDIA else []
        if channels:
            return [*large, Tile(64, 128, 64, 32, 64), Tile(128, 64, 64, 32, 64), Tile(64, 64, 64, 32, 64)]
        return [
            *large,
            Tile(128, 128, 64, 64, 32),
            Tile(128, 64, 64, 64, 32),
            Tile(64, 64, 64, 64, 32),
            Tile(128, 32, 64, 64, 16),
        ]
    if profile.min_subgroup_size >= 16:
        if channels:
            return [Tile(128, 64, 64, 16, 64), Tile(64, 64, 64, 16, 64)]
        return [Tile(128, 64, 64, 32, 32), Tile(64, 64, 64, 32, 16), Tile(128, 32, 64, 32, 16)]
    if channels:
        return [Tile(64, 64, 64, 16, 32), Tile(64, 32, 64, 16, 32)]
    return [Tile(64, 64, 64, 32, 16), Tile(64, 32, 64, 32, 16)]


def _possible_tiles(profile: DeviceProfile, matrix: CooperativeMatrix, channels: bool) -> list[Tile]:
    """Those that its workgroups and shared memory have room for: none on a device as small as Vulkan allows."""
    lanes = profile.min_subgroup_size
    tiles = tiles_for(profile, channels)
    return [tile for tile in tiles if obstacle_to_tile(profile, matrix, lanes, tile, channels) is None]


def matrix_shape(profile: DeviceProfile, geometry: ConvolutionGeometry, forced: str = "") -> MatrixShape:
    """The matrices and the tile for a convolution.

    Parameters
    ----------
    forced : str, optional
        A tile by name: "128x128x64:64x32" is 128 pixels and channels by 64 bytes of K, in subgroups of 64 x 32.

    Raises
    ------
    PathError
        The forced tile is not one that the kernel can take on this device.
    """
    matrix = matrix_of(profile)
    assert matrix is not None, "asked for on a device without matrices"
    lanes = profile.min_subgroup_size
    if forced:
        match = FORCED_TILE.fullmatch(forced)
        if match is None:
            raise PathError(f"a tile is named like '128x128x64:64x32', not {forced!r}")
        tile = Tile(*(int(number) for number in match.groups()))
        obstacle = obstacle_to_tile(profile, matrix, lanes, tile, packs_channels(geometry))
        if obstacle is not None:
            raise PathError(f"tile {forced!r} is not possible on {profile.name}: {obstacle}")
    else:
        tile = _choose(profile, matrix, geometry)
    speed = {DeviceType.DISCRETE_GPU: 8e12, DeviceType.CPU: 2e8}.get(profile.device_type, 200e9)
    return MatrixShape(
        KERNEL, tile.subgroups() * lanes, tile.channels, 1, tile.pixels, True, True, speed, matrix, lanes, tile
    )


def _choose(profile: DeviceProfile, matrix: CooperativeMatrix, geometry: ConvolutionGeometry) -> Tile:
    tiles = _possible_tiles(profile, matrix, packs_channels(geometry))
    channels = geometry.output_channels_per_group
    pixels = geometry.batch * geometry.output_size[0] * geometry.output_size[1]
    narrowest = min(tile.channels for tile in tiles)
    fitting = [tile for tile in tiles if tile.channels < 2 * channels or tile.channels == narrowest]
    for tile in fitting:
        enough = ENOUGH_LARGE_TILES if tile.pixels * tile.channels >= LARGE_TILE else ENOUGH_TILES
        if geometry.group_count * -(-channels // tile.channels) * -(-pixels // tile.pixels) >= enough:
            return tile
    return min(fitting, key=lambda tile: tile.pixels * tile.channels)


def obstacle_to_tile(
    profile: DeviceProfile, matrix: CooperativeMatrix, lanes: int, tile: Tile, channels: bool
) -> str | None:
    """Why the kernel cannot have this tile; None where it can. With `channels` for words of four channels."""
    invocations = tile.subgroups() * lanes
    limits = profile.limits
    largest = min(limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])
    if tile.pixels % tile.subgroup_pixels or tile.channels % tile.subgroup_channels:
        return "its subgroups do not divide it"
    rows, columns = (1, PACKED_MATRICES) if channels else (PACKED_MATRICES, 1)
    if tile.subgroup_pixels % (rows * matrix.m) or tile.subgroup_channels % (columns * matrix.n):
        return f"{rows} x {columns} matrices of {matrix.m} x {matrix.n} do not divide its subgroups"
    if tile.step % max(matrix.k, 16):
        return f"matrices of {matrix.k} bytes of K do not divide its step"
    if not 1 <= invocations <= largest:
        return f"{invocations} invocations are more than {largest}"
    step = tile.step // VECTOR_SIZE
    if invocations % step or tile.pixels * step % invocations or tile.channels * step % invocations:
        return f"{invocations} invocations do not fetch both operands evenly"
    limit = min(limits.max_compute_shared_memory_size, LARGEST_SHARED_MEMORY)
    size = shared_memory(matrix, tile, channels)
    if size > limit:
        return f"{size} bytes of shared memory are more than {limit}"
    return None


def shared_memory(matrix: CooperativeMatrix, tile: Tile, channels: bool) -> int:
    """Bytes of shared memory that the kernel declares, as kernels/include/quantized_matrix.glsl has it."""
    row = tile.step // VECTOR_SIZE * max(1, VECTOR_SIZE // matrix.k) + ROW_PADDING
    operands = 2 * (tile.pixels + tile.channels) * row
    lines, length = (matrix.m, tile.subgroup_channels) if channels else (matrix.n, tile.subgroup_pixels)
    strip = max(lines * (length // VECTOR_SIZE + 1), matrix.m * matrix.n // 4)
    return VECTOR_SIZE * max(operands, tile.subgroups() * strip) + 8 * tile.pixels + 12 * tile.channels + 16


def matrix_filter_packing(geometry: ConvolutionGeometry, shape: MatrixShape) -> FilterPacking:
    """How the filter is packed: in whole steps of K."""
    runs, step = Runs.of(geometry), shape.tile.step // 4
    words = -(-4 * runs.total // step) * step
    constants = (step, 4 * runs.vectors, runs.of_row, runs.quads)
    return FilterPacking("quantized_linear_convolution_matrix_pack_filter", words, constants)


def fetch_in_place(
    builder: Builder, geometry: ConvolutionGeometry, shape: MatrixShape, source: View, output: View
) -> int | None:
    """How the kernel can read the input as it lies: by VECTORS or PLANES; None where it has to be packed first."""
    sizes = (geometry.batch, geometry.input_channels, *geometry.input_size)
    if geometry.input_channels_per_group % VECTOR_SIZE or not builder.fits(
        source.tensor, source.bounds([(0, size) for size in sizes])
    ):
        return None
    outer_strides = (source.strides[0], *source.strides[2:])
    if source.strides[1] == 1 and all(stride % VECTOR_SIZE == 0 for stride in (*outer_strides, source.start)):
        return VECTORS
    in_words = all(stride % 4 == 0 for stride in (*source.strides[:2], source.start))
    written = ((0, geometry.batch), (0, geometry.output_channels), *((0, size) for size in geometry.output_size))
    if (
        in_words
        and has_whole_planes(geometry)
        and geometry.input_size[0] * geometry.input_size[1] % 4 == 0
        and source.strides[2:] == (geometry.input_size[1], 1)
        and shape.input_fetches % 4 == 0
        and builder.fits(output.tensor, output.bounds(written))
        and 2 * geometry.output_channels * geometry.tap_count * geometry.input_size[0] * geometry.input_size[1]
        < LARGEST_PLANE_OPERATIONS
    ):
        return PLANES
    return None


def has_whole_planes(geometry: ConvolutionGeometry) -> bool:
    """Whether an output pixel sees the input pixel at its own place only."""
    return (
        geometry.filter_size == (1, 1)
        and geometry.strides == (1, 1)
        and not any(geometry.start_padding)
        and geometry.input_size == geometry.output_size
    )


def whole_input(geometry: ConvolutionGeometry, source: View) -> PackedInput:
    """An input that is read in place, as a single part."""
    outputs = geometry.output_size
    return PackedInput(
        source.tensor,
        source.start,
        (0, geometry.batch),
        (0, geometry.group_count),
        (0, outputs[0]),
        (0, outputs[1]),
        *geometry.input_size,
        geometry.input_channels_per_group // 4,
    )


@dataclass(frozen=True)
class MatrixOrder(Order):
    """One part's product on matrix units.

    Attributes
    ----------
    fetch : int
        How the input is read: WORDS, VECTORS or PLANES.
    source : View, optional
        The input where it is read in place.
    input_unsigned : bool
        Of the input where it is read in place.
    filter_zero_point : bool
        Whether a filter zero point may be other than 0.
    """

    fetch: int = VECTORS
    source: View | None = None
    input_unsigned: bool = False
    filter_zero_point: bool = True

    def dispatch(self, box: tuple[Range, ...]) -> Dispatch:
        geometry, part, packed_filter, shape = self.geometry, self.part, self.packed_filter, self.shape
        assert isinstance(shape, MatrixShape)
        tile, runs = shape.tile, Runs.of(geometry)
        channels, written = self.channels(box), self.written(box)
        extents = [high - low for low, high in box]
        first_row, first_column = (
            box[dimension][0] * geometry.strides[k] - geometry.start_padding[k]
            for k, dimension in enumerate((ROW, COLUMN))
        )
        dispatch = DispatchBuilder(shape.kernel, 27)
        if self.source is not None:
            unit, strides = VECTOR_SIZE if self.fetch == VECTORS else 4, list(self.source.strides)
            channel_stride = strides[1]
            strides[1] *= geometry.input_channels_per_group
            input_bounds = self.source.bounds(
                [(0, size) for size in (geometry.batch, geometry.input_channels)]
                + [(0, size) for size in geometry.input_size]
            )
            first_channel = box[GROUP][0] * geometry.input_channels_per_group
            address = self.source.address((box[IMAGE][0], first_channel, first_row, first_column))
        else:
            unit, channel_stride = VECTOR_SIZE if runs.aligned else 4, 1
            strides = [4 * part.image_stride, 4 * part.group_stride, 4 * part.columns * part.quads, 4 * part.quads]
            # The last run of a pixel is read in whole vectors.
            input_bounds = (part.start, part.start + part.size + (0 if runs.aligned else VECTOR_SIZE))
            address = part.start + (
                (box[IMAGE][0] - part.images[0]) * strides[0]
                + (box[GROUP][0] - part.groups[0]) * strides[1]
                + (box[ROW][0] - part.output_rows[0]) * geometry.strides[0] * strides[2]
                + (box[COLUMN][0] - part.output_columns[0]) * geometry.strides[1] * strides[3]
            )
        strides = [stride // unit for stride in strides]
        tap_strides = [strides[2] * geometry.dilations[0], strides[3] * geometry.dilations[1]]
        if self.fetch == PLANES:
            tap_strides = [channel_stride // unit, 0]
        dispatch.window(part.tensor, input_bounds, address, unit, 0, Access.READ)
        panels = packed_filter.bounds(self.panels(box))
        dispatch.window(packed_filter.tensor, panels, panels[0], VECTOR_SIZE, 1, Access.READ)
        records = table_bounds(self.table, channels)
        dispatch.window(self.table.tensor, records, records[0], 4, 2, Access.READ)
        output_address = self.output.address((box[IMAGE][0], channels[0], box[ROW][0], box[COLUMN][0]))
        dispatch.window(self.output.tensor, self.output.bounds(written), output_address, 1, 3, Access.WRITE)
        first_stored, end_stored = (channel - channels[0] for channel in self.stored(box))
        if extents[GROUP] > 1:
            first_stored, end_stored = 0, geometry.output_channels_per_group
        dispatch.push_constants[4:] = [
            extents[IMAGE] * extents[ROW] * extents[COLUMN],
            extents[ROW],
            extents[COLUMN],
            geometry.tap_count,
            first_stored,
            end_stored,
            geometry.output_channels_per_group,
            packed_filter.panel_size // VECTOR_SIZE,
            packed_filter.panels_of_group if extents[GROUP] > 1 else extents[PANEL],
            strides[0],
            strides[1],
            strides[2] * geometry.strides[0],
            strides[3] * geometry.strides[1],
            *tap_strides,
            *self.output.strides,
            first_row,
            first_column,
            *geometry.input_size,
        ]
        operations = self.operations(box)
        moved = part.size + panels[1] - panels[0] + operations // (2 * geometry.tap_count)
        return dispatch.finish(
            self._specialization(shape, tile, runs, box),
            self.grid(box),
            seconds=self.seconds(box),
            bytes_moved=moved,
            operations=operations,
            subgroup_size=shape.lanes,
        )

    def _specialization(self, shape: MatrixShape, tile: Tile, runs: Runs, box: tuple[Range, ...]) -> tuple[int, ...]:
        geometry = self.geometry
        # Where the input is read as it lies, does any tap fall beside it?
        reach = (
            (geometry.output_size[k] - 1) * geometry.strides[k]
            + (geometry.filter_size[k] - 1) * geometry.dilations[k]
            - geometry.start_padding[k]
            for k in range(2)
        )
        beside = any(geometry.start_padding) or any(
            last >= size for last, size in zip(reach, geometry.input_size, strict=True)
        )
        in_place = self.source is not None
        return (
            shape.local_size,
            int(self.output_unsigned),
            int(packs_channels(geometry)),
            0x80808080 if in_place and self.input_unsigned else 0,
            int(in_place and beside),
            self.fetch,
            shape.matrix.m,
            shape.matrix.n,
            shape.matrix.k,
            shape.lanes,
            tile.pixels,
            tile.channels,
            tile.subgroup_pixels,
            tile.subgroup_channels,
            tile.step // VECTOR_SIZE,
            runs.vectors,
            runs.words,
            runs.of_row,
            *geometry.strides,
            *geometry.dilations,
            int(self.filter_zero_point),
            ROW_PADDING,
            runs.total,
            int(self._stores_vectors(box)),
        )

    def _stores_vectors(self, box: tuple[Range, ...]) -> bool:
        """Whether sixteen neighbours in a tile are always a whole vector of the output's memory."""
        stride_n, stride_c, stride_h, stride_w = self.output.strides
        if packs_channels(self.geometry):
            units = [self.geometry.output_channels_per_group, stride_n, stride_h, stride_w]
        else:
            rows, columns = (box[dimension][1] - box[dimension][0] for dimension in (ROW, COLUMN))
            if stride_w != 1 or (rows > 1 and stride_h != columns):
                return False
            units = [rows * columns, stride_n, stride_c, box[ROW][0] * stride_h + box[COLUMN][0]]
        return all(unit % VECTOR_SIZE == 0 for unit in (*units, self.output.start))
