"""A QUANTIZED_LINEAR_CONVOLUTION in one stage, straight from its tensors: boxes of outputs, one for each dispatch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import Builder, Range, View, halves, largest
from dmlvk.planning.plan import Dispatch
from dmlvk.planning.quantized_linear_convolution.parameters import Sources
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, ObstacleError

# Outputs: image, channel, row, column.
IMAGE, CHANNEL, ROW, COLUMN = range(4)
Box = tuple[Range, ...]


@dataclass(frozen=True)
class BoxCutter(ABC):
    """A convolution to be cut into dispatches.

    Attributes
    ----------
    builder : Builder
    geometry : ConvolutionGeometry
    input, output : View
    parameters : Sources
    longest_seconds : float
        Of the whole convolution: see `Path.longest_seconds`.
    """

    builder: Builder
    geometry: ConvolutionGeometry
    input: View
    output: View
    parameters: Sources
    longest_seconds: float

    @abstractmethod
    def step(self, dimension: int) -> int:
        """Boxes are cut at multiples of this."""

    @abstractmethod
    def excess(self, box: Box) -> list[int] | None:
        """How much each dimension contributes to a box being too large for a dispatch; None if it is not too large.

        The entry of a dimension is 0 if the box cannot be cut along it.
        """

    @abstractmethod
    def dispatch(self, box: Box) -> Dispatch:
        """The dispatch that makes a box."""

    def dispatches(self) -> list[Dispatch]:
        """All dispatches, in any order.

        Raises
        ------
        ObstacleError
            No window holds all that the smallest part of the outputs needs.
        """
        pending = [self.all_outputs]
        found: list[Dispatch] = []
        while pending:
            box = pending.pop()
            contributions = self.excess(box)
            if contributions is None:
                found.append(self.dispatch(box))
                continue
            cut = largest(contributions)
            if cut is None:
                extents = tuple(high - low for low, high in box)
                raise ObstacleError(
                    Obstacle("outputs whose operands a window shows", extents, "at least the smallest part")
                )
            pending.extend(self._halves(box, cut))
        return found

    @property
    def all_outputs(self) -> Box:
        geometry = self.geometry
        sizes = (geometry.batch, geometry.output_channels, *geometry.output_size)
        return tuple((0, size) for size in sizes)

    def seconds(self, box: Box) -> float:
        """A box's share of the longest time, by its outputs, with those of steps that are not whole."""
        return self.longest_seconds * self._steps(box) / self._steps(self.all_outputs)

    def _steps(self, box: Box) -> int:
        return math.prod(-(-(high - low) // self.step(dimension)) for dimension, (low, high) in enumerate(box))

    def _halves(self, box: Box, dimension: int) -> list[Box]:
        step = self.step(dimension)
        low, high = box[dimension]
        scaled = (*box[:dimension], (low // step, -(-high // step)), *box[dimension + 1 :])
        parts = []
        for part in halves(scaled, dimension):
            first, last = part[dimension]
            parts.append((*part[:dimension], (first * step, min(last * step, high)), *part[dimension + 1 :]))
        return parts

    def cuttable(self, box: Box, contributions: list[int]) -> list[int]:
        """The contributions of the dimensions along which a box can be cut; 0 for other dimensions."""
        return [size if extent > 0 else 0 for size, extent in zip(contributions, self.extents(box), strict=True)]

    def extents(self, box: Box) -> list[int]:
        """For each dimension, the extent of a box from its first step to its last one."""
        return [-(-(high - low) // self.step(dimension)) - 1 for dimension, (low, high) in enumerate(box)]

    def seen(self, box: Box) -> tuple[Range, ...] | None:
        """The box of the input under a box of outputs; None if all of it is border."""
        geometry = self.geometry
        spatial: list[Range] = []
        for k in range(2):
            first, end = box[ROW + k]
            low = max(first * geometry.strides[k] - geometry.start_padding[k], 0)
            last = (end - 1) * geometry.strides[k] + (geometry.filter_size[k] - 1) * geometry.dilations[k]
            high = min(last - geometry.start_padding[k] + 1, geometry.input_size[k])
            if low >= high:
                return None
            spatial.append((low, high))
        of_group = geometry.output_channels_per_group
        first_group, last_group = box[CHANNEL][0] // of_group, (box[CHANNEL][1] - 1) // of_group
        seen_of_group = geometry.input_channels_per_group
        return box[IMAGE], (first_group * seen_of_group, (last_group + 1) * seen_of_group), spatial[0], spatial[1]

    def input_bounds(self, box: Box) -> Range:
        """The bytes of the input under a box of outputs; one byte if all of it is border."""
        seen = self.seen(box)
        return self.input.bounds(seen) if seen else (self.input.start, self.input.start + 1)

    def first_tap(self, box: Box) -> tuple[int, int]:
        """The input's row and column under the first output's first tap; may be negative."""
        geometry = self.geometry
        row, column = (box[ROW + k][0] * geometry.strides[k] - geometry.start_padding[k] for k in range(2))
        return row, column


def writes_runs(output: View, box: Box, dimension: int, size: int) -> bool:
    """Whether a box of outputs is whole runs of `size` neighbours along a dimension, each at a multiple of `size`."""
    strides = [0 if high - low == 1 else step for (low, high), step in zip(box, output.strides, strict=True)]
    low, high = box[dimension]
    first = output.address([low for low, _ in box])
    return strides.pop(dimension) == 1 and not any(number % size for number in (*strides, first, high - low))
