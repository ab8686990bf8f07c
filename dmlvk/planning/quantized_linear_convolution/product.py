"""The product of the packed operands of a QUANTIZED_LINEAR_CONVOLUTION: the common part of all its kernels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from dmlvk.planning.builder import DISPATCH_SECONDS, Box, DispatchBuilder, Range, boxes, largest, reach, sizes_of
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands
from dmlvk.planning.quantized_linear_convolution.packing import ChannelWords, FilterPacking, PackedFilter, PackedInput
from dmlvk.planning.quantized_linear_convolution.path import ConvolutionPath, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry
from dmlvk.planning.quantized_linear_convolution.stages import obstacle_to_packing, packing_seconds

# Multiply-adds of the four bytes of a word, times two.
OPERATIONS_OF_WORD = 8


@dataclass(frozen=True)
class ProductShape:
    """How a product kernel cuts its work."""

    geometry: ProductGeometry  # the convolution, with joined groups or without
    kernel: str
    local_size: int  # invocations of a workgroup
    panel: int  # output channels of a filter panel
    # Filter panels and pixels of a workgroup.
    panels: int
    pixels: int
    # Whether the kernel uses shared memory: channels along x, pixels along y, the panel a specialization constant.
    tiled: bool
    channels_last: bool  # whether the kernel takes operands that are packed channels last

    @property
    def quads(self) -> int:
        """Words of a pixel in the packed input."""
        return ChannelWords.of(self.geometry).quads

    @property
    def filter_packing(self) -> FilterPacking:
        """How the filter is packed."""
        return FilterPacking.of(self.geometry, self.channels_last)

    def padded_outputs(self, pixels: int) -> int:
        """The outputs that the kernel computes for a number of pixels, with those of a tile that are never stored."""
        geometry = self.geometry
        panels = -(-geometry.output_channels_per_group // self.panel)
        return self.outputs_of_panels(geometry.group_count, panels, pixels)

    def outputs_of_panels(self, groups: int, panels: int, pixels: int) -> int:
        """The same for some panels of some groups."""
        panels = -(-panels // self.panels) * self.panels
        columns = -(-pixels // self.pixels) * self.pixels if self.tiled else pixels
        return groups * panels * self.panel * columns


def product_dispatches(cutter: ProductCutter[Any]) -> list[Dispatch]:
    """Dispatches for one packed part of the input.

    Boxes are (image, output row, group, panel of a group, output column, channel of a panel). Only a box of a single
    panel is cut further into channels. Its dispatch computes all channels of the panel and stores some of them.
    """
    part, packed_filter = cutter.part, cutter.packed_filter
    panels, width = packed_filter.panels_of_group, min(packed_filter.width, cutter.geometry.output_channels_per_group)
    everything = (part.images, part.output_rows, part.groups, (0, panels), part.output_columns, (0, width))
    found = boxes(everything, lambda box: None if cutter.is_empty(box) else cutter.cut(box))
    return [cutter.dispatch(box) for box in found if not cutter.is_empty(box)]


IMAGE, ROW, GROUP, PANEL, COLUMN, CHANNEL = range(6)


AnyShape = TypeVar("AnyShape", bound=ProductShape)


class ProductPath(ConvolutionPath[AnyShape]):
    """A path of the product. Each way to join groups is a convolution of its own for it."""

    @abstractmethod
    def shape(self, problem: Problem, geometry: ProductGeometry) -> AnyShape | None:
        """The kernel and its tile for a convolution; None if no tile fits the device."""

    def obstacle_to_geometry(self, problem: Problem, geometry: ProductGeometry) -> Obstacle | None:
        """Why the path cannot take the convolution with its groups joined so."""
        shape = self.shape(problem, geometry)
        if shape is None:
            return Obstacle("tiles that fit into shared memory", 0, "at least 1")
        return self.obstacle_to_operands(problem, shape)

    def obstacle_to_operands(self, problem: Problem, shape: AnyShape) -> Obstacle | None:
        """Why the operands of a tile cannot be packed."""
        return obstacle_to_packing(shape.geometry, problem.profile, shape.quads, shape.filter_packing.words)

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        obstacles = [self.obstacle_to_geometry(problem, geometry) for geometry in problem.product_geometries]
        return None if None in obstacles else obstacles[0]

    def tiles(self, problem: Problem) -> tuple[AnyShape, ...]:
        # Of equal estimates the first one counts: that of the most channels, which are whole vectors more often.
        geometries = reversed(problem.product_geometries)
        possible = [each for each in geometries if self.obstacle_to_geometry(problem, each) is None]
        return tuple(tile for tile in (self.shape(problem, each) for each in possible) if tile is not None)

    def packs_input(self, problem: Problem, tile: AnyShape) -> bool:
        """Whether a dispatch packs the input before."""
        return True

    def seconds(self, problem: Problem, tile: AnyShape) -> float:
        kernel = self.kernel_seconds(problem, tile)
        if not self.packs_input(problem, tile):
            return kernel
        return kernel + rates_of(problem.profile).dispatch + packing_seconds(problem, tile.geometry, tile.quads)


@dataclass(frozen=True)
class ProductCutter(ABC, Generic[AnyShape]):
    """One part's product, to be cut into dispatches."""

    operands: ConvolutionOperands
    shape: AnyShape
    packed_filter: PackedFilter
    part: PackedInput
    # Of the whole convolution: see `ConvolutionPath.longest_seconds`.
    longest_seconds: float

    @property
    def geometry(self) -> ProductGeometry:
        """The convolution as the shape sees it."""
        return self.shape.geometry

    @abstractmethod
    def dispatch(self, box: Box) -> Dispatch:
        """The dispatch that makes a box."""

    @abstractmethod
    def parameters_fit(self, box: Box) -> bool:
        """Whether the parameters of a box's output channels fit windows."""

    def is_empty(self, box: Box) -> bool:
        """Whether a box holds only unused channels of the last panel of a group."""
        channels = self.geometry.output_channels_per_group - box[PANEL][0] * self.packed_filter.width
        return box[CHANNEL][0] >= channels

    def channels(self, box: Box) -> Range:
        """The output channels whose panels a box computes. A box with several groups has them whole."""
        return self.packed_filter.channels(self.panels(box))

    def stored(self, box: Box) -> Range:
        """The output channels that a box stores."""
        first, last = self.channels(box)
        if box[PANEL][1] - box[PANEL][0] == 1 and box[GROUP][1] - box[GROUP][0] == 1:
            return first + box[CHANNEL][0], min(first + box[CHANNEL][1], last)
        return first, last

    def panels(self, box: Box) -> Range:
        """Panels of the filter, counted over all groups."""
        of_group = self.packed_filter.panels_of_group
        return box[GROUP][0] * of_group + box[PANEL][0], (box[GROUP][1] - 1) * of_group + box[PANEL][1]

    def written(self, box: Box) -> Box:
        return box[IMAGE], self.stored(box), box[ROW], box[COLUMN]

    def operations(self, box: Box) -> int:
        return 2 * math.prod(sizes_of(self.written(box))) * self.geometry.own_tap_count

    def pixels(self, box: Box) -> int:
        """The number of pixels that the kernel counts along its grid."""
        return math.prod(box[dimension][1] - box[dimension][0] for dimension in (IMAGE, ROW, COLUMN))

    def bytes_moved(self, box: Box) -> int:
        """The bytes of the input, the filter and the output."""
        first, end = self.packed_filter.bounds(self.panels(box))
        return self.part.size + end - first + math.prod(sizes_of(self.written(box)))

    def show_filter(self, dispatch: DispatchBuilder, box: Box, unit: int) -> None:
        """Bind the panels of a box, in units of so many bytes, and push what all kernels ask for."""
        packed, has_groups = self.packed_filter, box[GROUP][1] - box[GROUP][0] > 1
        panels, stored = packed.bounds(self.panels(box)), self.stored_in_panels(box)
        dispatch.window(packed.tensor, panels, panels[0], unit, "filter_start")
        dispatch.push(
            taps=self.geometry.tap_count,
            first_channel=stored[0],
            channels=stored[1],
            channels_of_group=self.geometry.output_channels_per_group,
            panel_stride=packed.panel_size // unit,
            panels_of_group=packed.panels_of_group if has_groups else box[PANEL][1] - box[PANEL][0],
        )

    def stored_in_panels(self, box: Box) -> Range:
        """The channels that a box stores, counted from the first one of its panels; those of each group, if several."""
        first, (low, high) = self.channels(box)[0], self.stored(box)
        many_groups = box[GROUP][1] - box[GROUP][0] > 1
        return (0, self.geometry.output_channels_per_group) if many_groups else (low - first, high - first)

    def show_output(self, dispatch: DispatchBuilder, box: Box) -> None:
        """Bind the output of a box; it is found from the first channel of the panels, stored or not."""
        corner = (box[IMAGE][0], self.channels(box)[0], box[ROW][0], box[COLUMN][0])
        dispatch.show(self.operands.output, self.written(box), "output_start", Access.WRITE, at=corner)

    def seconds(self, box: Box) -> float:
        """A box's share of the longest time: of the outputs, with those of a tile that are never stored."""
        return self.longest_seconds * self._outputs(box) / self._all_outputs

    def _outputs(self, box: Box) -> int:
        groups, panels = (box[dimension][1] - box[dimension][0] for dimension in (GROUP, PANEL))
        return self.shape.outputs_of_panels(groups, panels, self.pixels(box))

    @cached_property
    def _all_outputs(self) -> int:
        """The least that dispatches compute together: no box has fewer pixels than outputs."""
        geometry = self.geometry
        return self.shape.padded_outputs(geometry.batch * math.prod(geometry.output_size))

    def grid(self, box: Box) -> tuple[int, int, int]:
        pixel_groups = -(-self.pixels(box) // self.shape.pixels)
        channel_groups = -(-(box[PANEL][1] - box[PANEL][0]) // self.shape.panels)
        groups = box[GROUP][1] - box[GROUP][0]
        if self.shape.tiled:
            return channel_groups, pixel_groups, groups
        return pixel_groups, channel_groups, groups

    def cut(self, box: Box) -> int | None:
        """The dimension along which a box has to be cut; None if the box fits one dispatch."""
        many_groups = box[GROUP][1] - box[GROUP][0] > 1
        many_panels = box[PANEL][1] - box[PANEL][0] > 1
        channel_cut = GROUP if many_groups else PANEL if many_panels else CHANNEL
        written = self.written(box)
        if not self.operands.builder.fits(self.operands.output.tensor, self.operands.output.bounds(written)):
            dimension = largest(reach(self.operands.output, written))
            return None if dimension is None else (IMAGE, channel_cut, ROW, COLUMN)[dimension]
        fitting = self.operands.builder.fits(
            self.packed_filter.tensor, self.packed_filter.bounds(self.panels(box))
        ) and self.parameters_fit(box)
        grid = self.grid(box)
        channel_axis, pixel_axis = (0, 1) if self.shape.tiled else (1, 0)
        crowded = max(grid[channel_axis], grid[2]) > GUARANTEED_WORKGROUP_COUNT
        if (not fitting or crowded) and (many_groups or many_panels):
            return channel_cut
        if grid[pixel_axis] > GUARANTEED_WORKGROUP_COUNT or self.seconds(box) > DISPATCH_SECONDS:
            is_one_tile = self.shape.tiled and self.pixels(box) <= self.shape.pixels
            for dimension in (IMAGE, GROUP, PANEL, ROW, COLUMN):
                # A part of a tile takes as long as all of it.
                is_vain = (dimension == PANEL and many_groups) or (dimension in (IMAGE, ROW, COLUMN) and is_one_tile)
                if box[dimension][1] - box[dimension][0] > 1 and not is_vain:
                    return dimension
        return None
