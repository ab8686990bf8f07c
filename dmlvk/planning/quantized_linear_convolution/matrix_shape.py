"""How the product of a QUANTIZED_LINEAR_CONVOLUTION on matrix units is cut: tiles, and how K lies in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.quantized_linear_convolution.estimate import (
    FETCHES_OF_A_BYTE,
    FETCHES_OF_A_GROUP,
    STORES_OF_A_BYTE,
    Work,
)
from dmlvk.planning.quantized_linear_convolution.packing import ChannelWords, FilterPacking
from dmlvk.planning.quantized_linear_convolution.product import Shape
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

    @property
    def name(self) -> str:
        """How users write the tile: "128x128x64:64x32"."""
        return f"{self.pixels}x{self.channels}x{self.step}:{self.subgroup_pixels}x{self.subgroup_channels}"

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

    def work(self, pixels: int, parameter_rounds: int = 0) -> Work:
        """What the kernel does for some pixels, as it counts them."""
        geometry, tile = self.geometry, self.tile
        outputs = self.padded_outputs(pixels)
        workgroups = outputs // (tile.pixels * tile.channels) * max(1, tile.parts)
        moved = geometry.input_channels * math.prod(geometry.input_size)
        moved += geometry.output_channels * math.prod(geometry.output_size)
        single = FETCHES_OF_A_BYTE if self.reads_single_bytes else 1
        of_group = FETCHES_OF_A_GROUP if has_groups(geometry) and self.fetches_parts_of_lines else 1
        return Work(
            workgroups=workgroups,
            products=2 * outputs * self.runs.total * VECTOR_SIZE,
            fetched=single * of_group * workgroups * self.fetched_bytes,
            moved=float(geometry.batch * moved),
            # The subgroups that share K add their sums, each in the time of a last step.
            last_steps=outputs * ((STORES_OF_A_BYTE if is_ragged(geometry) else 1) + tile.splits - 1),
            waits=single * self.waits,
            parameter_rounds=parameter_rounds,
        )

    @property
    def steps_of_share(self) -> int:
        """The number of steps of K that a workgroup goes through."""
        return -(-self.steps(self.runs) // self.tile.shares)

    @property
    def fetched_bytes(self) -> int:
        """Bytes that a workgroup fetches."""
        tile = self.tile
        return self.steps_of_share * tile.splits * (tile.pixels + tile.channels) * tile.step

    @property
    def waits(self) -> float:
        """Loads that a workgroup waits for, one after the other: one in each step of K."""
        return self.steps_of_share

    @property
    def fetches_parts_of_lines(self) -> bool:
        """Whether the kernel fetches the channels of a group, a part of a line of memory, for each tap."""
        return True

    @property
    def reads_single_bytes(self) -> bool:
        """Whether the kernel fetches its input byte by byte."""
        return False

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
