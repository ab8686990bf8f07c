"""What the path `split_k` is estimated to take with a tile."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk._common.rates import Rates
from dmlvk.planning.quantized_linear_convolution.matrix_shape import (
    MEMORY,
    VECTOR_SIZE,
    MatrixTile,
    Runs,
    uncached_bytes,
)
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, has_groups, joined_groups

# The most channels of a convolution that takes narrow tiles.
MOST_NARROW = 16

# What a dispatch takes on an H200, in dispatches and waits of its rates: 136 layers with 1, 8, 32 and 64 images in both
# layouts, most of these by several tiles, and 1,500 random layers. A step whose input is read by words waits for them
# too.
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
# First layers, whose sizes are constants, need this share of the time that all of that takes.
SHARE_OF_FIRST_LAYERS = 0.9
# How much more a byte of planes counts for each further image that a tile's pixels lie in.
ENDS_OF_PLANES = 0.226
# An output's last step, in the last steps of the fastest kernel; the part of it that outputs of a tile take which are
# never stored; and how many times that in planes and in rows of channels that are no whole words, which are stored byte
# by byte.
LAST_STEPS = 0.509
NOT_STORED = 0.673
RAGGED, RAGGED_CHANNELS = 4.02, 1.94


def is_read_as_bytes(geometry: ProductGeometry) -> bool:
    """Whether an input cannot be read as words, for its layout."""
    if geometry.input_strides[1] != 1 or geometry.input_channels_per_group % 4 != 0:
        return True
    return Runs.of(geometry).are_rows_of_taps(geometry)


def is_alone(geometry: ProductGeometry) -> bool:
    """Whether no other layer of a network is likely to be of this kind: it reads an image of few channels."""
    return joined_groups(geometry) == 1 and Runs.of(geometry).are_rows_of_taps(geometry)


@dataclass(frozen=True)
class Estimate:
    """Estimates of a convolution's dispatch, beside what holds for every tile.

    Attributes
    ----------
    rates : Rates
    geometry : ProductGeometry
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
    geometry: ProductGeometry
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
    def of(cls, rates: Rates, geometry: ProductGeometry) -> Estimate:
        runs, reads_bytes = Runs.of(geometry), is_read_as_bytes(geometry)
        times, times_of_wait, times_of_word = 0.0, 0.0, 1.0
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
        elif has_groups(geometry):
            is_narrow = geometry.output_channels_per_group <= MOST_NARROW
            times_of_word = TIMES_IN_GROUPS * (TIMES_IN_NARROW_GROUPS if is_narrow else 1)
        elif geometry.filter_size != (1, 1):
            times_of_word = TIMES_WITH_TAPS
        return cls(
            rates,
            geometry,
            runs.total * VECTOR_SIZE,
            not reads_bytes and geometry.input_channels_per_group % VECTOR_SIZE != 0,
            times_of_word,
            4 * runs.quads * math.prod(geometry.filter_size),
            times,
            times_of_wait,
            uncached_bytes(rates, geometry) / (MEMORY * rates.copy),
            0.0 if geometry.input_strides[1] == 1 else (1 - 1 / geometry.batch) / math.prod(geometry.output_size),
            SHARE_OF_FIRST_LAYERS if is_alone(geometry) else 1.0,
        )

    def steps(self, tile: MatrixTile) -> int:
        return -(-self.run_bytes // tile.step)

    def times_of_planes(self, tile: MatrixTile) -> float:
        """How often a byte of planes counts, because the pixels of a tile lie in several images."""
        return 1 + ENDS_OF_PLANES * tile.pixels * self.further_images

    def seconds(self, tile: MatrixTile) -> float:
        rates = self.rates
        workgroups = tile.count(self.geometry) * tile.parts
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
