"""The input of a QUANTIZED_LINEAR_CONVOLUTION, packed as words of four channels with its border, or copied to NHWC."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import (
    Box,
    DispatchBuilder,
    Range,
    View,
    boxes,
    by_dimension,
    largest,
    outermost,
    reach,
    sizes_of,
)
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import Operands
from dmlvk.planning.quantized_linear_convolution.packing import UNSIGNED_FLIP

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
    # The images and groups that the part holds.
    images: Range
    groups: Range
    # The outputs whose taps the part holds completely.
    output_rows: Range
    output_columns: Range
    # The size of the part, in input positions.
    rows: int
    columns: int
    quads: int  # words of a group
    channels_last: bool = False  # whether the layout is words[image][group][row][column][quad]

    @property
    def strides(self) -> tuple[int, int, int, int, int]:
        """Words from one image, group, quad, row and column to the next."""
        group = self.quads * self.rows * self.columns
        image = (self.groups[1] - self.groups[0]) * group
        if self.channels_last:
            return image, group, 1, self.columns * self.quads, self.quads
        return image, group, self.rows * self.columns, self.columns, 1

    def place(self, geometry: ConvolutionGeometry, image: int, group: int, row: int, column: int) -> int:
        """The byte under the first tap of an output."""
        of_image, of_group, _, of_row, of_column = self.strides
        words = (image - self.images[0]) * of_image + (group - self.groups[0]) * of_group
        words += (row - self.output_rows[0]) * geometry.strides[0] * of_row
        return self.start + 4 * (words + (column - self.output_columns[0]) * geometry.strides[1] * of_column)

    @property
    def size(self) -> int:
        """Bytes."""
        return (self.images[1] - self.images[0]) * self.strides[0] * 4

    def first_channel(self, geometry: ConvolutionGeometry, quad: int) -> int:
        """The first channel of a quad of any group."""
        return quad // self.quads * geometry.input_channels_per_group + 4 * (quad % self.quads)

    def origin(self, geometry: ConvolutionGeometry) -> list[int]:
        """The input row and column of the part's first ones; negative on the border."""
        firsts = (self.output_rows[0], self.output_columns[0])
        return [firsts[k] * geometry.strides[k] - geometry.start_padding[k] for k in range(2)]

    def seen(self, geometry: ConvolutionGeometry, box: Box) -> Box | None:
        """The box of the input that a box of the part contains; None if all of it is border."""
        images, (first, end), *places, lanes = box
        last, of_group = end - 1, geometry.input_channels_per_group
        # A box may begin with quads that hold no channel and only fill a group up.
        channels = (
            min(self.first_channel(geometry, first) + lanes[0], (first // self.quads + 1) * of_group),
            min(self.first_channel(geometry, last) + lanes[1], (last // self.quads + 1) * of_group),
        )
        spatial = [
            (max(origin + low, 0), min(origin + high, size))
            for origin, (low, high), size in zip(self.origin(geometry), places, geometry.input_size, strict=True)
        ]
        is_border = any(low >= high for low, high in (channels, *spatial))
        return None if is_border else (images, channels, *spatial)


def packed_parts(geometry: ConvolutionGeometry, quads: int, size_limit: int, channels_last: bool) -> list[PackedInput]:
    """The input in parts of at most `size_limit` packed bytes each. Their places in memory are not decided yet."""

    def part(box: Box) -> PackedInput:
        images, groups, *outputs = box
        rows, columns = (
            (outputs[k][1] - outputs[k][0] - 1) * geometry.strides[k]
            + (geometry.filter_size[k] - 1) * geometry.dilations[k]
            + 1
            for k in range(2)
        )
        return PackedInput("", 0, images, groups, outputs[0], outputs[1], rows, columns, quads, channels_last)

    extents = (geometry.batch, geometry.group_count, *geometry.output_size)
    whole = tuple((0, extent) for extent in extents)
    return [part(box) for box in boxes(whole, lambda box: None if part(box).size <= size_limit else outermost(box))]


def pack_input(operands: Operands, part: PackedInput) -> list[Dispatch]:
    """Dispatches that fill one part.

    Boxes are (image, quad of any group, row, column, channel of a quad) of the part.

    Only a single quad is cut into channels: if the channels lie too far apart for a window, or in two memory segments.
    """
    builder, source = operands.builder, operands.input

    def cut(box: Box) -> int | None:
        sizes, seen = sizes_of(box)[:4], part.seen(operands.geometry, box)
        if seen is not None and not builder.fits(source.tensor, source.bounds(seen)):
            dimension = largest(reach(source, seen))
            return 4 if dimension == 1 and sizes[1] == 1 else dimension
        is_long = 4 * math.prod(sizes) > builder.elements_per_dispatch
        return largest([size - 1 for size in sizes]) if is_long else None

    quads = part.groups[0] * part.quads, part.groups[1] * part.quads
    everything = (part.images, quads, (0, part.rows), (0, part.columns), (0, 4))
    return [_pack_input_dispatch(operands, part, box) for box in boxes(everything, cut)]


def _pack_input_dispatch(operands: Operands, part: PackedInput, box: Box) -> Dispatch:
    builder, geometry, source = operands.builder, operands.geometry, operands.input
    zero_point, seen = operands.parameters.views.get("input_zero_point_tensor"), part.seen(geometry, box)
    images, quads, rows, columns, lanes = sizes_of(box)
    first_row, first_column = (origin + box[2 + k][0] for k, origin in enumerate(part.origin(geometry)))
    first_group, first_quad = divmod(box[1][0], part.quads)
    image, group, quad, row, column = part.strides
    if part.channels_last:
        kernel = "quantized_linear_convolution/matrix_pack_input"
        is_in_vectors = box[1][0] % 4 == box[1][1] % 4 == part.quads % 4 == 0 and lanes == 4
        words = 4 if is_in_vectors else 1
        constants, strides = {"WORDS": words}, {"packed_stride_group": group, "packed_stride_h": row}
        place = 0
    else:
        kernel, words, constants = "quantized_linear_convolution/pack_input", 1, {}
        strides, place = {"packed_stride_quad": quad, "packed_stride_h": row}, first_quad * quad
    place += (box[0][0] - part.images[0]) * image + (first_group - part.groups[0]) * group
    place += box[2][0] * row + box[3][0] * column
    count = images * quads * rows * columns // words

    dispatch = DispatchBuilder(kernel)
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
        packed_stride_n=image,
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
    seconds = builder.element_seconds(4 * words * count)
    return dispatch.finish(constants, builder.grid(count), seconds=seconds, bytes_moved=8 * words * count)


def channels_last(operands: Operands, size_limit: int) -> tuple[View, Dispatch] | None:
    """The copy and the dispatch that makes it; None if one dispatch cannot make it.

    Whole planes are moved by words, four pixels at a time. Other planes are moved by bytes, for example those that a
    filter of one tap steps over.
    """
    builder, geometry, source = operands.builder, operands.geometry, operands.input
    channels, (height, width) = geometry.input_channels, geometry.input_size
    pixels = height * width
    size = geometry.batch * channels * pixels
    is_short = size <= min(size_limit, builder.elements_per_dispatch)
    is_shown = builder.fits(source.tensor, source.bounds(operands.whole_input))
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
