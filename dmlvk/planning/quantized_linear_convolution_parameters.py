"""The record of each output channel: multiplier, zero points and bias, from up to seven tensors."""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.plan import SCRATCH, Access, Dispatch
from dmlvk.planning.quantized_linear_convolution_memory import (
    Builder,
    DispatchBuilder,
    Range,
    View,
    copies,
    dense,
)
from dmlvk.tensor_desc import TensorFlags

# As kernels/include/quantized_parameters.glsl has it.
RECORD_SIZE = 32

SCALES = ("input_scale_tensor", "filter_scale_tensor", "output_scale_tensor")
ZERO_POINTS = ("input_zero_point_tensor", "filter_zero_point_tensor", "output_zero_point_tensor")
BIAS = ("bias_tensor",)
PARAMETER_FIELDS = SCALES + ZERO_POINTS + BIAS

# Push constants and parts of kernels/quantized_linear_convolution_parameters.comp.
TABLE_START, FIRST_STRIDE, COUNT = 3, 4, 7
PARTS = (SCALES, ZERO_POINTS, BIAS)


def parameter_views(
    desc: QuantizedLinearConvolutionDesc, builder: Builder, initialization: list[Dispatch]
) -> dict[str, View]:
    """Where the scales, zero points and biases lie, by field; those that are OWNED_BY_DML are copied first.

    A view has one dimension, the output channel; its stride is 0 where all channels share one element.
    """
    views: dict[str, View] = {}
    for name, tensor in desc.tensors.items():
        if name not in PARAMETER_FIELDS:
            continue
        size = tensor.data_type.size_in_bytes
        stride = desc.channel_stride(name)
        view = View(name, 0, size, (stride,))
        if tensor.flags & TensorFlags.OWNED_BY_DML:
            count = desc.geometry.output_channels if stride else 1
            copied = dense(builder.persistent.name, builder.persistent.allocate(count * size), size, (count,))
            initialization.extend(copies(builder, view, copied, (count,)))
            view = copied if stride else View(copied.tensor, copied.start, size, (0,))
        views[name] = view
    return views


def parameter_dispatches(
    desc: QuantizedLinearConvolutionDesc, builder: Builder, views: Mapping[str, View]
) -> tuple[View, list[Dispatch]]:
    """The table, one record a channel, and the dispatches that fill it."""
    channels = desc.geometry.output_channels
    table = View(SCRATCH, builder.scratch.allocate(channels * RECORD_SIZE), 4, (RECORD_SIZE // 4,))
    unsigned = sum(
        1 << bit
        for bit, tensor in enumerate((desc.input_tensor, desc.filter_tensor, desc.output_tensor))
        if tensor.data_type is DataType.UINT8
    )
    present = sum(1 << bit for bit, name in enumerate(ZERO_POINTS + BIAS) if name in views)
    dispatches: list[Dispatch] = []
    for part, names in enumerate(PARTS):
        sources = [views.get(name) for name in names]
        if part == PARTS.index(BIAS) and not any(sources):
            continue  # the zero points' part writes a bias of 0
        pending: list[Range] = [(0, channels)]
        while pending:
            low, high = pending.pop()
            views_here = [view for view in sources if view is not None]
            fitting = all(builder.fits(view.tensor, view.bounds([(low, high)])) for view in views_here)
            if not fitting or not builder.fits(SCRATCH, table_bounds(table, (low, high))):
                pending.extend(((low, (low + high) // 2), ((low + high) // 2, high)))
                continue
            specialization = (builder.workgroup_size, part, present, unsigned)
            dispatches.append(_dispatch(builder, sources, table, (low, high), specialization))
    return table, dispatches


def gathered_parameters(
    desc: QuantizedLinearConvolutionDesc, builder: Builder, views: Mapping[str, View]
) -> tuple[dict[str, View], list[Dispatch]]:
    """Parameters that one window shows each of: as they lie, or copied side by side where they lie far apart."""
    channels = desc.geometry.output_channels
    gathered: dict[str, View] = {}
    dispatches: list[Dispatch] = []
    for name, view in views.items():
        gathered[name] = view
        if not builder.fits(view.tensor, view.bounds([(0, channels)])):
            start = builder.scratch.allocate(channels * view.element_size)
            gathered[name] = dense(builder.scratch.name, start, view.element_size, (channels,))
            dispatches.extend(copies(builder, view, gathered[name], (channels,)))
    return gathered, dispatches


def table_bounds(table: View, channels: Range) -> Range:
    """The bytes of the records of a range of channels."""
    return table.start + channels[0] * RECORD_SIZE, table.start + channels[1] * RECORD_SIZE


def _dispatch(
    builder: Builder,
    sources: list[View | None],
    table: View,
    channels: Range,
    specialization: tuple[int, ...],
) -> Dispatch:
    dispatch = DispatchBuilder("quantized_linear_convolution_parameters", 8)
    count = channels[1] - channels[0]
    written = table_bounds(table, channels)
    for word in range(3):
        view = sources[word] if word < len(sources) else None
        if view is None:
            # Nothing to read: some memory has to be bound all the same.
            dispatch.window(table.tensor, written, written[0], 4, word, Access.READ)
            continue
        address = view.address([channels[0]])
        dispatch.window(view.tensor, view.bounds([channels]), address, view.element_size, word, Access.READ)
        dispatch.push_constants[FIRST_STRIDE + word] = view.strides[0]
    dispatch.window(table.tensor, written, written[0], 4, TABLE_START, Access.WRITE)
    dispatch.push_constants[COUNT] = count
    return dispatch.finish(
        specialization, builder.grid(count), seconds=builder.element_seconds(8 * count), bytes_moved=count * 24
    )
