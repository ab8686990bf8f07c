"""The choice of a tile for the path `matrix`, or the tile with a name."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.errors import shown
from dmlvk.planning.plan import PathError
from dmlvk.planning.quantized_linear_convolution.matrix import (
    KERNEL,
    LARGE_TILE,
    SIDE,
    VECTOR_SIZE,
    MatrixShape,
    MatrixTile,
    Runs,
    has_whole_planes,
    matrix_of,
    obstacle_to_tile,
    packs_channels,
    possible_tiles,
)
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry

EXAMPLE_TILE = "128x128x64:64x32"

FORCED_TILE = re.compile(rf"{SIDE}x{SIDE}x{SIDE}:{SIDE}x{SIDE}(?:\*([0-9]{{1,6}}))?")

# Fewer workgroups than this leave a large GPU idle, or its last round nearly empty. A multiprocessor has room for two
# large tiles, not for three. Large tiles are slower on layers with fewer than several rounds of them.
ENOUGH_TILES = 192
ENOUGH_LARGE_TILES = 1024
# Large tiles save bytes in each step. With at most this many steps, the work after the steps counts for more, and so
# does the number of workgroups that a multiprocessor has room for.
FEW_STEPS = 4

# With so few tiles, a multiprocessor of a large GPU has one or two workgroups, which wait for memory in each step.
# Small tiles with long steps wait least.
FEW_TILES = 400
SMALL_TILE = {True: (32, 64, 16, 64), False: (64, 64, 64, 16)}
LONG_STEP = 128
# Cutting K costs 3 us, as much as nine steps. It pays with more steps than that: each part has two or a few more, and
# all parts run at a time.
MANY_STEPS = 12
LEAST_STEPS = 2
MOST_PARTS = 16
PARTS_AT_A_TIME = 340


@lru_cache(maxsize=256)
def matrix_shape(profile: DeviceProfile, geometry: ProductGeometry, forced: str = "") -> MatrixShape:
    """The matrices and the tile for a convolution.

    Parameters
    ----------
    forced : str, optional
        A tile by name: "128x128x64:64x32" is 128 pixels and channels by 64 bytes of K, in subgroups of 64 x 32;
        "128x128x64:64x32*4" is four such tiles of pixels a workgroup.

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
            raise PathError(f"{OPERATOR}: a tile is named like {EXAMPLE_TILE!r}, not {shown(forced)}")
        tile = MatrixTile(*(int(number or 0) for number in match.groups()))
        obstacle = obstacle_to_tile(profile, matrix, lanes, tile, packs_channels(geometry))
        if obstacle is not None:
            raise PathError(f"tile {shown(forced)} is not possible on {profile.name}: {obstacle}")
    else:
        tile = _choose(profile, matrix, geometry)
    return MatrixShape.of(KERNEL, profile, matrix, tile, geometry)


def small_tile(profile: DeviceProfile, matrix: CooperativeMatrix, geometry: ProductGeometry) -> MatrixTile | None:
    """The tile for a convolution that has few of them; None if it has many, or if the device has no use for it."""
    if profile.device_type is not DeviceType.DISCRETE_GPU or profile.min_subgroup_size < 32:
        return None
    in_words = packs_channels(geometry)
    pixels, channels, subgroup_pixels, subgroup_channels = SMALL_TILE[in_words]
    if not in_words and geometry.output_channels_per_group <= channels // 2:
        channels //= 2
    # Planes are fetched four pixels at a time, which takes long steps.
    is_long = not in_words or Runs.of(geometry).total * VECTOR_SIZE >= LONG_STEP
    step = max(LONG_STEP if is_long else LONG_STEP // 2, 2 * matrix.k)
    tile = MatrixTile(pixels, channels, step, subgroup_pixels, subgroup_channels)
    tiles = (
        geometry.group_count
        * -(-geometry.output_channels_per_group // channels)
        * -(-geometry.batch * geometry.output_size[0] * geometry.output_size[1] // pixels)
    )
    if tiles > FEW_TILES * 32 // pixels:
        return None
    if obstacle_to_tile(profile, matrix, profile.min_subgroup_size, tile, in_words) is not None:
        return None
    room = min(profile.limits.max_storage_buffer_range, profile.segment_size) // 2
    if tiles * tile.part_sums_size > room:
        return tile
    return replace(tile, parts=parts_of(-(-Runs.of(geometry).total * VECTOR_SIZE // step), tiles))


def parts_of(steps: int, tiles: int) -> int:
    """The number of workgroups that share the K of a tile. None of them is left without a step."""
    if steps < MANY_STEPS:
        return 1
    most = max(1, min(MOST_PARTS, steps // LEAST_STEPS, PARTS_AT_A_TIME // tiles))
    return -(-steps // -(-steps // most))


def _choose(profile: DeviceProfile, matrix: CooperativeMatrix, geometry: ProductGeometry) -> MatrixTile:
    small = small_tile(profile, matrix, geometry)
    if small is not None:
        return small
    in_words = packs_channels(geometry)
    tiles = possible_tiles(profile, matrix, in_words)
    channels = geometry.output_channels_per_group
    pixels = geometry.batch * geometry.output_size[0] * geometry.output_size[1]
    narrowest = min(tile.channels for tile in tiles)
    fitting = [tile for tile in tiles if tile.channels < 2 * channels or tile.channels == narrowest]
    size = Runs.of(geometry).total * VECTOR_SIZE
    smaller = [tile for tile in fitting if size > FEW_STEPS * tile.step or tile.pixels * tile.channels < LARGE_TILE]
    if len(smaller) < len(fitting):
        in_planes = has_whole_planes(geometry) and geometry.input_strides[1] > 1
        lanes = profile.min_subgroup_size
        fitting = [tile for tile in smaller if tile.fetches_planes(lanes) or not in_planes]
    for tile in fitting:
        is_small = tile.pixels * tile.channels < LARGE_TILE
        enough = ENOUGH_TILES if is_small else ENOUGH_LARGE_TILES
        if geometry.group_count * -(-channels // tile.channels) * -(-pixels // tile.pixels) >= enough:
            return tile
    return min(fitting, key=lambda tile: tile.pixels * tile.channels)
