"""The filter of a QUANTIZED_LINEAR_CONVOLUTION as words of four channels: its layout, and dispatches that pack it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import (
    Arena,
    Builder,
    DispatchBuilder,
    Range,
    View,
    by_dimension,
    copies,
    dense,
    halves,
)
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch

UNSIGNED_FLIP = 0x80
PACK_FILTER_WORKGROUP_SIZE = 64
# Output channels of the widest panels of any path.
WIDEST_PANEL = 128


def folded_geometry(geometry: ConvolutionGeometry) -> ConvolutionGeometry:
    """The same convolution, which steps over the input in dimensions with one tap and packs only what it reads.

    A filter of size 1 with stride s reads only every s-th position. That equals stride 1 on an input with s times the
    element stride, as long as the padding is a multiple of s.
    """
    sizes, strides = list(geometry.input_size), list(geometry.strides)
    dilations, padding = list(geometry.dilations), list(geometry.start_padding)
    input_strides = list(geometry.input_strides)
    for k in range(2):
        if geometry.filter_size[k] != 1:
            continue
        dilations[k] = 1
        if padding[k] % strides[k] == 0:
            padding[k] //= strides[k]
            sizes[k] = -(-sizes[k] // strides[k])
            input_strides[2 + k] *= strides[k]
            strides[k] = 1
    return replace(
        geometry,
        input_size=(sizes[0], sizes[1]),
        strides=(strides[0], strides[1]),
        dilations=(dilations[0], dilations[1]),
        start_padding=(padding[0], padding[1]),
        input_strides=(input_strides[0], input_strides[1], input_strides[2], input_strides[3]),
    )


@dataclass(frozen=True)
class ChannelWords:
    """How many words of four channels there are.

    Attributes
    ----------
    quads : int
        Words that hold the channels of a group at one position.
    per_output : int
        Words under the filter: K / 4.
    """

    quads: int
    per_output: int

    @classmethod
    def of(cls, geometry: ConvolutionGeometry) -> ChannelWords:
        quads = -(-geometry.input_channels_per_group // 4)
        return cls(quads, quads * geometry.filter_size[0] * geometry.filter_size[1])


@dataclass(frozen=True)
class PackedFilter:
    """The filter as panels of `width` output channels: words[k][channel], then a row with each channel's sum."""

    tensor: str
    start: int
    width: int
    words: int
    panels_of_group: int

    @property
    def panel_size(self) -> int:
        """Bytes of one panel."""
        return (self.words + 1) * self.width * 4

    def bounds(self, panels: Range) -> Range:
        return self.start + panels[0] * self.panel_size, self.start + panels[1] * self.panel_size

    @classmethod
    def size_of(cls, geometry: ConvolutionGeometry, width: int, words: int) -> int:
        """Bytes of the whole filter in panels, with `words` words for each output channel."""
        panels = -(-geometry.output_channels_per_group // width) * geometry.group_count
        return panels * (words + 1) * width * 4


@dataclass(frozen=True)
class FilterPacking:
    """A kernel that packs filters, its additional specialization constants, and the words of an output channel."""

    kernel: str
    words: int
    specialization: Mapping[str, int]

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, channels_last: bool) -> FilterPacking:
        """The packing for products that take words[k][channel]. The order of k is that of the packed input."""
        words = ChannelWords.of(geometry).per_output
        return cls("quantized_linear_convolution/pack_filter", words, {"CHANNELS_LAST": int(channels_last)})


def pack_filter(
    builder: Builder,
    geometry: ConvolutionGeometry,
    source: View,
    unsigned: bool,
    width: int,
    packing: FilterPacking,
    arena: Arena,
) -> tuple[PackedFilter, list[Dispatch], list[Dispatch]]:
    """The packed filter in an arena, the copies that have to run first, and the packing."""
    words = packing.words
    channels_of_group = geometry.output_channels_per_group
    panels_of_group = -(-channels_of_group // width)
    start = arena.allocate(PackedFilter.size_of(geometry, width, words))
    packed = PackedFilter(arena.name, start, width, words, panels_of_group)

    def channels(panels: Range) -> Range:
        return _first_channel(panels[0]), min(_first_channel(panels[1] - 1) + width, _group_end(panels[1] - 1))

    def _first_channel(panel: int) -> int:
        return panel // panels_of_group * channels_of_group + panel % panels_of_group * width

    def _group_end(panel: int) -> int:
        return (panel // panels_of_group + 1) * channels_of_group

    def box(panels: Range) -> tuple[Range, ...]:
        return (channels(panels), (0, geometry.input_channels_per_group), *((0, k) for k in geometry.filter_size))

    before: list[Dispatch] = []
    dispatches: list[Dispatch] = []
    everything: Range = (0, geometry.group_count * panels_of_group)
    pending = [everything]
    while pending:
        panels = pending.pop()
        first, last = channels(panels)
        elements = (last - first) * words * 4
        shown = builder.fits(source.tensor, source.bounds(box(panels)))
        fitting = shown and builder.fits(packed.tensor, packed.bounds(panels))
        if panels[1] - panels[0] == 1 and not shown:
            # The strides are so large that one panel's channels do not fit a window: make a dense copy, then restart.
            sizes = (geometry.output_channels, geometry.input_channels_per_group, *geometry.filter_size)
            copied = dense(arena.name, arena.allocate(geometry.output_channels * geometry.tap_count), 1, sizes)
            before = copies(builder, source, copied, sizes)
            source, pending, dispatches = copied, [everything], []
            continue
        if panels[1] - panels[0] > 1 and not (fitting and elements <= builder.elements_per_dispatch):
            pending.extend(part[0] for part in halves((panels,), 0))
            continue
        dispatch = DispatchBuilder(packing.kernel)
        address = source.address([first, 0, 0, 0])
        dispatch.window(source.tensor, source.bounds(box(panels)), address, 1, "filter_start", Access.READ)
        written = packed.bounds(panels)
        dispatch.window(packed.tensor, written, written[0], 4, "packed_start", Access.WRITE)
        dispatch.push(
            count=last - first,
            channels=geometry.input_channels_per_group,
            words=words,
            channels_of_group=channels_of_group,
            first_of_group=first % channels_of_group,
            **by_dimension("stride", "mchw", source.strides),
        )
        specialization = {
            LOCAL_SIZE_X: PACK_FILTER_WORKGROUP_SIZE,
            "WIDTH": width,
            "FLIP": UNSIGNED_FLIP if unsigned else 0,
            "FILTER_HEIGHT": geometry.filter_size[0],
            "FILTER_WIDTH": geometry.filter_size[1],
            **packing.specialization,
        }
        dispatches.append(
            dispatch.finish(
                specialization,
                folded(last - first, builder.profile),
                seconds=builder.element_seconds(elements),
                bytes_moved=2 * elements,
            )
        )
    return packed, before, dispatches
