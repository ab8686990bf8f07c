"""The tiles of a product by vectors of K: what a kernel can have on a device, and what a convolution does by a tile."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, TypeVar

from dmlvk import quirks
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError, shown
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.quantized_linear_convolution.estimate import (
    FETCHES_OF_A_BYTE,
    FETCHES_OF_A_GROUP,
    STORES_OF_A_BYTE,
    ProductCost,
)
from dmlvk.planning.quantized_linear_convolution.packing import ChannelWords, FilterPacking
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle
from dmlvk.planning.quantized_linear_convolution.product import ProductShape
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, has_groups, packs_channels

KERNEL = "quantized_linear_convolution/matrix"
KERNEL_OF_FEW_REGISTERS = "quantized_linear_convolution/matrix_few_registers"
PACK_FILTER_KERNEL = "quantized_linear_convolution/matrix_pack_filter"

VECTOR_SIZE = 16
# Ways to read the input. kernels/quantized_linear_convolution/matrix.glsl uses the same numbers.
WORDS, VECTORS, PLANES, BYTES = range(4)
# Each row of shared memory is padded with this number of vectors.
ROW_PADDING = 1
# A tile of as many outputs takes many registers: a multiprocessor has room for two, not for three.
LARGE_TILE = 128 * 128
# Pixels that are fetched together if the input is read by planes.
PLANE_PIXELS = 4
# Four matrices lie side by side if bytes are packed into words.
PACKED_MATRICES = 4
# A workgroup computes its channels' parameters once for several tiles, if that leaves no part of a GPU idle. Large
# tiles take longer and lose by it.
LARGEST_TURNS = 8
# Workgroups of small tiles for which a processor has registers: 65,536 of them, and 128 invocations take 168 each.
WORKGROUPS_OF_A_PROCESSOR = 3
# Dispatches of at most this many operations share pipelines. On an H200 they take 9 us at most, of which constants save
# 1%, and in a network the next layer finds the kernel's code where it is. (ResNet-50 has 231 million operations in a
# layer of one picture.)
SHORT_OPERATIONS = 280_000_000
# What the sides of all tiles are multiples of.
SIDE_UNIT = 8
# No side of a tile is 0 or more than a few thousand. A name can come from any source, a damaged file included.
SIDE = "([1-9][0-9]{0,5})"
NAME = re.compile(rf"{SIDE}x{SIDE}x{SIDE}:{SIDE}(?:x{SIDE})?(?:\*([0-9]{{1,6}}))?")


def workgroups_at_a_time(profile: DeviceProfile) -> int:
    """The workgroups of small tiles that a device runs side by side, as the planner counts them."""
    is_cpu = profile.device_type is DeviceType.CPU
    return 1 if is_cpu else int(WORKGROUPS_OF_A_PROCESSOR * rates_of(profile).processors)


class Block(NamedTuple):
    """The outputs of one product of the unit that multiplies, m pixels by n channels, and its bytes of K."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class Tile:
    """How the work is cut."""

    pixels: int
    channels: int
    step: int  # bytes of K from one barrier to the next
    # Those of a subgroup, or of an invocation where each multiplies by itself.
    own_pixels: int
    own_channels: int
    turns: int = 0  # tiles of pixels that a workgroup computes one after the other; 0 if the planner chooses
    parts: int = 1  # workgroups that share the K of a tile
    splits: int = 1  # subgroups of a workgroup that share its K; each has a step of its own at a time

    @property
    def owners(self) -> int:
        """Subgroups, or invocations, of a workgroup."""
        return self.pixels // self.own_pixels * (self.channels // self.own_channels) * self.splits

    def count(self, geometry: ConvolutionGeometry) -> int:
        """How many of these tiles a convolution has."""
        pixels = geometry.batch * math.prod(geometry.output_size)
        channels = -(-geometry.output_channels_per_group // self.channels)
        return geometry.group_count * channels * -(-pixels // self.pixels)

    @property
    def shares(self) -> int:
        """Into how many shares the K of a tile is cut."""
        return max(1, self.parts) * self.splits

    @property
    def part_sums_size(self) -> int:
        """Bytes in which the parts of one tile's K add their sums: see parts.glsl."""
        return 4 * (self.pixels * self.channels + self.pixels + 4)

    def fetches_planes(self, lanes: int) -> bool:
        """Whether an invocation fetches whole groups of four pixels in each step, which planes require."""
        fetches = self.pixels * (self.step // VECTOR_SIZE) * self.splits // (self.owners * lanes)
        return fetches % PLANE_PIXELS == 0


@dataclass(frozen=True)
class TileRules:
    """The tiles that a kernel can have on a device: each limit once, for all kernels."""

    profile: DeviceProfile
    kernel: str
    in_words: bool  # whether a word of the output holds four channels; otherwise it holds four pixels
    # Invocations that own outputs together: a subgroup, or 1.
    lanes: int
    units: tuple[int, int]  # what an owner's pixels and channels are multiples of
    block: Block
    step_unit: int  # what the bytes of a step are a multiple of
    held: tuple[int, int]  # steps of the pixels and of the channels for which shared memory has room at a time

    # The name of one of its tiles, for a message.
    example: ClassVar[str]
    # Whether subgroups share the K of a tile, whether a workgroup may compute several tiles, whether its invocations
    # fetch as many vectors of pixels each in a step, and whether the kernel has push constants for all sizes.
    splits_k: ClassVar[bool] = False
    takes_turns: ClassVar[bool] = False
    fetches_pixels_evenly: ClassVar[bool] = True
    pushes_sizes: ClassVar[bool] = True
    # Bytes of shared memory beside operands and what is held for each pixel and channel.
    rest: ClassVar[int] = 2 * VECTOR_SIZE

    @property
    def largest_memory(self) -> int:
        """The bytes of shared memory that a workgroup may take."""
        return device_traits.tile_memory(self.profile)

    @property
    def bytes_of_k(self) -> int:
        """Bytes of shared memory for each byte of K: a block of fewer bytes than a vector has a vector for each row."""
        return max(1, VECTOR_SIZE // self.block.k)

    def block_of(self, tile: Tile) -> Block:
        """The block of outputs that an owner stores at a time."""
        return self.block

    def staged(self, tile: Tile) -> int:
        """Positions of the input that a step has in shared memory."""
        return tile.pixels

    def exchanged(self, tile: Tile) -> int:
        """Vectors of shared memory through which sums reach the invocations that store them."""
        lines, words = matrix_outputs(self.kernel, self.block, self.in_words)
        if not self.in_words:
            lines, words = words, lines
        return tile.owners * max(lines * (words // 4 + 1), self.block.m * self.block.n // 4)

    def shared_memory(self, tile: Tile) -> int:
        """Bytes of shared memory that the kernel declares for a tile."""
        row = self.bytes_of_k * tile.step // VECTOR_SIZE + ROW_PADDING
        operands = (self.held[0] * self.staged(tile) + self.held[1] * tile.channels) * row
        largest = max(operands, self.exchanged(tile))
        return VECTOR_SIZE * tile.splits * largest + 8 * tile.pixels + 12 * tile.channels + self.rest

    def obstacle(self, tile: Tile) -> Obstacle | None:
        """Why the kernel cannot have a tile; None if it can."""
        owner = "a subgroup" if self.lanes > 1 else "an invocation"
        own, limits = (tile.own_pixels, tile.own_channels), self.profile.limits
        sizes = (tile.pixels, tile.channels, tile.step, *own)
        if any(size & (size - 1) for size in sizes):
            return Obstacle("a tile's sizes", sizes, "powers of two")
        if tile.pixels % own[0] or tile.channels % own[1]:
            return Obstacle(f"outputs of {owner}", own, "what divides the tile")
        if own[0] % self.units[0] or own[1] % self.units[1]:
            return Obstacle(f"outputs of {owner}", own, f"multiples of {self.units}")
        if tile.step % self.step_unit:
            return Obstacle("bytes of a step", tile.step, f"multiples of {self.step_unit}")
        if tile.pixels % SIDE_UNIT or tile.channels % SIDE_UNIT:
            return Obstacle("sides of a tile", sizes[:2], f"multiples of {SIDE_UNIT}")
        invocations = tile.owners * self.lanes
        largest = min(limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])
        if invocations > largest:
            return Obstacle("invocations of a workgroup", invocations, f"at most {largest}")
        vectors, fetchers = tile.step // VECTOR_SIZE, self.lanes if self.splits_k else invocations
        uneven = tile.channels * vectors % fetchers
        if self.fetches_pixels_evenly:
            uneven = uneven or fetchers % vectors or tile.pixels * vectors % fetchers
        if uneven:
            return Obstacle("invocations that fetch a step", fetchers, "as many vectors of it for each")
        if (size := self.shared_memory(tile)) > self.largest_memory:
            return Obstacle("bytes of shared memory", size, f"at most {self.largest_memory}")
        return None

    def possible(self, tiles: Iterable[Tile]) -> list[Tile]:
        """The tiles that the kernel can have."""
        return [tile for tile in tiles if self.obstacle(tile) is None]

    def name(self, tile: Tile) -> str:
        """How users write a tile: "128x128x64:64x32", or "32x32x64:8" where subgroups share K."""
        own = f"{tile.splits}" if self.splits_k else f"{tile.own_pixels}x{tile.own_channels}"
        return f"{tile.pixels}x{tile.channels}x{tile.step}:{own}"

    def named(self, name: str) -> Tile:
        """The tile with a name: pixels, channels and bytes of a step, then an owner's pixels and channels.

        "*4" after it is four such tiles of pixels a workgroup.

        Raises PathError: the name is not a tile's, or the kernel cannot have the tile on this device.
        """
        match = NAME.fullmatch(name)
        if match is None or (match[5] is None) != self.splits_k or (match[6] is not None and not self.takes_turns):
            raise PathError(f"{OPERATOR}: a tile is named like {self.example!r}, not {shown(name)}")
        pixels, channels, step, first, second, turns = (int(number or 0) for number in match.groups())
        if self.splits_k:
            tile = Tile(pixels, channels, step, pixels, channels, splits=first)
        else:
            tile = Tile(pixels, channels, step, first, second, turns)
        obstacle = self.obstacle(tile)
        if obstacle is not None:
            raise PathError(f"tile {shown(name)} is not possible on {self.profile.name}: {obstacle}")
        return tile


AnyTiledShape = TypeVar("AnyTiledShape", bound="TiledShape")


@dataclass(frozen=True)
class TiledShape(ProductShape):
    """A convolution by tiles of a kernel, with the kernel's rules."""

    rules: TileRules
    tile: Tile

    # Whether the kernel can read an input in place whose channels are words, but not vectors; and any other input.
    reads_words: ClassVar[bool] = True
    reads_bytes: ClassVar[bool] = False
    # Whether the kernel can read a packed input, if it can neither be read in place nor be converted to NHWC.
    packs_input: ClassVar[bool] = True
    # Whether the kernel fetches the channels of a group, a part of a line of memory, for each tap.
    fetches_parts_of_lines: ClassVar[bool] = True

    @classmethod
    def of(cls: type[AnyTiledShape], rules: TileRules, tile: Tile, geometry: ProductGeometry) -> AnyTiledShape:
        """The shape of a kernel's work with a tile."""
        size = tile.owners * rules.lanes
        return cls(geometry, rules.kernel, size, tile.channels, 1, tile.pixels, True, True, rules, tile)

    @property
    def block(self) -> Block:
        """The block of outputs that the kernel stores at a time."""
        return self.rules.block_of(self.tile)

    @cached_property
    def runs(self) -> Runs:
        """How K lies in memory."""
        return Runs.of(self.geometry)

    @property
    def quads(self) -> int:
        return self.runs.quads

    @property
    def pixel_channels(self) -> int:
        """The channels of a pixel; 0 if they fill the vectors of a run."""
        channels = self.geometry.input_channels_per_group
        return channels if channels % VECTOR_SIZE or self.runs.are_rows_of_taps(self.geometry) else 0

    def counted_pixels(self, images: int, extents: tuple[int, int]) -> int:
        """The pixels that the kernel counts along its grid, for some images of a number of rows and columns."""
        return images * math.prod(extents)

    def input_pixels(self, images: int, extents: tuple[int, int]) -> int:
        """The pixels in whose order the kernel finds its input: as many as it computes, or more."""
        return self.counted_pixels(images, extents)

    @property
    def all_pixels(self) -> int:
        """Those of the whole convolution."""
        return self.input_pixels(self.geometry.batch, self.geometry.output_size)

    def shares_pipelines(self, operations: int) -> bool:
        """Whether sizes are push constants in a dispatch of so many operations."""
        if operations > SHORT_OPERATIONS or not self.rules.pushes_sizes:
            return False
        return not quirks.SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS.applies_to(self.rules.profile)

    def turns(self, grid: tuple[int, int, int]) -> int:
        """Tiles of pixels that a workgroup computes, where a grid of them is to be computed."""
        tile, (channels, pixels, groups) = self.tile, grid
        # The cores of a CPU share the workgroups: with several tiles each, there may be too few.
        is_long = tile.pixels * tile.channels >= LARGE_TILE or self.rules.profile.device_type is DeviceType.CPU
        if tile.turns or tile.parts > 1 or is_long or not self.rules.takes_turns:
            return tile.turns or 1

        def tiles_in_turn(turns: int) -> int:
            at_a_time = workgroups_at_a_time(self.rules.profile)
            return -(-channels * -(-pixels // turns) * groups // at_a_time) * turns

        return min(range(LARGEST_TURNS, 0, -1), key=tiles_in_turn)

    def more_constants(self, images: int, extents: tuple[int, int], fetch: int) -> dict[str, int]:
        """Specialization constants that only this kernel has, for a box of outputs."""
        return {}

    @property
    def steps(self) -> int:
        """The number of steps of K."""
        return -(-self.runs.size // self.tile.step)

    def cost(self, parameter_rounds: int = 0) -> ProductCost:
        """What the kernel does for the convolution."""
        geometry, tile = self.geometry, self.tile
        outputs = self.padded_outputs(self.all_pixels)
        workgroups = outputs // (tile.pixels * tile.channels) * max(1, tile.parts)
        moved = geometry.input_channels * math.prod(geometry.input_size)
        moved += geometry.output_channels * math.prod(geometry.output_size)
        single = FETCHES_OF_A_BYTE if self.reads_single_bytes else 1
        of_group = FETCHES_OF_A_GROUP if has_groups(geometry) and self.fetches_parts_of_lines else 1
        return ProductCost(
            workgroups=workgroups,
            products=2 * outputs * self.runs.size,
            fetched=single * of_group * workgroups * self.fetched_bytes,
            moved=float(geometry.batch * moved),
            # The subgroups that share K add their sums, each in the time of a last step.
            last_steps=outputs * ((STORES_OF_A_BYTE if is_ragged(geometry) else 1) + tile.splits - 1),
            waits=single * self.waits,
            parameter_rounds=parameter_rounds,
        )

    @property
    def steps_of_share(self) -> int:
        """The number of steps of K that a workgroup goes through."""
        return -(-self.steps // self.tile.shares)

    @property
    def fetched_bytes(self) -> int:
        """Bytes that a workgroup fetches."""
        tile = self.tile
        return self.steps_of_share * tile.splits * (tile.pixels + tile.channels) * tile.step

    @property
    def waits(self) -> float:
        """Loads that a workgroup waits for, one after the other: one in each step of K."""
        return self.steps_of_share

    @property
    def reads_single_bytes(self) -> bool:
        """Whether the kernel fetches its input byte by byte."""
        return False

    @cached_property
    def filter_packing(self) -> FilterPacking:
        """How the filter is packed: in whole steps of K."""
        runs, step = self.runs, self.tile.step // 4
        quads = runs.quads if runs.are_rows_of_taps(self.geometry) else 4 * runs.vectors
        sizes = {"STEP_WORDS": step, "RUN_WORDS": 4 * runs.vectors, "RUNS_W": runs.of_row, "QUADS": quads}
        sizes |= {"IN_ORDER": 1, "INTERLEAVED": self.interleaved}
        return FilterPacking(PACK_FILTER_KERNEL, self.steps * step, {}, sizes=sizes)

    @property
    def interleaved(self) -> int:
        """Of how many channels each of four matrices is whose channels are interleaved; 0 if none are."""
        return self.block.n if packs_channels(self.geometry) else 0


@dataclass(frozen=True)
class Runs:
    """How K lies in memory: in runs of contiguous words."""

    quads: int  # words of a pixel in the packed input
    words: int  # words of a run that the product uses
    vectors: int  # 16-byte vectors that hold a run
    of_row: int  # runs in a row of taps
    count: int  # runs of the whole filter

    @property
    def aligned(self) -> bool:
        """Whether every run begins at a multiple of 16 bytes."""
        return self.quads % 4 == 0

    @property
    def total(self) -> int:
        """Vectors of K."""
        return self.vectors * self.count

    @property
    def size(self) -> int:
        """Bytes of K, in whole vectors."""
        return self.total * VECTOR_SIZE

    def are_rows_of_taps(self, geometry: ConvolutionGeometry) -> bool:
        """Whether a run is a row of taps, any of which may lie outside the input."""
        return self.of_row < geometry.filter_size[1]

    @classmethod
    def of(cls, geometry: ConvolutionGeometry) -> Runs:
        """One run for each tap, or for each row of taps if that takes markedly fewer vectors."""
        quads = ChannelWords.of(geometry).quads
        height, width = geometry.filter_size
        vectors = -(-quads // 4)
        taps = cls(4 * vectors, 4 * vectors, vectors, width, height * width)
        rows = cls(quads, quads * width, -(-quads * width // 4), 1, height)
        # The gain has to outweigh loads by words instead of vectors, and the masks of the sums.
        if geometry.dilations[1] == 1 and 4 * rows.total <= 3 * taps.total:
            return rows
        return taps


def is_ragged(geometry: ConvolutionGeometry) -> bool:
    """Whether rows of channels, or planes, are no whole words, so that each output is stored by itself."""
    if packs_channels(geometry):
        return geometry.output_channels_per_group % 4 != 0
    return math.prod(geometry.output_size) % PLANE_PIXELS != 0


def matrix_outputs(kernel: str, block: Block, in_words: bool) -> tuple[int, int]:
    """The pixels and the channels of a block of sums.

    For words of four pixels, the kernel of few registers has channels in the rows of its sums.
    """
    return (block.n, block.m) if kernel == KERNEL_OF_FEW_REGISTERS and not in_words else (block.m, block.n)
