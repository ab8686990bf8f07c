"""The path `split_k` of QUANTIZED_LINEAR_CONVOLUTION: the K of a tile is split over subgroups and workgroups."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.errors import PathError, shown
from dmlvk.planning import device_traits
from dmlvk.planning.builder import Box
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixUnitsPath
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import BYTES, MatrixCutter
from dmlvk.planning.quantized_linear_convolution.matrix_shape import (
    ROW_PADDING,
    VECTOR_SIZE,
    MatrixShape,
    MatrixTile,
    Runs,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import SIDE, matrix_of, obstacle_to_memory
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, joined_groups
from dmlvk.planning.quantized_linear_convolution.questions import SPLIT_K_QUESTIONS

KERNEL = "quantized_linear_convolution/split_k"
EXAMPLE_TILE = "32x32x64:8"
# With fewer, an invocation would fetch too many vectors of a step.
LEAST_LANES = 32

FORCED_TILE = re.compile(f"{SIDE}x{SIDE}x{SIDE}:{SIDE}")

# Tiles that a GPU may take: pixels, channels, and bytes of a step of a subgroup. With longer steps it waits less often,
# and with larger tiles it fetches fewer bytes for each product.
SIZES = ((16, 32, 64), (32, 32, 64), (16, 32, 128), (32, 32, 128))
WIDE_SIZES = ((32, 64, 64), (32, 64, 128))
NARROW_SIZES = ((16, 16, 64), (32, 16, 64))
# Where bytes are read by themselves, each one that an invocation reads takes a register.
SIZES_OF_BYTES = ((16, 32, 64), (32, 32, 32), (32, 32, 64))
WIDE_SIZES_OF_BYTES = ((32, 64, 64),)
NARROW_SIZES_OF_BYTES = ((16, 16, 64), (32, 16, 32), (32, 16, 64), (64, 16, 32))
# Convolutions of more channels than this may take the wide tiles, if K has more bytes than this: in a single step they
# have nothing to save. Those of at most MOST_NARROW take the narrow ones.
MOST_NARROW, MOST_NOT_WIDE, SHORT_K = 16, 32, 64
# Bytes that a subgroup fetches while it waits once: more loads than these do not overlap.
BYTES_OF_A_WAIT = 4096
MOST_SPLITS = 8
# Parts add their sums in memory, which costs as much as about this number of steps.
MANY_STEPS = 24
LEAST_STEPS = 2
MOST_PARTS = 16


@dataclass(frozen=True)
class SplitKShape(MatrixShape):
    """A tile whose K is split over the subgroups of a workgroup."""

    @property
    def reads_bytes(self) -> bool:
        return True

    @property
    def interleaved(self) -> int:
        return 0

    @property
    def reads_single_bytes(self) -> bool:
        return is_read_as_bytes(self.geometry)

    @property
    def waits(self) -> float:
        tile = self.tile
        return self.steps_of_share * max(1, (tile.pixels + tile.channels) * tile.step / BYTES_OF_A_WAIT)


def is_read_as_bytes(geometry: ProductGeometry) -> bool:
    """Whether an input cannot be read as words, for its layout."""
    if geometry.input_strides[1] != 1 or geometry.input_channels_per_group % 4 != 0:
        return True
    return Runs.of(geometry).are_rows_of_taps(geometry)


def is_alone(geometry: ProductGeometry) -> bool:
    """Whether no other layer of a network is likely to be of this kind: it reads an image of few channels."""
    return joined_groups(geometry) == 1 and Runs.of(geometry).are_rows_of_taps(geometry)


@lru_cache(maxsize=256)
def split_k_shape(profile: DeviceProfile, geometry: ProductGeometry, forced: str = "") -> SplitKShape:
    """The matrices and the tile for a convolution.

    Parameters
    ----------
    forced : str, optional
        A tile by name: "32x32x64:8" is 32 pixels and channels, by 64 bytes of K in each of 8 subgroups.

    Raises
    ------
    PathError
        The forced tile is not one that the kernel can take on this device.
    """
    matrix = matrix_of(profile)
    assert matrix is not None, "asked for on a device without matrices"
    in_words = packs_channels(geometry)
    if forced:
        match = FORCED_TILE.fullmatch(forced)
        if match is None:
            raise PathError(f"{OPERATOR}: a tile is named like {EXAMPLE_TILE!r}, not {shown(forced)}")
        pixels, channels, step, splits = map(int, match.groups())
        tile = MatrixTile(pixels, channels, step, pixels, channels, splits=splits)
        obstacle = obstacle_to_tile(profile, matrix, tile, in_words)
        if obstacle is not None:
            raise PathError(f"tile {shown(forced)} is not possible on {profile.name}: {obstacle}")
    else:
        tile = _choose(profile, matrix, geometry)
    return SplitKShape.of(KERNEL, profile, matrix, tile, geometry)


def tiles_for(profile: DeviceProfile, geometry: ProductGeometry) -> list[MatrixTile]:
    """The tiles that a convolution may take on a device, whose K is not split yet."""
    matrix = matrix_of(profile)
    assert matrix is not None, "asked for on a device without matrices"
    if profile.device_type is DeviceType.CPU:
        # Such a driver compiles a loop for each matrix.
        sizes: tuple[tuple[int, int, int], ...] = ((2 * matrix.m, 2 * matrix.n, max(2 * matrix.k, VECTOR_SIZE)),)
    else:
        sizes = _sizes(geometry)
    return [MatrixTile(pixels, channels, max(matrix.k, step), pixels, channels) for pixels, channels, step in sizes]


def _sizes(geometry: ProductGeometry) -> tuple[tuple[int, int, int], ...]:
    """The pixels, channels and bytes of a step of the tiles that a GPU may take."""
    reads_bytes, channels = is_read_as_bytes(geometry), geometry.output_channels_per_group
    if channels <= MOST_NARROW:
        return NARROW_SIZES_OF_BYTES if reads_bytes else NARROW_SIZES
    sizes, wide = (SIZES_OF_BYTES, WIDE_SIZES_OF_BYTES) if reads_bytes else (SIZES, WIDE_SIZES)
    is_short = Runs.of(geometry).total * VECTOR_SIZE <= SHORT_K
    return sizes if channels <= MOST_NOT_WIDE or is_short else (*sizes, *wide)


def _choose(profile: DeviceProfile, matrix: CooperativeMatrix, geometry: ProductGeometry) -> MatrixTile:
    rates, in_words = rates_of(profile), packs_channels(geometry)
    k_bytes, pixels = Runs.of(geometry).total * VECTOR_SIZE, geometry.batch * math.prod(geometry.output_size)
    possible = [
        tile
        for seed in tiles_for(profile, geometry)
        for exponent in range((min(MOST_SPLITS, -(-k_bytes // seed.step)) - 1).bit_length(), -1, -1)
        if obstacle_to_tile(profile, matrix, tile := replace(seed, splits=1 << exponent), in_words) is None
    ]

    def seconds(tile: MatrixTile) -> float:
        return SplitKShape.of(KERNEL, profile, matrix, tile, geometry).work(pixels).seconds(rates, "matrix")

    tile = min(possible, key=seconds)
    tiles, steps = tile.count(geometry), -(-k_bytes // (tile.step * tile.splits))
    room = min(profile.limits.max_storage_buffer_range, profile.segment_size) // 2
    if steps < MANY_STEPS or tiles * tile.part_sums_size > room:
        return tile
    parts = max(1, min(MOST_PARTS, steps // LEAST_STEPS, int(rates_of(profile).processors) // tiles))
    cut = replace(tile, parts=-(-steps // -(-steps // parts)))
    return cut if seconds(cut) + rates.dispatch < seconds(tile) else tile


def obstacle_to_tile(profile: DeviceProfile, matrix: CooperativeMatrix, tile: MatrixTile, channels: bool) -> str | None:
    """Why the kernel cannot use this tile; None if it can. With `channels` for words of four channels."""
    lanes = profile.min_subgroup_size
    invocations = tile.subgroups() * lanes
    limits = profile.limits
    largest = min(limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])
    if any(size & (size - 1) for size in (tile.pixels, tile.channels, tile.step)):
        return "its sizes are not powers of two"
    if tile.pixels % matrix.m or tile.channels % matrix.n:
        return f"matrices of {matrix.m} x {matrix.n} do not divide it"
    if tile.step % max(matrix.k, VECTOR_SIZE):
        return f"its step is no multiple of {max(matrix.k, VECTOR_SIZE)} bytes"
    if invocations > largest:
        return f"{invocations} invocations are more than {largest}"
    step = tile.step // VECTOR_SIZE
    if lanes % step or tile.pixels * step % lanes or tile.channels * step % lanes:
        return f"{lanes} invocations do not fetch both operands of a step evenly"
    return obstacle_to_memory(shared_memory(matrix, tile, channels), device_traits.tile_memory(profile))


def shared_memory(matrix: CooperativeMatrix, tile: MatrixTile, channels: bool) -> int:
    """Bytes of shared memory that the kernel declares."""
    row = tile.step // VECTOR_SIZE * max(1, VECTOR_SIZE // matrix.k) + ROW_PADDING
    lines, words = (tile.pixels, tile.channels // 4) if channels else (tile.channels, tile.pixels // 4)
    region = max((tile.pixels + tile.channels) * row, lines * (words + 2))
    return VECTOR_SIZE * tile.splits * region + 8 * tile.pixels + 12 * tile.channels + 48


class SplitKCutter(MatrixCutter[SplitKShape]):
    """One part's product."""

    def turns(self, box: Box) -> int:
        return 1

    def shares_pipelines(self, box: Box) -> bool:
        # With constants a first layer is faster: 3 -> 32 224x224, 8 images, takes 7.2 us and not 9.9 (H100).
        return not is_alone(self.geometry) and super().shares_pipelines(box)

    @property
    def _has_rows_of_taps(self) -> bool:
        """Whether a run of K is a row of taps, whose pixels have few channels each."""
        return self.fetch == BYTES and self.shape.runs.are_rows_of_taps(self.geometry)

    def more_constants(self, box: Box) -> dict[str, int]:
        runs = self.shape.runs
        return {
            "SUBGROUPS": self.shape.tile.splits,
            "PART_STEPS": int(self.part_steps == 1),
            "PIXEL_BYTES": 4 * runs.quads if self._has_rows_of_taps else 0,
            "PIXEL_CHANNELS": self.pixel_channels(runs) if self.fetch == BYTES else 0,
        }

    def _fetches_whole_steps(self, box: Box) -> bool:
        steps = self.part_steps * self.shape.tile.shares
        return steps == self.shape.steps(self.shape.runs) and super()._fetches_whole_steps(box)


class SplitKPath(MatrixUnitsPath[SplitKShape]):
    """As `matrix`, for convolutions of few tiles: the subgroups of a workgroup share the K of its tile, and so may
    several workgroups. On devices as for `matrix` whose subgroups have 32 invocations.
    """

    name = "split_k"
    questions = SPLIT_K_QUESTIONS
    example_tile = EXAMPLE_TILE
    cutter = SplitKCutter
    packs_input = True

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        obstacle, lanes = super().obstacle_on(profile), profile.min_subgroup_size
        if obstacle is None and profile.device_type is not DeviceType.CPU and lanes < LEAST_LANES:
            return Obstacle("invocations of a subgroup", lanes, f"at least {LEAST_LANES}")
        return obstacle

    def obstacle_to_geometry(self, geometry: ProductGeometry) -> Obstacle | None:
        return None

    def shape(self, problem: Problem, geometry: ProductGeometry, name: str = "") -> SplitKShape:
        return split_k_shape(problem.profile, geometry, name)

    def tile_names(self, problem: Problem) -> Iterable[str]:
        for geometry in problem.product_geometries[-1:]:
            for tile in tiles_for(problem.profile, geometry):
                for splits in (1, 2, 4, 8):
                    yield f"{tile.pixels}x{tile.channels}x{tile.step}:{splits}"

    def with_parts(self, tile: SplitKShape, parts: int) -> SplitKShape:
        return replace(tile, tile=replace(tile.tile, parts=parts))
