"""The path `split_k` of QUANTIZED_LINEAR_CONVOLUTION: the K of a tile is split over subgroups and workgroups."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile
from dmlvk.errors import shown
from dmlvk.planning import device_traits
from dmlvk.planning.builder import Range
from dmlvk.planning.plan import PathError
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixUnitsPath
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import UNROLLED_STEPS, MatrixCutter
from dmlvk.planning.quantized_linear_convolution.matrix_shape import (
    ROW_PADDING,
    VECTOR_SIZE,
    MatrixShape,
    MatrixTile,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import SIDE, matrix_of, obstacle_to_memory
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product import Speed
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry

KERNEL = "quantized_linear_convolution/split_k"
EXAMPLE_TILE = "32x32x64:8"
FORCED_TILE = re.compile(f"{SIDE}x{SIDE}x{SIDE}:{SIDE}")

SPEED = Speed(share=0.4, first_waits=2.0, waits=1.2, last_steps=1.0, ragged=4.0, fetches=3.6)


@dataclass(frozen=True)
class SplitKShape(MatrixShape):
    """A tile whose K is split over the subgroups of a workgroup."""

    @property
    def interleaved(self) -> int:
        return 0


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
        tile = MatrixTile(32, 32, 64, 32, 32, splits=2)
    return SplitKShape.of(KERNEL, profile, matrix, tile, geometry)


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
    return VECTOR_SIZE * tile.splits * region + 8 * tile.pixels + 12 * tile.channels + 64


class SplitKCutter(MatrixCutter[SplitKShape]):
    """One part's product."""

    def turns(self, box: tuple[Range, ...]) -> int:
        return 1

    def more_constants(self, box: tuple[Range, ...]) -> dict[str, int]:
        steps = self.part_steps
        return {"SUBGROUPS": self.shape.tile.splits, "PART_STEPS": steps if steps <= UNROLLED_STEPS else 0}

    def _fetches_whole_steps(self, box: tuple[Range, ...]) -> bool:
        steps = self.part_steps * self.shape.tile.shares
        return steps == self.shape.steps(self.shape.runs) and super()._fetches_whole_steps(box)


class SplitKPath(MatrixUnitsPath[SplitKShape]):
    """As `matrix`, for convolutions of few tiles: the subgroups of a workgroup share the K of its tile, and add up their
    sums. On devices as for `matrix`.
    """

    name = "split_k"
    example_tile = EXAMPLE_TILE
    cutter = SplitKCutter
    packs_input = True

    def obstacle_to_geometry(self, geometry: ProductGeometry) -> Obstacle | None:
        return None

    def shape(self, problem: Problem, geometry: ProductGeometry, name: str = "") -> SplitKShape:
        return split_k_shape(problem.profile, geometry, name)

    def with_parts(self, tile: SplitKShape, parts: int) -> SplitKShape:
        return replace(tile, tile=replace(tile.tile, parts=parts))

    def speed(self, profile: DeviceProfile) -> Speed:
        return SPEED
