"""A copy of an input with its channels side by side (NHWC), as matrix units read it."""

from __future__ import annotations

import math

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import Builder, DispatchBuilder, View
from dmlvk.planning.plan import Access, Dispatch

VECTOR_SIZE = 16
WORD_SIZE = 4
# Neighbouring invocations write so many vectors side by side: whole 32-byte sectors of memory, and more is no better.
LARGEST_RUN = 4
LARGEST_RUN_BY_PIXEL = 2
KERNEL = "quantized_linear_convolution/channels_last"
KERNEL_BY_PIXEL = "quantized_linear_convolution/channels_last_by_pixel"


def channels_last(
    builder: Builder, geometry: ConvolutionGeometry, source: View, size_limit: int
) -> tuple[View, Dispatch] | None:
    """The copy and the dispatch that makes it; None where one dispatch cannot.

    Whole planes are moved by words, four pixels at a time; others, such as those that a filter of one tap steps over,
    by bytes.
    """
    channels, (height, width) = geometry.input_channels, geometry.input_size
    images, pixels = geometry.batch, height * width
    bounds = source.bounds([(0, images), (0, channels), (0, height), (0, width)])
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
    dispatch = DispatchBuilder(kernel, 3)
    dispatch.window(source.tensor, bounds, source.start, unit, 0, Access.READ)
    dispatch.window(copy.tensor, (copy.start, copy.start + size), copy.start, VECTOR_SIZE, 1, Access.WRITE)
    dispatch.push_constants[2] = count
    constants: tuple[int, ...] = (run, channels, height, width, *source.strides)
    if in_words:
        constants = (run, pixels, channels, *(stride // WORD_SIZE for stride in source.strides[:2]))
    return copy, dispatch.finish(
        (builder.workgroup_size, *constants),
        builder.grid(count),
        seconds=builder.element_seconds(size),
        bytes_moved=2 * size,
    )
