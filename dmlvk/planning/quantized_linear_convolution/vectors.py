"""The path `vectors` of QUANTIZED_LINEAR_CONVOLUTION: the product by vectors of K, without matrix units."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning import device_traits
from dmlvk.planning.builder import DISPATCH_SECONDS
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.quantized_linear_convolution.operands import BUFFER_COUNT
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, packs_channels
from dmlvk.planning.quantized_linear_convolution.tiled_product import (
    VECTOR_SIZE,
    Block,
    Runs,
    Tile,
    TiledPath,
    TiledShape,
    TileRules,
    in_parts,
    workgroups_at_a_time,
)

# Four bytes of an output word are an invocation's own.
PACKED_ROWS = 4

# Tiles of more channels than this are too wide for a group of so many.
NARROW = 32
# Bytes of a step that multiplies fewer zeros where K ends inside, and with which more workgroups run at a time.
HALF_STEP = 32
# Half steps of K that are so many that the zeros at its end do not count.
MANY_HALF_STEPS = 16
# Sums of an invocation. With more, devices with few registers spill 100 to 200 of them in the loop over K.
FEW_SUMS = 16

# The products of signed bytes, 2^14 at most, whose sum float32 holds exactly.
EXACT_PRODUCTS = 1024

# Steps in the time in which parts of K add their sums.
MANY_STEPS = 6
# Dispatches of a convolution that takes minutes, on CPU drivers alone, with few channels a group.
MOST_DISPATCHES = 6000
# A CPU driver multiplies a word's bytes one after the other here, and its rates are those of packed products.
BYTES_APART = 4


@dataclass(frozen=True)
class Arithmetic:
    """How the kernel multiplies."""

    kernel: str
    unit: str  # the unit that multiplies, by its name among the rates
    # For few and for many tiles, where a word holds four channels. For words of four pixels, sides change places.
    small: Tile
    large: Tile
    # For a K of at most one step, and for which words.
    short: tuple[Tile, bool]
    # For groups of few channels: few and many tiles.
    narrow: Tile
    narrow_large: Tile
    few_tiles: int  # with fewer small tiles for each processor than this, a GPU is not full of large ones
    largest: Tile | None = None  # for many of them on devices with many registers
    held_steps: int = 2  # the steps of K for which shared memory has room
    element_size: int = 1  # bytes of shared memory for each byte of K
    step_unit: int = 2 * VECTOR_SIZE  # a step is a multiple of so many bytes


DOT4 = Arithmetic(
    kernel="quantized_linear_convolution/vectors_dot4",
    unit="dot_product",
    small=Tile(32, 64, 128, 4, 4),
    large=Tile(64, 64, 64, 4, 8),
    short=(Tile(32, 64, 64, 4, 4), True),  # planes are fetched in wider steps
    narrow=Tile(64, 32, 128, 4, 4),
    narrow_large=Tile(64, 32, 128, 4, 4),
    few_tiles=8,
    # An H200 is a tenth faster with it, but a sixth slower if there are one or two of these tiles on a multiprocessor.
    largest=Tile(128, 64, 64, 8, 8),
)
DOT4_MIXED = replace(DOT4, kernel="quantized_linear_convolution/vectors_dot4_mixed")
INTEGER = replace(
    DOT4,
    kernel="quantized_linear_convolution/vectors_integer",
    unit="integer",
    largest=None,
)
# Floats take four times the shared memory, so it holds one step, and steps are short.
FLOAT32 = Arithmetic(
    kernel="quantized_linear_convolution/vectors_float32",
    unit="float32",
    small=Tile(64, 32, 64, 4, 4),
    large=Tile(64, 64, 32, 4, 8),
    short=(Tile(64, 32, 64, 8, 4), False),  # this one fetches planes as they lie
    narrow=Tile(64, 32, 64, 4, 4),
    narrow_large=Tile(64, 32, 32, 8, 4),
    few_tiles=5,
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


@dataclass(frozen=True)
class VectorsRules(TileRules):
    """The tiles of the path `vectors`: each invocation has outputs of its own."""

    example = "32x64x128:4x4"
    takes_turns = True
    pushes_sizes = False  # many devices without matrices have 128 bytes of push constants, so all sizes are constants
    rest = 3 * VECTOR_SIZE

    arithmetic: Arithmetic

    def laid(self, tile: Tile) -> Tile:
        """A tile for words of four channels, as it is for the words of the output."""
        if self.in_words:
            return tile
        return Tile(tile.channels, tile.pixels, tile.step, tile.own_channels, tile.own_pixels)

    @property
    def unit(self) -> str:
        return self.arithmetic.unit

    @property
    def largest_memory(self) -> int:
        return self.profile.limits.max_compute_shared_memory_size

    @property
    def bytes_of_k(self) -> int:
        return self.arithmetic.element_size

    def block_of(self, tile: Tile) -> Block:
        """The four rows of a word are interleaved: they are those of four blocks."""
        if self.in_words:
            return Block(1, tile.channels // PACKED_ROWS, VECTOR_SIZE)
        return Block(tile.pixels // PACKED_ROWS, 1, VECTOR_SIZE)

    def exchanged(self, tile: Tile) -> int:
        return 0

    def obstacle(self, tile: Tile) -> Obstacle | None:
        if self.arithmetic is FLOAT32 and tile.step > EXACT_PRODUCTS:
            return Obstacle("products of bytes that float32 sums exactly", tile.step, f"at most {EXACT_PRODUCTS}")
        return super().obstacle(tile)

    def suits(self, tile: Tile) -> bool:
        """Whether an invocation has the registers for its sums."""
        is_small = tile.own_pixels * tile.own_channels <= FEW_SUMS
        return is_small or not device_traits.has_few_registers(self.profile)


@lru_cache(maxsize=64)
def rules_of(profile: DeviceProfile, in_words: bool) -> VectorsRules:
    """The tiles that the kernel can have on a device; with `in_words` for words of four channels."""
    arithmetic, units = arithmetic_of(profile), (1, PACKED_ROWS) if in_words else (PACKED_ROWS, 1)
    block, held = Block(1, 1, VECTOR_SIZE), (arithmetic.held_steps, arithmetic.held_steps)
    return VectorsRules(profile, arithmetic.kernel, in_words, 1, units, block, arithmetic.step_unit, held, arithmetic)


class VectorsPath(TiledPath[TiledShape]):
    """Packs the filter, and the input unless it can be read in place; dot products, or multiplications of floats
    or of 32-bit integers, of vectors of K. On devices with Vulkan's memory model and eleven storage buffers a stage.
    """

    name = "vectors"
    cuts_k = True

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        if "vulkanMemoryModel" not in profile.features:
            return Obstacle("vulkanMemoryModel", "absent", "present")
        count, least = profile.limits.max_per_stage_descriptor_storage_buffers, BUFFER_COUNT + 1
        if count < least:
            return Obstacle("storage buffers of a stage", count, f"at least {least}")
        rules = (rules_of(profile, in_words) for in_words in (True, False))
        obstacles = (each.obstacle(each.laid(each.arithmetic.small)) for each in rules)
        return next((obstacle for obstacle in obstacles if obstacle is not None), None)

    def obstacle_to_geometry(self, problem: Problem, geometry: ProductGeometry) -> Obstacle | None:
        obstacle, shape = super().obstacle_to_geometry(problem, geometry), self.shape(problem, geometry)
        if obstacle is None and shape is not None:
            seconds = self.longest_seconds(problem, shape)
            if (count := math.ceil(seconds / DISPATCH_SECONDS)) > MOST_DISPATCHES:
                return Obstacle(f"dispatches of {DISPATCH_SECONDS:g} s", count, f"at most {MOST_DISPATCHES}")
        return obstacle

    def rules(self, profile: DeviceProfile, geometry: ProductGeometry) -> VectorsRules:
        return rules_of(profile, packs_channels(geometry))

    def seeds(self, profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool) -> Iterator[Tile]:
        rules, size = self.rules(profile, geometry), Runs.of(geometry).size
        of, (short, are_for_words) = rules.arithmetic, rules.arithmetic.short
        tiles = [rules.laid(of.small), rules.laid(of.large), of.narrow, of.narrow_large]
        tiles += [short] if are_for_words == rules.in_words else []
        tiles += [of.largest] if of.largest else []
        is_narrow = geometry.output_channels_per_group <= NARROW
        small, large = tiles[2:4] if is_narrow else (tiles[0], _large_tile(profile, geometry, rules))
        if small.count(geometry) >= of.few_tiles * rates_of(profile).processors:
            yield from (large, small) if rules.suits(large) else (small,)
        if short in tiles and size <= short.step and not is_narrow and rules.suits(short):
            yield short
        yield in_parts(small, profile, geometry, MANY_STEPS, workgroups_at_a_time(profile))
        yield from filter(rules.suits, tiles)

    def kernel_seconds(self, problem: Problem, tile: TiledShape) -> float:
        is_cpu = problem.profile.device_type is DeviceType.CPU
        return super().kernel_seconds(problem, tile) * (BYTES_APART if is_cpu else 1)


def _large_tile(profile: DeviceProfile, geometry: ProductGeometry, rules: VectorsRules) -> Tile:
    """The tile for a convolution that has many."""
    tile, largest, size = rules.laid(rules.arithmetic.large), rules.arithmetic.largest, Runs.of(geometry).size
    is_ragged = not rules.in_words and math.prod(geometry.output_size) % PACKED_ROWS
    has_short_end = 0 < size % tile.step <= HALF_STEP and size < MANY_HALF_STEPS * HALF_STEP
    if is_ragged or has_short_end:
        return replace(tile, step=HALF_STEP)
    if largest is None or not device_traits.has_255_registers(profile):
        return tile
    return largest if rules.obstacle(largest) is None else tile
