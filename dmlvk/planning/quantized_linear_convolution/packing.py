"""The operands of a QUANTIZED_LINEAR_CONVOLUTION's product: the filter as words of four channels with its channels'
parameters, and the input, packed as words of four channels with its border, or copied to NHWC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import mul

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import (
    Arena,
    Box,
    DispatchBuilder,
    Range,
    View,
    boxes,
    by_dimension,
    dense_copy,
    largest,
    outermost,
    reach,
    sizes_of,
    whole,
)
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands
from dmlvk.planning.quantized_linear_convolution.product_geometry import joined_groups

UNSIGNED_FLIP = 0x80
WORKGROUP_SIZE = 64
# Output channels of the widest panels of any path.
WIDEST_PANEL = 128


def quads_of(geometry: ConvolutionGeometry) -> int:
    """The words of four channels that hold the channels of a group at one position."""
    return -(-geometry.input_channels_per_group // 4)


def words_of(geometry: ConvolutionGeometry) -> int:
    """Those under the filter: K / 4."""
    return quads_of(geometry) * math.prod(geometry.filter_size)


@dataclass(frozen=True)
class PackedFilter:
    """The filter as panels of `width` output channels: words[k][channel], then a row with each channel's sum.

    With `rows_after` above 1, rows with each channel's parameters follow the sums.
    """

    groups: int
    channels_of_group: int
    width: int
    words: int  # words of an output channel
    layout: Mapping[str, int]  # of K: push constants of the kernel
    rows_after: int = 1
    # The place in memory, once there is one.
    tensor: str = ""
    start: int = 0

    @classmethod
    def of(cls, geometry: ConvolutionGeometry, width: int, channels_last: bool) -> PackedFilter:
        """For products that take words[k][channel]. The order of k is that of the packed input."""
        (height, across), quads = geometry.filter_size, quads_of(geometry)
        run, runs, quads = (quads, across, quads) if channels_last else (height * across, 1, 0)
        layout = {"step_words": 1, "run_words": run, "runs_w": runs, "quads": quads, "in_order": 0, "interleaved": 0}
        return cls(geometry.group_count, geometry.output_channels_per_group, width, words_of(geometry), layout)

    @cached_property
    def panels_of_group(self) -> int:
        return -(-self.channels_of_group // self.width)

    @property
    def panels(self) -> int:
        return self.groups * self.panels_of_group

    def first_channel(self, panel: int) -> int:
        return panel // self.panels_of_group * self.channels_of_group + panel % self.panels_of_group * self.width

    def channels(self, panels: Range) -> Range:
        last = panels[1] - 1
        group_end = (last // self.panels_of_group + 1) * self.channels_of_group
        return self.first_channel(panels[0]), min(self.first_channel(last) + self.width, group_end)

    @property
    def panel_size(self) -> int:
        """Bytes of one panel."""
        return (self.words + self.rows_after) * self.width * 4

    def bounds(self, panels: Range) -> Range:
        return self.start + panels[0] * self.panel_size, self.start + panels[1] * self.panel_size

    def ranges(self, fits: Callable[[Range], bool]) -> list[Range]:
        """All panels, in ranges that `fits` allows; a single panel in any case."""

        def cut(box: Box) -> int | None:
            (panels,) = box
            return 0 if panels[1] - panels[0] > 1 and not fits(panels) else None

        return [panels for (panels,) in boxes(((0, self.panels),), cut)]


def pack_filter(
    operands: ConvolutionOperands, arena: Arena, packed: PackedFilter
) -> tuple[PackedFilter, list[Dispatch], list[Dispatch]]:
    """The filter in panels with a place in an arena, the dispatches that copy it, and those that pack it.

    The filter's zero point stands between the channels of joined groups. Its view, by output channel, fits windows.
    """
    builder, source = operands.builder, operands.filter
    packed = replace(packed, tensor=arena.name, start=arena.allocate(packed.panels * packed.panel_size))

    def is_shown(panels: Range) -> bool:
        return builder.shows(source, _filters(operands, packed, panels))

    def fits(panels: Range) -> bool:
        first, last = packed.channels(panels)
        is_short = (last - first) * packed.words * 4 <= builder.elements_per_dispatch
        return is_short and is_shown(panels) and builder.fits(packed.tensor, packed.bounds(panels))

    before: list[Dispatch] = []
    if not all(map(is_shown, packed.ranges(fits))):
        # The strides are so large that one panel's channels do not fit a window.
        source, before = dense_copy(builder, arena, source, operands.geometry.filter_sizes)
    operands = replace(operands, filter=source)
    return packed, before, [_pack_filter_dispatch(operands, packed, panels) for panels in packed.ranges(fits)]


def _filters(operands: ConvolutionOperands, packed: PackedFilter, panels: Range) -> Box:
    """The box of the filter that some panels hold."""
    return packed.channels(panels), *whole(operands.geometry.filter_sizes[1:])


def _pack_filter_dispatch(operands: ConvolutionOperands, packed: PackedFilter, panels: Range) -> Dispatch:
    geometry, joined, channels_of_group = operands.geometry, joined_groups(operands.geometry), packed.channels_of_group
    # Only between joined groups.
    zero_point = operands.parameters.views.get("filter_zero_point_tensor") if joined > 1 else None
    (first, last), written = packed.channels(panels), packed.bounds(panels)
    dispatch = DispatchBuilder("quantized_linear_convolution/pack_filter")
    dispatch.show(operands.filter, _filters(operands, packed, panels), "filter_start")
    dispatch.window(packed.tensor, written, written[0], 4, "packed_start", Access.WRITE)
    if zero_point is None:
        dispatch.unread_window(dispatch.windows[0], "zero_point_start")
    else:
        dispatch.show(zero_point, [(first, last)], "zero_point_start")
    dispatch.push(
        count=last - first,
        channels=geometry.filter_sizes[1],
        words=packed.words,
        channels_of_group=channels_of_group,
        first_of_group=first % channels_of_group,
        **by_dimension("stride", "mchw", operands.filter.strides),
        width=packed.width,
        filter_height=geometry.filter_size[0],
        filter_width=geometry.filter_size[1],
        rows_after=packed.rows_after,
        zero_point_stride=0 if zero_point is None else zero_point.strides[0],
        **packed.layout,
    )
    specialization = {
        LOCAL_SIZE_X: WORKGROUP_SIZE,
        "FLIP": UNSIGNED_FLIP if operands.parameters.filter_unsigned else 0,
        "JOINED": joined,
        "HAS_ZERO_POINT": int(zero_point is not None),
    }
    elements, builder = (last - first) * packed.words * 4, operands.builder
    grid, seconds = folded(last - first, builder.profile), builder.element_seconds(elements)
    return dispatch.finish(specialization, grid, seconds=seconds, bytes_moved=2 * elements)


PARAMETERS_KERNEL = "quantized_linear_convolution/matrix_parameters"
# Rows of a panel after its words: the sums, and those of kernels/quantized_linear_convolution/prepared_channel.glsl.
PREPARED_ROWS = 5


def channel_parameters(operands: ConvolutionOperands, packed: PackedFilter) -> list[Dispatch]:
    """Dispatches that work the parameters out, after the filter is packed. Each source fits one window."""
    builder, sources = operands.builder, operands.parameters
    dispatches: list[Dispatch] = []
    for panels in packed.ranges(lambda panels: builder.fits(packed.tensor, packed.bounds(panels))):
        bounds, channels, count = packed.bounds(panels), packed.channels(panels), panels[1] - panels[0]
        dispatch = DispatchBuilder(PARAMETERS_KERNEL)
        dispatch.window(packed.tensor, bounds, bounds[0], 4, "panels_start", Access.WRITE)
        sources.bind(dispatch, channels, dispatch.windows[0])
        dispatch.push(
            panels=count,
            words=packed.words,
            channels_of_group=packed.channels_of_group,
            first_panel=panels[0] % packed.panels_of_group,
            taps=operands.geometry.tap_count,
            width=packed.width,
        )
        specialization, grid = {LOCAL_SIZE_X: WORKGROUP_SIZE, **sources.constants}, folded(count, builder.profile)
        seconds, moved = builder.element_seconds(8 * packed.width * count), 40 * (channels[1] - channels[0])
        dispatches.append(dispatch.finish(specialization, grid, seconds=seconds, bytes_moved=moved))
    return dispatches


VECTOR_SIZE, WORD_SIZE = 16, 4
# Neighbouring invocations write this many contiguous vectors: whole 32-byte sectors of memory. More is no better.
LARGEST_RUN, LARGEST_RUN_BY_PIXEL = 4, 2
CHANNELS_LAST_KERNEL = "quantized_linear_convolution/channels_last"
CHANNELS_LAST_KERNEL_BY_PIXEL = "quantized_linear_convolution/channels_last_by_pixel"


@dataclass(frozen=True)
class PackedInput:
    """Part of the input, with its border, as words[image][group][quad][row][column], or channels last."""

    # The memory where the part lies, and its place there.
    tensor: str
    start: int
    outputs: Box  # images, groups, and the rows and columns whose taps the part holds completely
    # The size of the part, in input positions.
    rows: int
    columns: int
    quads: int  # words of a group
    channels_last: bool = False  # whether the layout is words[image][group][row][column][quad]

    @property
    def strides(self) -> tuple[int, int, int, int, int]:
        """Words from one image, group, quad, row and column to the next."""
        group = self.quads * self.rows * self.columns
        image = sizes_of(self.outputs)[1] * group
        if self.channels_last:
            return image, group, 1, self.columns * self.quads, self.quads
        return image, group, self.rows * self.columns, self.columns, 1

    def place(self, geometry: ConvolutionGeometry, *output: int) -> int:
        """The byte under the first tap of an output: of an image, a group, a row and a column."""
        image, group, _, row, column = self.strides
        strides = (image, group, geometry.strides[0] * row, geometry.strides[1] * column)
        steps = (place - low for place, (low, _) in zip(output, self.outputs, strict=True))
        return self.start + 4 * sum(map(mul, steps, strides))

    @property
    def size(self) -> int:
        """Bytes."""
        return sizes_of(self.outputs)[0] * self.strides[0] * 4

    def first_channel(self, geometry: ConvolutionGeometry, quad: int) -> int:
        """The first channel of a quad of any group."""
        return quad // self.quads * geometry.input_channels_per_group + 4 * (quad % self.quads)

    def origin(self, geometry: ConvolutionGeometry) -> list[int]:
        """The input row and column of the part's first ones; negative on the border."""
        return [self.outputs[2 + k][0] * geometry.strides[k] - geometry.start_padding[k] for k in range(2)]

    def seen(self, geometry: ConvolutionGeometry, box: Box) -> Box | None:
        """The box of the input that a box of the part contains; None if all of it is border."""
        images, (first, end), *places, lanes = box
        # A box may begin with quads that hold no channel and only fill a group up.
        low, high = (
            min(self.first_channel(geometry, quad) + lane, (quad // self.quads + 1) * geometry.input_channels_per_group)
            for quad, lane in zip((first, end - 1), lanes, strict=True)
        )
        spatial = [
            (max(origin + low, 0), min(origin + high, size))
            for origin, (low, high), size in zip(self.origin(geometry), places, geometry.input_size, strict=True)
        ]
        seen = (images, (low, high), *spatial)
        return None if any(low >= high for low, high in seen) else seen


def packed_parts(geometry: ConvolutionGeometry, quads: int, size_limit: int, channels_last: bool) -> list[PackedInput]:
    """The input in parts of at most `size_limit` packed bytes each. Their places in memory are not decided yet."""

    def part(box: Box) -> PackedInput:
        rows, columns = (
            (box[2 + k][1] - box[2 + k][0] - 1) * geometry.strides[k]
            + (geometry.filter_size[k] - 1) * geometry.dilations[k]
            + 1
            for k in range(2)
        )
        return PackedInput("", 0, box, rows, columns, quads, channels_last)

    outputs = whole((geometry.batch, geometry.group_count, *geometry.output_size))
    return [part(box) for box in boxes(outputs, lambda box: None if part(box).size <= size_limit else outermost(box))]


PACKED_STRIDES = ("packed_stride_n", "packed_stride_group", "packed_stride_quad", "packed_stride_h", "packed_stride_w")


def pack_input(operands: ConvolutionOperands, part: PackedInput) -> list[Dispatch]:
    """Dispatches that fill one part.

    Boxes are (image, quad of any group, row, column, channel of a quad) of the part.

    Only a single quad is cut into channels: if the channels lie too far apart for a window, or in two memory segments.
    """
    builder, source = operands.builder, operands.input

    def cut(box: Box) -> int | None:
        sizes, seen = sizes_of(box)[:4], part.seen(operands.geometry, box)
        if seen is not None and not builder.shows(source, seen):
            dimension = largest(reach(source, seen))
            return 4 if dimension == 1 and sizes[1] == 1 else dimension
        is_long = 4 * math.prod(sizes) > builder.elements_per_dispatch
        return largest([size - 1 for size in sizes]) if is_long else None

    images, groups, *_ = part.outputs
    quads = groups[0] * part.quads, groups[1] * part.quads
    everything = (images, quads, (0, part.rows), (0, part.columns), (0, 4))
    return [_pack_input_dispatch(operands, part, box) for box in boxes(everything, cut)]


def _pack_input_dispatch(operands: ConvolutionOperands, part: PackedInput, box: Box) -> Dispatch:
    builder, geometry, source = operands.builder, operands.geometry, operands.input
    zero_point, seen = operands.parameters.views.get("input_zero_point_tensor"), part.seen(geometry, box)
    images, quads, rows, columns, lanes = sizes_of(box)
    first_row, first_column = (origin + box[2 + k][0] for k, origin in enumerate(part.origin(geometry)))
    first_group, first_quad = divmod(box[1][0], part.quads)
    image, group, _, row, column = part.strides
    is_in_vectors = box[1][0] % 4 == box[1][1] % 4 == part.quads % 4 == 0 and lanes == 4
    words = 4 if part.channels_last and is_in_vectors else 1
    place = (box[0][0] - part.outputs[0][0]) * image + (first_group - part.outputs[1][0]) * group
    place += box[2][0] * row + box[3][0] * column
    count = images * quads * rows * columns // words

    dispatch = DispatchBuilder("quantized_linear_convolution/pack_input")
    corner = (box[0][0], part.first_channel(geometry, box[1][0]) + box[4][0], first_row, first_column)
    bounds = source.bounds(seen) if seen else (source.start, source.start + 1)
    dispatch.window(source.tensor, bounds, source.address(corner), 1, "input_start")
    zero = zero_point or source
    dispatch.window(zero.tensor, (zero.start, zero.start + 1), zero.start, 1, "zero_point_start")
    written = (part.start, part.start + part.size)
    dispatch.window(part.tensor, written, part.start + 4 * place, 4, "packed_start", Access.WRITE)
    dispatch.push(
        count=count,
        rows=rows,
        columns=columns,
        quads=quads,
        first_quad=first_quad,
        quads_of_group=part.quads,
        channels=geometry.input_channels_per_group,
        first_row=first_row,
        first_column=first_column,
        row_limit=geometry.input_size[0],
        column_limit=geometry.input_size[1],
        **by_dimension("stride", "nchw", source.strides),
        **dict(zip(PACKED_STRIDES, part.strides, strict=True)),
        first_channel=4 * first_quad + box[4][0],
        first_lane=box[4][0],
        end_lane=box[4][1],
    )
    constants = {
        LOCAL_SIZE_X: builder.workgroup_size,
        "FLIP": UNSIGNED_FLIP if operands.parameters.input_unsigned else 0,
        "HAS_ZERO_POINT": int(zero_point is not None),
        "WORDS": words,
    }
    seconds = builder.element_seconds(4 * words * count)
    return dispatch.finish(constants, builder.grid(count), seconds=seconds, bytes_moved=8 * words * count)


def channels_last(operands: ConvolutionOperands, size_limit: int) -> tuple[View, Dispatch] | None:
    """The copy and the dispatch that makes it; None if one dispatch cannot make it.

    Whole planes are moved by words, four pixels at a time. Other planes are moved by bytes, for example those that a
    filter of one tap steps over.
    """
    builder, geometry, source = operands.builder, operands.geometry, operands.input
    channels, (height, width) = geometry.input_channels, geometry.input_size
    pixels = height * width
    size = geometry.batch * channels * pixels
    is_short = size <= min(size_limit, builder.elements_per_dispatch)
    is_shown = builder.shows(source, operands.whole_input)
    if geometry.input_channels_per_group % VECTOR_SIZE or not is_short or not is_shown:
        return None
    strides = (pixels * channels, 1, width * channels, channels)
    copy = View(builder.scratch.name, builder.scratch.allocate(size), 1, strides)
    vectors = channels // VECTOR_SIZE
    units = (pixels, source.start, *source.strides[:2])
    in_words = source.strides[2:] == (width, 1) and not any(unit % WORD_SIZE for unit in units)
    kernel, unit = (CHANNELS_LAST_KERNEL, WORD_SIZE) if in_words else (CHANNELS_LAST_KERNEL_BY_PIXEL, 1)
    run = math.gcd(vectors, LARGEST_RUN if in_words else LARGEST_RUN_BY_PIXEL)
    count = geometry.batch * vectors * pixels // unit
    dispatch, bounds = DispatchBuilder(kernel), source.bounds(operands.whole_input)
    dispatch.window(source.tensor, bounds, source.start, unit, "input_start")
    dispatch.window(copy.tensor, (copy.start, copy.start + size), copy.start, VECTOR_SIZE, "output_start", Access.WRITE)
    dispatch.push(count=count)
    constants = {LOCAL_SIZE_X: builder.workgroup_size, "VECTORS": run, "CHANNELS": channels}
    if in_words:
        strides_in_words = [stride // WORD_SIZE for stride in source.strides[:2]]
        constants |= {"PIXELS": pixels, **by_dimension("STRIDE", "NC", strides_in_words)}
    else:
        constants |= {"ROWS": height, "COLUMNS": width, **by_dimension("STRIDE", "NCHW", source.strides)}
    seconds = builder.element_seconds(size)
    return copy, dispatch.finish(constants, builder.grid(count), seconds=seconds, bytes_moved=2 * size)
