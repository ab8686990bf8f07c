"""How the product of a QUANTIZED_LINEAR_CONVOLUTION by vectors of K multiplies on a device, and its tiles."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.errors import PathError, shown
from dmlvk.planning import device_traits
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.quantized_linear_convolution.matrix_shape import (
    ROW_PADDING,
    VECTOR_SIZE,
    MatrixShape,
    MatrixTile,
    Runs,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import SIDE, obstacle_to_memory
from dmlvk.planning.quantized_linear_convolution.parameters import BUFFER_COUNT
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle
from dmlvk.planning.quantized_linear_convolution.product import FILLING_WORKGROUPS
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry

EXAMPLE_TILE = "32x64x128:4x4"
NAMED_TILE = re.compile(rf"{SIDE}x{SIDE}x{SIDE}:{SIDE}x{SIDE}(?:\*([0-9]{{1,6}}))?")
# Four bytes of an output word are an invocation's own.
PACKED_ROWS = 4

# Tiles of more channels than this are too wide for a group of so many.
NARROW = 32
# If K ends in the first half of a step, steps of half that size multiply fewer zeros, which counts where steps are few.
# Planes that are no whole words gain from half steps too, because more workgroups run at a time.
HALF_STEP = 32
MANY_HALF_STEPS = 16
# With as many of them, 64 sums an invocation pay, and one look at the channels' parameters for two tiles: a first layer
# of 64 images took 315 us and takes 305 (H200). Layers of 1 to 5 half steps would take up to a fifth longer.
SOME_HALF_STEPS = 7
LARGEST_HALF_TILE = MatrixTile(64, 64, 32, 8, 8)
LARGEST_HALF_TURNS = 2
# With more sums an invocation, devices with few registers spill 100 to 200 of them in the loop over K.
FEW_SUMS = 16

# The products of signed bytes, 2^14 at most, whose sum float32 holds exactly.
EXACT_PRODUCTS = 1024

# Cutting K costs about as much as this number of steps. Parts have two steps or more, and all run at a time.
MANY_STEPS = 6
LEAST_STEPS = 2
MOST_PARTS = 16
PARTS_AT_A_TIME = {DeviceType.DISCRETE_GPU: 400}


@dataclass(frozen=True)
class Arithmetic:
    """How the kernel multiplies.

    Attributes
    ----------
    kernel : str
    unit : str
        The unit that multiplies, by its name among the rates.
    small, large, short : mapping of bool to MatrixTile
        The tiles for few and for many of them, and for a K of at most one step, by whether a word of the output holds
        four channels: pixels, channels, bytes of K, and the pixels and channels of an invocation.
    narrow, narrow_large : MatrixTile
        For groups of few channels: few and many tiles.
    few_tiles : int
        With fewer small tiles than this, a large GPU is not full of large ones.
    largest, largest_half : MatrixTile, optional
        For many of them on devices with many registers, in whole and in half steps.
    held_steps : int
        The steps of K for which shared memory has room.
    element_size : int
        Bytes of shared memory for each byte of K.
    step_unit : int
        A step is a multiple of so many bytes.
    """

    kernel: str
    unit: str
    small: Mapping[bool, MatrixTile]
    large: Mapping[bool, MatrixTile]
    short: Mapping[bool, MatrixTile]
    narrow: MatrixTile
    narrow_large: MatrixTile
    few_tiles: int
    largest: MatrixTile | None = None
    largest_half: MatrixTile | None = None
    held_steps: int = 2
    element_size: int = 1
    step_unit: int = 2 * VECTOR_SIZE

    def shared_memory(self, tile: MatrixTile) -> int:
        """Bytes of shared memory that the kernel declares: see kernels/quantized_linear_convolution/vectors.glsl."""
        row = self.element_size * tile.step // VECTOR_SIZE + ROW_PADDING
        operands = self.held_steps * (tile.pixels + tile.channels) * row
        return VECTOR_SIZE * operands + 8 * tile.pixels + 12 * tile.channels + 48


DOT4 = Arithmetic(
    kernel="quantized_linear_convolution/vectors_dot4",
    unit="dot_product",
    small={True: MatrixTile(32, 64, 128, 4, 4), False: MatrixTile(64, 32, 128, 4, 4)},
    large={True: MatrixTile(64, 64, 64, 4, 8), False: MatrixTile(64, 64, 64, 8, 4)},
    # Planes are fetched in wider steps.
    short={True: MatrixTile(32, 64, 64, 4, 4)},
    narrow=MatrixTile(64, 32, 128, 4, 4),
    narrow_large=MatrixTile(64, 32, 128, 4, 4),
    few_tiles=1024,
    # An H200 is a tenth faster with it, but a sixth slower if there are one or two of these tiles on a multiprocessor.
    largest=MatrixTile(128, 64, 64, 8, 8),
    largest_half=LARGEST_HALF_TILE,
)
DOT4_MIXED = replace(DOT4, kernel="quantized_linear_convolution/vectors_dot4_mixed")
INTEGER = replace(
    DOT4,
    kernel="quantized_linear_convolution/vectors_integer",
    unit="integer",
    largest=None,
    largest_half=None,
)
# Floats take four times the shared memory, so it holds one step, and steps are short.
FLOAT32 = Arithmetic(
    kernel="quantized_linear_convolution/vectors_float32",
    unit="float32",
    small={True: MatrixTile(64, 32, 64, 4, 4), False: MatrixTile(32, 64, 64, 4, 4)},
    large={True: MatrixTile(64, 64, 32, 4, 8), False: MatrixTile(64, 64, 32, 8, 4)},
    # This one fetches planes as they lie.
    short={False: MatrixTile(64, 32, 64, 8, 4)},
    narrow=MatrixTile(64, 32, 64, 4, 4),
    narrow_large=MatrixTile(64, 32, 32, 8, 4),
    few_tiles=640,
    held_steps=1,
    element_size=4,
    step_unit=VECTOR_SIZE,
)


@lru_cache(maxsize=64)
def arithmetic_of(profile: DeviceProfile) -> Arithmetic:
    """How the kernel multiplies on a device: by its fastest unit."""
    if device_traits.ROUNDING not in profile.properties:
        return INTEGER
    rates, has_dot_product = rates_of(profile), profile.has_integer_dot_product
    # The rates of CPU drivers are those of other paths.
    is_faster = profile.device_type is DeviceType.CPU or rates.dot_product >= rates.float32
    if has_dot_product and is_faster:
        return DOT4_MIXED if device_traits.multiplies_mixed_signs_alone(profile) else DOT4
    return FLOAT32 if rates.float32 > rates.integer else INTEGER


def obstacle_on(profile: DeviceProfile) -> Obstacle | None:
    """Why a device cannot run the kernel; None if it can."""
    if "vulkanMemoryModel" not in profile.features:
        return Obstacle("vulkanMemoryModel", "absent", "present")
    count, least = profile.limits.max_per_stage_descriptor_storage_buffers, BUFFER_COUNT + 1
    if count < least:
        return Obstacle("storage buffers of a stage", count, f"at least {least}")
    for channels, tile in arithmetic_of(profile).small.items():
        if (reason := _obstacle_to_tile(profile, tile, channels)) is not None:
            return Obstacle("tile", EXAMPLE_TILE, f"one that fits the device: {reason}")
    return None


def _obstacle_to_tile(profile: DeviceProfile, tile: MatrixTile, channels: bool) -> str | None:
    """Why the kernel cannot use a tile; None if it can. With `channels` for words of four channels."""
    arithmetic = arithmetic_of(profile)
    sizes = (tile.pixels, tile.channels, tile.step, tile.subgroup_pixels, tile.subgroup_channels)
    if any(size & (size - 1) for size in sizes):
        return "its sizes are not powers of two"
    if arithmetic is FLOAT32 and tile.step > EXACT_PRODUCTS:
        return f"float32 sums of more than {EXACT_PRODUCTS} products of bytes are not exact"
    if tile.pixels % tile.subgroup_pixels or tile.channels % tile.subgroup_channels:
        return "an invocation's outputs do not divide it"
    if (tile.subgroup_channels if channels else tile.subgroup_pixels) % PACKED_ROWS:
        return f"an invocation has no {PACKED_ROWS} neighbours of a word of the output"
    if tile.step % arithmetic.step_unit or tile.pixels % 8 or tile.channels % 8:
        return f"its step is no multiple of {arithmetic.step_unit} bytes, or its sides are none of 8"
    invocations, step = tile.subgroups(), tile.step // VECTOR_SIZE
    largest = min(profile.limits.max_compute_work_group_invocations, profile.limits.max_compute_work_group_size[0])
    if invocations > largest:
        return f"{invocations} invocations are more than {largest}"
    if invocations % step or tile.pixels * step % invocations or tile.channels * step % invocations:
        return f"{invocations} invocations do not fetch both operands evenly"
    return obstacle_to_memory(arithmetic.shared_memory(tile), profile.limits.max_compute_shared_memory_size)


def seeds(profile: DeviceProfile, channels: bool) -> list[MatrixTile]:
    """All tiles that a device may take: of some the registers are too few."""
    arithmetic = arithmetic_of(profile)
    tiles = [arithmetic.small[channels], arithmetic.large[channels], arithmetic.narrow, arithmetic.narrow_large]
    tiles += [tile for tile in (arithmetic.short.get(channels), arithmetic.largest, arithmetic.largest_half) if tile]
    return [tile for tile in dict.fromkeys(tiles) if _is_possible(profile, tile, channels)]


def _shape(profile: DeviceProfile, geometry: ProductGeometry, tile: MatrixTile) -> MatrixShape:
    """The shape of the kernel's work: each invocation is a subgroup of its own; a word's four rows are interleaved."""
    in_words = packs_channels(geometry)
    rows = CooperativeMatrix(
        m=1 if in_words else tile.pixels // PACKED_ROWS,
        n=tile.channels // PACKED_ROWS if in_words else 1,
        k=VECTOR_SIZE,
        a_type="sint8",
        b_type="sint8",
        c_type="sint32",
        result_type="sint32",
        saturating=False,
        scope="invocation",
    )
    return MatrixShape.of(arithmetic_of(profile).kernel, replace(profile, min_subgroup_size=1), rows, tile, geometry)


def _tiles_of(geometry: ProductGeometry, tile: MatrixTile) -> int:
    return (
        geometry.group_count
        * -(-geometry.output_channels_per_group // tile.channels)
        * -(-geometry.batch * math.prod(geometry.output_size) // tile.pixels)
    )


def _choose(profile: DeviceProfile, geometry: ProductGeometry) -> MatrixTile:
    in_words, arithmetic = packs_channels(geometry), arithmetic_of(profile)
    small = arithmetic.small[in_words]
    large, short = arithmetic.large[in_words], arithmetic.short.get(in_words)
    is_narrow = geometry.output_channels_per_group <= NARROW
    if is_narrow:
        small, large, short = arithmetic.narrow, arithmetic.narrow_large, None
    if _tiles_of(geometry, small) >= arithmetic.few_tiles:
        if not is_narrow:
            large = _large_tile(profile, geometry, in_words)
        return large if _is_possible(profile, large, in_words) else small
    size = Runs.of(geometry).total * VECTOR_SIZE
    if short is not None and size <= short.step and _is_possible(profile, short, in_words):
        return short
    tiles = _tiles_of(geometry, small)
    room = min(profile.limits.max_storage_buffer_range, profile.segment_size) // 2
    if tiles * small.part_sums_size > room:
        return small
    places = PARTS_AT_A_TIME.get(profile.device_type, FILLING_WORKGROUPS.get(profile.device_type, 1))
    return replace(small, parts=_parts_of(-(-size // small.step), tiles, places))


def _is_possible(profile: DeviceProfile, tile: MatrixTile, in_words: bool) -> bool:
    sums = tile.subgroup_pixels * tile.subgroup_channels
    has_registers = sums <= FEW_SUMS or not device_traits.has_few_registers(profile)
    return has_registers and _obstacle_to_tile(profile, tile, in_words) is None


def _large_tile(profile: DeviceProfile, geometry: ProductGeometry, in_words: bool) -> MatrixTile:
    """The tile for a convolution that has many."""
    arithmetic = arithmetic_of(profile)
    tile, largest = arithmetic.large[in_words], arithmetic.largest
    is_ragged = not in_words and math.prod(geometry.output_size) % PACKED_ROWS
    size = Runs.of(geometry).total * VECTOR_SIZE
    has_short_end = 0 < size % tile.step <= HALF_STEP and size < MANY_HALF_STEPS * HALF_STEP
    if is_ragged or has_short_end:
        tile, largest = replace(tile, step=HALF_STEP), arithmetic.largest_half
        if is_ragged or size < SOME_HALF_STEPS * HALF_STEP or _tiles_of(geometry, tile) < arithmetic.few_tiles:
            return tile
    if largest is None or not device_traits.has_255_registers(profile):
        return tile
    return largest if _obstacle_to_tile(profile, largest, in_words) is None else tile


def _parts_of(steps: int, tiles: int, places: int) -> int:
    """The number of workgroups that share the K of a tile. None of them is left without a step."""
    if steps < MANY_STEPS:
        return 1
    most = max(1, min(MOST_PARTS, steps // LEAST_STEPS, places // tiles))
    return -(-steps // -(-steps // most))


@lru_cache(maxsize=256)
def vectors_shape(profile: DeviceProfile, geometry: ProductGeometry, name: str = "") -> MatrixShape:
    """The tile for a convolution.

    Parameters
    ----------
    name : str, optional
        A tile by name: "32x64x128:4x8" is 32 pixels and 64 channels by 128 bytes of K, of which an invocation has 4
        pixels and 8 channels; "32x64x128:4x8*4" is four such tiles of pixels a workgroup.

    Raises
    ------
    PathError
        The named tile is not one that the kernel can take on this device.
    """
    if not name:
        return _shape(profile, geometry, _choose(profile, geometry))
    match = NAMED_TILE.fullmatch(name)
    if match is None:
        raise PathError(f"{OPERATOR}: a tile is named like {EXAMPLE_TILE!r}, not {shown(name)}")
    tile = MatrixTile(*(int(number or 0) for number in match.groups()))
    obstacle = _obstacle_to_tile(profile, tile, packs_channels(geometry))
    if obstacle is not None:
        raise PathError(f"tile {shown(name)} is not possible on {profile.name}: {obstacle}")
    return _shape(profile, geometry, tile)
