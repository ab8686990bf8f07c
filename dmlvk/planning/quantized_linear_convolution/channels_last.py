"""A copy of an input with contiguous channels (NHWC), the layout that matrix units read."""

from __future__ import annotations

import math

from dmlvk.planning.builder import DispatchBuilder, View, by_dimension
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import Operands

VECTOR_SIZE = 16
WORD_SIZE = 4
# Neighbouring invocations write this many contiguous vectors: whole 32-byte sectors of memory. More is no better.
LARGEST_RUN = 4
LARGEST_RUN_BY_PIXEL = 2
KERNEL = "quantized_linear_convolution/channels_last"
KERNEL_BY_PIXEL = "quantized_linear_convolution/channels_last_by_pixel"


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
    kernel, unit = (KERNEL, WORD_SIZE) if in_words else (KERNEL_BY_PIXEL, 1)
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
