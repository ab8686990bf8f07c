"""QUANTIZED_LINEAR_CONVOLUTION with filters of several taps at stride 1, on matrix units: tiles with a halo."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixRules, MatrixUnitsPath, block_of
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, packs_channels
from dmlvk.planning.quantized_linear_convolution.questions import HALO_QUESTIONS
from dmlvk.planning.quantized_linear_convolution.tiled_product import (
    PACKED_MATRICES,
    VECTOR_SIZE,
    Runs,
    Tile,
    TiledShape,
    TileRules,
)

KERNEL = "quantized_linear_convolution/halo"
# How often a position counts that a workgroup fetches: it looks for its place, between images, rows and borders.
FETCHES_OF_A_POSITION = 2


@dataclass(frozen=True)
class HaloShape(TiledShape):
    """A tile with its halo on a device's matrices."""

    reads_words = False
    packs_input = False
    fetches_parts_of_lines = False  # all taps find a position's channels in shared memory

    @cached_property
    def runs(self) -> Runs:
        """How K lies in memory: one run for each tap, in whole steps."""
        geometry = self.geometry
        quads = geometry.input_channels_per_group // 4
        height, width = geometry.filter_size
        step = self.tile.step // VECTOR_SIZE
        vectors = -(-quads // (4 * step)) * step
        return Runs(quads, quads, vectors, width, height * width)

    def counted_pixels(self, images: int, extents: tuple[int, int]) -> int:
        return Positions.of(self.geometry, extents).of_outputs(images, extents)

    def input_pixels(self, images: int, extents: tuple[int, int]) -> int:
        # The last outputs' taps lie behind them. No workgroup computes these positions, but with them the estimates are
        # better, as all images are alike.
        return images * Positions.of(self.geometry, extents).plane

    def shares_pipelines(self, operations: int) -> bool:
        return False  # shared memory is as large as the sizes say

    def more_constants(self, images: int, extents: tuple[int, int], fetch: int) -> dict[str, int]:
        positions, most_ahead = Positions.of(self.geometry, extents), device_traits.fetches_ahead(self.rules.profile)
        # All runs have the words of the channels of one tap.
        words = {"RUN_WORDS": self.runs.words}
        return {"PITCH": positions.pitch, "PLANE": positions.plane, "MOST_AHEAD": most_ahead, **words}

    @property
    def positions(self) -> int:
        """Positions of the input that a workgroup fetches for all taps of a step of channels."""
        return self.tile.pixels + Positions.of(self.geometry, self.geometry.output_size).halo

    @property
    def steps_of_channels(self) -> int:
        """The number of steps of channels, each of which has a step of K for each tap."""
        return self.steps // self.runs.count

    @property
    def fetched_bytes(self) -> int:
        filters = self.steps * self.tile.channels
        positions = FETCHES_OF_A_POSITION * self.steps_of_channels * self.positions
        return (positions + filters) * self.tile.step

    @property
    def interleaved(self) -> int:
        return self.block.n  # the kernel packs channels, whatever the output


@dataclass(frozen=True)
class Positions:
    """Outputs and the gaps between them, in the order of the input with its border.

    A tap is the same number of positions away from every output. A row's end shares its border with the next row's
    start, and an image with the next one.
    """

    # Positions from one row to the next, and from one image to the next.
    pitch: int
    plane: int
    halo: int  # positions from an output's first tap to its last one

    def of_outputs(self, images: int, extents: tuple[int, int]) -> int:
        """Positions from the first output of some images to the last one of as many rows and columns."""
        return (images - 1) * self.plane + (extents[0] - 1) * self.pitch + extents[1]

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, extents: tuple[int, int]) -> Positions:
        """The positions of a number of rows and columns of outputs."""
        sizes, reaches = [], [(geometry.filter_size[k] - 1) * geometry.dilations[k] for k in range(2)]
        for k, reach in enumerate(reaches):
            size = extents[k] + reach
            if extents[k] == geometry.output_size[k]:
                # The shared part has to be border on both sides: its width is that of the wider border.
                start, end = geometry.start_padding[k], size - geometry.input_size[k] - geometry.start_padding[k]
                size = max(extents[k], min(size, geometry.input_size[k] + max(start, end)))
            sizes.append(size)
        return cls(sizes[1], sizes[0] * sizes[1], reaches[0] * sizes[1] + reaches[1])


@dataclass(frozen=True)
class HaloRules(TileRules):
    """The tiles of the path `halo`: all positions under a tile lie in shared memory, and two steps of its filter."""

    example = "128x64x64:32x64"
    fetches_pixels_evenly = False

    geometry: ConvolutionGeometry

    def staged(self, tile: Tile) -> int:
        # If a part is cut out of an image, its rows share no border.
        geometry = self.geometry
        down, across = ((geometry.filter_size[k] - 1) * geometry.dilations[k] for k in range(2))
        return tile.pixels + down * (geometry.output_size[1] + across) + across

    def exchanged(self, tile: Tile) -> int:
        m, n, _ = self.block
        rows = 1 if packs_channels(self.geometry) or tile.own_pixels < 2 * m else 2
        return tile.owners * max(rows * m * (n // 4 + 1), m * n // 4)

    def shared_memory(self, tile: Tile) -> int:
        return super().shared_memory(tile) + VECTOR_SIZE * -(-self.staged(tile) // 4)


class HaloPath(MatrixUnitsPath[HaloShape]):
    """Filters of several taps at stride 1 on matrix units: the input under a tile, with its halo, lies in shared memory
    for all taps. On devices as for `matrix`; input channels per group in whole 16s.
    """

    name = "halo"
    questions = HALO_QUESTIONS
    shape_type = HaloShape
    # With few registers, the code spills 400 of them, and takes twice the instructions of `matrix` for a product.
    loss = 4

    def obstacle_to_geometry(self, problem: Problem, geometry: ProductGeometry) -> Obstacle | None:
        channels = geometry.input_channels_per_group
        if geometry.filter_size == (1, 1):
            return Obstacle("filter size", geometry.filter_size, "several taps")
        if geometry.strides != (1, 1):
            return Obstacle("strides", geometry.strides, "1")
        if channels % VECTOR_SIZE:
            return Obstacle("input channels of a group", channels, f"multiples of {VECTOR_SIZE}")
        return super().obstacle_to_geometry(problem, geometry)

    def rules(self, profile: DeviceProfile, geometry: ProductGeometry) -> HaloRules:
        # The kernel packs channels, whatever the output's layout.
        like = MatrixRules.on(profile, block_of(profile), in_words=True)
        return HaloRules(profile, KERNEL, True, like.lanes, like.units, like.block, like.step_unit, (1, 2), geometry)

    def seeds(self, profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool) -> list[Tile]:
        """Subgroups of the fewest channels that fill whole words."""
        block, is_cpu = block_of(profile), profile.device_type is DeviceType.CPU
        channels, step = PACKED_MATRICES * block.n, max(2 * block.k, 32 if is_cpu else 64)
        rows = 2 * block.m if profile.min_subgroup_size >= 32 and not is_cpu else block.m
        return [Tile(count * rows, channels, step, rows, channels) for count in ((2,) if is_cpu else (4, 2, 1))]
