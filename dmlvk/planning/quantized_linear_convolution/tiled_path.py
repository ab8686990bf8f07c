"""The paths of QUANTIZED_LINEAR_CONVOLUTION by vectors of K: the choice of a tile, the estimate and the plan."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar

from dmlvk.device_profile import DeviceProfile
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import View
from dmlvk.planning.device_rates import longest, rates_of
from dmlvk.planning.plan import Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands
from dmlvk.planning.quantized_linear_convolution.packing import PackedInput, channels_last, with_parameters
from dmlvk.planning.quantized_linear_convolution.path import ConvolutionPath, Obstacle, ObstacleError, Problem
from dmlvk.planning.quantized_linear_convolution.product import product_dispatches
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry
from dmlvk.planning.quantized_linear_convolution.stages import Stages, obstacle_to_packing, packing_seconds, part_limit
from dmlvk.planning.quantized_linear_convolution.tiled_dispatch import (
    LARGEST_TURNS,
    VECTORS,
    WORDS,
    TiledCutter,
    fetch_in_place,
    whole_input,
)
from dmlvk.planning.quantized_linear_convolution.tiles import AnyTiledShape, Tile, TiledShape, TileRules


class TiledPath(ConvolutionPath[AnyTiledShape]):
    """A path of the product by vectors of K. It reads its input in place if the input's layout allows that.

    A path says which tiles its kernel can have (`rules`) and which ones it prefers for a convolution (`preferred`). The
    first that is possible is taken; between paths, and between ways to join groups, the estimate decides.
    """

    has_named_tiles = True
    shape_type: ClassVar[type[Any]] = TiledShape
    cutter: ClassVar[type[TiledCutter[Any]]]
    # Whether the path can pack an input that can neither be read in place nor be converted to NHWC.
    packs_input: ClassVar[bool]
    # Whether a workgroup computes several tiles one after the other.
    takes_turns: ClassVar[bool] = False

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

    def obstacle_to_geometry(self, geometry: ProductGeometry) -> Obstacle | None:
        """Why the path cannot take a convolution, whatever the tile."""
        return None

    def shape(self, problem: Problem, geometry: ProductGeometry, name: str = "") -> AnyTiledShape | None:
        """The tile for a convolution, or the one with a name; None if none fits the device.

        Raises
        ------
        PathError
            The named tile is not one that the kernel can have on this device.
        """
        found: AnyTiledShape | None = _shape(self, problem.profile, geometry, problem.has_owned_constants, name)
        return found

    def _obstacle_to(self, problem: Problem, geometry: ProductGeometry) -> Obstacle | None:
        obstacle = self.obstacle_to_geometry(geometry)
        if obstacle is not None:
            return obstacle
        tile = self.shape(problem, geometry)
        if tile is None:
            return Obstacle("tiles that fit into shared memory", 0, "at least 1")
        return _obstacle_to_operands(problem, tile)

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        obstacles = [self._obstacle_to(problem, geometry) for geometry in problem.product_geometries]
        return None if None in obstacles else obstacles[0]

    def tiles(self, problem: Problem) -> tuple[AnyTiledShape, ...]:
        # Of equal estimates the first one counts: that of the most channels, which are whole vectors more often.
        geometries = reversed(problem.product_geometries)
        possible = [each for each in geometries if self._obstacle_to(problem, each) is None]
        return tuple(tile for tile in (self.shape(problem, each) for each in possible) if tile is not None)

    def tile_names(self, problem: Problem) -> Iterable[str]:
        profile, geometry = problem.profile, problem.product_geometries[-1]
        rules = self.rules(profile, geometry)
        return (rules.name(tile) for tile in self.seeds(profile, geometry))

    def named_tile(self, problem: Problem, offered: AnyTiledShape, name: str) -> AnyTiledShape:
        tile = self.shape(problem, offered.geometry, name)
        assert tile is not None, "a named tile is possible, or an error"
        obstacle = _obstacle_to_operands(problem, tile)
        if obstacle is not None:
            raise ObstacleError(obstacle)
        return tile

    def seconds(self, problem: Problem, tile: AnyTiledShape) -> float:
        geometry, kernel = tile.geometry, self.kernel_seconds(problem, tile)
        if self._fetch(problem.operands(geometry), tile, longest(problem.profile, kernel)) is not None:
            return kernel
        packing = packing_seconds(problem, geometry, tile.runs.quads)
        return kernel + rates_of(problem.profile).dispatch + packing

    def kernel_seconds(self, problem: Problem, tile: AnyTiledShape) -> float:
        rates, rounds = rates_of(problem.profile), 0
        if not problem.has_owned_constants:
            turns = LARGEST_TURNS if self.takes_turns else 1
            rounds = math.ceil(tile.tile.count(tile.geometry) / (turns * rates.processors))
        seconds = tile.cost(self.pixels(tile.geometry), rounds).seconds(rates, self.unit(problem.profile))
        # Parts of K add their sums in memory, which takes as long as a dispatch.
        return seconds + (rates.dispatch if tile.tile.parts > 1 else 0)

    def _fetch(self, operands: ConvolutionOperands, tile: AnyTiledShape, longest_seconds: float) -> int | None:
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

    def plan(self, problem: Problem, tile: AnyTiledShape) -> Plan:
        geometry = tile.geometry
        stages = Stages(problem, geometry, ("input",))
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


@lru_cache(maxsize=512)
def _shape(path: TiledPath[Any], profile: DeviceProfile, geometry: ProductGeometry, prepared: bool, name: str) -> Any:
    """The one router of tiles: the named tile, or the first that a path prefers and that its kernel can have."""
    rules = path.rules(profile, geometry)
    if name:
        tile: Tile | None = rules.named(name)
    else:
        possible = (each for each in path.preferred(profile, geometry, prepared) if rules.obstacle(each) is None)
        tile = next(possible, None)
    return None if tile is None else path.shape_type.of(rules, tile, geometry)


def _obstacle_to_operands(problem: Problem, tile: TiledShape) -> Obstacle | None:
    """Why the operands of a tile cannot be packed; None if they can."""
    geometry = tile.geometry
    quads, words = tile.runs.quads, tile.filter_packing.words
    return obstacle_to_packing(geometry, problem.profile, quads, words)
