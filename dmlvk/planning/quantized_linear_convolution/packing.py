"""The filter of a QUANTIZED_LINEAR_CONVOLUTION as words of four channels, and its channels' parameters: dispatches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import Box, DispatchBuilder, Range, boxes, by_dimension, dense_copy
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import PERSISTENT, Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import Operands
from dmlvk.planning.quantized_linear_convolution.product_geometry import joined_groups

UNSIGNED_FLIP = 0x80
WORKGROUP_SIZE = 64
# Output channels of the widest panels of any path.
WIDEST_PANEL = 128


@dataclass(frozen=True)
class ChannelWords:
    """How many words of four channels there are."""

    quads: int  # words that hold the channels of a group at one position
    # Words under the filter: K / 4.
    per_output: int

    @classmethod
    def of(cls, geometry: ConvolutionGeometry) -> ChannelWords:
        quads = -(-geometry.input_channels_per_group // 4)
        return cls(quads, quads * geometry.filter_size[0] * geometry.filter_size[1])


@dataclass(frozen=True)
class PackedFilter:
    """The filter as panels of `width` output channels: words[k][channel], then a row with each channel's sum.

    With `rows_after` above 1, rows with each channel's parameters follow the sums.
    """

    tensor: str
    start: int
    width: int
    words: int
    channels_of_group: int
    rows_after: int = 1

    @property
    def panels_of_group(self) -> int:
        return -(-self.channels_of_group // self.width)

    def first_channel(self, panel: int) -> int:
        return panel // self.panels_of_group * self.channels_of_group + panel % self.panels_of_group * self.width

    def channels(self, panels: Range) -> Range:
        """The output channels of some panels."""
        last = panels[1] - 1
        group_end = (last // self.panels_of_group + 1) * self.channels_of_group
        return self.first_channel(panels[0]), min(self.first_channel(last) + self.width, group_end)

    @property
    def panel_size(self) -> int:
        """Bytes of one panel."""
        return (self.words + self.rows_after) * self.width * 4

    def bounds(self, panels: Range) -> Range:
        return self.start + panels[0] * self.panel_size, self.start + panels[1] * self.panel_size

    @classmethod
    def size_of(cls, geometry: ConvolutionGeometry, width: int, words: int, rows_after: int = 1) -> int:
        """Bytes of the whole filter in panels, with `words` words for each output channel."""
        panels = -(-geometry.output_channels_per_group // width) * geometry.group_count
        return panels * (words + rows_after) * width * 4


@dataclass(frozen=True)
class FilterPacking:
    """A kernel that packs filters, and what it takes besides."""

    kernel: str
    words: int  # words of an output channel
    specialization: Mapping[str, int]  # its additional specialization constants
    # Rows of a panel after its words: the sums, and room for the channels' parameters.
    rows_after: int = 1
    sizes: Mapping[str, int] | None = None  # the layout of K, for a kernel that takes all sizes as push constants

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, channels_last: bool) -> FilterPacking:
        """The packing for products that take words[k][channel]. The order of k is that of the packed input."""
        words = ChannelWords.of(geometry).per_output
        return cls("quantized_linear_convolution/pack_filter", words, {"CHANNELS_LAST": int(channels_last)})


# Dispatches that copy a filter, and those that pack it.
Phases: TypeAlias = tuple[list[Dispatch], list[Dispatch]]


def pack_filter(
    operands: Operands, is_owned: bool, width: int, packing: FilterPacking
) -> tuple[PackedFilter, Phases, Phases]:
    """The packed filter, in panels of `width` channels, what runs once, and what runs at each execution.

    It is packed once if the tensor is OWNED_BY_DML. The filter's zero point stands between the channels of joined
    groups. Its view, by output channel, fits windows. If it may change from one execution to the next, an owned filter
    is kept as it is, and packed at each execution.
    """
    builder, geometry, source = operands.builder, operands.geometry, operands.filter
    zero_point = operands.parameters.views.get("filter_zero_point_tensor")
    size = PackedFilter.size_of(geometry, width, packing.words, packing.rows_after)
    kept: list[Dispatch] = []
    if is_owned and joined_groups(geometry) > 1 and not (zero_point is None or zero_point.tensor == PERSISTENT):
        is_owned = False
        source, kept = dense_copy(builder, builder.persistent, source, geometry.filter_sizes)
    arena = builder.persistent if is_owned else builder.scratch
    of_group = geometry.output_channels_per_group
    packed = PackedFilter(arena.name, arena.allocate(size), width, packing.words, of_group, packing.rows_after)

    def is_shown(panels: Range) -> bool:
        return builder.fits(source.tensor, source.bounds(_filters(operands, packed, panels)))

    def cut(box: Box) -> int | None:
        (panels,) = box
        first, last = packed.channels(panels)
        is_long = (last - first) * packing.words * 4 > builder.elements_per_dispatch
        fits = is_shown(panels) and builder.fits(packed.tensor, packed.bounds(panels))
        return 0 if panels[1] - panels[0] > 1 and (is_long or not fits) else None

    before: list[Dispatch] = []
    everything: Box = ((0, geometry.group_count * packed.panels_of_group),)
    if not is_shown(everything[0]) and not all(is_shown(panels) for (panels,) in boxes(everything, cut)):
        # The strides are so large that one panel's channels do not fit a window.
        source, before = dense_copy(builder, arena, source, geometry.filter_sizes)
    operands = replace(operands, filter=source)
    dispatches = [_pack_filter_dispatch(operands, packing, packed, panels) for (panels,) in boxes(everything, cut)]
    return (packed, (before, dispatches), ([], [])) if is_owned else (packed, (kept, []), (before, dispatches))


def _filters(operands: Operands, packed: PackedFilter, panels: Range) -> Box:
    """The box of the filter that some panels hold."""
    return packed.channels(panels), *((0, size) for size in operands.geometry.filter_sizes[1:])


def _pack_filter_dispatch(operands: Operands, packing: FilterPacking, packed: PackedFilter, panels: Range) -> Dispatch:
    geometry, joined, channels_of_group = operands.geometry, joined_groups(operands.geometry), packed.channels_of_group
    # Only between joined groups.
    zero_point = operands.parameters.views.get("filter_zero_point_tensor") if joined > 1 else None
    (first, last), written = packed.channels(panels), packed.bounds(panels)
    dispatch = DispatchBuilder(packing.kernel)
    dispatch.show(operands.filter, _filters(operands, packed, panels), "filter_start")
    dispatch.window(packed.tensor, written, written[0], 4, "packed_start", Access.WRITE)
    if zero_point is None:
        dispatch.unread_window(dispatch.windows[0], "zero_point_start")
    else:
        dispatch.show(zero_point, [(first, last)], "zero_point_start")
    dispatch.push(
        count=last - first,
        channels=geometry.filter_sizes[1],
        words=packing.words,
        channels_of_group=channels_of_group,
        first_of_group=first % channels_of_group,
        **by_dimension("stride", "mchw", operands.filter.strides),
    )
    specialization = {
        LOCAL_SIZE_X: WORKGROUP_SIZE,
        "FLIP": UNSIGNED_FLIP if operands.parameters.filter_unsigned else 0,
        "JOINED": joined,
        "HAS_ZERO_POINT": int(zero_point is not None),
        **packing.specialization,
    }
    layout = {
        "WIDTH": packed.width,
        "FILTER_HEIGHT": geometry.filter_size[0],
        "FILTER_WIDTH": geometry.filter_size[1],
        "ROWS_AFTER": packing.rows_after,
        "ZERO_POINT_STRIDE": 0 if zero_point is None else zero_point.strides[0],
    }
    if packing.sizes is None:
        specialization.update(layout)
    else:
        dispatch.push(**{name.lower(): value for name, value in {**layout, **packing.sizes}.items()})
    elements, builder = (last - first) * packing.words * 4, operands.builder
    grid, seconds = folded(last - first, builder.profile), builder.element_seconds(elements)
    return dispatch.finish(specialization, grid, seconds=seconds, bytes_moved=2 * elements)


PARAMETERS_KERNEL = "quantized_linear_convolution/matrix_parameters"
# Rows of a panel after its words: the sums, and those of kernels/quantized_linear_convolution/prepared_channel.glsl.
PREPARED_ROWS = 5


def with_parameters(packing: FilterPacking) -> FilterPacking:
    """The same packing, with room for the channels' parameters."""
    return replace(packing, rows_after=PREPARED_ROWS)


def channel_parameters(operands: Operands, packed: PackedFilter) -> list[Dispatch]:
    """Dispatches that work the parameters out, after the filter is packed. Each source fits one window."""
    builder, geometry, sources = operands.builder, operands.geometry, operands.parameters

    def cut(box: Box) -> int | None:
        (panels,) = box
        return 0 if panels[1] - panels[0] > 1 and not builder.fits(packed.tensor, packed.bounds(panels)) else None

    dispatches: list[Dispatch] = []
    for (panels,) in boxes(((0, geometry.group_count * packed.panels_of_group),), cut):
        bounds, channels, count = packed.bounds(panels), packed.channels(panels), panels[1] - panels[0]
        dispatch = DispatchBuilder(PARAMETERS_KERNEL)
        dispatch.window(packed.tensor, bounds, bounds[0], 4, "panels_start", Access.WRITE)
        sources.bind(dispatch, channels, dispatch.windows[0])
        dispatch.push(
            panels=count,
            words=packed.words,
            channels_of_group=packed.channels_of_group,
            first_panel=panels[0] % packed.panels_of_group,
            taps=geometry.tap_count,
            width=packed.width,
        )
        specialization, grid = {LOCAL_SIZE_X: WORKGROUP_SIZE, **sources.constants}, folded(count, builder.profile)
        seconds, moved = builder.element_seconds(8 * packed.width * count), 40 * (channels[1] - channels[0])
        dispatches.append(dispatch.finish(specialization, grid, seconds=seconds, bytes_moved=moved))
    return dispatches
