"""The product of a QUANTIZED_LINEAR_CONVOLUTION by vectors of K: the choice of a tile, how the input is read, and the
dispatches.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Generic

from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import DISPATCH_SECONDS, Box, DispatchBuilder, Range, View, by_dimension, sizes_of
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.division import reciprocals
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import CLEAN, Access, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands
from dmlvk.planning.quantized_linear_convolution.packing import (
    UNSIGNED_FLIP,
    PackedInput,
    channels_last,
    with_parameters,
)
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, ObstacleError, Problem
from dmlvk.planning.quantized_linear_convolution.product import (
    COLUMN,
    GROUP,
    IMAGE,
    ROW,
    ProductCutter,
    ProductPath,
    product_dispatches,
)
from dmlvk.planning.quantized_linear_convolution.product_geometry import (
    ProductGeometry,
    has_whole_planes,
    packs_channels,
)
from dmlvk.planning.quantized_linear_convolution.stages import Stages, part_limit
from dmlvk.planning.quantized_linear_convolution.tiles import (
    BYTES,
    KERNEL,
    LARGEST_TURNS,
    PACKED_MATRICES,
    PLANES,
    ROW_PADDING,
    VECTOR_SIZE,
    VECTORS,
    WORDS,
    AnyTiledShape,
    Runs,
    Tile,
    TiledShape,
    TileRules,
    matrix_outputs,
)

# With so few steps of K the kernel has no loop over them.
UNROLLED_STEPS = 2
# The kernels' push constants; Vulkan guarantees 128 bytes, and all known devices with matrices have 256.
PUSH_CONSTANTS_SIZE = 192
# The bytes in which places of the input are counted, by how it is read.
UNITS = {WORDS: 4, VECTORS: VECTOR_SIZE, PLANES: 4, BYTES: 1}
# The sums of an invocation in small tiles.
SUMS_OF_SMALL_TILES = 64


def fetch_in_place(operands: ConvolutionOperands, shape: TiledShape, longest_seconds: float) -> int | None:
    """How the kernel can read the input in place; None if the input has to be packed first.

    Words need runs of one tap each: a row of taps may reach over the border. Planes stay whole, but larger work is cut.
    `longest_seconds` are those of the whole convolution.
    """
    builder, geometry, source, output = operands.builder, shape.geometry, operands.input, operands.output
    if not builder.fits(source.tensor, source.bounds(operands.whole_input)):
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
        and builder.fits(output.tensor, output.bounds(operands.whole_output))
        and longest_seconds * of_plane <= DISPATCH_SECONDS
        and -(-math.prod(geometry.output_size) // shape.pixels) <= GUARANTEED_WORKGROUP_COUNT
    ):
        return PLANES
    return None


def whole_input(geometry: ConvolutionGeometry, source: View) -> PackedInput:
    """A single part: the whole input, read in place."""
    outputs = geometry.output_size
    return PackedInput(
        source.tensor,
        source.start,
        (0, geometry.batch),
        (0, geometry.group_count),
        (0, outputs[0]),
        (0, outputs[1]),
        *geometry.input_size,
        -(-geometry.input_channels_per_group // 4),
    )


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
        """Tiles of pixels that a workgroup computes."""
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
            "FLIP": UNSIGNED_FLIP * 0x01010101 if self.source is not None and parameters.input_unsigned else 0,
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
        steps, shared = shape.steps, shape.steps_of_share * shape.tile.shares
        return shape.runs.size % shape.tile.step == 0 and (steps == shared or not shape.rules.splits_k)

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

    A path says which tiles its kernel can have (`rules`) and which ones it prefers for a convolution (`preferred`). The
    first that is possible is taken; between paths, and between ways to join groups, the estimate decides.
    """

    shape_type: ClassVar[type[Any]] = TiledShape
    # Whether workgroups may share the K of a tile.
    cuts_k: ClassVar[bool] = False

    @abstractmethod
    def rules(self, profile: DeviceProfile, geometry: ProductGeometry) -> TileRules:
        """The tiles that the kernel can have."""

    @abstractmethod
    def seeds(self, profile: DeviceProfile, geometry: ProductGeometry) -> Iterable[Tile]:
        """The tiles that suit a device: those that are worth a measurement."""

    @abstractmethod
    def preferred(self, profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool) -> Iterable[Tile]:
        """The tiles that suit a convolution, the best first.

        With `is_prepared`, the channels' parameters are worked out before: all their tensors are OWNED_BY_DML.
        """

    def shape(self, problem: Problem, geometry: ProductGeometry) -> AnyTiledShape | None:
        found: AnyTiledShape | None = _shape(self, problem.profile, geometry, problem.has_owned_constants)
        return found

    def tile_names(self, problem: Problem) -> Iterable[str]:
        """The names of the tiles that are worth a measurement; `named_tile` refuses those that are not possible."""
        profile, geometry = problem.profile, problem.product_geometries[-1]
        rules = self.rules(profile, geometry)
        return (rules.name(tile) for tile in self.seeds(profile, geometry))

    def named_tile(self, problem: Problem, offered: AnyTiledShape, name: str) -> AnyTiledShape:
        """The tile with a name, for as many joined groups as the offered tile has.

        Raises PathError: the name is not a tile's, or the kernel cannot have the tile on the device.
        """
        rules = self.rules(problem.profile, offered.geometry)
        tile: AnyTiledShape = self.shape_type.of(rules, rules.named(name), offered.geometry)
        obstacle = self.obstacle_to_operands(problem, tile)
        if obstacle is not None:
            raise ObstacleError(obstacle)
        return tile

    def with_parts(self, tile: AnyTiledShape, parts: int) -> AnyTiledShape:
        """A tile whose K is shared by a number of workgroups, some of which may have nothing to do.

        Raises PathError: a workgroup computes several tiles.
        """
        if tile.tile.turns > 1 and parts > 1:
            whole = f"the whole K of each, and not one of {parts} parts"
            raise PathError(f"{OPERATOR}: a workgroup of several tiles has {whole}")
        return replace(tile, tile=replace(tile.tile, parts=parts))

    def packs_input(self, problem: Problem, tile: AnyTiledShape) -> bool:
        seconds = self.longest_seconds(problem, tile)
        return fetch_in_place(problem.operands(tile.geometry), tile, seconds) is None

    def kernel_seconds(self, problem: Problem, tile: AnyTiledShape) -> float:
        rates, rounds = rates_of(problem.profile), 0
        if not problem.has_owned_constants:
            turns = LARGEST_TURNS if tile.rules.takes_turns else 1
            rounds = math.ceil(tile.tile.count(tile.geometry) / (turns * rates.processors))
        seconds = tile.cost(rounds).seconds(rates, self.unit(problem.profile))
        # Parts of K add their sums in memory, which takes as long as a dispatch.
        return seconds + (rates.dispatch if tile.tile.parts > 1 else 0)

    def unit(self, profile: DeviceProfile) -> str:
        """The unit that multiplies, by its name among the `Rates`."""
        return "matrix"

    def plan(self, problem: Problem, tile: AnyTiledShape) -> Plan:
        geometry = tile.geometry
        stages = Stages(problem, geometry, ("input",))
        stages.gather_parameters()
        is_prepared, packing = problem.has_owned_constants, tile.filter_packing
        packed_filter = stages.packed_filter(tile.panel, with_parameters(packing) if is_prepared else packing)
        if is_prepared:
            stages.work_out_parameters(packed_filter)
        operands, longest_seconds = stages.operands, self.longest_seconds(problem, tile)

        def product(part: PackedInput, fetch: int, source: View | None = None) -> list[Dispatch]:
            cutter = TiledCutter(operands, tile, packed_filter, part, longest_seconds, fetch, source)
            return product_dispatches(cutter)

        source, fetch = operands.input, fetch_in_place(operands, tile, longest_seconds)
        if fetch is None:
            copied = channels_last(operands, part_limit(operands.builder, operands.builder.scratch.size))
            if copied is not None:
                source, copying = copied
                stages.prepare(copying)
                fetch = VECTORS
        if fetch is not None:
            stages.add(product(whole_input(geometry, source), fetch, source))
        elif tile.packs_input:
            fetch = VECTORS if tile.runs.aligned else WORDS
            stages.add_packed_product(tile.quads, True, lambda part: product(part, fetch))
        else:
            size = (geometry.batch, geometry.input_channels, *geometry.input_size)
            raise ObstacleError(Obstacle("input", size, "channels side by side, or small enough for a copy"))
        return stages.plan(self.name)


@lru_cache(maxsize=512)
def _shape(path: TiledPath[Any], profile: DeviceProfile, geometry: ProductGeometry, is_prepared: bool) -> Any:
    """The one router of tiles: the first that a path prefers and that its kernel can have."""
    rules = path.rules(profile, geometry)
    possible = (each for each in path.preferred(profile, geometry, is_prepared) if rules.obstacle(each) is None)
    tile = next(possible, None)
    return None if tile is None else path.shape_type.of(rules, tile, geometry)
