"""The path `split_k` of QUANTIZED_LINEAR_CONVOLUTION: the K of a tile is split over subgroups and workgroups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixUnitsPath, block_of
from dmlvk.planning.quantized_linear_convolution.path import Obstacle
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, packs_channels
from dmlvk.planning.quantized_linear_convolution.questions import SPLIT_K_QUESTIONS
from dmlvk.planning.quantized_linear_convolution.tiled_product import (
    BYTES,
    VECTOR_SIZE,
    Runs,
    Tile,
    TiledShape,
    TileRules,
    in_parts,
)

KERNEL = "quantized_linear_convolution/split_k"
# Invocations of a subgroup, which share a step's fetches.
LEAST_LANES = 32

# Tiles that a GPU may take: pixels, channels, and bytes of a step of a subgroup. With longer steps it waits less often,
# with larger tiles it fetches less for each product. Where bytes are read by themselves, each takes a register.
NARROW, WIDE = 16, 64
SIZES = (
    (16, 32, 64),
    (32, 32, 64),
    (16, 32, 128),
    (32, 32, 128),
    (32, 64, 64),
    (32, 64, 128),
    (16, 16, 64),
    (32, 16, 64),
)
SIZES_OF_BYTES = (
    *((16, 32, 64), (32, 32, 32), (32, 32, 64), (32, 64, 64)),
    *((16, 16, 64), (32, 16, 32), (32, 16, 64), (64, 16, 32)),
)
# Bytes of K that are a single step, in which wide tiles have nothing to save.
SHORT_K = 64
# Bytes that a subgroup fetches while it waits once: more loads than these do not overlap.
BYTES_OF_A_WAIT = 4096
# Subgroups that share K.
SPLITS = (8, 4, 2, 1)
# Steps in the time in which parts add their sums in memory.
MANY_STEPS = 24


@dataclass(frozen=True)
class SplitKShape(TiledShape):
    """A tile whose K is split over the subgroups of a workgroup."""

    reads_bytes = True
    interleaved = 0

    @property
    def reads_single_bytes(self) -> bool:
        return is_read_as_bytes(self.geometry)

    @property
    def waits(self) -> float:
        tile = self.tile
        return self.steps_of_share * max(1, (tile.pixels + tile.channels) * tile.step / BYTES_OF_A_WAIT)

    def shares_pipelines(self, operations: int) -> bool:
        # With constants a first layer is faster: 3 -> 32 224x224, 8 images, takes 7.2 us and not 9.9 (H100).
        # No other layer of a network is likely to be of that kind, which reads an image of few channels.
        is_first = self.geometry.joined == 1 and self.runs.are_rows_of_taps(self.geometry)
        return not is_first and super().shares_pipelines(operations)

    def more_constants(self, images: int, extents: tuple[int, int], fetch: int) -> dict[str, int]:
        has_rows_of_taps = fetch == BYTES and self.runs.are_rows_of_taps(self.geometry)
        return {
            "SUBGROUPS": self.tile.splits,
            "PART_STEPS": int(self.steps_of_share == 1),
            "PIXEL_BYTES": 4 * self.runs.quads if has_rows_of_taps else 0,
            "PIXEL_CHANNELS": self.pixel_channels if fetch == BYTES else 0,
        }


def is_read_as_bytes(geometry: ProductGeometry) -> bool:
    """Whether an input cannot be read as words, for its layout."""
    if geometry.input_strides[1] != 1 or geometry.input_channels_per_group % 4 != 0:
        return True
    return Runs.of(geometry).are_rows_of_taps(geometry)


class SplitKRules(TileRules):
    """The tiles of the path `split_k`: a subgroup has all outputs of its tile, and fetches its own step of K."""

    example = "32x32x64:8"
    splits_k = True
    rest = 3 * VECTOR_SIZE

    def exchanged(self, tile: Tile) -> int:
        lines, words = (tile.pixels, tile.channels // 4) if self.in_words else (tile.channels, tile.pixels // 4)
        return lines * (words + 2)


def suits(geometry: ProductGeometry, width: int) -> bool:
    """Whether tiles of so many channels suit a convolution: narrow ones alone, if they hold its channels."""
    channels = geometry.output_channels_per_group
    if channels <= NARROW or width == NARROW:
        return channels <= NARROW and width == NARROW
    return width < WIDE or (2 * channels > WIDE and Runs.of(geometry).size > SHORT_K)


class SplitKPath(MatrixUnitsPath[SplitKShape]):
    """As `matrix`, for convolutions of few tiles: the subgroups of a workgroup share the K of its tile, and so may
    several workgroups. On devices as for `matrix` whose subgroups have 32 invocations.
    """

    name = "split_k"
    questions = SPLIT_K_QUESTIONS
    shape_type = SplitKShape
    cuts_k = True

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        obstacle, lanes = super().obstacle_on(profile), profile.min_subgroup_size
        if obstacle is None and profile.device_type is not DeviceType.CPU and lanes < LEAST_LANES:
            return Obstacle("invocations of a subgroup", lanes, f"at least {LEAST_LANES}")
        return obstacle

    def rules(self, profile: DeviceProfile, geometry: ProductGeometry) -> SplitKRules:
        in_words, block = packs_channels(geometry), block_of(profile)
        units, step_unit = (block.m, block.n), max(block.k, VECTOR_SIZE)
        return SplitKRules(profile, KERNEL, in_words, profile.min_subgroup_size, units, block, step_unit, (1, 1))

    def unsplit(self, profile: DeviceProfile, geometry: ProductGeometry) -> list[Tile]:
        """The tiles that a convolution may take on a device, whose K is not split yet."""
        block, sizes = block_of(profile), SIZES_OF_BYTES if is_read_as_bytes(geometry) else SIZES
        found = [size for size in sizes if suits(geometry, size[1])]
        if profile.device_type is DeviceType.CPU:
            # Such a driver compiles a loop for each matrix.
            found = [(2 * block.m, 2 * block.n, max(2 * block.k, VECTOR_SIZE))]
        return [Tile(pixels, channels, max(block.k, step), pixels, channels) for pixels, channels, step in found]

    def seeds(self, profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool) -> Iterator[Tile]:
        """The tile with the least estimate, with parts of its K where steps are many and tiles few; then all."""
        rates, rules, k_bytes = rates_of(profile), self.rules(profile, geometry), Runs.of(geometry).size
        split = [replace(tile, splits=n) for tile in self.unsplit(profile, geometry) for n in SPLITS]

        def seconds(tile: Tile) -> float:
            return SplitKShape.of(rules, tile, geometry).cost().seconds(rates, rules.unit)

        # More than half of the subgroups have a step.
        busy = (each for each in rules.possible(split) if each.splits < 2 * -(-k_bytes // each.step))
        tile = min(busy, key=seconds)
        cut = in_parts(tile, profile, geometry, MANY_STEPS, int(rates.processors))
        yield cut if seconds(cut) + rates.dispatch < seconds(tile) else tile
        yield from split
