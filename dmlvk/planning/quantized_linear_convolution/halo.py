"""QUANTIZED_LINEAR_CONVOLUTION with filters of several taps at stride 1, on matrix units: tiles with a halo."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.errors import shown
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import Range
from dmlvk.planning.plan import PathError
from dmlvk.planning.quantized_linear_convolution.matrix import (
    PACKED_MATRICES,
    ROW_PADDING,
    SIDE,
    VECTOR_SIZE,
    MatrixShape,
    MatrixTile,
    Runs,
    matrix_of,
    matrix_shape,
    obstacle_to_sizes,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import MatrixCutter
from dmlvk.planning.quantized_linear_convolution.packing import FilterPacking
from dmlvk.planning.quantized_linear_convolution.product import COLUMN, IMAGE, ROW

HALO = "halo"
KERNEL = "quantized_linear_convolution/halo"

FORCED_TILE = re.compile(f"{SIDE}x{SIDE}x{SIDE}:{SIDE}x{SIDE}")

# The kernel without a halo fetches the input again for each tap, but has wider tiles in as many registers, several in
# turn. It loses where it has only so few workgroups that each multiprocessor of a large GPU gets one or two.
FEW_WORKGROUPS = 256


@dataclass(frozen=True)
class HaloShape(MatrixShape):
    """A tile with its halo on a device's matrices.

    Attributes
    ----------
    fetches_ahead : int
        Vectors of the input that wait in an invocation's registers for their turn, at most.
    """

    fetches_ahead: int

    def runs(self, geometry: ConvolutionGeometry) -> Runs:
        """A run a tap, in whole steps."""
        quads = geometry.input_channels_per_group // 4
        height, width = geometry.filter_size
        step = self.tile.step // VECTOR_SIZE
        vectors = -(-quads // (4 * step)) * step
        return Runs(quads, quads, vectors, width, height * width)

    def filter_packing(self, geometry: ConvolutionGeometry) -> FilterPacking:
        """The filter in whole steps for each tap."""
        runs = self.runs(geometry)
        words = 4 * runs.vectors
        # The kernel packs channels, whatever the output's layout.
        constants = (self.tile.step // 4, words, runs.of_row, words, 1, self.matrix.n)
        return FilterPacking("quantized_linear_convolution/matrix_pack_filter", 4 * runs.total, constants)


@dataclass(frozen=True)
class Positions:
    """Outputs and what lies between them, in the order of the input with its border.

    A tap is the same number of positions away from every output. A row's end shares its border with the next row's
    start, and an image with the next one.

    Attributes
    ----------
    pitch, plane : int
        From one row to the next, and from one image to the next.
    halo : int
        From an output's first tap to its last one.
    """

    pitch: int
    plane: int
    halo: int

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, extents: tuple[int, int]) -> Positions:
        """For so many rows and columns of outputs."""
        sizes, reaches = [], []
        for k in range(2):
            reach = (geometry.filter_size[k] - 1) * geometry.dilations[k]
            size = extents[k] + reach
            if extents[k] == geometry.output_size[k]:
                # What is shared has to be border on both sides: the wider one of the two.
                start, end = geometry.start_padding[k], size - geometry.input_size[k] - geometry.start_padding[k]
                size = max(extents[k], min(size, geometry.input_size[k] + max(start, end)))
            sizes.append(size)
            reaches.append(reach)
        return cls(sizes[1], sizes[0] * sizes[1], reaches[0] * sizes[1] + reaches[1])


def obstacle_to_halo(geometry: ConvolutionGeometry) -> str | None:
    """Why the kernel cannot take a convolution, whatever the tile."""
    if geometry.filter_size == (1, 1):
        return "a filter of one tap has no halo"
    if geometry.strides != (1, 1):
        return f"strides {geometry.strides} are not 1"
    if geometry.input_channels_per_group % VECTOR_SIZE:
        return f"{geometry.input_channels_per_group} input channels per group are not whole vectors of {VECTOR_SIZE}"
    return None


def halo_shape(profile: DeviceProfile, geometry: ConvolutionGeometry, forced: str = "") -> HaloShape | str:
    """The matrices and the tile for a convolution, or why there is none.

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
    if matrix is None:
        return f"{profile.name} lists no matrices of signed bytes"
    obstacle = obstacle_to_halo(geometry)
    if obstacle is not None:
        return obstacle
    lanes = profile.min_subgroup_size
    if forced:
        match = FORCED_TILE.fullmatch(forced)
        if match is None:
            raise PathError(f"a tile is named like '128x64x64:32x64', not {shown(forced)}")
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
            return "no tile fits into shared memory with its halo"
        tile = fitting[0]
    speed = {DeviceType.DISCRETE_GPU: 8e12, DeviceType.CPU: 2e8}.get(profile.device_type, 200e9)
    invocations = tile.subgroups() * lanes
    ahead = device_traits.fetches_ahead(profile)
    return HaloShape(KERNEL, invocations, tile.channels, 1, tile.pixels, True, True, speed, matrix, lanes, tile, ahead)


def prefers_halo(profile: DeviceProfile, geometry: ConvolutionGeometry) -> bool:
    """Whether the kernel is the better one of the two on matrix units, where it can take the convolution at all."""
    if profile.device_type is DeviceType.CPU or matrix_of(profile) is None or obstacle_to_halo(geometry) is not None:
        return False
    other = matrix_shape(profile, geometry)
    pixels = geometry.batch * geometry.output_size[0] * geometry.output_size[1]
    channels = geometry.output_channels_per_group
    workgroups = geometry.group_count * -(-channels // other.tile.channels) * -(-pixels // other.tile.pixels)
    return workgroups < FEW_WORKGROUPS


def tiles_for(profile: DeviceProfile, matrix: CooperativeMatrix) -> list[MatrixTile]:
    """The tiles that suit a device, the best first: subgroups of as few channels as make whole words."""
    channels = PACKED_MATRICES * matrix.n
    step = max(2 * matrix.k, 64)
    if profile.device_type is DeviceType.CPU:
        return [MatrixTile(2 * matrix.m, channels, max(2 * matrix.k, 32), matrix.m, channels)]
    rows = 2 * matrix.m if profile.min_subgroup_size >= 32 else matrix.m
    return [MatrixTile(count * rows, channels, step, rows, channels) for count in (4, 2, 1)]


def obstacle_to_tile(
    profile: DeviceProfile, matrix: CooperativeMatrix, lanes: int, tile: MatrixTile, geometry: ConvolutionGeometry
) -> str | None:
    """Why the kernel cannot have this tile; None where it can."""
    obstacle = obstacle_to_sizes(profile, matrix, lanes, tile, channels=True)
    if obstacle is not None:
        return obstacle
    invocations = tile.subgroups() * lanes
    if tile.channels * (tile.step // VECTOR_SIZE) % invocations:
        return f"{invocations} invocations do not fetch the filter evenly"
    limit = device_traits.tile_memory(profile)
    size = shared_memory(matrix, tile, geometry)
    if size > limit:
        return f"{size} bytes of shared memory are more than {limit}"
    return None


def shared_memory(matrix: CooperativeMatrix, tile: MatrixTile, geometry: ConvolutionGeometry) -> int:
    """The most bytes of shared memory that the kernel declares, for all outputs of a convolution or for some."""
    row = tile.step // VECTOR_SIZE * max(1, VECTOR_SIZE // matrix.k) + ROW_PADDING
    # Rows of a part that is cut out of an image share no border.
    down, across = ((geometry.filter_size[k] - 1) * geometry.dilations[k] for k in range(2))
    staged = tile.pixels + down * (geometry.output_size[1] + across) + across
    operands = (staged + 2 * tile.channels) * row
    rows = 1 if packs_channels(geometry) or tile.subgroup_pixels < 2 * matrix.m else 2
    strip = max(rows * matrix.m * (matrix.n // 4 + 1), matrix.m * matrix.n // 4)
    arrays = VECTOR_SIZE * -(-staged // 4) + 8 * tile.pixels + 12 * tile.channels
    return VECTOR_SIZE * max(operands, tile.subgroups() * strip) + arrays + 2 * VECTOR_SIZE


@dataclass(frozen=True)
class HaloCutter(MatrixCutter):
    """The product of an input that is read in place, counted by positions."""

    def turns(self, box: tuple[Range, ...]) -> int:
        return 1

    def pixels(self, box: tuple[Range, ...]) -> int:
        return (box[IMAGE][1] - box[IMAGE][0]) * self._positions(box).plane

    def runs(self) -> Runs:
        assert isinstance(self.shape, HaloShape)
        return self.shape.runs(self.geometry)

    def more_constants(self, box: tuple[Range, ...]) -> tuple[int, ...]:
        assert isinstance(self.shape, HaloShape)
        positions = self._positions(box)
        return positions.pitch, positions.plane, self.shape.fetches_ahead

    def _positions(self, box: tuple[Range, ...]) -> Positions:
        return Positions.of(self.geometry, (box[ROW][1] - box[ROW][0], box[COLUMN][1] - box[COLUMN][0]))
