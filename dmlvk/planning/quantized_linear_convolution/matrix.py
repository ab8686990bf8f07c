"""The paths of QUANTIZED_LINEAR_CONVOLUTION on matrix units, and the path `matrix`."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from dmlvk.device_profile import DeviceProfile
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import View
from dmlvk.planning.device_rates import longest, rates_of
from dmlvk.planning.plan import Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.channel_parameters import with_parameters
from dmlvk.planning.quantized_linear_convolution.channels_last import channels_last
from dmlvk.planning.quantized_linear_convolution.input_packing import PackedInput
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import (
    LARGEST_TURNS,
    PUSH_CONSTANTS_SIZE,
    VECTORS,
    WORDS,
    MatrixCutter,
    fetch_in_place,
    whole_input,
)
from dmlvk.planning.quantized_linear_convolution.matrix_shape import AnyMatrixShape, MatrixShape, packs_channels
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import (
    EXAMPLE_TILE,
    NO_MATRICES,
    matrix_of,
    matrix_shape,
    seeds,
)
from dmlvk.planning.quantized_linear_convolution.operands import Operands
from dmlvk.planning.quantized_linear_convolution.path import (
    Obstacle,
    ObstacleError,
    Path,
    Problem,
    cheapest_tile,
)
from dmlvk.planning.quantized_linear_convolution.product import product_dispatches
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry
from dmlvk.planning.quantized_linear_convolution.questions import MATRIX_QUESTIONS
from dmlvk.planning.quantized_linear_convolution.stages import (
    Stages,
    obstacle_to_packing,
    packing_seconds,
    part_limit,
)


class MatrixUnitsPath(Path[AnyMatrixShape]):
    """A path of the product on matrix units. It reads its input in place if the input's layout allows that."""

    cutter: ClassVar[type[MatrixCutter[Any]]]
    # Whether the path can pack an input that can neither be read in place nor be converted to NHWC.
    packs_input: ClassVar[bool]
    # Whether a workgroup computes several tiles one after the other.
    takes_turns: ClassVar[bool] = False

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        if matrix_of(profile) is None:
            return NO_MATRICES
        if (limit := profile.limits.max_push_constants_size) < PUSH_CONSTANTS_SIZE:
            return Obstacle("bytes of push constants", limit, f"at least {PUSH_CONSTANTS_SIZE}")
        return None

    @abstractmethod
    def shape(self, problem: Problem, geometry: ProductGeometry, name: str = "") -> AnyMatrixShape | None:
        """The tile for a convolution, or the one with a name; None if none fits the device."""

    @abstractmethod
    def obstacle_to_geometry(self, geometry: ProductGeometry) -> Obstacle | None:
        """Why the path cannot take a convolution, whatever the tile."""

    def _obstacle_to(self, problem: Problem, geometry: ProductGeometry) -> Obstacle | None:
        obstacle = self.obstacle_to_geometry(geometry)
        if obstacle is not None:
            return obstacle
        tile = self.shape(problem, geometry)
        if tile is None:
            return Obstacle("tiles that fit into shared memory with their halo", 0, "at least 1")
        return _obstacle_to_operands(problem, tile)

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        obstacles = [self._obstacle_to(problem, geometry) for geometry in problem.product_geometries]
        return None if None in obstacles else obstacles[0]

    def tiles(self, problem: Problem) -> tuple[AnyMatrixShape, ...]:
        # Of equal estimates the first one counts: that of the most channels, which are whole vectors more often.
        geometries = reversed(problem.product_geometries)
        possible = [each for each in geometries if self._obstacle_to(problem, each) is None]
        return tuple(tile for tile in (self.shape(problem, each) for each in possible) if tile is not None)

    def possible_tiles(self, problem: Problem) -> tuple[AnyMatrixShape, ...]:
        return self.tiles(problem)

    def named_tile(self, problem: Problem, name: str) -> AnyMatrixShape:
        tile = self.shape(problem, cheapest_tile(self, problem).geometry, name)
        assert tile is not None, "a named tile is possible, or an error"
        obstacle = _obstacle_to_operands(problem, tile)
        if obstacle is not None:
            raise ObstacleError(obstacle)
        return tile

    def seconds(self, problem: Problem, tile: AnyMatrixShape) -> float:
        geometry, kernel = tile.geometry, self.kernel_seconds(problem, tile)
        if self._fetch(problem.operands(geometry), tile, longest(problem.profile, kernel)) is not None:
            return kernel
        packing = packing_seconds(problem, geometry, tile.runs.quads)
        return kernel + rates_of(problem.profile).dispatch + packing

    def kernel_seconds(self, problem: Problem, tile: AnyMatrixShape) -> float:
        rates, rounds = rates_of(problem.profile), 0
        if not problem.has_owned_constants:
            turns = LARGEST_TURNS if self.takes_turns else 1
            rounds = math.ceil(tile.tile.count(tile.geometry) / (turns * rates.processors))
        seconds = tile.work(self.pixels(tile.geometry), rounds).seconds(rates, self.unit(problem.profile))
        # Parts of K add their sums in memory, which takes as long as a dispatch.
        return seconds + (rates.dispatch if tile.tile.parts > 1 else 0)

    def _fetch(self, operands: Operands, tile: AnyMatrixShape, longest_seconds: float) -> int | None:
        """How the kernel can read the input in place; None if the input has to be packed first."""
        pixels = self.pixels(tile.geometry)
        outputs_of_plane = tile.outputs_of_panels(1, 1, pixels // tile.geometry.batch)
        plane_seconds = longest_seconds * outputs_of_plane / tile.padded_outputs(pixels)
        return fetch_in_place(operands, tile, plane_seconds)

    def unit(self, profile: DeviceProfile) -> str:
        """The unit that multiplies, by its name among the `Rates`."""
        return "matrix"

    def pixels(self, geometry: ConvolutionGeometry) -> int:
        """The number of pixels that the kernel counts along its grid."""
        return geometry.batch * math.prod(geometry.output_size)

    def plan(self, problem: Problem, tile: AnyMatrixShape) -> Plan:
        geometry = tile.geometry
        stages = Stages(problem, geometry, ("input_tensor",))
        stages.gather_parameters()
        packing = tile.filter_packing
        if problem.has_owned_constants:
            packing = with_parameters(packing)
        packed_filter = stages.packed_filter(tile.panel, packing)
        if problem.has_owned_constants:
            stages.work_out_parameters(packed_filter)
        operands, longest_seconds = stages.operands, self.longest_seconds(problem, tile)

        def product(part: PackedInput, fetch: int, source: View | None = None) -> list[Dispatch]:
            return product_dispatches(self.cutter(operands, tile, packed_filter, part, longest_seconds, fetch, source))

        source, fetch = operands.input, self._fetch(operands, tile, longest_seconds)
        if fetch is None:
            copied = channels_last(operands, part_limit(operands.builder, operands.builder.scratch.size))
            if copied is not None:
                source, copying = copied
                stages.prepare(copying)
                fetch = VECTORS
        if fetch is not None:
            stages.add(product(whole_input(geometry, source), fetch, source))
        elif self.packs_input:
            fetch = VECTORS if tile.runs.aligned else WORDS
            stages.add_packed_product(tile.runs.quads, True, lambda part: product(part, fetch))
        else:
            size = (geometry.batch, geometry.input_channels, *geometry.input_size)
            raise ObstacleError(Obstacle("input", size, "channels side by side, or small enough for a copy"))
        return stages.plan(self.name)


class MatrixPath(MatrixUnitsPath[MatrixShape]):
    """Packs the filter, and the input unless it can be read in place; matrix units (VK_KHR_cooperative_matrix) on INT8,
    for which the input is fetched for each tap. On devices that list INT8 matrices, round float32 to nearest even and
    have 8-bit storage.
    """

    name = "matrix"
    questions = MATRIX_QUESTIONS
    example_tile = EXAMPLE_TILE
    cutter = MatrixCutter
    packs_input = True
    takes_turns = True
    # With few registers a subgroup has half as many outputs, so it loads twice as many operands for each product.
    loads_of_few_registers: ClassVar[int] = 2

    def obstacle_to_geometry(self, geometry: ProductGeometry) -> Obstacle | None:
        return None

    def shape(self, problem: Problem, geometry: ProductGeometry, name: str = "") -> MatrixShape:
        return matrix_shape(problem.profile, geometry, name, has_parameters=problem.has_owned_constants)

    def kernel_seconds(self, problem: Problem, tile: MatrixShape) -> float:
        loads = self.loads_of_few_registers if device_traits.has_few_registers(problem.profile) else 1
        return loads * super().kernel_seconds(problem, tile)

    def tile_names(self, problem: Problem) -> Iterable[str]:
        return (tile.name for tile in seeds(problem.profile, packs_channels(problem.geometry)))


def _obstacle_to_operands(problem: Problem, tile: MatrixShape) -> Obstacle | None:
    """Why the operands of a tile cannot be packed; None if they can."""
    geometry = tile.geometry
    quads, words = tile.runs.quads, tile.filter_packing.words
    return obstacle_to_packing(geometry, problem.profile, quads, words)
