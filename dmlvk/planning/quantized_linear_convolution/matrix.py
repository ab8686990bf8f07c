"""The product of a QUANTIZED_LINEAR_CONVOLUTION on matrix units: matrices, tiles, layouts, dispatches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.quantized_linear_convolution.packing import ChannelWords, FilterPacking
from dmlvk.planning.quantized_linear_convolution.parameters import BUFFER_COUNT
from dmlvk.planning.quantized_linear_convolution.path import Obstacle
from dmlvk.planning.quantized_linear_convolution.product import (
    Shape,
    enough_workgroups,
)
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry

KERNEL = "quantized_linear_convolution/matrix"
PACK_FILTER_KERNEL = "quantized_linear_convolution/matrix_pack_filter"

FEATURES = frozenset(("cooperativeMatrix", "vulkanMemoryModel", "shaderInt8", "storageBuffer8BitAccess"))
# The last step relies on float32 products being rounded to nearest even.
ROUNDING = "shaderRoundingModeRTEFloat32"

VECTOR_SIZE = 16

# Matrix units are at least this many times as fast as packed dot products.
WASTEFUL = 6
# In narrow groups, packed dot products multiply zeros too, and the direct kernel is 20 times as slow as they are.
WASTEFUL_IN_GROUPS = 64

# Each row of shared memory is padded with this number of vectors.
ROW_PADDING = 1

# A tile of as many outputs takes many registers: a multiprocessor has room for two, not for three.
LARGE_TILE = 128 * 128

# Pixels that are fetched together if the input is read by planes.
PLANE_PIXELS = 4

# Four matrices lie side by side if bytes are packed into words.
PACKED_MATRICES = 4

# No side of a tile is 0 or more than a few thousand. A name can come from any source, a damaged file included.
SIDE = "([1-9][0-9]{0,5})"

# The lowest rate of matrix units, in operations a second. A CPU's "matrix units" are loops.
SLOWEST_RATE = {DeviceType.DISCRETE_GPU: 8e12, DeviceType.CPU: 2e8}
SLOWEST_RATE_OF_OTHERS = 200e9

NO_MATRICES = Obstacle("matrices of signed bytes", "none that the kernels take", "VK_KHR_cooperative_matrix with one")


def matrix_rate(profile: DeviceProfile) -> float:
    """The lowest rate of matrix units, in operations a second."""
    return SLOWEST_RATE.get(profile.device_type, SLOWEST_RATE_OF_OTHERS)


@dataclass(frozen=True)
class MatrixTile:
    """How the work is cut.

    Attributes
    ----------
    pixels, channels : int
    step : int
        Bytes of K from one barrier to the next.
    subgroup_pixels, subgroup_channels : int
    turns : int
        Tiles of pixels that a workgroup computes one after the other; 0 if the planner chooses.
    parts : int
        Workgroups that share the K of a tile.
    """

    pixels: int
    channels: int
    step: int
    subgroup_pixels: int
    subgroup_channels: int
    turns: int = 0
    parts: int = 1

    def subgroups(self) -> int:
        return self.pixels // self.subgroup_pixels * (self.channels // self.subgroup_channels)

    @property
    def part_sums_size(self) -> int:
        """Bytes in which the parts of one tile's K add their sums: see matrix_parts.glsl."""
        return 4 * (self.pixels * self.channels + self.pixels + 4)

    def fetches_planes(self, lanes: int) -> bool:
        """Whether an invocation fetches whole groups of four pixels in each step, which planes require."""
        fetches = self.pixels * (self.step // VECTOR_SIZE) // (self.subgroups() * lanes)
        return fetches % PLANE_PIXELS == 0


AnyMatrixShape = TypeVar("AnyMatrixShape", bound="MatrixShape")


@dataclass(frozen=True)
class MatrixShape(Shape):
    """A tile on a device's matrices.

    Attributes
    ----------
    matrix : CooperativeMatrix
    lanes : int
        The subgroup size.
    tile : MatrixTile
    """

    matrix: CooperativeMatrix
    lanes: int
    tile: MatrixTile

    @classmethod
    def of(
        cls: type[AnyMatrixShape],
        kernel: str,
        profile: DeviceProfile,
        matrix: CooperativeMatrix,
        tile: MatrixTile,
        geometry: ProductGeometry,
    ) -> AnyMatrixShape:
        """The shape of a kernel's work with a tile."""
        lanes = profile.min_subgroup_size
        return cls(
            geometry=geometry,
            kernel=kernel,
            local_size=tile.subgroups() * lanes,
            panel=tile.channels,
            panels=1,
            pixels=tile.pixels,
            tiled=True,
            channels_last=True,
            operations_per_second=matrix_rate(profile),
            enough_workgroups=enough_workgroups(profile),
            matrix=matrix,
            lanes=lanes,
            tile=tile,
        )

    def runs(self, geometry: ConvolutionGeometry) -> Runs:
        """How K lies in memory."""
        return Runs.of(geometry)

    def steps(self, runs: Runs) -> int:
        """The number of steps of K."""
        return -(-runs.total * VECTOR_SIZE // self.tile.step)

    def filter_packing(self, geometry: ConvolutionGeometry) -> FilterPacking:
        """How the filter is packed: in whole steps of K."""
        runs, step = self.runs(geometry), self.tile.step // 4
        words = -(-4 * runs.total // step) * step
        # Channels in the order in which the product stores them.
        interleaved = self.matrix.n if packs_channels(geometry) else 0
        sizes = {
            "STEP_WORDS": step,
            "RUN_WORDS": 4 * runs.vectors,
            "RUNS_W": runs.of_row,
            "QUADS": runs.quads,
            "IN_ORDER": 1,
            "INTERLEAVED": interleaved,
        }
        return FilterPacking(PACK_FILTER_KERNEL, words, {}, sizes=sizes)


@dataclass(frozen=True)
class Runs:
    """How K lies in memory: in runs of contiguous words.

    Attributes
    ----------
    quads : int
        Words of a pixel in the packed input.
    words : int
        Words of a run that the product uses.
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
        """One run for each tap, or for each row of taps if that takes markedly fewer vectors."""
        quads = ChannelWords.of(geometry).quads
        height, width = geometry.filter_size
        vectors = -(-quads // 4)
        taps = cls(4 * vectors, 4 * vectors, vectors, width, height * width)
        rows = cls(quads, quads * width, -(-quads * width // 4), 1, height)
        # The gain has to outweigh loads by words instead of vectors, and the masks of the sums.
        if geometry.dilations[1] == 1 and 4 * rows.total <= 3 * taps.total:
            return rows
        return taps


@lru_cache(maxsize=64)
def matrix_of(profile: DeviceProfile) -> CooperativeMatrix | None:
    """The largest matrices of signed bytes that a device multiplies; None if it has none that can be used."""
    if FEATURES - profile.features or not profile.has_integer_dot_product or ROUNDING not in profile.properties:
        return None
    # One more than the parameters need: the sums of parts of K.
    if profile.limits.max_per_stage_descriptor_storage_buffers < BUFFER_COUNT + 1:
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
        and all(possible_tiles(profile, entry, channels) for channels in (False, True))
    ]
    return max(usable, key=lambda entry: (entry.m * entry.n * entry.k, entry.k), default=None)


def is_wasteful(geometry: ProductGeometry, shape: MatrixShape) -> bool:
    """Whether matrix units would mostly multiply zeros, or compute channels that are never stored."""
    channels = geometry.output_channels_per_group
    computed = -(-channels // shape.panel) * shape.panel / channels
    wasteful = WASTEFUL if geometry.group_count * geometry.joined == 1 else WASTEFUL_IN_GROUPS
    return VECTOR_SIZE * Runs.of(geometry).total * computed > wasteful * geometry.own_tap_count


def has_whole_planes(geometry: ConvolutionGeometry) -> bool:
    """Whether an output pixel reads only the input pixel at its own place."""
    return (
        geometry.filter_size == (1, 1)
        and geometry.strides == (1, 1)
        and not any(geometry.start_padding)
        and geometry.input_size == geometry.output_size
    )


def packs_channels(geometry: ConvolutionGeometry) -> bool:
    """Whether a word of the output holds four channels (contiguous in NHWC) rather than four pixels."""
    return geometry.output_strides[1] == 1 and geometry.output_channels > 1


def tiles_for(profile: DeviceProfile, matrix: CooperativeMatrix, channels: bool) -> list[MatrixTile]:
    """The tiles that suit a device, the largest first; with `channels` for words of four channels."""
    if profile.device_type is DeviceType.CPU:
        step = max(32, 2 * matrix.k)
        return [MatrixTile(32, 32, step, 16, 32) if channels else MatrixTile(32, 32, step, 32, 16)]
    return [replace(tile, step=max(tile.step, 2 * matrix.k)) for tile in _gpu_tiles(profile, channels)]


def _gpu_tiles(profile: DeviceProfile, channels: bool) -> list[MatrixTile]:
    if profile.min_subgroup_size >= 32:
        # With 64 sums an invocation no GPU spills registers, and a subgroup loads 96 rows for 64 x 32 products. 128
        # sums an invocation are for GPUs with 255 registers.
        large = [MatrixTile(128, 128, 64, 64, 64)] if device_traits.has_255_registers(profile) else []
        if channels:
            return [
                *large,
                MatrixTile(64, 128, 64, 32, 64),
                MatrixTile(128, 64, 64, 32, 64),
                MatrixTile(64, 64, 64, 32, 64),
            ]
        return [
            *large,
            MatrixTile(64, 128, 64, 64, 32),
            MatrixTile(128, 64, 64, 64, 32),
            MatrixTile(64, 64, 64, 64, 32),
            MatrixTile(128, 32, 64, 64, 16),
        ]
    if profile.min_subgroup_size >= 16:
        if channels:
            return [MatrixTile(128, 64, 64, 16, 64), MatrixTile(64, 64, 64, 16, 64)]
        return [MatrixTile(128, 64, 64, 32, 32), MatrixTile(64, 64, 64, 32, 16), MatrixTile(128, 32, 64, 32, 16)]
    if channels:
        return [MatrixTile(64, 64, 64, 16, 32), MatrixTile(64, 32, 64, 16, 32)]
    return [MatrixTile(64, 64, 64, 32, 16), MatrixTile(64, 32, 64, 32, 16)]


def possible_tiles(profile: DeviceProfile, matrix: CooperativeMatrix, channels: bool) -> list[MatrixTile]:
    """The tiles that fit a device's workgroups and shared memory: none on a device as small as Vulkan allows."""
    lanes = profile.min_subgroup_size
    tiles = tiles_for(profile, matrix, channels)
    return [tile for tile in tiles if obstacle_to_tile(profile, matrix, lanes, tile, channels) is None]


def obstacle_to_sizes(
    profile: DeviceProfile, matrix: CooperativeMatrix, lanes: int, tile: MatrixTile, channels: bool
) -> str | None:
    """Why a tile's sizes do not go together; None if they do. With `channels` for words of four channels."""
    invocations = tile.subgroups() * lanes
    limits = profile.limits
    largest = min(limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])
    sizes = (tile.pixels, tile.channels, tile.step, tile.subgroup_pixels, tile.subgroup_channels)
    if any(size & (size - 1) for size in sizes):
        return "its sizes are not powers of two"
    if tile.pixels % tile.subgroup_pixels or tile.channels % tile.subgroup_channels:
        return "its subgroups do not divide it"
    rows, columns = (1, PACKED_MATRICES) if channels else (PACKED_MATRICES, 1)
    if tile.subgroup_pixels % (rows * matrix.m) or tile.subgroup_channels % (columns * matrix.n):
        return f"{rows} x {columns} matrices of {matrix.m} x {matrix.n} do not divide its subgroups"
    if tile.step % max(2 * matrix.k, VECTOR_SIZE):
        return f"its step is not an even number of matrices of {matrix.k} bytes of K"
    if not 1 <= invocations <= largest:
        return f"{invocations} invocations are more than {largest}"
    return None


def obstacle_to_tile(
    profile: DeviceProfile, matrix: CooperativeMatrix, lanes: int, tile: MatrixTile, channels: bool
) -> str | None:
    """Why the kernel cannot use this tile; None if it can. With `channels` for words of four channels."""
    obstacle = obstacle_to_sizes(profile, matrix, lanes, tile, channels)
    if obstacle is not None:
        return obstacle
    invocations, step = tile.subgroups() * lanes, tile.step // VECTOR_SIZE
    if invocations % step or tile.pixels * step % invocations or tile.channels * step % invocations:
        return f"{invocations} invocations do not fetch both operands evenly"
    limit = device_traits.tile_memory(profile)
    size = shared_memory(matrix, tile, channels)
    if size > limit:
        return f"{size} bytes of shared memory are more than {limit}"
    return None


def shared_memory(matrix: CooperativeMatrix, tile: MatrixTile, channels: bool) -> int:
    """Bytes of shared memory that the kernel declares: see kernels/quantized_linear_convolution/matrix.glsl."""
    row = tile.step // VECTOR_SIZE * max(1, VECTOR_SIZE // matrix.k) + ROW_PADDING
    operands = 2 * (tile.pixels + tile.channels) * row
    lines, words = (matrix.m, matrix.n) if channels else (matrix.n, matrix.m)
    strip = max(lines * (words // 4 + 1), matrix.m * matrix.n // 4)
    return VECTOR_SIZE * max(operands, tile.subgroups() * strip) + 8 * tile.pixels + 12 * tile.channels + 48
