"""The input of a QUANTIZED_LINEAR_CONVOLUTION, packed as words of four channels with its border, or copied to NHWC."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import Box, DispatchBuilder, Range, View, boxes, by_dimension, largest, reach
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import Operands
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP


@dataclass(frozen=True)
class PackedInput:
    """Part of the input, with its border, as words[image][group][quad][row][column], or channels last.

    Attributes
    ----------
    tensor, start
        The memory where the part lies, and its place there.
    images, groups : Range
        The images and groups that the part holds.
    output_rows, output_columns : Range
        The outputs whose taps the part holds completely.
    rows, columns : int
        The size of the part, in input positions.
    quads : int
        Words of a group.
    channels_last : bool
        Whether the layout is words[image][group][row][column][quad].
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
    """The input in parts of at most `size_limit` packed bytes each. Their places in memory are not decided yet."""

    def part(box: Box) -> PackedInput:
        rows, columns = (
            (box[2 + k][1] - box[2 + k][0] - 1) * geometry.strides[k]
            + (geometry.filter_size[k] - 1) * geometry.dilations[k]
            + 1
            for k in range(2)
        )
        images, groups, *outputs = box
        return PackedInput("", 0, images, groups, outputs[0], outputs[1], rows, columns, quads, channels_last)

    def cut(box: Box) -> int | None:
        if part(box).size <= size_limit:
            return None
        return next((k for k, (low, high) in enumerate(box) if high - low > 1), None)

    extents = (geometry.batch, geometry.group_count, *geometry.output_size)
    return [part(box) for box in boxes(tuple((0, extent) for extent in extents), cut)]


def pack_input(operands: Operands, part: PackedInput) -> list[Dispatch]:
    """Dispatches that fill one part.

    Boxes are (image, quad of any group, row, column, channel of a quad) of the part.

    Only a single quad is cut into channels: if the channels lie too far apart for a window, or in two memory segments.
    """
    builder, source = operands.builder, operands.input

    def cut(box: Box) -> int | None:
        extents = [high - low for low, high in box]
        seen = _seen(operands.geometry, part, box)
        if seen is not None and not builder.fits(source.tensor, source.bounds(seen)):
            dimension = largest(reach(source, seen))
            return 4 if dimension == 1 and extents[1] == 1 else dimension
        is_long = 4 * math.prod(extents[:4]) > builder.elements_per_dispatch
        return largest([extent - 1 for extent in extents[:4]]) if is_long else None

    quads = part.groups[0] * part.quads, part.groups[1] * part.quads
    everything = (part.images, quads, (0, part.rows), (0, part.columns), (0, 4))
    return [_pack_input_dispatch(operands, part, box) for box in boxes(everything, cut)]


def _origin(geometry: ConvolutionGeometry, part: PackedInput, k: int) -> int:
    """The input row (k = 0) or column (k = 1) of the part's first one; negative on the border."""
    first = part.output_rows[0] if k == 0 else part.output_columns[0]
    return first * geometry.strides[k] - geometry.start_padding[k]


def _first_channel(geometry: ConvolutionGeometry, part: PackedInput, quad: int) -> int:
    return quad // part.quads * geometry.input_channels_per_group + 4 * (quad % part.quads)


def _seen(geometry: ConvolutionGeometry, part: PackedInput, box: Box) -> Box | None:
    """The box of the input that a box of the part contains; None if all of it is border."""
    last_quad = box[1][1] - 1
    group_end = (last_quad // part.quads + 1) * geometry.input_channels_per_group
    # A box may begin with quads that hold no channel and only fill a group up.
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


def _pack_input_dispatch(operands: Operands, part: PackedInput, box: Box) -> Dispatch:
    builder, geometry, source = operands.builder, operands.geometry, operands.input
    zero_point, seen = operands.parameters.views.get("input_zero_point_tensor"), _seen(geometry, part, box)
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
        "FLIP": UNSIGNED_FLIP if operands.parameters.input_unsigned else 0,
        "HAS_ZERO_POINT": int(zero_point is not None),
    }
    return dispatch.finish(
        constants,
        builder.grid(count),
        seconds=builder.element_seconds(4 * words * count),
        bytes_moved=8 * words * count,
    )


VECTOR_SIZE = 16
WORD_SIZE = 4
# Neighbouring invocations write this many contiguous vectors: whole 32-byte sectors of memory. More is no better.
LARGEST_RUN = 4
LARGEST_RUN_BY_PIXEL = 2
CHANNELS_LAST_KERNEL = "quantized_linear_convolution/channels_last"
CHANNELS_LAST_KERNEL_BY_PIXEL = "quantized_linear_convolution/channels_last_by_pixel"


def channels_last(operands: Operands, size_limit: int) -> tuple[View, Dispatch] | None:
    """The copy and the dispatch that makes it; None if one dispatch cannot make it.

    Whole planes are moved by words, four pixels at a time. Other planes are moved by bytes, for example those that a
    filter of one tap steps over.
    """
    builder, geometry, source = operands.builder, operands.geometry, operands.input
    channels, (height, width) = geometry.input_channels, geometry.input_size
    images, pixels = geometry.batch, height * width
    bounds = source.bounds(operands.whole_input)
    size = images * channels * pixels
    if (
        geometry.input_channels_per_group % VECTOR_SIZE
        or size > min(size_limit, builder.elements_per_dispatch)
        or not builder.fits(source.tensor, bounds)
    ):
        return None
    strides = (pixels * channels, 1, width * channels, channels)
    copy = View(builder.scratch.name, builder.scratch.allocate(size), 1, strides)
    vectors = channels // VECTOR_SIZE
    in_words = source.strides[2:] == (width, 1) and not any(
        unit % WORD_SIZE for unit in (pixels, source.start, *source.strides[:2])
    )
    kernel, unit = (CHANNELS_LAST_KERNEL, WORD_SIZE) if in_words else (CHANNELS_LAST_KERNEL_BY_PIXEL, 1)
    run = math.gcd(vectors, LARGEST_RUN if in_words else LARGEST_RUN_BY_PIXEL)
    count = images * vectors * pixels // unit
    dispatch = DispatchBuilder(kernel)
    dispatch.window(source.tensor, bounds, source.start, unit, "input_start", Access.READ)
    dispatch.window(copy.tensor, (copy.start, copy.start + size), copy.start, VECTOR_SIZE, "output_start", Access.WRITE)
    dispatch.push(count=count)
    constants = {LOCAL_SIZE_X: builder.workgroup_size, "VECTORS": run, "CHANNELS": channels}
    if in_words:
        strides_in_words = [stride // WORD_SIZE for stride in source.strides[:2]]
        constants |= {"PIXELS": pixels, **by_dimension("STRIDE", "NC", strides_in_words)}
    else:
        constants |= {"ROWS": height, "COLUMNS": width, **by_dimension("STRIDE", "NCHW", source.strides)}
    return copy, dispatch.finish(
        constants,
        builder.grid(count),
        seconds=builder.element_seconds(size),
        bytes_moved=2 * size,
    )
