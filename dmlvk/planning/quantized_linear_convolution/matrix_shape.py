"""How the product of a QUANTIZED_LINEAR_CONVOLUTION on matrix units is cut: tiles, and how K lies in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from dmlvk._common.rates import Rates
from dmlvk.device_profile import CooperativeMatrix, DeviceProfile
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.quantized_linear_convolution.packing import ChannelWords, FilterPacking
from dmlvk.planning.quantized_linear_convolution.product import Shape, Speed
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, has_groups

KERNEL = "quantized_linear_convolution/matrix"
KERNEL_OF_FEW_REGISTERS = "quantized_linear_convolution/matrix_few_registers"
PACK_FILTER_KERNEL = "quantized_linear_convolution/matrix_pack_filter"

VECTOR_SIZE = 16

# Each row of shared memory is padded with this number of vectors.
ROW_PADDING = 1

# A tile of as many outputs takes many registers: a multiprocessor has room for two, not for three.
LARGE_TILE = 128 * 128

# Pixels that are fetched together if the input is read by planes.
PLANE_PIXELS = 4

# Four matrices lie side by side if bytes are packed into words.
PACKED_MATRICES = 4

# Caches hold so many bytes of the tensors for each processor. The rest is moved so many times as fast as by a copy,
# while the products are computed.
CACHED = 129_000
MEMORY = 1.26


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
    splits : int
        Subgroups of a workgroup that share its K; each has a step of its own at a time.
    """

    pixels: int
    channels: int
    step: int
    subgroup_pixels: int
    subgroup_channels: int
    turns: int = 0
    parts: int = 1
    splits: int = 1

    def subgroups(self) -> int:
        return self.pixels // self.subgroup_pixels * (self.channels // self.subgroup_channels) * self.splits

    def count(self, geometry: ConvolutionGeometry) -> int:
        """How many of these tiles a convolution has."""
        pixels = geometry.batch * math.prod(geometry.output_size)
        channels = -(-geometry.output_channels_per_group // self.channels)
        return geometry.group_count * channels * -(-pixels // self.pixels)

    @property
    def shares(self) -> int:
        """Into how many shares the K of a tile is cut."""
        return max(1, self.parts) * self.splits

    @property
    def part_sums_size(self) -> int:
        """Bytes in which the parts of one tile's K add their sums: see parts.glsl."""
        return 4 * (self.pixels * self.channels + self.pixels + 4)

    def fetches_planes(self, lanes: int) -> bool:
        """Whether an invocation fetches whole groups of four pixels in each step, which planes require."""
        fetches = self.pixels * (self.step // VECTOR_SIZE) * self.splits // (self.subgroups() * lanes)
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
            matrix=matrix,
            lanes=lanes,
            tile=tile,
        )

    @cached_property
    def runs(self) -> Runs:
        """How K lies in memory."""
        return Runs.of(self.geometry)

    def steps(self, runs: Runs) -> int:
        """The number of steps of K."""
        return -(-runs.total * VECTOR_SIZE // self.tile.step)

    def work(self, rates: Rates, speed: Speed, unit: str, pixels: int) -> tuple[float, float]:
        """The loads that a workgroup waits for, and the seconds for which the whole device is busy.

        Parameters
        ----------
        rates : Rates
        speed : Speed
        unit : str
            The unit that multiplies, by its name among the rates.
        pixels : int
            Pixels that the kernel counts.
        """
        geometry, tile = self.geometry, self.tile
        outputs = self.padded_outputs(pixels)
        tiles = outputs // (tile.pixels * tile.channels) * tile.shares
        in_words, has_ragged_rows = packs_channels(geometry), is_ragged(geometry)
        if in_words:
            times_of_last_step = speed.ragged_channels if has_ragged_rows else 1.0
        else:
            times_of_last_step = speed.ragged if has_ragged_rows else speed.planes
        products = outputs * tile.shares * self.steps_of_share * tile.step
        loaded = products * (1 / tile.subgroup_pixels + 1 / tile.subgroup_channels)
        computed = max(2 * products / (speed.share * getattr(rates, unit)), loaded / (speed.loads * rates.copy))
        computed += outputs * speed.last_steps * times_of_last_step / rates.last_step
        fetched = tiles * self.fetched_bytes(speed) / (self.fetches(speed) * rates.copy)
        times_of_memory = speed.group_memory if in_words and has_groups(geometry) else 1.0
        fetched += times_of_memory * uncached_bytes(rates, geometry) / (MEMORY * rates.copy)
        if speed.in_rounds:
            # As if each processor had as many workgroups as the busiest one.
            idle = math.ceil(tiles / rates.processors) * rates.processors / tiles - 1
            computed *= 1 + idle
            fetched *= 1 + speed.rounds_of_fetches * idle
        waits = self.waits(speed) + (speed.ragged_channel_waits if in_words and has_ragged_rows else 0)
        return waits, computed + fetched

    @property
    def steps_of_share(self) -> int:
        """The number of steps of K that a workgroup goes through."""
        return -(-self.steps(self.runs) // self.tile.shares)

    def fetches(self, speed: Speed) -> float:
        """Bytes that workgroups fetch while a copy moves one."""
        geometry, fetches = self.geometry, speed.fetches
        if has_groups(geometry):
            fetches /= speed.group_fetches if packs_channels(geometry) else speed.plane_group_fetches
        elif geometry.filter_size != (1, 1):
            fetches /= speed.tap_fetches
        if geometry.filter_size != (1, 1):
            fetches /= 1 + speed.row_fetches * (self.share_of_rows - 0.5)
        return fetches if self.runs.aligned else fetches / speed.word_fetches

    @property
    def share_of_rows(self) -> float:
        """How many rows of the input a tile reads, as a share of those that it would read if taps shared none."""
        rows, taps = max(1.0, self.tile.pixels / self.geometry.output_size[1]), self.geometry.filter_size[0]
        return (rows + taps - 1) / (rows * taps)

    def fetched_bytes(self, speed: Speed) -> float:
        """Bytes that a workgroup fetches."""
        tile = self.tile
        return self.steps_of_share * (tile.pixels + speed.filter_fetches * tile.channels) * tile.step

    def waits(self, speed: Speed) -> float:
        """Loads that a workgroup waits for, one after the other, in all steps of K."""
        geometry, tile = self.geometry, self.tile
        vectors = (tile.pixels + tile.channels) * tile.step / (VECTOR_SIZE * tile.subgroups() * self.lanes)
        reads_planes = has_whole_planes(geometry) and geometry.input_strides[1] != 1
        plane_waits = speed.plane_waits if reads_planes else 1
        return self.steps_of_share * (speed.waits * plane_waits + speed.vector_waits * vectors)

    @cached_property
    def filter_packing(self) -> FilterPacking:
        """How the filter is packed: in whole steps of K."""
        runs, step = self.runs, self.tile.step // 4
        words = -(-4 * runs.total // step) * step
        sizes = {
            "STEP_WORDS": step,
            "RUN_WORDS": 4 * runs.vectors,
            "RUNS_W": runs.of_row,
            "QUADS": runs.quads,
            "IN_ORDER": 1,
            "INTERLEAVED": self.interleaved,
        }
        return FilterPacking(PACK_FILTER_KERNEL, words, {}, sizes=sizes)

    @property
    def reads_words(self) -> bool:
        """Whether the kernel can read an input in place whose channels are words, but not vectors."""
        return True

    @property
    def reads_bytes(self) -> bool:
        """Whether the kernel can read an input in place whatever its layout."""
        return False

    @property
    def interleaved(self) -> int:
        """Of how many channels each of four matrices is whose channels are interleaved; 0 if none are."""
        return self.matrix.n if packs_channels(self.geometry) else 0


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

    def are_rows_of_taps(self, geometry: ConvolutionGeometry) -> bool:
        """Whether a run is a row of taps, any of which may lie outside the input."""
        return self.of_row < geometry.filter_size[1]

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


def is_ragged(geometry: ConvolutionGeometry) -> bool:
    """Whether rows of channels, or planes, are no whole words, so that each output is stored by itself."""
    if packs_channels(geometry):
        return geometry.output_channels_per_group % 4 != 0
    return math.prod(geometry.output_size) % PLANE_PIXELS != 0


def uncached_bytes(rates: Rates, geometry: ConvolutionGeometry) -> float:
    """Bytes of the input and of the output that a device's caches do not hold."""
    inside = geometry.input_channels * math.prod(geometry.input_size)
    moved = geometry.batch * (inside + geometry.output_channels * math.prod(geometry.output_size))
    return max(0.0, moved - CACHED * rates.processors)


def has_whole_planes(geometry: ConvolutionGeometry) -> bool:
    """Whether an output pixel reads only the input pixel at its own place."""
    return (
        geometry.filter_size == (1, 1)
        and geometry.strides == (1, 1)
        and not any(geometry.start_padding)
        and geometry.input_size == geometry.output_size
    )


def matrix_outputs(kernel: str, matrix: CooperativeMatrix, channels: bool) -> tuple[int, int]:
    """The pixels and the channels of a matrix of sums; with `channels` for words of four channels.

    For words of four pixels, the kernel of few registers has channels in the rows of its sums.
    """
    return (matrix.n, matrix.m) if kernel == KERNEL_OF_FEW_REGISTERS and not channels else (matrix.m, matrix.n)


def packs_channels(geometry: ConvolutionGeometry) -> bool:
    """Whether a word of the output holds four channels (contiguous in NHWC) rather than four pixels."""
    return geometry.output_strides[1] == 1 and geometry.output_channels > 1
