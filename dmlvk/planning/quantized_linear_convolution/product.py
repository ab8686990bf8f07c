"""The product of the packed operands of a QUANTIZED_LINEAR_CONVOLUTION: what all its kernels share, and the paths
`integer` and `float`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    DISPATCH_SECONDS,
    Box,
    DispatchBuilder,
    Range,
    View,
    boxes,
    by_dimension,
    largest,
    reach,
    sizes_of,
)
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.estimate import EFFICIENCY
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands
from dmlvk.planning.quantized_linear_convolution.packing import PackedFilter, PackedInput, quads_of, words_of
from dmlvk.planning.quantized_linear_convolution.path import ConvolutionPath, Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry, packs_channels
from dmlvk.planning.quantized_linear_convolution.stages import Stages, obstacle_to_packing, packing_seconds

# Multiply-adds of the four bytes of a word, times two.
OPERATIONS_OF_WORD = 8
# How many times the products of groups of one channel count, mostly zeros: the direct kernel is faster on CPU drivers.
SINGLE_CHANNELS = 8
# Loads that a workgroup waits for, one after the other, before its first product.
FIRST_WAITS = 90


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
        return quads_of(self.geometry)

    @property
    def packed_filter(self) -> PackedFilter:
        """The filter as it is packed, without a place."""
        return PackedFilter.of(self.geometry, self.panel, self.channels_last)

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
    images, groups, rows, columns = part.outputs
    everything = (images, rows, groups, (0, panels), columns, (0, width))
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
        return obstacle_to_packing(shape.geometry, problem.profile, shape.quads, shape.packed_filter)

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
        sizes = sizes_of(box)
        outputs = self.shape.outputs_of_panels(sizes[GROUP], sizes[PANEL], self.pixels(box))
        return self.longest_seconds * outputs / self._all_outputs

    @cached_property
    def _all_outputs(self) -> int:
        """The least that dispatches compute together: no box has fewer pixels than outputs."""
        geometry = self.geometry
        return self.shape.padded_outputs(geometry.batch * math.prod(geometry.output_size))

    def grid(self, box: Box) -> tuple[int, int, int]:
        sizes, pixel_groups = sizes_of(box), -(-self.pixels(box) // self.shape.pixels)
        channel_groups = -(-sizes[PANEL] // self.shape.panels)
        if self.shape.tiled:
            return channel_groups, pixel_groups, sizes[GROUP]
        return pixel_groups, channel_groups, sizes[GROUP]

    def cut(self, box: Box) -> int | None:
        """The dimension along which a box has to be cut; None if the box fits one dispatch."""
        many_groups = box[GROUP][1] - box[GROUP][0] > 1
        many_panels = box[PANEL][1] - box[PANEL][0] > 1
        channel_cut = GROUP if many_groups else PANEL if many_panels else CHANNEL
        written = self.written(box)
        if not self.operands.builder.shows(self.operands.output, written):
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


def _tile_channels(profile: DeviceProfile, geometry: ProductGeometry) -> int:
    """Output channels of a tile: not many more than the convolution has, and fewer if large tiles would be too few."""
    channels = geometry.output_channels_per_group
    pixels = geometry.batch * geometry.output_size[0] * geometry.output_size[1]
    tiles = geometry.group_count * -(-channels // 128) * -(-pixels // 128)
    if profile.limits.max_compute_work_group_invocations >= 256 and channels > 64 and tiles >= 512:
        return 128
    return 64 if channels > 32 else 32


@dataclass(frozen=True)
class PackedProductCutter(ProductCutter[ProductShape]):
    """One part's product by dot products or multiplications, with a table of the channels' parameters."""

    table: View

    def parameters_fit(self, box: Box) -> bool:
        return self.operands.builder.shows(self.table, [self.channels(box)])

    def dispatch(self, box: Box) -> Dispatch:
        geometry, part = self.geometry, self.part
        extents, (image, group, quad, row, column) = sizes_of(box), part.strides
        dispatch = DispatchBuilder(self.shape.kernel)
        place = part.place(geometry, *(box[dimension][0] for dimension in (IMAGE, GROUP, ROW, COLUMN)))
        dispatch.window(part.tensor, (part.start, part.start + part.size), place, 4, "input_start")
        self.show_filter(dispatch, box, 4)
        dispatch.show(self.table, [self.channels(box)], "table_start", unit=4)
        self.show_output(dispatch, box)
        dispatch.push(
            pixels=self.pixels(box),
            rows=extents[ROW],
            columns=extents[COLUMN],
            words=self.packed_filter.words,
            input_stride_n=image,
            input_stride_group=group,
            input_stride_quad=quad,
            input_stride_h=row * geometry.strides[0],
            input_stride_w=column * geometry.strides[1],
            tap_stride_h=row * geometry.dilations[0],
            tap_stride_w=column * geometry.dilations[1],
            **by_dimension("output_stride", "nchw", self.operands.output.strides),
        )
        specialization = {
            LOCAL_SIZE_X: self.shape.local_size,
            "FILTER_HEIGHT": geometry.filter_size[0],
            "FILTER_WIDTH": geometry.filter_size[1],
            "OUTPUT_UNSIGNED": int(self.operands.parameters.output_unsigned),
            "STORE_CHANNELS": int(packs_channels(geometry)),
        }
        if self.shape.tiled:
            specialization["TILE_CHANNELS"] = self.shape.panel
        if self.shape.channels_last:
            # Words of K at once: if a pixel has an even number of words, pairs lie together, at multiples of 8 bytes.
            specialization["WORDS"] = 1 if part.quads % 2 else 2
        return dispatch.finish(
            specialization,
            self.grid(box),
            seconds=self.seconds(box),
            bytes_moved=self.bytes_moved(box),
            operations=self.operations(box),
        )


class PackedProductPath(ProductPath[ProductShape]):
    """A path that packs both operands and multiplies the packed words."""

    # The unit that multiplies, by its name among the `Rates`.
    unit: ClassVar[str]

    def shape(self, problem: Problem, geometry: ProductGeometry) -> ProductShape:
        profile, prefix = problem.profile, "quantized_linear_convolution"
        if self.name == "float":
            lanes = profile.subgroup_size
            return ProductShape(geometry, f"{prefix}/registers_float", lanes, 8, 2, 2 * lanes, False, True)
        if profile.device_type is DeviceType.CPU:
            return ProductShape(geometry, f"{prefix}/registers_{self.name}", 16, 8, 1, 64, False, False)
        channels = _tile_channels(profile, geometry)
        return ProductShape(geometry, f"{prefix}/tile_{self.name}", 2 * channels, channels, 1, 128, True, False)

    def kernel_seconds(self, problem: Problem, tile: ProductShape) -> float:
        geometry, rates = tile.geometry, rates_of(problem.profile)
        words = words_of(geometry)
        outputs = tile.padded_outputs(geometry.batch * math.prod(geometry.output_size))
        operations = float(OPERATIONS_OF_WORD * words * outputs)
        if geometry.filter_sizes[1] == 1 and problem.desc.geometry.group_count > 1:
            operations *= SINGLE_CHANNELS
        # CPU drivers have kernels of their own. On a GPU, half of the instructions take bytes out of words.
        share = 1 if problem.profile.device_type is DeviceType.CPU else EFFICIENCY / 2
        waits = FIRST_WAITS + words
        return rates.seconds(1, waits, operations / (share * getattr(rates, self.unit)) + outputs / rates.last_step)

    def plan(self, problem: Problem, tile: ProductShape) -> Plan:
        stages = Stages(problem, tile.geometry, ("input",))
        table = stages.parameter_table()
        packed_filter = stages.packed_filter(tile.packed_filter)
        longest_seconds = self.longest_seconds(problem, tile)

        def product(part: PackedInput) -> list[Dispatch]:
            cutter = PackedProductCutter(stages.operands, tile, packed_filter, part, longest_seconds, table)
            return product_dispatches(cutter)

        stages.add_packed_product(tile.quads, tile.channels_last, product)
        return stages.plan(self.name)


class IntegerPath(PackedProductPath):
    """Packs input and filter; 32-bit multiplications, which every device has."""

    name = "integer"
    unit = "integer"


class FloatPath(PackedProductPath):
    """Packs input and filter; float32 multiplications, in sums short enough to be exact. For lavapipe, which supports
    shuffles.
    """

    name = "float"
    unit = "float32"

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        if device_traits.can_run_float_kernel(profile):
            return None
        possible = "lavapipe, with 8 lanes or more and shaderInt64"
        return Obstacle("driver and lanes of a subgroup", (profile.driver_name, profile.min_subgroup_size), possible)
