"""The input of a QUANTIZED_LINEAR_CONVOLUTION as words of four channels, with its border: parts, and packing."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import (
    Builder,
    DispatchBuilder,
    Range,
    View,
    by_dimension,
    halves,
    largest,
    reach,
)
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
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

    Only a single quad is cut into channels: if the channels lie too far apart for a window, or in two memory segments.
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
