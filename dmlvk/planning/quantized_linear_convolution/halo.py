"""QUANTIZED_LINEAR_CONVOLUTION with filters of several taps at stride 1, on matrix units: tiles with a halo."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.errors import PathError, shown
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import Box
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixUnitsPath
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import MatrixCutter
from dmlvk.planning.quantized_linear_convolution.matrix_shape import (
    PACK_FILTER_KERNEL,
    PACKED_MATRICES,
    ROW_PADDING,
    VECTOR_SIZE,
    MatrixShape,
    MatrixTile,
    Runs,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import (
    SIDE,
    matrix_of,
    obstacle_to_memory,
    obstacle_to_sizes,
)
from dmlvk.planning.quantized_linear_convolution.packing import FilterPacking
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product import COLUMN, IMAGE, ROW
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry
from dmlvk.planning.quantized_linear_convolution.questions import HALO_QUESTIONS

KERNEL = "quantized_linear_convolution/halo"
EXAMPLE_TILE = "128x64x64:32x64"

FORCED_TILE = re.compile(f"{SIDE}x{SIDE}x{SIDE}:{SIDE}x{SIDE}")

# How often a position counts that a workgroup fetches: it looks for its place, between images, rows and borders.
FETCHES_OF_A_POSITION = 2
# With few registers, the code spills 400 of them, and takes twice the instructions of `matrix` for a product.
SPILLS_LOSS = 4


@dataclass(frozen=True)
class HaloShape(MatrixShape):
    """A tile with its halo on a device's matrices."""

    @cached_property
    def runs(self) -> Runs:
        """How K lies in memory: one run for each tap, in whole steps."""
        geometry = self.geometry
        quads = geometry.input_channels_per_group // 4
        height, width = geometry.filter_size
        step = self.tile.step // VECTOR_SIZE
        vectors = -(-quads // (4 * step)) * step
        return Runs(quads, quads, vectors, width, height * width)

    @property
    def reads_words(self) -> bool:
        return False

    @property
    def positions(self) -> int:
        """Positions of the input that a workgroup fetches for all taps of a step of channels."""
        return self.tile.pixels + Positions.of(self.geometry, self.geometry.output_size).halo

    @property
    def steps_of_channels(self) -> int:
        """The number of steps of channels, each of which has a step of K for each tap."""
        return self.steps(self.runs) // self.runs.count

    @property
    def fetches_parts_of_lines(self) -> bool:
        return False  # all taps find a position's channels in shared memory

    @property
    def fetched_bytes(self) -> int:
        filters = self.steps(self.runs) * self.tile.channels
        positions = FETCHES_OF_A_POSITION * self.steps_of_channels * self.positions
        return (positions + filters) * self.tile.step

    @cached_property
    def filter_packing(self) -> FilterPacking:
        """How the filter is packed: in whole steps for each tap."""
        runs = self.runs
        words = 4 * runs.vectors
        # The kernel packs channels, whatever the output's layout.
        sizes = {
            "STEP_WORDS": self.tile.step // 4,
            "RUN_WORDS": words,
            "RUNS_W": runs.of_row,
            "QUADS": words,
            "IN_ORDER": 1,
            "INTERLEAVED": self.matrix.n,
        }
        return FilterPacking(PACK_FILTER_KERNEL, 4 * runs.total, {}, sizes=sizes)


@dataclass(frozen=True)
class Positions:
    """Outputs and the gaps between them, in the order of the input with its border.

    A tap is the same number of positions away from every output. A row's end shares its border with the next row's
    start, and an image with the next one.

    Attributes
    ----------
    pitch, plane : int
        Positions from one row to the next, and from one image to the next.
    halo : int
        Positions from an output's first tap to its last one.
    """

    pitch: int
    plane: int
    halo: int

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, extents: tuple[int, int]) -> Positions:
        """The positions of a number of rows and columns of outputs."""
        sizes, reaches = [], []
        for k in range(2):
            reach = (geometry.filter_size[k] - 1) * geometry.dilations[k]
            size = extents[k] + reach
            if extents[k] == geometry.output_size[k]:
                # The shared part has to be border on both sides: its width is that of the wider border.
                start, end = geometry.start_padding[k], size - geometry.input_size[k] - geometry.start_padding[k]
                size = max(extents[k], min(size, geometry.input_size[k] + max(start, end)))
            sizes.append(size)
            reaches.append(reach)
        return cls(sizes[1], sizes[0] * sizes[1], reaches[0] * sizes[1] + reaches[1])


def obstacle_to_halo(geometry: ConvolutionGeometry) -> Obstacle | None:
    """Why the kernel cannot take a convolution, whatever the tile."""
    if geometry.filter_size == (1, 1):
        return Obstacle("filter size", geometry.filter_size, "several taps")
    if geometry.strides != (1, 1):
        return Obstacle("strides", geometry.strides, "1")
    if geometry.input_channels_per_group % VECTOR_SIZE:
        return Obstacle("input channels of a group", geometry.input_channels_per_group, f"multiples of {VECTOR_SIZE}")
    return None


@lru_cache(maxsize=256)
def halo_shape(profile: DeviceProfile, geometry: ProductGeometry, forced: str = "") -> HaloShape | None:
    """The matrices and the tile for a convolution that the kernel can take; None if no tile fits with its halo.

    Parameters
    ----------
    forced : str, optional
        A tile by name: "128x64x64:32x64" is 128 positions and 64 channels by 64 bytes of K, in subgroups of 32 x 64.

    Raises
    ------
    PathError
        The forced tile is not one that the kernel can take here.
    """
    matrix = matrix_of(profile)
    assert matrix is not None, "asked for on a device without matrices"
    lanes = profile.min_subgroup_size
    if forced:
        match = FORCED_TILE.fullmatch(forced)
        if match is None:
            raise PathError(f"{OPERATOR}: a tile is named like {EXAMPLE_TILE!r}, not {shown(forced)}")
        tile = MatrixTile(*map(int, match.groups()))
        obstacle = obstacle_to_tile(profile, matrix, lanes, tile, geometry)
        if obstacle is not None:
            raise PathError(f"tile {shown(forced)} is not possible on {profile.name}: {obstacle}")
    else:
        fitting = [
            tile
            for tile in tiles_for(profile, matrix)
            if obstacle_to_tile(profile, matrix, lanes, tile, geometry) is None
        ]
        if not fitting:
            return None
        tile = fitting[0]
    return HaloShape.of(KERNEL, profile, matrix, tile, geometry)


def tiles_for(profile: DeviceProfile, matrix: CooperativeMatrix) -> list[MatrixTile]:
    """The tiles that suit a device, the best first: subgroups of the fewest channels that fill whole words."""
    channels = PACKED_MATRICES * matrix.n
    step = max(2 * matrix.k, 64)
    if profile.device_type is DeviceType.CPU:
        return [MatrixTile(2 * matrix.m, channels, max(2 * matrix.k, 32), matrix.m, channels)]
    rows = 2 * matrix.m if profile.min_subgroup_size >= 32 else matrix.m
    return [MatrixTile(count * rows, channels, step, rows, channels) for count in (4, 2, 1)]


def obstacle_to_tile(
    profile: DeviceProfile, matrix: CooperativeMatrix, lanes: int, tile: MatrixTile, geometry: ConvolutionGeometry
) -> str | None:
    """Why the kernel cannot use this tile; None if it can."""
    obstacle = obstacle_to_sizes(profile, matrix, lanes, tile, channels=True)
    if obstacle is not None:
        return obstacle
    invocations = tile.subgroups() * lanes
    if tile.channels * (tile.step // VECTOR_SIZE) % invocations:
        return f"{invocations} invocations do not fetch the filter evenly"
    return obstacle_to_memory(shared_memory(matrix, tile, geometry), device_traits.tile_memory(profile))


def shared_memory(matrix: CooperativeMatrix, tile: MatrixTile, geometry: ConvolutionGeometry) -> int:
    """The most bytes of shared memory that the kernel declares, for all outputs of a convolution or some of them."""
    row = tile.step // VECTOR_SIZE * max(1, VECTOR_SIZE // matrix.k) + ROW_PADDING
    # If a part is cut out of an image, its rows share no border.
    down, across = ((geometry.filter_size[k] - 1) * geometry.dilations[k] for k in range(2))
    staged = tile.pixels + down * (geometry.output_size[1] + across) + across
    operands = (staged + 2 * tile.channels) * row
    rows = 1 if packs_channels(geometry) or tile.subgroup_pixels < 2 * matrix.m else 2
    strip = max(rows * matrix.m * (matrix.n // 4 + 1), matrix.m * matrix.n // 4)
    arrays = VECTOR_SIZE * -(-staged // 4) + 8 * tile.pixels + 12 * tile.channels
    return VECTOR_SIZE * max(operands, tile.subgroups() * strip) + arrays + 2 * VECTOR_SIZE


@dataclass(frozen=True)
class HaloCutter(MatrixCutter[HaloShape]):
    """The product of an input that is read in place. Its pixels are counted by positions."""

    def shares_pipelines(self, box: Box) -> bool:
        return False  # shared memory is as large as the sizes say

    def turns(self, box: Box) -> int:
        return 1

    def run_words(self, runs: Runs) -> int:
        return runs.words

    def pixels(self, box: Box) -> int:
        return (box[IMAGE][1] - box[IMAGE][0]) * self._positions(box).plane

    def more_constants(self, box: Box) -> dict[str, int]:
        positions = self._positions(box)
        return {
            "PITCH": positions.pitch,
            "PLANE": positions.plane,
            "MOST_AHEAD": device_traits.fetches_ahead(self.operands.builder.profile),
        }

    def _positions(self, box: Box) -> Positions:
        return Positions.of(self.geometry, (box[ROW][1] - box[ROW][0], box[COLUMN][1] - box[COLUMN][0]))


class HaloPath(MatrixUnitsPath[HaloShape]):
    """Filters of several taps at stride 1 on matrix units: the input under a tile, with its halo, lies in shared memory
    for all taps. On devices as for `matrix`; input channels per group in whole 16s.
    """

    name = "halo"
    questions = HALO_QUESTIONS
    example_tile = EXAMPLE_TILE
    cutter = HaloCutter
    packs_input = False

    def obstacle_to_geometry(self, geometry: ProductGeometry) -> Obstacle | None:
        return obstacle_to_halo(geometry)

    def shape(self, problem: Problem, geometry: ProductGeometry, name: str = "") -> HaloShape | None:
        return halo_shape(problem.profile, geometry, name)

    def tile_names(self, problem: Problem) -> Iterable[str]:
        matrix = matrix_of(problem.profile)
        return () if matrix is None else (tile.name for tile in tiles_for(problem.profile, matrix))

    def kernel_seconds(self, problem: Problem, tile: HaloShape) -> float:
        loss = SPILLS_LOSS if device_traits.has_few_registers(problem.profile) else 1
        return loss * super().kernel_seconds(problem, tile)

    def pixels(self, geometry: ConvolutionGeometry) -> int:
        return geometry.batch * Positions.of(geometry, geometry.output_size).plane
