"""The product of the packed operands of a QUANTIZED_LINEAR_CONVOLUTION: which kernel, which tiles, which dispatches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    DISPATCH_SECONDS,
    Builder,
    DispatchBuilder,
    Range,
    View,
    by_dimension,
    halves,
    largest,
    reach,
)
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.packing import ChannelWords, FilterPacking, PackedFilter, PackedInput
from dmlvk.planning.quantized_linear_convolution.parameters import table_bounds
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem, Rank
from dmlvk.planning.quantized_linear_convolution.stages import (
    Stages,
    is_unsigned,
    obstacle_to_packing,
    packing_seconds,
)

# Operations a second on a CPU at the very least, by path.
CPU_RATES = {"float": 8e9, "dot4": 1e9, "integer": 5e8}
# With fewer workgroups each multiprocessor of a large GPU has one or two, which wait for memory; an integrated GPU has
# a few multiprocessors.
FEW_WORKGROUPS = {DeviceType.DISCRETE_GPU: 256, DeviceType.INTEGRATED_GPU: 8}

# A multiplication of the direct kernel takes as long as so many words of a packed product.
WORDS_OF_DIRECT_TAP = 5

# Multiply-adds of the four bytes of a word, times two.
OPERATIONS_OF_WORD = 8
# The last step and the store of an output cost about as much as so many words of taps.
LAST_STEP_WORDS = 30


@dataclass(frozen=True)
class Shape:
    """How a product kernel cuts its work.

    Attributes
    ----------
    kernel : str
    local_size : int
        Invocations of a workgroup.
    panel : int
        Output channels of a filter panel.
    panels, pixels : int
        What a workgroup makes.
    tiled : bool
        The kernels with shared memory: channels along x, pixels along y, and the panel is a specialization constant.
    channels_last : bool
        Whether it takes its operands packed so.
    operations_per_second : float
        What it reaches at the very least, with as many workgroups as fill the device.
    enough_workgroups : int
        Fewer take as long.
    """

    kernel: str
    local_size: int
    panel: int
    panels: int
    pixels: int
    tiled: bool
    channels_last: bool
    operations_per_second: float
    enough_workgroups: int

    def seconds(self, columns: int, words: int) -> float:
        """An estimate for so many columns of a panel's channels, with so many words of K an output."""
        operations = columns * self.panel * OPERATIONS_OF_WORD * (words + LAST_STEP_WORDS)
        return operations / self.operations_per_second

    def seconds_of_panels(self, groups: int, panels: int, pixels: int, words: int) -> float:
        """The estimate for some panels of some groups; unused channels and unused pixels of tiles count as well."""
        panels = -(-panels // self.panels) * self.panels
        columns = -(-pixels // self.pixels) * self.pixels if self.tiled else pixels
        return self.seconds(groups * columns * panels, words)

    def seconds_of(self, geometry: ConvolutionGeometry, words: int, pixels: int | None = None) -> float:
        """The estimate for a whole convolution, on a device of which it leaves a part idle where it is small.

        Parameters
        ----------
        words : int
            Words of an output channel in the packed filter.
        pixels : int, optional
            Pixels that the kernel counts; those of the output by default.
        """
        if pixels is None:
            pixels = geometry.batch * math.prod(geometry.output_size)
        groups, panels = geometry.group_count, -(-geometry.output_channels_per_group // self.panel)
        workgroups = groups * -(-panels // self.panels) * -(-pixels // self.pixels)
        idle = max(1, self.enough_workgroups / workgroups)
        return self.seconds_of_panels(groups, panels, pixels, words) * idle


def product_shape(path: str, profile: DeviceProfile, geometry: ConvolutionGeometry) -> Shape:
    """The kernel and tile for a path that the device can run."""
    prefix = "quantized_linear_convolution"
    if path == "float":
        lanes = profile.subgroup_size
        return Shape(f"{prefix}/registers_float", lanes, 8, 2, 2 * lanes, False, True, CPU_RATES[path], 1)
    if profile.device_type is DeviceType.CPU:
        return Shape(f"{prefix}/registers_{path}", 16, 8, 1, 64, False, False, CPU_RATES[path], 1)
    channels = _tile_channels(profile, geometry)
    speed = dot_product_rate(profile) if path == "dot4" else integer_rate(profile)
    return Shape(
        f"{prefix}/tile_{path}", 2 * channels, channels, 1, 128, True, False, speed, enough_workgroups(profile)
    )


def enough_workgroups(profile: DeviceProfile) -> int:
    """Workgroups that fill a device: fewer take as long."""
    return FEW_WORKGROUPS.get(profile.device_type, 1)


def _rate(profile: DeviceProfile) -> float:
    return {DeviceType.DISCRETE_GPU: 1e12}.get(profile.device_type, 50e9)


def integer_rate(profile: DeviceProfile) -> float:
    """Operations a second that 32-bit multiplications reach on a GPU at the very least."""
    return _rate(profile) / 8


def dot_product_rate(profile: DeviceProfile) -> float:
    """Operations a second that packed dot products reach on a GPU at the very least."""
    return _rate(profile) * (8 if device_traits.has_fast_dot_product(profile) else 1)


def _tile_channels(profile: DeviceProfile, geometry: ConvolutionGeometry) -> int:
    """Output channels of a tile: not many more than there are, and fewer where the large tiles would be too few."""
    channels = geometry.output_channels_per_group
    pixels = geometry.batch * geometry.output_size[0] * geometry.output_size[1]
    tiles = geometry.group_count * -(-channels // 128) * -(-pixels // 128)
    if profile.limits.max_compute_work_group_invocations >= 256 and channels > 64 and tiles >= 512:
        return 128
    return 64 if channels > 32 else 32


def product_dispatches(order: ProductCutter[Any]) -> list[Dispatch]:
    """Dispatches for one packed part of the input.

    Boxes are (image, output row, group, panel of a group, output column, channel of a panel); only a single panel is
    cut further into channels, which it all computes and then stores in part.
    """
    part, packed_filter = order.part, order.packed_filter
    pending: list[tuple[Range, ...]] = [
        (
            part.images,
            part.output_rows,
            part.groups,
            (0, packed_filter.panels_of_group),
            part.output_columns,
            (0, min(packed_filter.width, order.geometry.output_channels_per_group)),
        )
    ]
    dispatches: list[Dispatch] = []
    while pending:
        box = pending.pop(0)
        if order.is_empty(box):
            continue
        cut = order.cut(box)
        if cut is None:
            dispatches.append(order.dispatch(box))
        else:
            pending[:0] = halves(box, cut)
    return dispatches


IMAGE, ROW, GROUP, PANEL, COLUMN, CHANNEL = range(6)


AnyShape = TypeVar("AnyShape", bound=Shape)


@dataclass(frozen=True)
class ProductCutter(ABC, Generic[AnyShape]):
    """One part's product, to be cut into dispatches."""

    builder: Builder
    geometry: ConvolutionGeometry
    shape: AnyShape
    packed_filter: PackedFilter
    part: PackedInput
    output: View
    output_unsigned: bool

    @abstractmethod
    def dispatch(self, box: tuple[Range, ...]) -> Dispatch:
        """The dispatch that makes a box."""

    @abstractmethod
    def parameters_fit(self, box: tuple[Range, ...]) -> bool:
        """Whether windows show what belongs to a box's output channels."""

    def is_empty(self, box: tuple[Range, ...]) -> bool:
        """Whether a box holds only channels that the last panel of a group does not have."""
        channels = self.geometry.output_channels_per_group - box[PANEL][0] * self.packed_filter.width
        return box[CHANNEL][0] >= channels

    def channels(self, box: tuple[Range, ...]) -> Range:
        """The output channels whose panels a box computes; groups are whole wherever there are several."""
        of_group, width = self.geometry.output_channels_per_group, self.packed_filter.width
        first = box[GROUP][0] * of_group + box[PANEL][0] * width
        return first, (box[GROUP][1] - 1) * of_group + min(box[PANEL][1] * width, of_group)

    def stored(self, box: tuple[Range, ...]) -> Range:
        """The output channels that a box stores."""
        first, last = self.channels(box)
        if box[PANEL][1] - box[PANEL][0] == 1 and box[GROUP][1] - box[GROUP][0] == 1:
            return first + box[CHANNEL][0], min(first + box[CHANNEL][1], last)
        return first, last

    def panels(self, box: tuple[Range, ...]) -> Range:
        """Panels of the filter, counted over all groups."""
        of_group = self.packed_filter.panels_of_group
        return box[GROUP][0] * of_group + box[PANEL][0], (box[GROUP][1] - 1) * of_group + box[PANEL][1]

    def written(self, box: tuple[Range, ...]) -> tuple[Range, ...]:
        return box[IMAGE], self.stored(box), box[ROW], box[COLUMN]

    def operations(self, box: tuple[Range, ...]) -> int:
        low, high = self.stored(box)
        pixels = 1
        for dimension in (IMAGE, ROW, COLUMN):
            pixels *= box[dimension][1] - box[dimension][0]
        return 2 * pixels * (high - low) * self.geometry.tap_count

    def pixels(self, box: tuple[Range, ...]) -> int:
        """What the kernel counts along its grid."""
        return math.prod(box[dimension][1] - box[dimension][0] for dimension in (IMAGE, ROW, COLUMN))

    def seconds(self, box: tuple[Range, ...]) -> float:
        """An estimate by what is done, unused channels of panels and unused pixels of tiles included."""
        groups, panels = (box[dimension][1] - box[dimension][0] for dimension in (GROUP, PANEL))
        return self.shape.seconds_of_panels(groups, panels, self.pixels(box), self.packed_filter.words)

    def grid(self, box: tuple[Range, ...]) -> tuple[int, int, int]:
        pixel_groups = -(-self.pixels(box) // self.shape.pixels)
        channel_groups = -(-(box[PANEL][1] - box[PANEL][0]) // self.shape.panels)
        groups = box[GROUP][1] - box[GROUP][0]
        if self.shape.tiled:
            return channel_groups, pixel_groups, groups
        return pixel_groups, channel_groups, groups

    def cut(self, box: tuple[Range, ...]) -> int | None:
        """The dimension along which a box has to be cut; None where it is a dispatch."""
        many_groups = box[GROUP][1] - box[GROUP][0] > 1
        many_panels = box[PANEL][1] - box[PANEL][0] > 1
        channel_cut = GROUP if many_groups else PANEL if many_panels else CHANNEL
        written = self.written(box)
        if not self.builder.fits(self.output.tensor, self.output.bounds(written)):
            dimension = largest(reach(self.output, written))
            return None if dimension is None else (IMAGE, channel_cut, ROW, COLUMN)[dimension]
        fitting = self.builder.fits(
            self.packed_filter.tensor, self.packed_filter.bounds(self.panels(box))
        ) and self.parameters_fit(box)
        grid = self.grid(box)
        channel_axis, pixel_axis = (0, 1) if self.shape.tiled else (1, 0)
        crowded = max(grid[channel_axis], grid[2]) > GUARANTEED_WORKGROUP_COUNT
        if (not fitting or crowded) and (many_groups or many_panels):
            return channel_cut
        if grid[pixel_axis] > GUARANTEED_WORKGROUP_COUNT or self.seconds(box) > DISPATCH_SECONDS:
            for dimension in (IMAGE, GROUP, PANEL, ROW, COLUMN):
                if box[dimension][1] - box[dimension][0] > 1 and not (dimension == PANEL and many_groups):
                    return dimension
        return None


@dataclass(frozen=True)
class PackedProductCutter(ProductCutter[Shape]):
    """One part's product by dot products or multiplications, with a table of the channels' parameters."""

    table: View

    def parameters_fit(self, box: tuple[Range, ...]) -> bool:
        return self.builder.fits(self.table.tensor, table_bounds(self.table, self.channels(box)))

    def dispatch(self, box: tuple[Range, ...]) -> Dispatch:
        geometry, part, packed_filter = self.geometry, self.part, self.packed_filter
        channels, written = self.channels(box), self.written(box)
        extents = [high - low for low, high in box]
        dispatch = DispatchBuilder(self.shape.kernel)
        quad_stride, row_stride, column_stride = part.strides
        first_word = (
            (box[IMAGE][0] - part.images[0]) * part.image_stride
            + (box[GROUP][0] - part.groups[0]) * part.group_stride
            + (box[ROW][0] - part.output_rows[0]) * geometry.strides[0] * row_stride
            + (box[COLUMN][0] - part.output_columns[0]) * geometry.strides[1] * column_stride
        )
        start = part.start + 4 * first_word
        dispatch.window(part.tensor, (part.start, part.start + part.size), start, 4, "input_start", Access.READ)
        panels = packed_filter.bounds(self.panels(box))
        dispatch.window(packed_filter.tensor, panels, panels[0], 4, "filter_start", Access.READ)
        records = table_bounds(self.table, channels)
        dispatch.window(self.table.tensor, records, records[0], 4, "table_start", Access.READ)
        address = self.output.address((box[IMAGE][0], channels[0], box[ROW][0], box[COLUMN][0]))
        dispatch.window(self.output.tensor, self.output.bounds(written), address, 1, "output_start", Access.WRITE)
        first_stored, end_stored = (channel - channels[0] for channel in self.stored(box))
        if extents[GROUP] > 1:
            first_stored, end_stored = 0, geometry.output_channels_per_group
        dispatch.push(
            pixels=extents[IMAGE] * extents[ROW] * extents[COLUMN],
            rows=extents[ROW],
            columns=extents[COLUMN],
            words=packed_filter.words,
            taps=geometry.tap_count,
            channels=end_stored,
            channels_of_group=geometry.output_channels_per_group,
            panel_stride=packed_filter.panel_size // 4,
            panels_of_group=packed_filter.panels_of_group if extents[GROUP] > 1 else extents[PANEL],
            input_stride_n=part.image_stride,
            input_stride_group=part.group_stride,
            input_stride_quad=quad_stride,
            input_stride_h=row_stride * geometry.strides[0],
            input_stride_w=column_stride * geometry.strides[1],
            tap_stride_h=row_stride * geometry.dilations[0],
            tap_stride_w=column_stride * geometry.dilations[1],
            **by_dimension("output_stride", "nchw", self.output.strides),
            first_channel=first_stored,
        )
        # Words of four channels where channels lie side by side (NHWC), else of four pixels.
        store_channels = self.output.strides[1] == 1 and geometry.output_channels > 1
        specialization = {
            LOCAL_SIZE_X: self.shape.local_size,
            "FILTER_HEIGHT": geometry.filter_size[0],
            "FILTER_WIDTH": geometry.filter_size[1],
            "OUTPUT_UNSIGNED": int(self.output_unsigned),
            "STORE_CHANNELS": int(store_channels),
        }
        if self.shape.tiled:
            specialization["TILE_CHANNELS"] = self.shape.panel
        if self.shape.channels_last:
            # Words of K at once: pairs lie together, at multiples of 8 bytes, where a pixel has an even number.
            specialization["WORDS"] = 1 if part.quads % 2 else 2
        operations = self.operations(box)
        moved = part.size + panels[1] - panels[0] + operations // (2 * geometry.tap_count)
        return dispatch.finish(
            specialization, self.grid(box), seconds=self.seconds(box), bytes_moved=moved, operations=operations
        )


class PackedProductPath(Path[Shape]):
    """A path that packs both operands and multiplies the packed words."""

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        return None

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        words = ChannelWords.of(problem.folded_geometry)
        return obstacle_to_packing(problem.folded_geometry, problem.profile, words.quads, words.per_output)

    def rank(self, problem: Problem) -> int | None:
        geometry = problem.folded_geometry
        if type(self) is not _best_product(problem.profile):
            return None
        # In narrow groups a product would mostly multiply for channels that nobody stores.
        shape = product_shape(self.name, problem.profile, geometry)
        width, channels = shape.panel * shape.panels, geometry.output_channels_per_group
        computed = -(-channels // width) * width / channels
        is_narrow = ChannelWords.of(geometry).per_output * computed > geometry.tap_count * WORDS_OF_DIRECT_TAP
        return None if is_narrow else Rank.PACKED

    def tiles(self, problem: Problem) -> tuple[Shape]:
        return (product_shape(self.name, problem.profile, problem.folded_geometry),)

    def seconds(self, problem: Problem, tile: Shape) -> float:
        geometry = problem.folded_geometry
        words = ChannelWords.of(geometry)
        return tile.seconds_of(geometry, words.per_output) + packing_seconds(problem, geometry, words.quads)

    def plan(self, problem: Problem, tile: Shape) -> Plan:
        geometry = problem.folded_geometry
        stages = Stages(problem, geometry, ("input_tensor",))
        table = stages.parameter_table()
        packed_filter = stages.packed_filter(tile.panel, FilterPacking.of(geometry, tile.channels_last))

        def product(part: PackedInput) -> list[Dispatch]:
            output, is_output_unsigned = stages.views["output_tensor"], is_unsigned(problem.desc, "output_tensor")
            common = (stages.builder, geometry, tile, packed_filter, part, output, is_output_unsigned)
            return product_dispatches(PackedProductCutter(*common, table))

        stages.add_packed_product(ChannelWords.of(geometry).quads, tile.channels_last, product)
        return stages.plan(self.name)


class Dot4Path(PackedProductPath):
    """By packed dot products of four signed bytes."""

    name = "dot4"

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        return None if profile.has_integer_dot_product else Obstacle("shaderIntegerDotProduct", "absent", "present")


class IntegerPath(PackedProductPath):
    """By 32-bit multiplications, which every device has."""

    name = "integer"


class FloatPath(PackedProductPath):
    """By float32 multiplications in exact blocks. The kernel is made for lavapipe, which has shuffles."""

    name = "float"

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        if device_traits.can_run_float_kernel(profile):
            return None
        possible = "lavapipe, with 8 lanes or more and shaderInt64"
        return Obstacle("driver and lanes of a subgroup", (profile.driver_name, profile.min_subgroup_size), possible)


def _best_product(profile: DeviceProfile) -> type[PackedProductPath]:
    """The fastest of the packed products that a device has."""
    return next(path for path in (FloatPath, Dot4Path, IntegerPath) if path().obstacle_on(profile) is None)
