"""The product of a QUANTIZED_LINEAR_CONVOLUTION by vectors of K, without matrix units: the path."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError
from dmlvk.planning.builder import DISPATCH_SECONDS, Box, DispatchBuilder
from dmlvk.planning.quantized_linear_convolution import vectors_tiles
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixPath
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import MatrixCutter
from dmlvk.planning.quantized_linear_convolution.matrix_shape import MatrixShape, packs_channels
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry

# A convolution that would be cut into more dispatches than this takes minutes, and the plan itself a minute. Only CPU
# drivers get there, with few channels a group, which the tiles fill up with zeros.
MOST_DISPATCHES = 6000
# The packed products of CPU drivers are four times as fast.
CPU_SHARE = 0.25


class VectorsCutter(MatrixCutter[MatrixShape]):
    """One part's product by vectors of K."""

    @property
    def subgroup_size(self) -> int:
        return 0  # any will do

    def turns(self, box: Box) -> int:
        if self.shape.tile == vectors_tiles.LARGEST_HALF_TILE:
            return vectors_tiles.LARGEST_HALF_TURNS
        return super().turns(box)

    def shares_pipelines(self, box: Box) -> bool:
        return False

    def push_sizes(self, dispatch: DispatchBuilder, sizes: Mapping[str, int]) -> None:
        """Nothing: many devices without matrices have 128 bytes of push constants, so all sizes are constants."""


class VectorsPath(MatrixPath):
    """Packs the filter, and the input unless it can be read in place; dot products, or multiplications of floats
    or of 32-bit integers, of vectors of K. On devices with Vulkan's memory model and eleven storage buffers a stage.
    """

    name = "vectors"
    example_tile = vectors_tiles.EXAMPLE_TILE
    questions = ()
    loads_of_few_registers = 1
    cutter = VectorsCutter

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        return vectors_tiles.obstacle_on(profile)

    def shape(self, problem: Problem, geometry: ProductGeometry, name: str = "") -> MatrixShape:
        return vectors_tiles.vectors_shape(problem.profile, geometry, name)

    def _obstacle_to(self, problem: Problem, geometry: ProductGeometry) -> Obstacle | None:
        obstacle = super()._obstacle_to(problem, geometry)
        if obstacle is None:
            seconds = self.longest_seconds(problem, self.shape(problem, geometry))
            if (count := math.ceil(seconds / DISPATCH_SECONDS)) > MOST_DISPATCHES:
                return Obstacle(f"dispatches of {DISPATCH_SECONDS:g} s", count, f"at most {MOST_DISPATCHES}")
        return obstacle

    def tile_names(self, problem: Problem) -> Iterable[str]:
        return (tile.name for tile in vectors_tiles.seeds(problem.profile, packs_channels(problem.geometry)))

    def with_parts(self, tile: MatrixShape, parts: int) -> MatrixShape:
        if tile.tile.turns > 1 and parts > 1:
            raise PathError(
                f"{OPERATOR}: a workgroup of several tiles has the whole K of each, and not one of {parts} parts"
            )
        return replace(tile, tile=replace(tile.tile, parts=parts))

    def kernel_seconds(self, problem: Problem, tile: MatrixShape) -> float:
        is_cpu = problem.profile.device_type is DeviceType.CPU
        return super().kernel_seconds(problem, tile) / (CPU_SHARE if is_cpu else 1)

    def unit(self, profile: DeviceProfile) -> str:
        return vectors_tiles.arithmetic_of(profile).unit
