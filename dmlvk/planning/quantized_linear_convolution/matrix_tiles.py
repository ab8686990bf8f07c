"""The matrices of a device, the tiles that suit them, and the choice of a tile for the path `matrix`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.errors import PathError, shown
from dmlvk.planning import device_traits
from dmlvk.planning.quantized_linear_convolution.matrix_shape import (
    KERNEL,
    KERNEL_OF_FEW_REGISTERS,
    LARGE_TILE,
    PACKED_MATRICES,
    ROW_PADDING,
    VECTOR_SIZE,
    MatrixShape,
    MatrixTile,
    Runs,
    has_whole_planes,
    matrix_outputs,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.parameters import BUFFER_COUNT
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry

FEATURES = frozenset(("cooperativeMatrix", "vulkanMemoryModel", "shaderInt8", "storageBuffer8BitAccess"))

NO_MATRICES = Obstacle("matrices of signed bytes", "none that the kernels take", "VK_KHR_cooperative_matrix with one")

EXAMPLE_TILE = "128x128x64:64x32"

# No side of a tile is 0 or more than a few thousand. A name can come from any source, a damaged file included.
SIDE = "([1-9][0-9]{0,5})"
FORCED_TILE = re.compile(rf"{SIDE}x{SIDE}x{SIDE}:{SIDE}x{SIDE}(?:\*([0-9]{{1,6}}))?")

# Fewer workgroups than this leave a large GPU idle, or its last round nearly empty. A multiprocessor has room for two
# large tiles, not for three. If each workgroup works out the parameters of its channels first, large tiles are slower
# with fewer than several rounds of them, and with few steps; if the parameters are there, with less than a round.
ENOUGH_TILES = 192
ENOUGH_LARGE_TILES = {True: 204, False: 1024}
FEW_STEPS = 4
# Wider tiles than these are left out if they compute a third more channels, which are never stored. On an H200 with 64
# images, 24 -> 144 56x56 takes 36.0 us by two tiles of 128 and 31.5 by three of 64, 32 -> 192 28x28 11.1 and 8.9.
NARROW = 64
MOST_CHANNELS = 4 / 3

# With so few tiles, a multiprocessor of a large GPU has at most three of them for words of channels, otherwise two.
# They wait in each step, and small tiles with long steps wait least.
FEW_TILES = {True: 400, False: 264}
SMALL_TILE = {True: (32, 64, 16, 64), False: (64, 64, 64, 16)}
LONG_STEP = 128
# The same for words of channels, if K has so many bytes and a multiprocessor has more than one of these tiles, but at
# most two. They fetch fewer bytes for each product.
MEDIUM_TILE = MatrixTile(64, 64, LONG_STEP, 32, 64)
MEDIUM_TILES = range(133, 265)
LONG_K = 512


@lru_cache(maxsize=256)
def matrix_shape(
    profile: DeviceProfile, geometry: ProductGeometry, forced: str = "", *, has_parameters: bool = False
) -> MatrixShape:
    """The matrices and the tile for a convolution.

    Parameters
    ----------
    forced : str, optional
        A tile by name: "128x128x64:64x32" is 128 pixels and channels by 64 bytes of K, in subgroups of 64 x 32;
        "128x128x64:64x32*4" is four such tiles of pixels a workgroup.
    has_parameters : bool
        Whether the channels' parameters are worked out before, because all their tensors are OWNED_BY_DML.

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
        tile = _choose(profile, matrix, geometry, has_parameters)
    return MatrixShape.of(product_kernel(profile), profile, matrix, tile, geometry)


def product_kernel(profile: DeviceProfile) -> str:
    """The kernel that multiplies on a device's matrix units."""
    return KERNEL_OF_FEW_REGISTERS if device_traits.has_few_registers(profile) else KERNEL


def small_tile(profile: DeviceProfile, matrix: CooperativeMatrix, geometry: ProductGeometry) -> MatrixTile | None:
    """The tile for a convolution that has few of them; None if it has many, or if the device has no use for it."""
    if profile.device_type is not DeviceType.DISCRETE_GPU or profile.min_subgroup_size < 32:
        return None
    in_words, k_bytes = packs_channels(geometry), Runs.of(geometry).total * VECTOR_SIZE

    def is_possible(tile: MatrixTile) -> bool:
        return obstacle_to_tile(profile, matrix, profile.min_subgroup_size, tile, in_words) is None

    medium = replace(MEDIUM_TILE, step=max(LONG_STEP, 2 * matrix.k))
    if in_words and k_bytes >= LONG_K and medium.count(geometry) in MEDIUM_TILES and is_possible(medium):
        return medium
    pixels, channels, subgroup_pixels, subgroup_channels = SMALL_TILE[in_words]
    if not in_words and geometry.output_channels_per_group <= channels // 2:
        channels //= 2
    # Planes are fetched four pixels at a time, which takes long steps.
    is_long = not in_words or k_bytes >= LONG_STEP
    step = max(LONG_STEP if is_long else LONG_STEP // 2, 2 * matrix.k)
    tile = MatrixTile(pixels, channels, step, subgroup_pixels, subgroup_channels)
    return tile if tile.count(geometry) <= FEW_TILES[in_words] and is_possible(tile) else None


def _choose(
    profile: DeviceProfile, matrix: CooperativeMatrix, geometry: ProductGeometry, has_parameters: bool
) -> MatrixTile:
    small = small_tile(profile, matrix, geometry)
    if small is not None:
        return small
    in_words = packs_channels(geometry)
    tiles = possible_tiles(profile, matrix, in_words)
    channels = geometry.output_channels_per_group
    narrowest = min(tile.channels for tile in tiles)

    def padded(tile_channels: int) -> int:
        return -(-channels // tile_channels) * tile_channels

    def is_wasteful(tile: MatrixTile) -> bool:
        return tile.channels > NARROW and padded(tile.channels) >= MOST_CHANNELS * padded(NARROW)

    fitting = [
        tile for tile in tiles if tile.channels == narrowest or (tile.channels < 2 * channels and not is_wasteful(tile))
    ]
    smaller = [tile for tile in fitting if tile.pixels * tile.channels < LARGE_TILE]
    if has_parameters:
        # Planes that are no whole words are stored byte by byte, which takes as long as the products.
        is_ragged = not in_words and geometry.output_size[0] * geometry.output_size[1] % PACKED_MATRICES
        in_planes = not is_ragged
        fitting = smaller if is_ragged else fitting
    else:
        is_short = Runs.of(geometry).total * VECTOR_SIZE <= FEW_STEPS * fitting[0].step
        in_planes = is_short and smaller != fitting
        fitting = smaller if is_short else fitting
    if in_planes and has_whole_planes(geometry) and geometry.input_strides[1] > 1:
        # By another tile the input would be converted first.
        lanes = profile.min_subgroup_size
        fitting = [tile for tile in fitting if tile.fetches_planes(lanes)] or fitting
    for tile in fitting:
        is_small = tile.pixels * tile.channels < LARGE_TILE
        enough = ENOUGH_TILES if is_small else ENOUGH_LARGE_TILES[has_parameters]
        if tile.count(geometry) >= enough:
            return tile
    return min(fitting, key=lambda tile: tile.pixels * tile.channels)


@lru_cache(maxsize=64)
def matrix_of(profile: DeviceProfile) -> CooperativeMatrix | None:
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


def tiles_for(profile: DeviceProfile, matrix: CooperativeMatrix, channels: bool) -> list[MatrixTile]:
    """The tiles that suit a device, the largest first; with `channels` for words of four channels."""
    if profile.device_type is DeviceType.CPU:
        step = max(32, 2 * matrix.k)
        return [MatrixTile(32, 32, step, 16, 32) if channels else MatrixTile(32, 32, step, 32, 16)]
    return [replace(tile, step=max(tile.step, 2 * matrix.k)) for tile in _gpu_tiles(profile, channels)]


def _gpu_tiles(profile: DeviceProfile, channels: bool) -> list[MatrixTile]:
    if profile.min_subgroup_size >= 32:
        # With 64 sums an invocation no GPU spills registers, and a subgroup loads 96 rows for 64 x 32 products. 128
        # sums an invocation are for GPUs with 255 registers, and for drivers that use them.
        has_registers = device_traits.keeps_large_tiles_in_registers(profile)
        large = [MatrixTile(128, 128, 64, 64, 64)] if has_registers else []
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
    # Matrices of eight rows, on devices with few registers: 64 sums an invocation spill hundreds of them, 32 sums few.
    # The second operand, along the words of the output, has four matrices of a subgroup, and the first operand one.
    if profile.min_subgroup_size >= 16:
        if channels:
            return [MatrixTile(128, 64, 64, 8, 64), MatrixTile(64, 64, 64, 8, 64)]
        return [MatrixTile(64, 64, 64, 64, 8), MatrixTile(128, 32, 64, 64, 8), MatrixTile(64, 32, 64, 64, 8)]
    if channels:
        return [MatrixTile(128, 64, 64, 8, 32), MatrixTile(64, 64, 64, 8, 32), MatrixTile(64, 32, 64, 8, 32)]
    return [MatrixTile(64, 128, 64, 32, 8), MatrixTile(64, 64, 64, 32, 8), MatrixTile(64, 32, 64, 32, 8)]


def seeds(profile: DeviceProfile, channels: bool) -> list[MatrixTile]:
    """All tiles that a device may take, for many of them and for few."""
    matrix = matrix_of(profile)
    assert matrix is not None, "asked for on a device without matrices"
    tiles = possible_tiles(profile, matrix, channels)
    if profile.device_type is not DeviceType.CPU and profile.min_subgroup_size >= 32:
        pixels, filters, subgroup_pixels, subgroup_channels = SMALL_TILE[channels]
        small = MatrixTile(pixels, filters, LONG_STEP, subgroup_pixels, subgroup_channels)
        tiles += [small, *([MEDIUM_TILE] if channels else [])]
    return tiles


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
    height, width = matrix_outputs(product_kernel(profile), matrix, channels)
    if tile.subgroup_pixels % (rows * height) or tile.subgroup_channels % (columns * width):
        return f"{rows} x {columns} matrices of {height} x {width} do not divide its subgroups"
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
    return obstacle_to_memory(shared_memory(profile, matrix, tile, channels), device_traits.tile_memory(profile))


def obstacle_to_memory(size: int, limit: int) -> str | None:
    """Why a tile that takes so many bytes of shared memory does not fit; None if it does."""
    return f"{size} bytes of shared memory are more than {limit}" if size > limit else None


def shared_memory(profile: DeviceProfile, matrix: CooperativeMatrix, tile: MatrixTile, channels: bool) -> int:
    """Bytes of shared memory that the kernel declares: see kernels/quantized_linear_convolution/matrix.glsl."""
    row = tile.step // VECTOR_SIZE * max(1, VECTOR_SIZE // matrix.k) + ROW_PADDING
    operands = 2 * (tile.pixels + tile.channels) * row
    height, width = matrix_outputs(product_kernel(profile), matrix, channels)
    lines, words = (height, width) if channels else (width, height)
    strip = max(lines * (words // 4 + 1), matrix.m * matrix.n // 4)
    return VECTOR_SIZE * max(operands, tile.subgroups() * strip) + 8 * tile.pixels + 12 * tile.channels + 32
