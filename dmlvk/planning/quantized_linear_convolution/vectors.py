"""The path `vectors` of QUANTIZED_LINEAR_CONVOLUTION: the product by vectors of K, without matrix units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError
from dmlvk.planning import device_traits
from dmlvk.planning.builder import DISPATCH_SECONDS, Box, DispatchBuilder
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.quantized_linear_convolution.operands import BUFFER_COUNT
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product import FILLING_WORKGROUPS
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry
from dmlvk.planning.quantized_linear_convolution.tiled_dispatch import TiledCutter
from dmlvk.planning.quantized_linear_convolution.tiled_path import TiledPath
from dmlvk.planning.quantized_linear_convolution.tiles import (
    VECTOR_SIZE,
    Block,
    Runs,
    Tile,
    TiledShape,
    TileRules,
    packs_channels,
)

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
LARGEST_HALF_TILE = Tile(64, 64, 32, 8, 8)
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

# A convolution that would be cut into more dispatches than this takes minutes, and the plan itself a minute. Only CPU
# drivers get there, with few channels a group, which the tiles fill up with zeros.
MOST_DISPATCHES = 6000
# The packed products of CPU drivers are four times as fast.
CPU_SHARE = 0.25


@dataclass(frozen=True)
class Arithmetic:
    """How the kernel multiplies."""

    kernel: str
    unit: str  # the unit that multiplies, by its name among the rates
    # The tiles for few and for many of them, and for a K of at most one step, by whether a word of the output holds
    # four channels: pixels, channels, bytes of K, and the pixels and channels of an invocation.
    small: Mapping[bool, Tile]
    large: Mapping[bool, Tile]
    short: Mapping[bool, Tile]
    # For groups of few channels: few and many tiles.
    narrow: Tile
    narrow_large: Tile
    few_tiles: int  # with fewer small tiles than this, a large GPU is not full of large ones
    # For many of them on devices with many registers, in whole and in half steps.
    largest: Tile | None = None
    largest_half: Tile | None = None
    held_steps: int = 2  # the steps of K for which shared memory has room
    element_size: int = 1  # bytes of shared memory for each byte of K
    step_unit: int = 2 * VECTOR_SIZE  # a step is a multiple of so many bytes


DOT4 = Arithmetic(
    kernel="quantized_linear_convolution/vectors_dot4",
    unit="dot_product",
    small={True: Tile(32, 64, 128, 4, 4), False: Tile(64, 32, 128, 4, 4)},
    large={True: Tile(64, 64, 64, 4, 8), False: Tile(64, 64, 64, 8, 4)},
    # Planes are fetched in wider steps.
    short={True: Tile(32, 64, 64, 4, 4)},
    narrow=Tile(64, 32, 128, 4, 4),
    narrow_large=Tile(64, 32, 128, 4, 4),
    few_tiles=1024,
    # An H200 is a tenth faster with it, but a sixth slower if there are one or two of these tiles on a multiprocessor.
    largest=Tile(128, 64, 64, 8, 8),
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
    small={True: Tile(64, 32, 64, 4, 4), False: Tile(32, 64, 64, 4, 4)},
    large={True: Tile(64, 64, 32, 4, 8), False: Tile(64, 64, 32, 8, 4)},
    # This one fetches planes as they lie.
    short={False: Tile(64, 32, 64, 8, 4)},
    narrow=Tile(64, 32, 64, 4, 4),
    narrow_large=Tile(64, 32, 32, 8, 4),
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


@dataclass(frozen=True)
class VectorsRules(TileRules):
    """The tiles of the path `vectors`: each invocation has outputs of its own."""

    example = "32x64x128:4x4"
    takes_turns = True
    rest = 3 * VECTOR_SIZE

    arithmetic: Arithmetic

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
        """Whether an invocation also has the registers for its sums."""
        has_registers = tile.own_pixels * tile.own_channels <= FEW_SUMS or not device_traits.has_few_registers(
            self.profile
        )
        return has_registers and self.obstacle(tile) is None


@lru_cache(maxsize=64)
def rules_of(profile: DeviceProfile, in_words: bool) -> VectorsRules:
    """The tiles that the kernel can have on a device; with `in_words` for words of four channels."""
    arithmetic, units = arithmetic_of(profile), (1, PACKED_ROWS) if in_words else (PACKED_ROWS, 1)
    block, held = Block(1, 1, VECTOR_SIZE), (arithmetic.held_steps, arithmetic.held_steps)
    return VectorsRules(profile, arithmetic.kernel, in_words, 1, units, block, arithmetic.step_unit, held, arithmetic)


class VectorsCutter(TiledCutter[TiledShape]):
    """One part's product by vectors of K."""

    @property
    def subgroup_size(self) -> int:
        return 0  # any will do

    def turns(self, box: Box) -> int:
        if self.shape.tile == LARGEST_HALF_TILE:
            return LARGEST_HALF_TURNS
        return super().turns(box)

    def shares_pipelines(self, box: Box) -> bool:
        return False

    def push_sizes(self, dispatch: DispatchBuilder, sizes: Mapping[str, int]) -> None:
        """Nothing: many devices without matrices have 128 bytes of push constants, so all sizes are constants."""


class VectorsPath(TiledPath[TiledShape]):
    """Packs the filter, and the input unless it can be read in place; dot products, or multiplications of floats
    or of 32-bit integers, of vectors of K. On devices with Vulkan's memory model and eleven storage buffers a stage.
    """

    name = "vectors"
    cutter = VectorsCutter
    packs_input = True
    takes_turns = True

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        if "vulkanMemoryModel" not in profile.features:
            return Obstacle("vulkanMemoryModel", "absent", "present")
        count, least = profile.limits.max_per_stage_descriptor_storage_buffers, BUFFER_COUNT + 1
        if count < least:
            return Obstacle("storage buffers of a stage", count, f"at least {least}")
        rules = (rules_of(profile, in_words) for in_words in (True, False))
        obstacles = (each.obstacle(each.arithmetic.small[each.in_words]) for each in rules)
        return next((obstacle for obstacle in obstacles if obstacle is not None), None)

    def _obstacle_to(self, problem: Problem, geometry: ProductGeometry) -> Obstacle | None:
        obstacle, shape = super()._obstacle_to(problem, geometry), self.shape(problem, geometry)
        if obstacle is None and shape is not None:
            seconds = self.longest_seconds(problem, shape)
            if (count := math.ceil(seconds / DISPATCH_SECONDS)) > MOST_DISPATCHES:
                return Obstacle(f"dispatches of {DISPATCH_SECONDS:g} s", count, f"at most {MOST_DISPATCHES}")
        return obstacle

    def rules(self, profile: DeviceProfile, geometry: ProductGeometry) -> VectorsRules:
        return rules_of(profile, packs_channels(geometry))

    def seeds(self, profile: DeviceProfile, geometry: ProductGeometry) -> list[Tile]:
        rules = self.rules(profile, geometry)
        in_words, of = rules.in_words, rules.arithmetic
        tiles = (of.small[in_words], of.large[in_words], of.narrow, of.narrow_large)
        more = (of.short.get(in_words), of.largest, of.largest_half)
        return [tile for tile in dict.fromkeys((*tiles, *more)) if tile is not None and rules.suits(tile)]

    def preferred(self, profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool) -> Iterator[Tile]:
        rules = self.rules(profile, geometry)
        in_words, arithmetic, size = rules.in_words, rules.arithmetic, Runs.of(geometry).size
        is_narrow = geometry.output_channels_per_group <= NARROW
        small, short = arithmetic.small[in_words], arithmetic.short.get(in_words)
        if is_narrow:
            small, short = arithmetic.narrow, None
        tiles = small.count(geometry)
        if tiles >= arithmetic.few_tiles:
            large = arithmetic.narrow_large if is_narrow else _large_tile(profile, geometry, rules)
            yield from (tile for tile in (large, small) if tile is small or rules.suits(tile))
            return
        if short is not None and size <= short.step and rules.suits(short):
            yield short
        room = min(profile.limits.max_storage_buffer_range, profile.segment_size) // 2
        if tiles * small.part_sums_size <= room:
            places = PARTS_AT_A_TIME.get(profile.device_type, FILLING_WORKGROUPS.get(profile.device_type, 1))
            small = replace(small, parts=_parts_of(-(-size // small.step), tiles, places))
        yield small

    def with_parts(self, tile: TiledShape, parts: int) -> TiledShape:
        if tile.tile.turns > 1 and parts > 1:
            raise PathError(
                f"{OPERATOR}: a workgroup of several tiles has the whole K of each, and not one of {parts} parts"
            )
        return replace(tile, tile=replace(tile.tile, parts=parts))

    def kernel_seconds(self, problem: Problem, tile: TiledShape) -> float:
        is_cpu = problem.profile.device_type is DeviceType.CPU
        return super().kernel_seconds(problem, tile) / (CPU_SHARE if is_cpu else 1)

    def unit(self, profile: DeviceProfile) -> str:
        return arithmetic_of(profile).unit


def _large_tile(profile: DeviceProfile, geometry: ProductGeometry, rules: VectorsRules) -> Tile:
    """The tile for a convolution that has many."""
    arithmetic, in_words = rules.arithmetic, rules.in_words
    tile, largest = arithmetic.large[in_words], arithmetic.largest
    is_ragged = not in_words and math.prod(geometry.output_size) % PACKED_ROWS
    size = Runs.of(geometry).size
    has_short_end = 0 < size % tile.step <= HALF_STEP and size < MANY_HALF_STEPS * HALF_STEP
    if is_ragged or has_short_end:
        tile, largest = replace(tile, step=HALF_STEP), arithmetic.largest_half
        if is_ragged or size < SOME_HALF_STEPS * HALF_STEP or tile.count(geometry) < arithmetic.few_tiles:
            return tile
    if largest is None or not device_traits.has_255_registers(profile):
        return tile
    return largest if rules.obstacle(largest) is None else tile


def _parts_of(steps: int, tiles: int, places: int) -> int:
    """The number of workgroups that share the K of a tile. None of them is left without a step."""
    if steps < MANY_STEPS:
        return 1
    most = max(1, min(MOST_PARTS, steps // LEAST_STEPS, places // tiles))
    return -(-steps // -(-steps // most))
