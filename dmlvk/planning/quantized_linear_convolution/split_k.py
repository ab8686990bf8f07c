"""The path `split_k` of QUANTIZED_LINEAR_CONVOLUTION: the K of a tile is split over subgroups and workgroups."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, DeviceType
from dmlvk.errors import shown
from dmlvk.planning import device_traits
from dmlvk.planning.builder import Range
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.plan import PathError
from dmlvk.planning.quantized_linear_convolution.matrix import PARAMETER_WAITS, MatrixUnitsPath
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import BYTES, MatrixCutter
from dmlvk.planning.quantized_linear_convolution.matrix_shape import (
    MEMORY,
    ROW_PADDING,
    VECTOR_SIZE,
    MatrixShape,
    MatrixTile,
    Runs,
    is_ragged,
    packs_channels,
    uncached_bytes,
)
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import SIDE, matrix_of, obstacle_to_memory
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product import Speed
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, has_groups, joined_groups
from dmlvk.rates import Rates

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
# Convolutions of at most so many channels take the narrow tiles. Those of more than so many may take the wide ones, if
# K has more than so many bytes: in a single step they have nothing to save.
MOST_NARROW, MOST_NOT_WIDE, SHORT_K = 16, 32, 64
MOST_SPLITS = 8
# Parts add their sums in memory, which costs as much as about this number of steps.
MANY_STEPS = 24
LEAST_STEPS = 2
MOST_PARTS = 16

# What a dispatch takes on an H100, in dispatches and waits of its rates: 136 layers with 1, 8 and 64 images in both
# layouts, most of these by several tiles. A step whose input is read by words waits for them too.
DISPATCHES = 0.895
CUT_DISPATCHES = 0.6
STEP_WAITS = 0.337
WORD_WAITS = 0.527
SUBGROUP_WAITS = 0.0873
BYTES_OF_A_WAIT = 7070
SINGLE_BYTES_OF_A_WAIT = 1490
# One workgroup waits while others fetch, and memory moves what no cache holds: of the three times, to this power, the
# greatest counts most.
HIDING = 4.93
# The bytes that workgroups fetch while a copy moves one, all together and on the busiest multiprocessor; and how often
# a byte counts in long steps, which fetch whole lines.
FETCHES = 4.06
SINGLE_FETCHES = 1.48
TIMES_IN_LONG_STEPS = 0.929
# How often a byte of words counts in several groups, whose few channels are a part of a line, and how much more in
# narrow tiles, where they are a part of a sector; otherwise with several taps, which find it in a cache.
TIMES_IN_GROUPS, TIMES_IN_NARROW_GROUPS, TIMES_WITH_TAPS = 1.19, 1.51, 0.965
# Bytes that are read by themselves count as often as there are subgroups in a workgroup, to this power.
CROWDED = 0.0836
# Sums of subgroups that are added up while an output is scaled, rounded and stored.
SUMS = 1.21
# With more bytes in a step that are read by themselves, and a loop over steps, an invocation takes so many registers
# that a multiprocessor has room for half as many workgroups. Then each byte counts so often.
FEW_BYTES, TIMES_OF_MANY_BYTES = 1024, 1.33
# How often a byte counts that is read by itself: in rows of taps, where it looks for its tap and its channel; in those
# of a first layer, whose taps are words, if a row is longer than a vector; where a pixel's channels are no whole words,
# and how much more in rows of channels, where neighbours' bytes lie apart; in planes with strides, where they do too.
# In rows of a first layer, a byte is waited for so much longer.
TIMES_IN_ROWS_OF_TAPS, TIMES_IN_LONG_ROWS, TIMES_IN_PARTS_OF_WORDS, TIMES_WITH_STRIDES = 7.36, 4.56, 2.85, 1.22
TIMES_IN_ROWS_OF_PARTS = 1.42
TIMES_OF_FIRST_WAITS = 3.26
# With more taps than this the kernel compares each one's place with the input's sizes. Then a byte counts so often, and
# is waited for so much longer.
MOST_MARKED_TAPS = 32
TIMES_WITH_MANY_TAPS, WAITS_WITH_MANY_TAPS = 1.63, 4.85
# First layers need this share of the time that all of that takes. They were measured with their sizes as constants and
# without filter zero points, and the constants above before.
SHARE_OF_FIRST_LAYERS = 0.9
# How much more a byte of planes counts for each further image that a tile's pixels lie in.
ENDS_OF_PLANES = 0.226
# An output's last step, in the last steps of the fastest kernel; the part of it that outputs of a tile take which are
# never stored; and how many times that in planes and in rows of channels that are no whole words, which are stored byte
# by byte.
LAST_STEPS = 0.509
NOT_STORED = 0.673
RAGGED, RAGGED_CHANNELS = 4.02, 1.94


@dataclass(frozen=True)
class SplitKShape(MatrixShape):
    """A tile whose K is split over the subgroups of a workgroup."""

    @property
    def reads_bytes(self) -> bool:
        return True

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
    reads_bytes, channels = _is_read_as_bytes(geometry), geometry.output_channels_per_group
    if channels <= MOST_NARROW:
        return NARROW_SIZES_OF_BYTES if reads_bytes else NARROW_SIZES
    sizes, wide = (SIZES_OF_BYTES, WIDE_SIZES_OF_BYTES) if reads_bytes else (SIZES, WIDE_SIZES)
    is_short = Runs.of(geometry).total * VECTOR_SIZE <= SHORT_K
    return sizes if channels <= MOST_NOT_WIDE or is_short else (*sizes, *wide)


def _choose(profile: DeviceProfile, matrix: CooperativeMatrix, geometry: ProductGeometry) -> MatrixTile:
    estimate, in_words = _Estimate.of(rates_of(profile), geometry), packs_channels(geometry)
    tiles_of_splits = [
        replace(tile, splits=1 << exponent)
        for tile in tiles_for(profile, geometry)
        for exponent in reversed(range((min(MOST_SPLITS, estimate.steps(tile)) - 1).bit_length() + 1))
    ]
    tile = next(
        each
        for each in sorted(tiles_of_splits, key=estimate.seconds)
        if obstacle_to_tile(profile, matrix, each, in_words) is None
    )
    tiles, steps = estimate.tile_count(tile), -(-estimate.steps(tile) // tile.splits)
    room = min(profile.limits.max_storage_buffer_range, profile.segment_size) // 2
    if steps < MANY_STEPS or tiles * tile.part_sums_size > room:
        return tile
    parts = max(1, min(MOST_PARTS, steps // LEAST_STEPS, int(rates_of(profile).processors) // tiles))
    return replace(tile, parts=-(-steps // -(-steps // parts)))


def _is_read_as_bytes(geometry: ProductGeometry) -> bool:
    """Whether an input cannot be read as words, for its layout."""
    if geometry.input_strides[1] != 1 or geometry.input_channels_per_group % 4 != 0:
        return True
    return Runs.of(geometry).are_rows_of_taps(geometry)


def _is_alone(geometry: ProductGeometry) -> bool:
    """Whether no other layer of a network is likely to be of this kind: it reads an image of few channels."""
    return joined_groups(geometry) == 1 and Runs.of(geometry).are_rows_of_taps(geometry)


@dataclass(frozen=True)
class _Estimate:
    """Estimates of a convolution's dispatch, beside what holds for every tile.

    Attributes
    ----------
    rates : Rates
    groups, channels, pixels : int
        Groups, output channels of a group, and pixels of all images.
    run_bytes : int
        Bytes of K, in whole vectors.
    is_read_as_words : bool
        Whether the input is read by words, because its channels are no whole vectors.
    times_of_word : float
        How often each byte counts that is read as a part of a word.
    single_bytes : int
        Bytes of K that are read, each by itself if the input cannot be read as words.
    times_of_byte, times_of_wait : float
        How often each byte of the input counts that is read by itself, and how often as a wait; 0 if words are read.
    memory_seconds : float
        What the bytes take that no cache holds.
    further_images : float
        The images in which a tile's pixels lie beside the first one, for each pixel; 0 if the input is not in planes.
    share_of_work : float
        What the kernel needs of this estimate, without the dispatch; 1 but for first layers.
    """

    rates: Rates
    groups: int
    channels: int
    pixels: int
    run_bytes: int
    is_read_as_words: bool
    times_of_word: float
    single_bytes: int
    times_of_byte: float
    times_of_wait: float
    memory_seconds: float
    further_images: float
    share_of_work: float

    @classmethod
    def of(cls, rates: Rates, geometry: ProductGeometry) -> _Estimate:
        runs, reads_bytes = Runs.of(geometry), _is_read_as_bytes(geometry)
        times, times_of_wait, times_of_word = 0.0, 0.0, 1.0
        if not reads_bytes and has_groups(geometry):
            is_narrow = geometry.output_channels_per_group <= MOST_NARROW
            times_of_word = TIMES_IN_GROUPS * (TIMES_IN_NARROW_GROUPS if is_narrow else 1)
        elif not reads_bytes and geometry.filter_size != (1, 1):
            times_of_word = TIMES_WITH_TAPS
        if reads_bytes:
            times = times_of_wait = 1.0
            if runs.are_rows_of_taps(geometry):
                is_first_layer = runs.quads == 1 and joined_groups(geometry) == 1
                times = (1.0 if runs.vectors == 1 else TIMES_IN_LONG_ROWS) if is_first_layer else TIMES_IN_ROWS_OF_TAPS
                times_of_wait = times * (TIMES_OF_FIRST_WAITS if is_first_layer else 1)
            else:
                in_planes = geometry.input_strides[1] != 1
                if geometry.input_channels_per_group % 4:
                    times *= TIMES_IN_PARTS_OF_WORDS * (1 if in_planes else TIMES_IN_ROWS_OF_PARTS)
                times *= TIMES_WITH_STRIDES if in_planes and max(geometry.strides) > 1 else 1
                has_many_taps = math.prod(geometry.filter_size) > MOST_MARKED_TAPS
                times_of_wait = times * (WAITS_WITH_MANY_TAPS if has_many_taps else 1)
                times *= TIMES_WITH_MANY_TAPS if has_many_taps else 1
        return cls(
            rates,
            geometry.group_count,
            geometry.output_channels_per_group,
            geometry.batch * math.prod(geometry.output_size),
            runs.total * VECTOR_SIZE,
            not reads_bytes and geometry.input_channels_per_group % VECTOR_SIZE != 0,
            times_of_word,
            4 * runs.quads * math.prod(geometry.filter_size),
            times,
            times_of_wait,
            uncached_bytes(rates, geometry) / (MEMORY * rates.copy),
            0.0 if geometry.input_strides[1] == 1 else (1 - 1 / geometry.batch) / math.prod(geometry.output_size),
            SHARE_OF_FIRST_LAYERS if _is_alone(geometry) else 1.0,
        )

    def steps(self, tile: MatrixTile) -> int:
        return -(-self.run_bytes // tile.step)

    def tile_count(self, tile: MatrixTile) -> int:
        return self.groups * -(-self.channels // tile.channels) * -(-self.pixels // tile.pixels)

    def times_of_planes(self, tile: MatrixTile) -> float:
        """How often a byte of planes counts, because the pixels of a tile lie in several images."""
        return 1 + ENDS_OF_PLANES * tile.pixels * self.further_images

    def seconds(self, tile: MatrixTile) -> float:
        rates = self.rates
        workgroups = self.tile_count(tile) * tile.parts
        steps = -(-self.steps(tile) // tile.shares)
        subgroup_bytes = steps * tile.step * (tile.pixels + tile.channels)
        # The subgroup with the most to read is waited for.
        most_single_bytes = tile.pixels * min(steps * tile.step, self.single_bytes)
        single_bytes = tile.pixels * self.single_bytes / tile.shares
        # The workgroups that there would be if each processor had as many as the busiest one.
        rounded = math.ceil(workgroups / rates.processors) * rates.processors
        dispatches = DISPATCHES + (CUT_DISPATCHES if tile.parts > 1 else 0)
        waits = (
            (STEP_WAITS + WORD_WAITS * self.is_read_as_words) * steps
            + subgroup_bytes / BYTES_OF_A_WAIT
            + self.times_of_wait * most_single_bytes / SINGLE_BYTES_OF_A_WAIT
            + SUBGROUP_WAITS * workgroups * tile.splits / rates.processors
        )
        times_of_word = self.times_of_word * (TIMES_IN_LONG_STEPS if tile.step > 64 else 1)
        fetched = (workgroups + rounded) * subgroup_bytes * times_of_word / FETCHES
        times_of_byte = self.times_of_byte * self.times_of_planes(tile)
        if steps > 1 and tile.pixels * tile.step > FEW_BYTES:
            times_of_byte *= TIMES_OF_MANY_BYTES
        fetched += rounded * times_of_byte * single_bytes * tile.splits**CROWDED / SINGLE_FETCHES
        sums = rounded * tile.splits * tile.pixels * tile.channels
        busy = tile.splits * fetched / rates.copy + sums / (SUMS * rates.last_step)
        work = ((waits * rates.wait) ** HIDING + busy**HIDING + self.memory_seconds**HIDING) ** (1 / HIDING)
        return dispatches * rates.dispatch + self.share_of_work * work


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

    def turns(self, box: tuple[Range, ...]) -> int:
        return 1

    def shares_pipelines(self, box: tuple[Range, ...]) -> bool:
        # With constants a first layer is faster: 3 -> 32 224x224, 8 images, takes 7.2 us and not 9.9 (H100).
        return not _is_alone(self.geometry) and super().shares_pipelines(box)

    @property
    def _has_rows_of_taps(self) -> bool:
        """Whether a run of K is a row of taps, whose pixels have few channels each."""
        return self.fetch == BYTES and self.shape.runs.are_rows_of_taps(self.geometry)

    def more_constants(self, box: tuple[Range, ...]) -> dict[str, int]:
        runs = self.shape.runs
        return {
            "SUBGROUPS": self.shape.tile.splits,
            "PART_STEPS": int(self.part_steps == 1),
            "PIXEL_BYTES": 4 * runs.quads if self._has_rows_of_taps else 0,
            "PIXEL_CHANNELS": self.pixel_channels(runs) if self.fetch == BYTES else 0,
        }

    def _fetches_whole_steps(self, box: tuple[Range, ...]) -> bool:
        steps = self.part_steps * self.shape.tile.shares
        return steps == self.shape.steps(self.shape.runs) and super()._fetches_whole_steps(box)


class SplitKPath(MatrixUnitsPath[SplitKShape]):
    """As `matrix`, for convolutions of few tiles: the subgroups of a workgroup share the K of its tile, and so may
    several workgroups. On devices as for `matrix` whose subgroups have 32 invocations.
    """

    name = "split_k"
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

    def with_parts(self, tile: SplitKShape, parts: int) -> SplitKShape:
        return replace(tile, tile=replace(tile.tile, parts=parts))

    def kernel_seconds(self, problem: Problem, tile: SplitKShape) -> float:
        rates, cut = rates_of(problem.profile), tile.tile
        outputs = tile.padded_outputs(self.pixels(tile.geometry))
        workgroups = outputs // (cut.pixels * cut.channels) * cut.parts
        waits = 0.0 if problem.has_owned_constants else PARAMETER_WAITS * max(1.0, workgroups / rates.processors)
        products = 2 * outputs * tile.runs.total * VECTOR_SIZE
        geometry = tile.geometry
        stored = geometry.batch * geometry.output_channels * math.prod(geometry.output_size)
        last_steps = stored + NOT_STORED * (outputs - stored)
        estimate = _Estimate.of(rates, geometry)
        if is_ragged(geometry):
            last_steps *= RAGGED_CHANNELS if packs_channels(geometry) else RAGGED * estimate.times_of_planes(cut)
        return (
            estimate.seconds(cut)
            + waits * rates.wait
            + products / rates.matrix
            + last_steps * LAST_STEPS / rates.last_step
        )

    def speed(self, profile: DeviceProfile) -> Speed:
        raise AssertionError("its estimate is its own")
