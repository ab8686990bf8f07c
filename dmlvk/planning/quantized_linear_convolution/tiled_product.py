"""The product of a QUANTIZED_LINEAR_CONVOLUTION by vectors of K: the tiles that a kernel can have on a device, what a
convolution does by a tile and how its input is read, the dispatches, and the paths of such products.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from dmlvk import quirks
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError, shown
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import DISPATCH_SECONDS, Box, DispatchBuilder, Range, View, by_dimension, sizes_of, whole
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.division import reciprocals
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.last_step import HAS_TABLE, TABLE_SIZE
from dmlvk.planning.plan import CLEAN, Access, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution import estimate, packing
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, ObstacleError, Problem
from dmlvk.planning.quantized_linear_convolution.product import (
    COLUMN,
    GROUP,
    IMAGE,
    ROW,
    ProductCutter,
    ProductPath,
    ProductShape,
    product_dispatches,
)
from dmlvk.planning.quantized_linear_convolution.product_geometry import (
    ProductGeometry,
    has_whole_planes,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.stages import Stages, part_limit

KERNEL = "quantized_linear_convolution/matrix"
KERNEL_OF_FEW_REGISTERS = "quantized_linear_convolution/matrix_few_registers"

VECTOR_SIZE = 16
# Ways to read the input. kernels/quantized_linear_convolution/matrix.glsl uses the same numbers.
WORDS, VECTORS, PLANES, BYTES = range(4)
# Each row of shared memory is padded with this number of vectors.
ROW_PADDING = 1
# Outputs of a tile for which a processor has registers twice, not three times.
LARGE_TILE = 128 * 128
# Pixels that are fetched together if the input is read by planes.
PLANE_PIXELS = 4
# Four matrices lie side by side if bytes are packed into words.
PACKED_MATRICES = 4
# Tiles for which a workgroup computes its channels' parameters once, if that leaves no part of a GPU idle.
LARGEST_TURNS = 8
# Parts of K have two steps or more, and all run at a time.
LEAST_STEPS, MOST_PARTS = 2, 16
# Workgroups of small tiles for which a processor has registers: 65,536 of them, and 128 invocations take 168 each.
WORKGROUPS_OF_A_PROCESSOR = 3
# Operations of a dispatch that shares pipelines: as many as any layer of ResNet-50 has for one picture, and a few more.
SHORT_OPERATIONS = 280_000_000
# What the sides of all tiles are multiples of.
SIDE_UNIT = 8
# A name can come from any source, a damaged file included.
SIDE = "([1-9][0-9]{0,5})"
NAME = re.compile(rf"{SIDE}x{SIDE}x{SIDE}:{SIDE}(?:x{SIDE})?(?:\*([0-9]{{1,6}}))?")
# With so few steps of K the kernel has no loop over them.
UNROLLED_STEPS = 2
# The kernels' push constants; Vulkan guarantees 128 bytes, and all known devices with matrices have 256.
PUSH_CONSTANTS_SIZE = 192
# The bytes in which places of the input are counted, by how it is read.
UNITS = {WORDS: 4, VECTORS: VECTOR_SIZE, PLANES: 4, BYTES: 1}
# The sums of an invocation in small tiles.
SUMS_OF_SMALL_TILES = 64


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
    def is_large(self) -> bool:
        return self.pixels * self.channels >= LARGE_TILE

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
    def unit(self) -> str:
        """The unit that multiplies, by its name among the `Rates`."""
        return "matrix"

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
        strips = tile.pixels * tile.channels // (PACKED_MATRICES * self.block.m * self.block.n)
        strip = max(lines * (words // 4 + 1), self.block.m * self.block.n // 4)
        return strips * strip + tile.pixels * tile.channels // VECTOR_SIZE  # and as many vectors as are added to them

    def shared_memory(self, tile: Tile) -> int:
        """Bytes of shared memory that the kernel declares for a tile."""
        row = self.bytes_of_k * tile.step // VECTOR_SIZE + ROW_PADDING
        operands = (self.held[0] * self.staged(tile) + self.held[1] * tile.channels) * row
        largest = max(operands, self.exchanged(tile))
        return VECTOR_SIZE * tile.splits * largest + 8 * tile.pixels + 12 * tile.channels + TABLE_SIZE + self.rest

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

    def possible(self, tiles: Iterable[Tile]) -> Iterator[Tile]:
        """The tiles that the kernel can have."""
        return (tile for tile in tiles if self.obstacle(tile) is None)

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
        size = tile.owners * rules.lanes
        return cls(geometry, rules.kernel, size, tile.channels, 1, tile.pixels, True, True, rules, tile)

    def with_tile(self: AnyTiledShape, tile: Tile) -> AnyTiledShape:
        """The same work by another tile."""
        return self.of(self.rules, tile, self.geometry)

    @property
    def block(self) -> Block:
        return self.rules.block_of(self.tile)

    @cached_property
    def runs(self) -> Runs:
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
        is_long = tile.is_large or self.rules.profile.device_type is DeviceType.CPU
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
        return -(-self.runs.size // self.tile.step)

    def cost(self, parameter_rounds: int = 0) -> estimate.ProductCost:
        """What the kernel does for the convolution."""
        geometry, tile = self.geometry, self.tile
        outputs = self.padded_outputs(self.all_pixels)
        workgroups = outputs // (tile.pixels * tile.channels) * tile.parts
        single = estimate.FETCHES_OF_A_BYTE if self.reads_single_bytes else 1
        has_groups = geometry.group_count * geometry.joined > 1
        of_group = self.fetches_of_a_group if has_groups and self.fetches_parts_of_lines else 1
        return estimate.ProductCost(
            workgroups=workgroups,
            products=2 * outputs * self.runs.size,
            fetched=single * of_group * workgroups * self.fetched_bytes,
            moved=float(math.prod(geometry.input_sizes) + math.prod(geometry.output_sizes)),
            # The subgroups that share K add their sums, each in the time of a last step.
            last_steps=outputs * ((estimate.STORES_OF_A_BYTE if is_ragged_output(geometry) else 1) + tile.splits - 1),
            waits=single * self.waits,
            parameter_rounds=parameter_rounds,
        )

    @property
    def fetches_of_a_group(self) -> float:
        """Bytes fetched for each of a group's channels. Where they are few, the sector has others of their pixel."""
        is_in_place = self.geometry.input_strides[1] == 1
        channels = self.geometry.input_channels_per_group if is_in_place else estimate.SECTOR_SIZE
        return estimate.FETCHES_OF_A_GROUP * max(1, estimate.SECTOR_SIZE / channels)

    @property
    def steps_of_share(self) -> int:
        """The number of steps of K that a workgroup goes through."""
        return -(-self.steps // (self.tile.parts * self.tile.splits))

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
    def packed_filter(self) -> packing.PackedFilter:
        """The filter in whole steps of K."""
        runs, step = self.runs, self.tile.step // 4
        quads = runs.quads if runs.are_rows_of_taps(self.geometry) else 4 * runs.vectors
        layout = {"step_words": step, "run_words": 4 * runs.vectors, "runs_w": runs.of_row, "quads": quads}
        layout |= {"in_order": 1, "interleaved": self.interleaved}
        groups, of_group = self.geometry.group_count, self.geometry.output_channels_per_group
        return packing.PackedFilter(groups, of_group, self.tile.channels, self.steps * step, layout)

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
        quads = packing.quads_of(geometry)
        height, width = geometry.filter_size
        vectors = -(-quads // 4)
        taps = cls(4 * vectors, 4 * vectors, vectors, width, height * width)
        rows = cls(quads, quads * width, -(-quads * width // 4), 1, height)
        # The gain has to outweigh loads by words instead of vectors, and the masks of the sums.
        if geometry.dilations[1] == 1 and 4 * rows.total <= 3 * taps.total:
            return rows
        return taps


def in_parts(tile: Tile, profile: DeviceProfile, geometry: ProductGeometry, many_steps: int, places: int) -> Tile:
    """The tile with its K cut for several workgroups, if it has many steps and there are places for these workgroups.

    No part is left without a step. The parts' sums take at most half of what a window shows.
    """
    tiles, steps = tile.count(geometry), -(-Runs.of(geometry).size // (tile.step * tile.splits))
    room = min(profile.limits.max_storage_buffer_range, profile.segment_size) // 2
    if steps < many_steps or tiles * tile.part_sums_size > room:
        return tile
    parts = max(1, min(MOST_PARTS, steps // LEAST_STEPS, places // tiles))
    return replace(tile, parts=-(-steps // -(-steps // parts)))


def is_ragged_output(geometry: ConvolutionGeometry) -> bool:
    """Whether rows of channels, or planes, are no whole words, so that each output is stored by itself."""
    if packs_channels(geometry):
        return geometry.output_channels_per_group % 4 != 0
    return math.prod(geometry.output_size) % PLANE_PIXELS != 0


def matrix_outputs(kernel: str, block: Block, in_words: bool) -> tuple[int, int]:
    """The pixels and the channels of a block of sums.

    For words of four pixels, the kernel of few registers has channels in the rows of its sums.
    """
    return (block.n, block.m) if kernel == KERNEL_OF_FEW_REGISTERS and not in_words else (block.m, block.n)


def fetch_in_place(operands: ConvolutionOperands, shape: TiledShape, longest_seconds: float) -> int | None:
    """How the kernel can read the input in place; None if the input has to be packed first.

    Words need runs of one tap each: a row of taps may reach over the border. Planes stay whole, but larger work is cut.
    `longest_seconds` are those of the whole convolution.
    """
    builder, geometry, source, output = operands.builder, shape.geometry, operands.input, operands.output
    if not builder.shows(source, operands.whole_input):
        return None
    channels = geometry.input_channels_per_group
    places = (source.strides[0], *source.strides[2:], source.start)
    if source.strides[1] == 1 and not shape.runs.are_rows_of_taps(geometry):
        if not any(number % VECTOR_SIZE for number in (channels, *places)):
            return VECTORS
        if shape.reads_words and not any(number % 4 for number in (channels, *places)):
            return WORDS
    if shape.reads_bytes:
        return BYTES
    pixels = shape.all_pixels
    of_plane = shape.outputs_of_panels(1, 1, pixels // geometry.batch) / shape.padded_outputs(pixels)
    if (
        channels % VECTOR_SIZE == 0
        and has_whole_planes(geometry)
        and geometry.input_size[0] * geometry.input_size[1] % 4 == 0
        and source.strides[2:] == (geometry.input_size[1], 1)
        and not any(stride % 4 for stride in (*source.strides[:2], source.start))
        and shape.tile.fetches_planes(shape.rules.lanes)
        and builder.shows(output, operands.whole_output)
        and longest_seconds * of_plane <= DISPATCH_SECONDS
        and -(-math.prod(geometry.output_size) // shape.pixels) <= GUARANTEED_WORKGROUP_COUNT
    ):
        return PLANES
    return None


@dataclass(frozen=True)
class TiledCutter(ProductCutter[AnyTiledShape], Generic[AnyTiledShape]):
    """One part's product on matrix units."""

    # How the input is read: WORDS, VECTORS, PLANES or BYTES.
    fetch: int
    source: View | None = None  # the input, if it is read in place

    def run_words(self, runs: Runs) -> int:
        """Words of a run; only runs in words may end inside a vector."""
        if self.fetch == WORDS and self.source is not None:
            return self.geometry.input_channels_per_group // 4
        return runs.words if self.fetch == WORDS or (self.fetch == BYTES and self.shape.pixel_channels) else 4

    def parameters_fit(self, box: Box) -> bool:
        return True  # parameters that do not fit were gathered before

    def pixels(self, box: Box) -> int:
        return self.shape.counted_pixels(*_images(box))

    def turns(self, box: Box) -> int:
        return self.shape.turns(super().grid(box))

    def grid(self, box: Box) -> tuple[int, int, int]:
        channels, pixels, groups = super().grid(box)
        return channels, -(-pixels // self.turns(box)), groups * self.shape.tile.parts

    def dispatch(self, box: Box) -> Dispatch:
        geometry, shape = self.geometry, self.shape
        tile, runs, extents = shape.tile, shape.runs, sizes_of(box)
        corner = self.operands.corner(self.written(box), self.operands.all_taps)
        dispatch = DispatchBuilder(shape.kernel)
        strides, channel_stride = self._input_window(dispatch, box, corner)
        self.show_filter(dispatch, box, VECTOR_SIZE)
        self.show_output(dispatch, box)
        self.operands.parameters.bind(dispatch, self.channels(box))
        self._part_sums_window(dispatch, box)
        dispatch.push(pixels=shape.input_pixels(*_images(box)), first_row=corner[2], first_column=corner[3])
        sizes = {
            "RUN": runs.vectors,
            **by_dimension("STRIDE", "HW", geometry.strides),
            **by_dimension("DILATION", "HW", geometry.dilations),
            "VECTORS_OF_K": runs.total,
            "ROWS": extents[ROW],
            "COLUMNS": extents[COLUMN],
            "INPUT_STRIDE_N": strides[0],
            "INPUT_STRIDE_GROUP": strides[1],
            "INPUT_STRIDE_H": strides[2] * geometry.strides[0],
            "INPUT_STRIDE_W": strides[3] * geometry.strides[1],
            "TAP_STRIDE_H": strides[2] * geometry.dilations[0],
            "TAP_STRIDE_W": strides[3] * geometry.dilations[1],
            "CHANNEL_STRIDE": channel_stride,
            **by_dimension("OUTPUT_STRIDE", "NCHW", self.operands.output.strides),
            "ROW_LIMIT": geometry.input_size[0],
            "COLUMN_LIMIT": geometry.input_size[1],
            "TURNS": self.turns(box),
            "PARTS": tile.parts,
        }
        if shape.rules.pushes_sizes:
            dispatch.push(part_steps=shape.steps_of_share, **size_push_constants(sizes))
        unit_stored = self._store_unit(box, self.stored_in_panels(box))
        constants = {
            **self._constants(tile, runs),
            "WHOLE_STEPS": int(self._fetches_whole_steps(box)),
            "STORE_UNIT": unit_stored,
            **self.operands.parameters.constants,
            **size_constants(sizes, shape.shares_pipelines(self.operations(box))),
            "PREPARED": int(self.packed_filter.rows_after > 1),
            HAS_TABLE: 0,
            "STORE_MATRICES": int(unit_stored == VECTOR_SIZE and self._stores_matrices(extents)),
            "EVEN_INPUT": int(self._reads_evenly(extents, strides)),
            "EVEN_OUTPUT": int(_is_even(extents, self.operands.output.strides)),
            **shape.more_constants(*_images(box), self.fetch),
        }
        return dispatch.finish(
            constants,
            self.grid(box),
            seconds=self.seconds(box),
            bytes_moved=self.bytes_moved(box),
            operations=self.operations(box),
            subgroup_size=shape.rules.lanes if shape.rules.lanes > 1 else 0,
        )

    def _input_window(self, dispatch: DispatchBuilder, box: Box, corner: Sequence[int]) -> tuple[list[int], int]:
        """Bind the input under a box, in place or packed. Returns its strides and a channel's, in units of a read."""
        geometry, part, runs = self.geometry, self.part, self.shape.runs
        if self.source is not None:
            unit, strides = UNITS[self.fetch], list(self.source.strides)
            channel_stride = strides[1]
            strides[1] *= geometry.input_channels_per_group
            input_bounds = self.source.bounds(self.operands.whole_input)
            address = self.source.address(corner)
        else:
            unit, channel_stride = VECTOR_SIZE if runs.aligned else 4, 1
            strides = [4 * stride for k, stride in enumerate(part.strides) if k != 2]
            # The last run of a pixel is read in whole vectors.
            input_bounds = (part.start, part.start + part.size + (0 if runs.aligned else VECTOR_SIZE))
            address = part.place(geometry, *(box[dimension][0] for dimension in (IMAGE, GROUP, ROW, COLUMN)))
        dispatch.window(part.tensor, input_bounds, address, unit, "input_start")
        return [stride // unit for stride in strides], channel_stride // unit

    def _part_sums_window(self, dispatch: DispatchBuilder, box: Box) -> None:
        """Bind the sums of the parts of K, if there are several."""
        tile = self.shape.tile
        if tile.parts > 1:
            size = math.prod(super().grid(box)) * tile.part_sums_size
            start = self.operands.builder.clean.allocate(size)
            if not self.operands.builder.fits(CLEAN, (start, start + size)):
                raise ObstacleError(Obstacle("bytes of the sums of parts of K", size, "at most a window's"))
            dispatch.window(CLEAN, (start, start + size), start, 4, "part_sums_start", Access.WRITE)
        else:
            dispatch.unread_window(dispatch.windows[1], "part_sums_start")

    def _constants(self, tile: Tile, runs: Runs) -> dict[str, int]:
        geometry, shape, parameters = self.geometry, self.shape, self.operands.parameters
        return {
            LOCAL_SIZE_X: shape.local_size,
            "OUTPUT_UNSIGNED": int(parameters.output_unsigned),
            "STORE_CHANNELS": int(packs_channels(geometry)),
            "FLIP": packing.UNSIGNED_FLIP * 0x01010101 if self.source is not None and parameters.input_unsigned else 0,
            "CHECK_BORDER": int(self._checks_border()),
            "FETCH": self.fetch,
            "MATRIX_M": shape.block.m,
            "MATRIX_N": shape.block.n,
            "MATRIX_K": shape.block.k,
            "LANES": shape.rules.lanes,
            "TILE_PIXELS": tile.pixels,
            "TILE_CHANNELS": tile.channels,
            "SUBGROUP_PIXELS": tile.own_pixels,
            "SUBGROUP_CHANNELS": tile.own_channels,
            "STEP": tile.step // VECTOR_SIZE,
            "RUN_WORDS": self.run_words(runs),
            "RUNS_W": runs.of_row,
            "TAPS": runs.count,
            "FEW_STEPS": steps if (steps := shape.steps) <= UNROLLED_STEPS else 0,
            "FILTER_ZERO_POINT": int(self._may_have_filter_zero_points()),
            "PADDING": ROW_PADDING,
        }

    def _may_have_filter_zero_points(self) -> bool:
        """Whether the kernel has the code that looks for filter zero points, and subtracts what they add."""
        tile = self.shape.tile
        sums = tile.own_pixels * tile.own_channels // self.shape.rules.lanes
        is_small = self.shape.kernel == KERNEL and sums == SUMS_OF_SMALL_TILES
        return self.operands.parameters.has_filter_zero_point or (
            is_small and device_traits.packs_registers_with_filter_zero_points(self.operands.builder.profile)
        )

    def _checks_border(self) -> bool:
        """Whether the input is read in place, and some tap lies outside it."""
        outputs, taps, corner = self.operands.whole_output, self.operands.all_taps, self.operands.corner
        last = corner(*(tuple((end - 1, end) for _, end in box) for box in (outputs, taps)))
        places = zip(corner(outputs, taps)[2:], last[2:], self.geometry.input_size, strict=True)
        return self.source is not None and any(first < 0 or end >= size for first, end, size in places)

    def _fetches_whole_steps(self, box: Box) -> bool:
        """Whether fetches need not look for the end of K, because it is the end of a step."""
        shape = self.shape
        # Where they look for the border anyway, layers share a pipeline whose fetches look for both.
        if self._checks_border() and shape.shares_pipelines(self.operations(box)):
            return False
        is_even = shape.steps % (shape.tile.parts * shape.tile.splits) == 0
        return shape.runs.size % shape.tile.step == 0 and (is_even or not shape.rules.splits_k)

    def _store_unit(self, box: Box, stored: Range) -> int:
        """Bytes of one store to the output: 16 or 4 if neighbours in a tile always fill whole units of that size."""
        stride_n, stride_c, stride_h, stride_w = self.operands.output.strides
        if packs_channels(self.geometry):
            units = [*stored, self.geometry.output_channels_per_group, stride_n, stride_h, stride_w]
        else:
            rows, columns = (box[dimension][1] - box[dimension][0] for dimension in (ROW, COLUMN))
            if stride_w != 1 or (rows > 1 and stride_h != columns):
                return 1
            units = [rows * columns, stride_n, stride_c, box[ROW][0] * stride_h + box[COLUMN][0]]
        common = math.gcd(*units, self.operands.output.start)
        return next(unit for unit in (VECTOR_SIZE, 4, 1) if common % unit == 0)

    def _reads_evenly(self, extents: list[int], strides: Sequence[int]) -> bool:
        """Whether the input pixels under a tap are one stride apart, wherever the output pixels lie."""
        steps = [strides[0], strides[1], *(strides[2 + k] * self.geometry.strides[k] for k in range(2))]
        return self.fetch != PLANES and not self._checks_border() and _is_even(extents, steps)

    def _stores_matrices(self, extents: list[int]) -> bool:
        """Whether the rows of a matrix of words always have the same stride."""
        stride_n, _, stride_h, stride_w = self.operands.output.strides
        images, rows, columns = extents[IMAGE], extents[ROW], extents[COLUMN]
        if packs_channels(self.geometry):
            plane = rows * columns * stride_w
            return (rows == 1 or stride_h == columns * stride_w) and (images == 1 or stride_n == plane)
        pixels, _ = matrix_outputs(self.shape.kernel, self.shape.block, in_words=False)
        return rows * columns % (PACKED_MATRICES * pixels) == 0


def _is_even(extents: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the pixels of a box are one stride apart, from one image to the next too."""
    images, rows, columns = extents[IMAGE], extents[ROW], extents[COLUMN]
    step = strides[3]
    return (rows == 1 or strides[2] == columns * step) and (images == 1 or strides[0] == rows * columns * step)


def _images(box: Box) -> tuple[int, tuple[int, int]]:
    """The images of a box, and its rows and columns."""
    extents = sizes_of(box)
    return extents[IMAGE], (extents[ROW], extents[COLUMN])


def size_push_constants(sizes: Mapping[str, int]) -> dict[str, int]:
    """The push constants of a kernel's sizes: each size, and what replaces the divisions by some of them."""
    divisors = ("ROWS", "COLUMNS", "RUN")
    numbers, shifts = reciprocals(*(sizes[name] for name in divisors))
    found = {f"{name}_reciprocal": number for name, number in zip(divisors, numbers, strict=True)}
    return {name.lower(): value for name, value in {**sizes, **found, "reciprocal_shifts": shifts}.items()}


def size_constants(sizes: Mapping[str, int], is_shared: bool) -> dict[str, int]:
    """The specialization constants of sizes: their values, or 0 for those that the kernel takes as push constants."""
    if not is_shared:
        return dict(sizes)
    # One tile in turn, and one part, are constants in any case: less code. So are neighbours.
    alone = {name for name in ("TURNS", "PARTS", "OUTPUT_STRIDE_C") if sizes[name] == 1}
    return {name: value if name in alone else 0 for name, value in sizes.items()}


class TiledPath(ProductPath[AnyTiledShape]):
    """A path of the product by vectors of K. It reads its input in place if the input's layout allows that.

    A path says which tiles its kernel can have (`rules`), and which ones are worth a measurement, the best first
    (`seeds`). The first that is possible is taken; between paths, and ways to join groups, the estimate decides.
    """

    shape_type: ClassVar[type[Any]] = TiledShape
    # Whether workgroups may share the K of a tile.
    cuts_k: ClassVar[bool] = False

    @abstractmethod
    def rules(self, profile: DeviceProfile, geometry: ProductGeometry) -> TileRules:
        """The tiles that the kernel can have."""

    @abstractmethod
    def seeds(self, profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool) -> Iterable[Tile]:
        """The tiles that suit a convolution, the best first, then those that suit the device.

        With `is_prepared`, the channels' parameters are worked out before: all their tensors are OWNED_BY_DML.
        """

    def shape(self, problem: Problem, geometry: ProductGeometry) -> AnyTiledShape | None:
        given = geometry, problem.has_owned_constants, problem.has_sum
        found: AnyTiledShape | None = _shape(self, problem.profile, *given)
        return found

    def named_tile(self, problem: Problem, offered: AnyTiledShape, name: str) -> AnyTiledShape:
        """The tile with a name, for as many joined groups as the offered tile has.

        Raises PathError: the name is not a tile's, or the kernel cannot have the tile on the device.
        """
        shape: AnyTiledShape = offered.with_tile(offered.rules.named(name))
        obstacle = self.obstacle_to_operands(problem, shape)
        if obstacle is not None:
            raise ObstacleError(obstacle)
        return shape

    def measured_tiles(
        self, problem: Problem, offered: AnyTiledShape, tiles: Iterable[Tile] | None
    ) -> Iterator[tuple[str, AnyTiledShape]]:
        """The names and shapes of tiles beside the offered one, by default of those that are worth a measurement."""
        if tiles is None:
            tiles = self.seeds(problem.profile, offered.geometry, problem.has_owned_constants)
        elif offered.rules.splits_k:
            return
        for tile in offered.rules.possible(replace(each, parts=1) for each in tiles):
            shape: AnyTiledShape = offered.with_tile(tile)
            if tile != offered.tile and self.obstacle_to_operands(problem, shape) is None:
                yield offered.rules.name(tile), shape

    def with_parts(self, tile: AnyTiledShape, parts: int) -> AnyTiledShape:
        """A tile whose K is shared by a number of workgroups, some of which may have nothing to do.

        Raises PathError: a workgroup computes several tiles.
        """
        if tile.tile.turns > 1 and parts > 1:
            whole = f"the whole K of each, and not one of {parts} parts"
            raise PathError(f"{OPERATOR}: a workgroup of several tiles has {whole}")
        return tile.with_tile(replace(tile.tile, parts=parts))

    def packs_input(self, problem: Problem, tile: AnyTiledShape) -> bool:
        seconds = self.longest_seconds(problem, tile)
        return fetch_in_place(problem.operands(tile.geometry), tile, seconds) is None

    def kernel_seconds(self, problem: Problem, tile: AnyTiledShape) -> float:
        rates, rounds = rates_of(problem.profile), 0
        if not problem.has_owned_constants:
            turns = LARGEST_TURNS if tile.rules.takes_turns else 1
            rounds = math.ceil(tile.tile.count(tile.geometry) / (turns * rates.processors))
        seconds = tile.cost(rounds).seconds(rates, tile.rules.unit)
        # Parts of K add their sums in memory, which takes as long as a dispatch.
        return seconds + (rates.dispatch if tile.tile.parts > 1 else 0)

    def plan(self, problem: Problem, tile: AnyTiledShape) -> Plan:
        geometry = tile.geometry
        stages = Stages(problem, geometry, ("input",))
        stages.gather_parameters()
        rows_after = packing.PREPARED_ROWS if problem.has_owned_constants else 1
        packed_filter = stages.packed_filter(replace(tile.packed_filter, rows_after=rows_after))
        if problem.has_owned_constants:
            stages.initialization[2].extend(packing.channel_parameters(stages.operands, packed_filter))
        operands, longest_seconds = stages.operands, self.longest_seconds(problem, tile)

        def product(part: packing.PackedInput, fetch: int, source: View | None = None) -> list[Dispatch]:
            cutter = TiledCutter(operands, tile, packed_filter, part, longest_seconds, fetch, source)
            return product_dispatches(cutter)

        source, fetch = operands.input, fetch_in_place(operands, tile, longest_seconds)
        if fetch is None:
            copied = packing.channels_last(operands, part_limit(operands.builder, operands.builder.scratch.size))
            if copied is not None:
                source, copying = copied
                stages.prepared.append(copying)
                fetch = VECTORS
        if fetch is not None:
            outputs = whole((geometry.batch, geometry.group_count, *geometry.output_size))
            part = packing.PackedInput(
                source.tensor, source.start, outputs, *geometry.input_size, packing.quads_of(geometry)
            )
            stages.add(product(part, fetch, source))
        elif tile.packs_input:
            fetch = VECTORS if tile.runs.aligned else WORDS
            stages.add_packed_product(tile.quads, True, lambda part: product(part, fetch))
        else:
            possible = "channels side by side, or small enough for a copy"
            raise ObstacleError(Obstacle("input", geometry.input_sizes, possible))
        return stages.plan(self.name)


@lru_cache(maxsize=512)
def _shape(
    path: TiledPath[Any], profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool, has_sum: bool
) -> Any:
    """The one router of tiles: the first of a path's that its kernel can have."""
    rules, seeds = path.rules(profile, geometry), path.seeds(profile, geometry, is_prepared)
    if has_sum:
        # Addends take the registers of a large tile, for which few steps of K do not pay.
        seeds = (tile for tile in seeds if not tile.is_large or Runs.of(geometry).size > UNROLLED_STEPS * tile.step)
    tile = next(rules.possible(seeds), None)
    return None if tile is None else path.shape_type.of(rules, tile, geometry)
