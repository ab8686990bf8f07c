"""The product of the packed operands of a QUANTIZED_LINEAR_CONVOLUTION: which kernel, which tiles, which dispatches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    DISPATCH_SECONDS,
    Builder,
    DispatchBuilder,
    Range,
    View,
    halves,
    largest,
    reach,
)
from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.packing import PackedFilter, PackedInput
from dmlvk.planning.quantized_linear_convolution.parameters import table_bounds

# A product of two signed bytes is at most 2^14, so that this many words of four always add up within 31 bits.
LARGEST_WORD_COUNT = 131_071 // 4

PATHS = ("dot4", "integer", "float")


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
        What it reaches at the very least.
    """

    kernel: str
    local_size: int
    panel: int
    panels: int
    pixels: int
    tiled: bool
    channels_last: bool
    operations_per_second: float

    def seconds(self, columns: int, words: int) -> float:
        """An estimate for so many columns of a panel's channels, with so many words of K an output."""
        # The last step and the store of an output cost about as much as some tens of words.
        return columns * self.panel * 8 * (words + 30) / self.operations_per_second


def available_paths(profile: DeviceProfile) -> tuple[str, ...]:
    """The product paths that a device can run, the best first."""
    paths = ["integer"]
    if profile.has_integer_dot_product:
        paths.insert(0, "dot4")
    if device_traits.can_run_float_kernel(profile):
        paths.insert(0, "float")
    return tuple(paths)


def product_shape(path: str, profile: DeviceProfile, geometry: ConvolutionGeometry) -> Shape:
    """The kernel and tile for a path that the device can run."""
    prefix = "quantized_linear_convolution"
    if path == "float":
        lanes = profile.subgroup_size
        return Shape(f"{prefix}/registers_float", lanes, 8, 2, 2 * lanes, False, True, 8e9)
    if profile.device_type is DeviceType.CPU:
        speed = 1e9 if path == "dot4" else 5e8
        return Shape(f"{prefix}/registers_{path}", 16, 8, 1, 64, False, False, speed)
    channels = _tile_channels(profile, geometry)
    speed = {DeviceType.DISCRETE_GPU: 1e12}.get(profile.device_type, 50e9)
    if path == "integer":
        speed /= 8
    elif device_traits.has_fast_dot_product(profile):
        speed *= 8
    return Shape(f"{prefix}/tile_{path}", 2 * channels, channels, 1, 128, True, False, speed)


def _tile_channels(profile: DeviceProfile, geometry: ConvolutionGeometry) -> int:
    """Output channels of a tile: not many more than there are, and fewer where the large tiles would be too few."""
    channels = geometry.output_channels_per_group
    pixels = geometry.batch * geometry.output_size[0] * geometry.output_size[1]
    tiles = geometry.group_count * -(-channels // 128) * -(-pixels // 128)
    if profile.limits.max_compute_work_group_invocations >= 256 and channels > 64 and tiles >= 512:
        return 128
    return 64 if channels > 32 else 32


def product_dispatches(order: ProductCutter) -> list[Dispatch]:
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


@dataclass(frozen=True)
class ProductCutter(ABC):
    """One part's product, to be cut into dispatches."""

    builder: Builder
    geometry: ConvolutionGeometry
    shape: Shape
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
        pixels = self.pixels(box)
        if self.shape.tiled:
            pixels = -(-pixels // self.shape.pixels) * self.shape.pixels
        panels = -(-(box[PANEL][1] - box[PANEL][0]) // self.shape.panels) * self.shape.panels
        return self.shape.seconds((box[GROUP][1] - box[GROUP][0]) * pixels * panels, self.packed_filter.words)

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
class PackedProductCutter(ProductCutter):
    """One part's product by dot products or multiplications, with a table of the channels' parameters."""

    table: View

    def parameters_fit(self, box: tuple[Range, ...]) -> bool:
        return self.builder.fits(self.table.tensor, table_bounds(self.table, self.channels(box)))

    def dispatch(self, box: tuple[Range, ...]) -> Dispatch:
        geometry, part, packed_filter = self.geometry, self.part, self.packed_filter
        channels, written = self.channels(box), self.written(box)
        extents = [high - low for low, high in box]
        dispatch = DispatchBuilder(self.shape.kernel, 25)
        quad_stride, row_stride, column_stride = part.strides
        first_word = (
            (box[IMAGE][0] - part.images[0]) * part.image_stride
            + (box[GROUP][0] - part.groups[0]) * part.group_stride
            + (box[ROW][0] - part.output_rows[0]) * geometry.strides[0] * row_stride
            + (box[COLUMN][0] - part.output_columns[0]) * geometry.strides[1] * column_stride
        )
        dispatch.window(
            part.tensor, (part.start, part.start + part.size), part.start + 4 * first_word, 4, 0, Access.READ
        )
        panels = packed_filter.bounds(self.panels(box))
        dispatch.window(packed_filter.tensor, panels, panels[0], 4, 1, Access.READ)
        records = table_bounds(self.table, channels)
        dispatch.window(self.table.tensor, records, records[0], 4, 2, Access.READ)
        address = self.output.address((box[IMAGE][0], channels[0], box[ROW][0], box[COLUMN][0]))
        dispatch.window(self.output.tensor, self.output.bounds(written), address, 1, 3, Access.WRITE)
        first_stored, end_stored = (channel - channels[0] for channel in self.stored(box))
        if extents[GROUP] > 1:
            first_stored, end_stored = 0, geometry.output_channels_per_group
        dispatch.push_constants[4:] = [
            extents[IMAGE] * extents[ROW] * extents[COLUMN],
            extents[ROW],
            extents[COLUMN],
            packed_filter.words,
            geometry.tap_count,
            end_stored,
            geometry.output_channels_per_group,
            packed_filter.panel_size // 4,
            packed_filter.panels_of_group if extents[GROUP] > 1 else extents[PANEL],
            part.image_stride,
            part.group_stride,
            quad_stride,
            row_stride * geometry.strides[0],
            column_stride * geometry.strides[1],
            row_stride * geometry.dilations[0],
            column_stride * geometry.dilations[1],
            *self.output.strides,
            first_stored,
        ]
        # Words of four channels where channels lie side by side (NHWC), else of four pixels.
        store_channels = self.output.strides[1] == 1 and geometry.output_channels > 1
        specialization = [self.shape.local_size, *geometry.filter_size, int(self.output_unsigned), int(store_channels)]
        if self.shape.tiled:
            specialization.append(self.shape.panel)
        if self.shape.channels_last:
            # Words of K at once: pairs lie together, at multiples of 8 bytes, where a pixel has an even number.
            specialization.append(1 if part.quads % 2 else 2)
        operations = self.operations(box)
        moved = part.size + panels[1] - panels[0] + operations // (2 * geometry.tap_count)
        return dispatch.finish(
            specialization, self.grid(box), seconds=self.seconds(box), bytes_moved=moved, operations=operations
        )
