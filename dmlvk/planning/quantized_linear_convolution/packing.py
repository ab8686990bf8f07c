"""Both operands of a QUANTIZED_LINEAR_CONVOLUTION as words of four channels: layouts, and dispatches that pack."""

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
    largest,
    reach,
)
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch

UNSIGNED_FLIP = 0x80
PACK_FILTER_WORKGROUP_SIZE = 64
# Output channels of the widest panels of any path.
WIDEST_PANEL = 128


def folded_geometry(geometry: ConvolutionGeometry) -> ConvolutionGeometry:
    """The same convolution where a dimension with one tap steps over the input instead of packing what it passes.

    A filter of size 1 with stride s sees every s-th position only: that is stride 1 on an input with s times the
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
    """The filter as panels of `width` output channels: words[k][channel], and a row with each channel's sum."""

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
        """Bytes of the whole filter in panels, with so many words an output channel."""
        panels = -(-geometry.output_channels_per_group // width) * geometry.group_count
        return panels * (words + 1) * width * 4


@dataclass(frozen=True)
class FilterPacking:
    """A kernel that packs filters, what it adds to the common specialization constants, and words an output channel."""

    kernel: str
    words: int
    specialization: Mapping[str, int]

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, channels_last: bool) -> FilterPacking:
        """For the products that take words[k][channel]; k has the order of the packed input."""
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
    """The packed filter in an arena, copies that have to be made before, and the packing."""
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
            # Strides so large that no window shows even one panel's channels: put the filter together, begin again.
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


@dataclass(frozen=True)
class PackedInput:
    """Part of the input as words[image][group][quad][row][column], or channels last, border included.

    Attributes
    ----------
    tensor, start
        Where it lies.
    images, groups : Range
        Which ones it holds.
    output_rows, output_columns : Range
        The outputs that it holds all taps of.
    rows, columns : int
        Its own, in input positions.
    quads : int
        Words a group.
    channels_last : bool
        Whether it is words[image][group][row][column][quad].
    """

    tensor: str
    start: int
    images: Range
    groups: Range
    output_rows: Range
    output_columns: Range
    rows: int
    columns: int
    quads: int
    channels_last: bool = False

    @property
    def strides(self) -> tuple[int, int, int]:
        """Words from one quad, row and column to the next."""
        if self.channels_last:
            return 1, self.columns * self.quads, self.quads
        return self.rows * self.columns, self.columns, 1

    @property
    def group_stride(self) -> int:
        """Words from one group to the next."""
        return self.quads * self.rows * self.columns

    @property
    def image_stride(self) -> int:
        return (self.groups[1] - self.groups[0]) * self.group_stride

    @property
    def size(self) -> int:
        """Bytes."""
        return (self.images[1] - self.images[0]) * self.image_stride * 4


def packed_parts(geometry: ConvolutionGeometry, quads: int, size_limit: int, channels_last: bool) -> list[PackedInput]:
    """The input in parts that each take at most `size_limit` bytes packed; where they lie is not decided yet."""
    pending: list[tuple[Range, ...]] = [
        (
            (0, geometry.batch),
            (0, geometry.group_count),
            (0, geometry.output_size[0]),
            (0, geometry.output_size[1]),
        )
    ]
    parts: list[PackedInput] = []
    while pending:
        box = pending.pop(0)
        rows, columns = (
            (box[2 + k][1] - box[2 + k][0] - 1) * geometry.strides[k]
            + (geometry.filter_size[k] - 1) * geometry.dilations[k]
            + 1
            for k in range(2)
        )
        part = PackedInput("", 0, box[0], box[1], box[2], box[3], rows, columns, quads, channels_last)
        if part.size <= size_limit or all(high - low == 1 for low, high in box):
            parts.append(part)
            continue
        cut = next(k for k in range(4) if box[k][1] - box[k][0] > 1)
        pending[:0] = halves(box, cut)
    return parts


def pack_input(
    builder: Builder,
    geometry: ConvolutionGeometry,
    source: View,
    zero_point: View | None,
    unsigned: bool,
    part: PackedInput,
) -> list[Dispatch]:
    """Dispatches that fill one part.

    Boxes are (image, quad of any group, row, column, channel of a quad) of the part.

    Only a single quad is cut into channels: where these lie too far apart for a window, or in two memory segments.
    """
    pending: list[tuple[Range, ...]] = [
        (
            part.images,
            (part.groups[0] * part.quads, part.groups[1] * part.quads),
            (0, part.rows),
            (0, part.columns),
            (0, 4),
        )
    ]
    dispatches: list[Dispatch] = []
    while pending:
        box = pending.pop()
        extents = [high - low for low, high in box]
        count = extents[0] * extents[1] * extents[2] * extents[3]
        seen = _seen(geometry, part, box)
        cut: int | None = None
        if seen is not None and not builder.fits(source.tensor, source.bounds(seen)):
            cut = largest(reach(source, seen))
            if cut == 1 and extents[1] == 1:
                cut = 4
        if cut is None and 4 * count > builder.elements_per_dispatch:
            cut = largest([extent - 1 for extent in extents[:4]])
        if cut is not None:
            pending.extend(halves(box, cut))
            continue
        dispatches.append(_pack_input_dispatch(builder, geometry, source, zero_point, unsigned, part, box, seen))
    return dispatches


def _origin(geometry: ConvolutionGeometry, part: PackedInput, k: int) -> int:
    """The input row (k = 0) or column (k = 1) of the part's first one; negative on the border."""
    first = part.output_rows[0] if k == 0 else part.output_columns[0]
    return first * geometry.strides[k] - geometry.start_padding[k]


def _first_channel(geometry: ConvolutionGeometry, part: PackedInput, quad: int) -> int:
    return quad // part.quads * geometry.input_channels_per_group + 4 * (quad % part.quads)


def _seen(geometry: ConvolutionGeometry, part: PackedInput, box: tuple[Range, ...]) -> tuple[Range, ...] | None:
    """The box of the input that a box of the part shows; None where it is all border."""
    last_quad = box[1][1] - 1
    group_end = (last_quad // part.quads + 1) * geometry.input_channels_per_group
    # A box may begin with quads that hold no channel: those that only fill a group up.
    first_end = (box[1][0] // part.quads + 1) * geometry.input_channels_per_group
    channels = (
        min(_first_channel(geometry, part, box[1][0]) + box[4][0], first_end),
        min(_first_channel(geometry, part, last_quad) + box[4][1], group_end),
    )
    if channels[0] >= channels[1]:
        return None
    spatial: list[Range] = []
    for k in range(2):
        origin = _origin(geometry, part, k)
        low, high = max(origin + box[2 + k][0], 0), min(origin + box[2 + k][1], geometry.input_size[k])
        if low >= high:
            return None
        spatial.append((low, high))
    return (box[0], channels, spatial[0], spatial[1])


def _pack_input_dispatch(
    builder: Builder,
    geometry: ConvolutionGeometry,
    source: View,
    zero_point: View | None,
    unsigned: bool,
    part: PackedInput,
    box: tuple[Range, ...],
    seen: tuple[Range, ...] | None,
) -> Dispatch:
    extents = [high - low for low, high in box]
    first_row, first_column = (_origin(geometry, part, k) + box[2 + k][0] for k in range(2))
    first_group, first_quad = divmod(box[1][0], part.quads)
    first_group -= part.groups[0]
    if part.channels_last:
        kernel = "quantized_linear_convolution/matrix_pack_input"
        vectors = box[1][0] % 4 == box[1][1] % 4 == part.quads % 4 == 0 and extents[4] == 4
        words = 4 if vectors else 1
        constants = {"WORDS": words}
        strides = {"packed_stride_group": part.group_stride, "packed_stride_h": part.columns * part.quads}
        place = first_group * part.group_stride + (box[2][0] * part.columns + box[3][0]) * part.quads
    else:
        kernel, words, constants = "quantized_linear_convolution/pack_input", 1, {}
        strides = {"packed_stride_quad": part.rows * part.columns, "packed_stride_h": part.columns}
        quads = first_group * part.quads + first_quad
        place = (quads * part.rows + box[2][0]) * part.columns + box[3][0]
    place += (box[0][0] - part.images[0]) * part.image_stride
    count = extents[0] * extents[1] * extents[2] * extents[3] // words

    dispatch = DispatchBuilder(kernel)
    corner = (box[0][0], _first_channel(geometry, part, box[1][0]) + box[4][0], first_row, first_column)
    bounds = source.bounds(seen) if seen else (source.start, source.start + 1)
    dispatch.window(source.tensor, bounds, source.address(corner), 1, "input_start", Access.READ)
    zero = zero_point or source
    dispatch.window(zero.tensor, (zero.start, zero.start + 1), zero.start, 1, "zero_point_start", Access.READ)
    written = (part.start, part.start + part.size)
    dispatch.window(part.tensor, written, part.start + 4 * place, 4, "packed_start", Access.WRITE)
    dispatch.push(
        count=count,
        rows=extents[2],
        columns=extents[3],
        quads=extents[1],
        first_quad=first_quad,
        quads_of_group=part.quads,
        channels=geometry.input_channels_per_group,
        first_row=first_row,
        first_column=first_column,
        row_limit=geometry.input_size[0],
        column_limit=geometry.input_size[1],
        **by_dimension("stride", "nchw", source.strides),
        packed_stride_n=part.image_stride,
        **strides,
        first_channel=4 * first_quad + box[4][0],
        first_lane=box[4][0],
        end_lane=box[4][1],
    )
    constants |= {
        LOCAL_SIZE_X: builder.workgroup_size,
        "FLIP": UNSIGNED_FLIP if unsigned else 0,
        "HAS_ZERO_POINT": int(zero_point is not None),
    }
    return dispatch.finish(
        constants,
        builder.grid(count),
        seconds=builder.element_seconds(4 * words * count),
        bytes_moved=8 * words * count,
    )
