"""The paths of QUANTIZED_LINEAR_CONVOLUTION on matrix units: the matrices of a device, and the path `matrix`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.planning import device_traits
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.quantized_linear_convolution.operands import BUFFER_COUNT
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import (
    ProductGeometry,
    has_whole_planes,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.questions import MATRIX_QUESTIONS
from dmlvk.planning.quantized_linear_convolution.tiled_product import (
    KERNEL,
    KERNEL_OF_FEW_REGISTERS,
    PACKED_MATRICES,
    PUSH_CONSTANTS_SIZE,
    VECTOR_SIZE,
    WORKGROUPS_OF_A_PROCESSOR,
    AnyTiledShape,
    Block,
    Runs,
    Tile,
    TiledPath,
    TiledShape,
    TileRules,
    is_ragged_output,
    matrix_outputs,
)

FEATURES = frozenset(("cooperativeMatrix", "vulkanMemoryModel", "shaderInt8", "storageBuffer8BitAccess"))
NO_MATRICES = Obstacle("matrices of signed bytes", "none that the kernels take", "VK_KHR_cooperative_matrix with one")

# Four numbers here are measured, not estimated: choosing_a_path.md says what was tried in their place.
# Tiles for each processor, from which on they pay. With 1.4, the busiest has two: 0.7 of its time is used.
ENOUGH_TILES = 1.4
# Those of which it holds two at a time, by whether parameters are worked out before: 0.8 of its room, or four rounds.
ENOUGH_LARGE_TILES = {True: 1.6, False: 8}
# Steps of K in which a workgroup's own parameters do not pay for a large tile.
FEW_STEPS = 4
# Channels of the narrower tiles that others give way to, and how many times as many these may compute.
NARROW, MOST_CHANNELS = 64, 4 / 3
# Small tiles for each processor that wait in each step, by whether words hold channels: those that run at a time, or 2.
FEW_TILES = {True: WORKGROUPS_OF_A_PROCESSOR, False: 2}
# Bytes of K of a step: they wait least with long ones. Medium tiles fetch less: for long K, one or two a processor.
LONG_STEP = 128
SMALL_TILE = {True: Tile(32, 64, LONG_STEP, 16, 64), False: Tile(64, 64, LONG_STEP, 64, 16)}
MEDIUM_TILE, LONG_K = Tile(64, 64, LONG_STEP, 32, 64), FEW_STEPS * LONG_STEP


class MatrixRules(TileRules):
    """The tiles of the path `matrix`."""

    example = "128x128x64:64x32"
    takes_turns = True

    @classmethod
    def on(cls, profile: DeviceProfile, block: Block, in_words: bool) -> MatrixRules:
        kernel = KERNEL_OF_FEW_REGISTERS if device_traits.has_few_registers(profile) else KERNEL
        height, width = matrix_outputs(kernel, block, in_words)
        units = (height, PACKED_MATRICES * width) if in_words else (PACKED_MATRICES * height, width)
        step_unit = max(2 * block.k, VECTOR_SIZE)
        return cls(profile, kernel, in_words, profile.min_subgroup_size, units, block, step_unit, (2, 2))


@lru_cache(maxsize=64)
def matrix_of(profile: DeviceProfile) -> Block | None:
    """The largest matrices of signed bytes that a device multiplies; None if it has none that can be used."""
    if FEATURES - profile.features or not profile.has_integer_dot_product:
        return None
    if device_traits.ROUNDING not in profile.properties:
        return None
    # One more than the parameters need: the sums of parts of K.
    if profile.limits.max_per_stage_descriptor_storage_buffers < BUFFER_COUNT + 1:
        return None
    if profile.min_subgroup_size != profile.max_subgroup_size and "subgroupSizeControl" not in profile.features:
        return None
    usable = [
        block
        for block in (Block(each.m, each.n, each.k) for each in profile.cooperative_matrices if _is_usable(each))
        if all(_tiles(profile, block, in_words) for in_words in (False, True))
    ]
    return max(usable, key=lambda block: (block.m * block.n * block.k, block.k), default=None)


def _is_usable(entry: CooperativeMatrix) -> bool:
    types = (entry.a_type, entry.b_type, entry.c_type, entry.result_type, entry.scope)
    is_even = entry.m % 8 == entry.n % 8 == entry.k % 8 == 0
    return types == ("sint8", "sint8", "sint32", "sint32", "subgroup") and not entry.saturating and is_even


def block_of(profile: DeviceProfile) -> Block:
    """The matrices of a device that has some."""
    block = matrix_of(profile)
    assert block is not None, "asked for on a device without matrices"
    return block


def _tiles(profile: DeviceProfile, block: Block, in_words: bool) -> list[Tile]:
    """The tiles that suit a device and that the kernel can have, the largest first; `in_words` as for `TileRules`."""
    if profile.device_type is DeviceType.CPU:
        tiles = [Tile(32, 32, 32, 16, 32) if in_words else Tile(32, 32, 32, 32, 16)]
    else:
        tiles = _gpu_tiles(profile, in_words)
    longer = [replace(tile, step=max(tile.step, 2 * block.k)) for tile in tiles]
    return [*MatrixRules.on(profile, block, in_words).possible(longer)]


# The tiles of GPUs by the invocations of a subgroup, and by whether words hold channels: pixels, channels, and those of
# a subgroup. With 64 sums an invocation no GPU of 32 invocations or more spills registers; a subgroup loads 96 rows
# for 64 x 32 products. Matrices of eight rows are those of devices with few registers: there 64 sums spill hundreds of
# them, 32 sums few. The second operand, along the words of the output, has four matrices of a subgroup, and the first
# operand one.
SIDES = {
    (32, True): ((64, 128, 32, 64), (128, 64, 32, 64), (64, 64, 32, 64)),
    (32, False): ((64, 128, 64, 32), (128, 64, 64, 32), (64, 64, 64, 32), (128, 32, 64, 16)),
    (16, True): ((128, 64, 8, 64), (64, 64, 8, 64)),
    (16, False): ((64, 64, 64, 8), (128, 32, 64, 8), (64, 32, 64, 8)),
    (0, True): ((128, 64, 8, 32), (64, 64, 8, 32), (64, 32, 8, 32)),
    (0, False): ((64, 128, 32, 8), (64, 64, 32, 8), (64, 32, 32, 8)),
}
# 128 sums an invocation are for GPUs with 255 registers, and for drivers that use them.
LARGEST_SIDES, STEP = (128, 128, 64, 64), 64


def _gpu_tiles(profile: DeviceProfile, in_words: bool) -> list[Tile]:
    lanes = next(least for least in (32, 16, 0) if profile.min_subgroup_size >= least)
    has_largest = lanes == 32 and device_traits.keeps_large_tiles_in_registers(profile)
    sides = (LARGEST_SIDES, *SIDES[lanes, in_words]) if has_largest else SIDES[lanes, in_words]
    return [Tile(pixels, channels, STEP, *own) for pixels, channels, *own in sides]


class MatrixUnitsPath(TiledPath[AnyTiledShape]):
    """A path on matrix units."""

    # How many times as long the kernel takes on devices with few registers.
    loss: ClassVar[int] = 1

    def kernel_seconds(self, problem: Problem, tile: AnyTiledShape) -> float:
        loss = self.loss if device_traits.has_few_registers(problem.profile) else 1
        return loss * super().kernel_seconds(problem, tile)

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        if matrix_of(profile) is None:
            return NO_MATRICES
        if (limit := profile.limits.max_push_constants_size) < PUSH_CONSTANTS_SIZE:
            return Obstacle("bytes of push constants", limit, f"at least {PUSH_CONSTANTS_SIZE}")
        return None


class MatrixPath(MatrixUnitsPath[TiledShape]):
    """Packs the filter, and the input unless it can be read in place; matrix units (VK_KHR_cooperative_matrix) on INT8,
    for which the input is fetched for each tap. On devices that list INT8 matrices, round float32 to nearest even and
    have 8-bit storage.
    """

    name = "matrix"
    questions = MATRIX_QUESTIONS
    # With few registers a subgroup has half as many outputs, so it loads twice as many operands for each product.
    loss = 2

    def rules(self, profile: DeviceProfile, geometry: ProductGeometry) -> MatrixRules:
        return MatrixRules.on(profile, block_of(profile), packs_channels(geometry))

    def seeds(self, profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool) -> Iterator[Tile]:
        has_small, in_words = profile.min_subgroup_size >= 32, packs_channels(geometry)
        if has_small:
            yield from _few_tiles(profile, geometry)
        tiles = _tiles(profile, block_of(profile), in_words)
        fitting = _fitting(tiles, geometry, profile.min_subgroup_size, is_prepared)
        for tile in fitting:
            enough = ENOUGH_LARGE_TILES[is_prepared] if tile.is_large else ENOUGH_TILES
            if tile.count(geometry) >= enough * rates_of(profile).processors:
                yield tile
        yield min(fitting, key=lambda tile: tile.pixels * tile.channels)
        yield from tiles
        if has_small:
            yield SMALL_TILE[in_words]
            yield MEDIUM_TILE


def _few_tiles(profile: DeviceProfile, geometry: ProductGeometry) -> Iterator[Tile]:
    """The tiles for a convolution of which a GPU has few for each processor."""
    processors, in_words, k_bytes = rates_of(profile).processors, packs_channels(geometry), Runs.of(geometry).size
    if in_words and k_bytes >= LONG_K and processors < MEDIUM_TILE.count(geometry) <= 2 * processors:
        yield MEDIUM_TILE
    tile = SMALL_TILE[in_words]
    if in_words and k_bytes < LONG_STEP:
        tile = replace(tile, step=LONG_STEP // 2)  # planes are fetched four pixels at a time, which takes long steps
    if not in_words and geometry.output_channels_per_group <= tile.channels // 2:
        tile = replace(tile, channels=tile.channels // 2)
    if tile.count(geometry) <= FEW_TILES[in_words] * processors:
        yield tile


def _fitting(tiles: list[Tile], geometry: ProductGeometry, lanes: int, is_prepared: bool) -> list[Tile]:
    """The tiles of a device that suit the channels, K and layout of a convolution, the largest first."""
    in_words, channels = packs_channels(geometry), geometry.output_channels_per_group
    narrowest = min(tile.channels for tile in tiles)

    def padded(tile_channels: int) -> int:
        return -(-channels // tile_channels) * tile_channels

    def fits(tile: Tile) -> bool:
        is_wasteful = tile.channels > NARROW and padded(tile.channels) >= MOST_CHANNELS * padded(NARROW)
        return tile.channels == narrowest or (tile.channels < 2 * channels and not is_wasteful)

    fitting = [tile for tile in tiles if fits(tile)]
    smaller = [tile for tile in fitting if not tile.is_large]
    # Planes that are no whole words are stored byte by byte, which takes as long as the products.
    is_ragged = not in_words and is_ragged_output(geometry)
    is_short = Runs.of(geometry).size <= FEW_STEPS * fitting[0].step
    in_planes = not is_ragged if is_prepared else is_short and smaller != fitting
    fitting = smaller if (is_ragged if is_prepared else is_short) else fitting
    if in_planes and has_whole_planes(geometry) and geometry.input_strides[1] > 1:
        # By another tile the input would be converted first.
        fitting = [tile for tile in fitting if tile.fetches_planes(lanes)] or fitting
    return fitting
