"""The product of a QUANTIZED_LINEAR_CONVOLUTION by vectors of K, without matrix units: tiles, choice, path."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.errors import shown
from dmlvk.planning import device_traits
from dmlvk.planning.builder import DISPATCH_SECONDS, DispatchBuilder, Range
from dmlvk.planning.plan import PathError
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixPath
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import MatrixCutter
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
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product import (
    FILLING_WORKGROUPS,
    Speed,
)
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry

EXAMPLE_TILE = "32x64x128:4x4"
NAMED_TILE = re.compile(rf"{SIDE}x{SIDE}x{SIDE}:{SIDE}x{SIDE}(?:\*([0-9]{{1,6}}))?")
KERNELS = {
    "dot4": "quantized_linear_convolution/vectors_dot4",
    "integer": "quantized_linear_convolution/vectors_integer",
}
MIXED_KERNEL = "quantized_linear_convolution/vectors_dot4_mixed"
# Four bytes of an output word are an invocation's own.
PACKED_ROWS = 4
# The kernel goes through a step by two vectors of 16 bytes.
STEP_UNIT = 2 * VECTOR_SIZE

# Tiles by whether a word of the output holds four channels: pixels, channels, bytes of K, and those of an invocation.
# With 32 sums an invocation, devices with few registers spill 100 to 200 of them in the loop over K.
SMALL_TILES = {True: MatrixTile(32, 64, 128, 4, 4), False: MatrixTile(64, 32, 128, 4, 4)}
TILES = {True: MatrixTile(64, 64, 64, 4, 8), False: MatrixTile(64, 64, 64, 8, 4)}
NARROW_TILE = MatrixTile(64, 32, 128, 4, 4)
# For a K of at most its step. (Planes are fetched in wider steps.)
SHORT_TILE = MatrixTile(32, 64, 64, 4, 4)
# For devices with many registers: 64 sums an invocation. An H200 is a tenth faster with it, but a sixth slower if there
# are one or two of these tiles on a multiprocessor.
LARGE_TILE = MatrixTile(128, 64, 64, 8, 8)
# If K ends in the first half of a step, steps of half that size multiply fewer zeros, which counts where steps are few.
# Planes that are no whole words gain from half steps too, because more workgroups run at a time.
HALF_STEP = 32
MANY_HALF_STEPS = 16
# With fewer small tiles than this, or a fourth of it of large ones, a large GPU is not full.
FEW_TILES = 1024

# Cutting K costs about as much as this number of steps. Parts have two steps or more, and all run at a time.
MANY_STEPS = 6
LEAST_STEPS = 2
MOST_PARTS = 16
PARTS_AT_A_TIME = {DeviceType.DISCRETE_GPU: 400}

SPEED = {
    "dot4": Speed(
        share=0.96,
        first_waits=0.0,
        waits=3.3,
        last_steps=1.4,
        ragged=5.0,
        fetches=2.8,
        group_fetches=1.6,
        word_fetches=1.5,
    ),
    "integer": Speed(
        share=0.83,
        first_waits=0.0,
        waits=6.0,
        last_steps=16.0,
        ragged=1.0,
        fetches=2.8,
        group_fetches=1.6,
        word_fetches=1.5,
    ),
}
UNITS = {"dot4": "dot_product", "integer": "integer"}
# The packed products of CPU drivers are four times as fast.
CPU_SHARE = 0.25
# A convolution that would be cut into more dispatches than this takes minutes, and the plan itself a minute. Only CPU
# drivers get there, with few channels a group, which the tiles fill up with zeros.
MOST_DISPATCHES = 6000


def _unit(profile: DeviceProfile) -> str:
    """The arithmetic of the kernel that a device runs: "dot4" or "integer"."""
    return "dot4" if profile.has_integer_dot_product and device_traits.ROUNDING in profile.properties else "integer"


def _kernel(profile: DeviceProfile) -> str:
    unit = _unit(profile)
    return MIXED_KERNEL if unit == "dot4" and device_traits.multiplies_mixed_signs_alone(profile) else KERNELS[unit]


def _obstacle_on(profile: DeviceProfile) -> Obstacle | None:
    if "vulkanMemoryModel" not in profile.features:
        return Obstacle("vulkanMemoryModel", "absent", "present")
    count, least = profile.limits.max_per_stage_descriptor_storage_buffers, BUFFER_COUNT + 1
    if count < least:
        return Obstacle("storage buffers of a stage", count, f"at least {least}")
    for channels, tile in SMALL_TILES.items():
        if (reason := _obstacle_to_tile(profile, tile, channels)) is not None:
            return Obstacle("tile", EXAMPLE_TILE, f"one that fits the device: {reason}")
    return None


def _obstacle_to_tile(profile: DeviceProfile, tile: MatrixTile, channels: bool) -> str | None:
    """Why the kernel cannot use a tile; None if it can. With `channels` for words of four channels."""
    sizes = (tile.pixels, tile.channels, tile.step, tile.subgroup_pixels, tile.subgroup_channels)
    if any(size & (size - 1) for size in sizes):
        return "its sizes are not powers of two"
    if tile.pixels % tile.subgroup_pixels or tile.channels % tile.subgroup_channels:
        return "an invocation's outputs do not divide it"
    if (tile.subgroup_channels if channels else tile.subgroup_pixels) % PACKED_ROWS:
        return f"an invocation has no {PACKED_ROWS} neighbours of a word of the output"
    if tile.step % STEP_UNIT or tile.pixels % 8 or tile.channels % 8:
        return f"its step is no multiple of {STEP_UNIT} bytes, or its sides are none of 8"
    invocations, step = tile.subgroups(), tile.step // VECTOR_SIZE
    largest = min(profile.limits.max_compute_work_group_invocations, profile.limits.max_compute_work_group_size[0])
    if invocations > largest:
        return f"{invocations} invocations are more than {largest}"
    if invocations % step or tile.pixels * step % invocations or tile.channels * step % invocations:
        return f"{invocations} invocations do not fetch both operands evenly"
    return obstacle_to_memory(_shared_memory(tile), profile.limits.max_compute_shared_memory_size)


def _shared_memory(tile: MatrixTile) -> int:
    """Bytes of shared memory that the kernel declares: see kernels/quantized_linear_convolution/vectors.glsl."""
    row = tile.step // VECTOR_SIZE + ROW_PADDING
    return VECTOR_SIZE * 2 * (tile.pixels + tile.channels) * row + 8 * tile.pixels + 12 * tile.channels + 48


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
    return MatrixShape.of(_kernel(profile), replace(profile, min_subgroup_size=1), rows, tile, geometry)


def _tiles_of(geometry: ProductGeometry, tile: MatrixTile) -> int:
    return (
        geometry.group_count
        * -(-geometry.output_channels_per_group // tile.channels)
        * -(-geometry.batch * math.prod(geometry.output_size) // tile.pixels)
    )


def _choose(profile: DeviceProfile, geometry: ProductGeometry) -> MatrixTile:
    in_words = packs_channels(geometry)
    small, large = SMALL_TILES[in_words], TILES[in_words]
    if device_traits.has_few_registers(profile):
        large = small
    if geometry.output_channels_per_group <= NARROW_TILE.channels:
        small = large = NARROW_TILE
    size = Runs.of(geometry).total * VECTOR_SIZE
    if _tiles_of(geometry, small) >= FEW_TILES:
        if large == TILES[in_words]:
            large = _large_tile(profile, geometry, in_words)
        if _obstacle_to_tile(profile, large, in_words) is None:
            return large
    if small == SMALL_TILES[True] and in_words and size <= SHORT_TILE.step:
        return SHORT_TILE
    tiles = _tiles_of(geometry, small)
    room = min(profile.limits.max_storage_buffer_range, profile.segment_size) // 2
    if tiles * small.part_sums_size > room:
        return small
    places = PARTS_AT_A_TIME.get(profile.device_type, FILLING_WORKGROUPS.get(profile.device_type, 1))
    return replace(small, parts=_parts_of(-(-size // small.step), tiles, places))


def _large_tile(profile: DeviceProfile, geometry: ProductGeometry, in_words: bool) -> MatrixTile:
    """The tile for a convolution that has many."""
    tile = TILES[in_words]
    is_ragged = not in_words and math.prod(geometry.output_size) % PACKED_ROWS
    size = Runs.of(geometry).total * VECTOR_SIZE
    has_short_end = 0 < size % tile.step <= HALF_STEP and size < MANY_HALF_STEPS * HALF_STEP
    if is_ragged or has_short_end:
        return replace(tile, step=HALF_STEP)
    has_room = _unit(profile) == "dot4" and device_traits.has_255_registers(profile)
    return LARGE_TILE if has_room and _obstacle_to_tile(profile, LARGE_TILE, in_words) is None else tile


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


class VectorsCutter(MatrixCutter[MatrixShape]):
    """One part's product by vectors of K."""

    @property
    def subgroup_size(self) -> int:
        return 0  # any will do

    def shares_pipelines(self, box: tuple[Range, ...]) -> bool:
        return False

    def push_sizes(self, dispatch: DispatchBuilder, sizes: Mapping[str, int]) -> None:
        """Nothing: many devices without matrices have 128 bytes of push constants, so all sizes are constants."""


class VectorsPath(MatrixPath):
    """Packs the filter, and the input unless it can be read in place; dot products, or 32-bit multiplications, of
    vectors of K. On devices with Vulkan's memory model and eleven storage buffers a stage.
    """

    name = "vectors"
    example_tile = EXAMPLE_TILE
    must_answer_first = False
    cutter = VectorsCutter

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        return _obstacle_on(profile)

    def shape(self, problem: Problem, geometry: ProductGeometry, name: str = "") -> MatrixShape:
        return vectors_shape(problem.profile, geometry, name)

    def _obstacle_to(self, problem: Problem, geometry: ProductGeometry) -> Obstacle | None:
        obstacle = super()._obstacle_to(problem, geometry)
        if obstacle is None:
            seconds = self.longest_seconds(problem, self.shape(problem, geometry))
            if (count := math.ceil(seconds / DISPATCH_SECONDS)) > MOST_DISPATCHES:
                return Obstacle(f"dispatches of {DISPATCH_SECONDS:g} s", count, f"at most {MOST_DISPATCHES}")
        return obstacle

    def speed(self, profile: DeviceProfile) -> Speed:
        speed = SPEED[_unit(profile)]
        return replace(speed, share=CPU_SHARE) if profile.device_type is DeviceType.CPU else speed

    def unit(self, profile: DeviceProfile) -> str:
        return UNITS[_unit(profile)]
