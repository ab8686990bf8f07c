"""How the product of a QUANTIZED_LINEAR_CONVOLUTION on matrix units is cut: tiles, and how K lies in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.quantized_linear_convolution.packing import ChannelWords, FilterPacking
from dmlvk.planning.quantized_linear_convolution.product import Shape, enough_workgroups
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry

KERNEL = "quantized_linear_convolution/matrix"
KERNEL_OF_FEW_REGISTERS = "quantized_linear_convolution/matrix_few_registers"
PACK_FILTER_KERNEL = "quantized_linear_convolution/matrix_pack_filter"

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

# The lowest rate of matrix units, in operations a second. A CPU's "matrix units" are loops.
SLOWEST_RATE = {DeviceType.DISCRETE_GPU: 8e12, DeviceType.CPU: 2e8}
SLOWEST_RATE_OF_OTHERS = 200e9


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
