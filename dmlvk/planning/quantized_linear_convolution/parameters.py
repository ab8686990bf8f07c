"""The parameters of each output channel, multiplier, zero points and bias, from up to seven tensors.

Some kernels compute them from these `Sources`. Others read a table with a row for each channel, made beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.builder import Builder, DispatchBuilder, Range, View, dense_copy
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
# The names of the sources of a part in the push constants of ..._by_part.comp.
PLACES = ("first", "second", "third")


def parameter_views(
    desc: QuantizedLinearConvolutionDesc, builder: Builder, initialization: list[Dispatch]
) -> dict[str, View]:
    """Where the scales, zero points and biases lie, by field; those that are OWNED_BY_DML are copied first.

    A view has one dimension, the output channel; its stride is 0 if all channels share one element.
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
            copied, dispatches = dense_copy(builder, builder.persistent, view, (count,))
            initialization.extend(dispatches)
            view = copied if stride else View(copied.tensor, copied.start, size, (0,))
        views[name] = view
    return views


def _stem(field: str) -> str:
    """How kernels name a field: "input_scale" for "input_scale_tensor"."""
    return field.removesuffix("_tensor")


@dataclass(frozen=True)
class Sources:
    """The tensors of parameters, and the facts about them that a kernel needs.

    Attributes
    ----------
    views : mapping of str to View
        By field; absent tensors have none. A view has one dimension, the output channel.
    input_unsigned, filter_unsigned, output_unsigned : bool
        Which of the data tensors are UINT8.
    """

    views: Mapping[str, View]
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
                address = view.address([channels[0]])
                dispatch.window(view.tensor, view.bounds([channels]), address, view.element_size, start, Access.READ)


def parameter_dispatches(
    desc: QuantizedLinearConvolutionDesc, builder: Builder, views: Mapping[str, View]
) -> tuple[View, list[Dispatch]]:
    """The table, one row a channel, and the dispatches that fill it.

    If all the sources are in persistent memory, the table is too. Its dispatches then belong to the initialization,
    after the copies.
    """
    channels = desc.geometry.output_channels
    once = all(view.tensor == builder.persistent.name for view in views.values())
    arena = builder.persistent if once else builder.scratch
    table = View(arena.name, arena.allocate(channels * ROW_SIZE), 4, (ROW_SIZE // 4,))
    dispatches: list[Dispatch] = []
    common = {LOCAL_SIZE_X: builder.workgroup_size, **Sources.of(desc, views).kinds}
    spare = views["input_scale_tensor"]  # always present
    if builder.profile.limits.max_per_stage_descriptor_storage_buffers > len(PARAMETER_FIELDS):
        sources = [views.get(name) for name in PARAMETER_FIELDS]
        return table, _dispatches(builder, KERNEL, sources, spare, table, (0, channels), common)
    for part, names in enumerate(PARTS):
        sources = [views.get(name) for name in (*names, "", "")[:3]]
        # The part of the zero points writes a bias of 0 if there is no bias.
        if any(sources) or part == PARTS.index(ZERO_POINTS):
            specialization = {**common, "PART": part}
            dispatches += _dispatches(
                builder, f"{KERNEL}_by_part", sources, spare, table, (0, channels), specialization
            )
    return table, dispatches


def gathered_parameters(
    desc: QuantizedLinearConvolutionDesc, builder: Builder, views: Mapping[str, View]
) -> tuple[dict[str, View], list[Dispatch]]:
    """Parameters that each fit one window: in place, or copied to contiguous memory if they lie far apart."""
    channels = desc.geometry.output_channels
    gathered: dict[str, View] = {}
    dispatches: list[Dispatch] = []
    for name, view in views.items():
        gathered[name] = view
        if not builder.fits(view.tensor, view.bounds([(0, channels)])):
            gathered[name], copying = dense_copy(builder, builder.scratch, view, (channels,))
            dispatches.extend(copying)
    return gathered, dispatches


def table_bounds(table: View, channels: Range) -> Range:
    """The bytes of the rows of a range of channels."""
    return table.start + channels[0] * ROW_SIZE, table.start + channels[1] * ROW_SIZE


def _dispatches(
    builder: Builder,
    kernel: str,
    sources: Sequence[View | None],
    spare: View,
    table: View,
    channels: Range,
    specialization: Mapping[str, int],
) -> list[Dispatch]:
    """The dispatches that fill the table: as few as the windows on the sources and the table allow, by halving."""
    low, high = channels
    present = [view for view in sources if view is not None]
    fitting = all(builder.fits(view.tensor, view.bounds([channels])) for view in present)
    if not fitting or not builder.fits(table.tensor, table_bounds(table, channels)):
        halves = (low, (low + high) // 2), ((low + high) // 2, high)
        return [
            each
            for half in halves
            for each in _dispatches(builder, kernel, sources, spare, table, half, specialization)
        ]
    dispatch = DispatchBuilder(kernel)
    if kernel == KERNEL:
        starts = [f"start[{index}]" for index in range(len(sources))]
    else:
        starts = [f"{place}_start" for place in PLACES]
    count = high - low
    written = table_bounds(table, channels)
    strides: list[int] = []
    for start, view in zip(starts, sources, strict=True):
        # A binding needs some memory even if the kernel reads nothing from it. This must not be the table: other
        # dispatches of this stage write to it, and only the kernel knows that it reads nothing there.
        bound = spare if view is None else view
        address = bound.address([low])
        dispatch.window(bound.tensor, bound.bounds([channels]), address, bound.element_size, start, Access.READ)
        strides.append(bound.strides[0])
    dispatch.window(table.tensor, written, written[0], 4, "table_start", Access.WRITE)
    if kernel == KERNEL:
        dispatch.push(count=count, stride=strides)
    else:
        dispatch.push(count=count, **{f"{place}_stride": stride for place, stride in zip(PLACES, strides, strict=True)})
    finished = dispatch.finish(
        specialization, builder.grid(count), seconds=builder.element_seconds(8 * count), bytes_moved=count * 24
    )
    return [finished]
