"""The tensors of a QUANTIZED_LINEAR_CONVOLUTION as kernels find them, and the parameters of each output channel.

The parameters, multiplier, zero points and bias, come from up to seven tensors. Some kernels compute them from these
`Sources`. Others read a table with a row for each channel, made beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import Box, DispatchBuilder, PlanBuilder, Range, View, boxes, dense_copy, sizes_of, whole
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch, Window
from dmlvk.tensor_desc import TensorFlags

# Storage buffers of a kernel that reads all sources itself, including its input, filter and output.
BUFFER_COUNT = 10

# The same number as in kernels/quantized_linear_convolution/parameters.glsl.
ROW_SIZE = 32

SCALES = ("input_scale_tensor", "filter_scale_tensor", "output_scale_tensor")
ZERO_POINTS = ("input_zero_point_tensor", "filter_zero_point_tensor", "output_zero_point_tensor")
BIAS = ("bias_tensor",)
PARAMETER_FIELDS = SCALES + ZERO_POINTS + BIAS

# kernels/quantized_linear_convolution/parameters.comp reads all sources; ..._by_part.comp reads a few at a time.
KERNEL = "quantized_linear_convolution/parameters"
PARTS = (SCALES, ZERO_POINTS, BIAS)


def parameter_views(
    desc: QuantizedLinearConvolutionDesc, builder: PlanBuilder, initialization: list[Dispatch]
) -> dict[str, View]:
    """Where the scales, zero points and biases lie, by field; those that are OWNED_BY_DML are copied first.

    A view has one dimension, the output channel; its stride is 0 if all channels share one element.
    """
    views: dict[str, View] = {}
    for name, tensor in desc.tensors.items():
        if name not in PARAMETER_FIELDS:
            continue
        stride = desc.channel_stride(name)
        view = View(name, 0, tensor.data_type.size_in_bytes, (stride,))
        if tensor.flags & TensorFlags.OWNED_BY_DML:
            count = desc.geometry.output_channels if stride else 1
            copied, dispatches = dense_copy(builder, builder.persistent, view, (count,))
            initialization.extend(dispatches)
            view = copied if stride else replace(copied, strides=(0,))
        views[name] = view
    return views


def _stem(field: str) -> str:
    """How kernels name a field: "input_scale" for "input_scale_tensor"."""
    return field.removesuffix("_tensor")


@dataclass(frozen=True)
class Sources:
    """The tensors of parameters, and the facts about them that a kernel needs."""

    # By field; absent tensors have none. A view has one dimension, the output channel.
    views: Mapping[str, View]
    # Which of the data tensors are UINT8.
    input_unsigned: bool
    filter_unsigned: bool
    output_unsigned: bool

    @classmethod
    def of(cls, desc: QuantizedLinearConvolutionDesc, views: Mapping[str, View]) -> Sources:
        data = (desc.input_tensor, desc.filter_tensor, desc.output_tensor)
        return cls(views, *(tensor.data_type is DataType.UINT8 for tensor in data))

    @property
    def has_filter_zero_point(self) -> bool:
        """Whether a filter zero point may differ from 0 once the filter's bytes are signed."""
        return "filter_zero_point_tensor" in self.views or self.filter_unsigned

    @property
    def kinds(self) -> dict[str, int]:
        """Specialization constants: bits for the zero points and the bias that are present, and for UINT8 tensors."""
        unsigned = (self.input_unsigned, self.filter_unsigned, self.output_unsigned)
        present = sum(1 << bit for bit, name in enumerate(ZERO_POINTS + BIAS) if name in self.views)
        return {"PRESENT": present, "UNSIGNED_TYPES": sum(1 << bit for bit, each in enumerate(unsigned) if each)}

    @property
    def constants(self) -> dict[str, int]:
        """The specialization constants of kernels/quantized_linear_convolution/parameter_sources.glsl."""
        strides = {
            f"{_stem(field).upper()}_STRIDE": self.views[field].strides[0] if field in self.views else 0
            for field in PARAMETER_FIELDS
        }
        return strides | self.kinds

    def bind(self, dispatch: DispatchBuilder, channels: Range, spare: Window | None = None) -> None:
        """Bind all seven sources after the other windows. Tell the kernel where `channels` begin.

        Bindings of absent sources get `spare`, by default the second window, which is the filter.
        """
        filter_window = dispatch.windows[1] if spare is None else spare
        for field in PARAMETER_FIELDS:
            view, start = self.views.get(field), f"{_stem(field)}_start"
            if view is None:
                dispatch.unread_window(filter_window, start)
            else:
                dispatch.show(view, [channels], start)


@dataclass(frozen=True)
class ConvolutionOperands:
    """A convolution's tensors, and the memory of its plan. A tensor that is added is a field here."""

    builder: PlanBuilder  # the limits of windows, and the memory allocated so far
    # The convolution as the path sees it: it may step over the input, or have joined groups.
    geometry: ConvolutionGeometry
    # Bound tensors, or packed copies of those that are OWNED_BY_DML.
    input: View
    filter: View
    output: View
    parameters: Sources  # scales, zero points and bias, and which of the data tensors are UINT8

    @property
    def all_taps(self) -> Box:
        """The box of all taps of an output: channels of a group, rows and columns."""
        return whole((self.geometry.input_channels_per_group, *self.geometry.filter_size))

    def corner(self, outputs: Box, taps: Box) -> tuple[int, int, int, int]:
        """The place in the input that the first of some outputs' taps sees; on the border it lies outside."""
        geometry = self.geometry
        group = outputs[1][0] // geometry.output_channels_per_group
        row, column = (
            outputs[2 + k][0] * geometry.strides[k] + taps[1 + k][0] * geometry.dilations[k] - geometry.start_padding[k]
            for k in range(2)
        )
        return outputs[0][0], group * geometry.input_channels_per_group + taps[0][0], row, column

    def seen(self, outputs: Box, taps: Box) -> Box | None:
        """The box of the input that some taps of some outputs see; None if all of it is border."""
        geometry, (_, first_channel, *corner) = self.geometry, self.corner(outputs, taps)
        last = tuple((end - 1, end) for _, end in outputs)
        _, last_channel, *end = self.corner(last, tuple((end - 1, end) for _, end in taps))
        spatial = [(max(corner[k], 0), min(end[k] + 1, geometry.input_size[k])) for k in range(2)]
        if any(low >= high for low, high in spatial):
            return None
        return outputs[0], (first_channel, last_channel + 1), *spatial

    def seen_bounds(self, outputs: Box, taps: Box) -> Range:
        """The bytes of that box; one byte if all of it is border."""
        seen = self.seen(outputs, taps)
        return self.input.bounds(seen) if seen else (self.input.start, self.input.start + 1)

    def input_reach(self, outputs: Box) -> list[int]:
        """How far each dimension of some outputs stretches the memory that an input tap of theirs sees."""
        geometry, (images, _, rows, columns) = self.geometry, (size - 1 for size in sizes_of(outputs))
        groups = [place // geometry.output_channels_per_group for place in (outputs[1][0], outputs[1][1] - 1)]
        channels = (groups[1] - groups[0]) * geometry.input_channels_per_group
        steps = (images, channels, rows * geometry.strides[0], columns * geometry.strides[1])
        return [step * stride for step, stride in zip(steps, self.input.strides, strict=True)]

    @property
    def whole_input(self) -> Box:
        return whole(self.geometry.input_sizes)

    @property
    def whole_output(self) -> Box:
        return whole(self.geometry.output_sizes)


def parameter_table(operands: ConvolutionOperands, once: bool) -> tuple[View, list[Dispatch]]:
    """The table, one row a channel, and the dispatches that fill it, in persistent memory if they run once."""
    builder, views, channels = operands.builder, operands.parameters.views, operands.geometry.output_channels
    arena = builder.persistent if once else builder.scratch
    table = View(arena.name, arena.allocate(channels * ROW_SIZE), ROW_SIZE, (1,))
    common = {LOCAL_SIZE_X: builder.workgroup_size, **operands.parameters.kinds}
    if builder.profile.limits.max_per_stage_descriptor_storage_buffers > len(PARAMETER_FIELDS):
        return table, _table_dispatches(operands, table, KERNEL, PARAMETER_FIELDS, common)
    dispatches: list[Dispatch] = []
    for part, fields in enumerate(PARTS):
        # The part of the zero points writes a bias of 0 if there is no bias.
        if fields is ZERO_POINTS or any(field in views for field in fields):
            padded = (*fields, *[""] * (len(SCALES) - len(fields)))
            dispatches += _table_dispatches(operands, table, f"{KERNEL}_by_part", padded, {**common, "PART": part})
    return table, dispatches


def _table_dispatches(
    operands: ConvolutionOperands, table: View, kernel: str, fields: Sequence[str], specialization: Mapping[str, int]
) -> list[Dispatch]:
    """The dispatches that fill the table from some sources: as few as the windows on these and the table allow."""
    builder, views = operands.builder, operands.parameters.views
    sources = [views.get(field) for field in fields]

    def cut(box: Box) -> int | None:
        return None if all(view is None or builder.shows(view, box) for view in (*sources, table)) else 0

    dispatches: list[Dispatch] = []
    for box in boxes(((0, operands.geometry.output_channels),), cut):
        dispatch, ((low, high),) = DispatchBuilder(kernel), box
        # A binding needs some memory even if the kernel reads nothing from it. This must not be the table: other
        # dispatches of this stage write to it, and only the kernel knows that it reads nothing there.
        bound = [views["input_scale_tensor"] if view is None else view for view in sources]
        for index, view in enumerate(bound):
            dispatch.show(view, box, f"start[{index}]")
        count = high - low
        dispatch.show(table, box, "table_start", Access.WRITE, unit=4)
        dispatch.push(count=count, stride=[view.strides[0] for view in bound])
        seconds, grid = builder.element_seconds(8 * count), builder.grid(count)
        dispatches.append(dispatch.finish(specialization, grid, seconds=seconds, bytes_moved=count * 24))
    return dispatches
