"""The stages of a QUANTIZED_LINEAR_CONVOLUTION plan: its tensors, the packed filter and input, and their product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import Builder, View, copies, dense
from dmlvk.planning.plan import PERSISTENT, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.channels_last import channels_last
from dmlvk.planning.quantized_linear_convolution.halo import (
    HaloCutter,
    HaloShape,
)
from dmlvk.planning.quantized_linear_convolution.matrix import (
    MatrixShape,
    Runs,
    matrix_filter_packing,
)
from dmlvk.planning.quantized_linear_convolution.matrix_dispatch import (
    VECTORS,
    WORDS,
    MatrixCutter,
    fetch_in_place,
    whole_input,
)
from dmlvk.planning.quantized_linear_convolution.packing import (
    ChannelWords,
    FilterPacking,
    PackedFilter,
    PackedInput,
    pack_filter,
    pack_input,
    packed_parts,
)
from dmlvk.planning.quantized_linear_convolution.parameters import (
    RECORD_SIZE,
    Sources,
    gathered_parameters,
    parameter_dispatches,
    parameter_views,
)
from dmlvk.planning.quantized_linear_convolution.product import (
    LARGEST_WORD_COUNT,
    PackedProductCutter,
    Shape,
    product_dispatches,
)
from dmlvk.tensor_desc import TensorFlags

# More of the input than this is packed in parts: enough to keep any GPU busy, little enough to be found.
LARGEST_PART = 1 << 28

# Matrix kernels read up to a vector past the end of a part.
PART_END = 16


def _scratch_limit(profile: DeviceProfile) -> int:
    return min(profile.segment_size, 1 << 31)


def _part_limit(builder: Builder, other_size: int) -> int:
    """Bytes that a packed part of the input may take, of which there are two."""
    room = (_scratch_limit(builder.profile) - other_size) // 2 - 256
    return max(0, min(builder.window_limit, room, LARGEST_PART))


def obstacle_to_packing(geometry: ConvolutionGeometry, profile: DeviceProfile, shape: Shape) -> str | None:
    """Why the operands cannot be packed; None where they can."""
    words = ChannelWords.of(geometry)
    quads, filter_words = _packing(geometry, shape)
    if words.per_output > LARGEST_WORD_COUNT:
        return (
            f"an output has {words.per_output} words of four taps, of which {LARGEST_WORD_COUNT} are sure to fit the "
            "32 bits of a sum"
        )
    # The widest panels bound the filter's size on every path.
    widest = 128
    builder = Builder(profile, {})
    filter_size = (
        PackedFilter.size_of(geometry, widest, filter_words.words) + geometry.output_channels * geometry.tap_count
    )
    other_size = filter_size + geometry.output_channels * RECORD_SIZE + 4096
    if other_size > _scratch_limit(profile) // 2:
        return f"the packed filter takes {filter_size} bytes, too many beside the packed input"
    panel_size = (filter_words.words + 1) * widest * 4
    rows, columns = ((k - 1) * d + 1 for k, d in zip(geometry.filter_size, geometry.dilations, strict=True))
    smallest_part = quads * rows * columns * 4
    limit = min(_part_limit(builder, other_size), builder.window_limit)
    if smallest_part > limit:
        return f"the input under one output takes {smallest_part} bytes packed, of which a dispatch may have {limit}"
    if panel_size > limit:
        return f"{widest} channels of the filter take {panel_size} bytes packed, of which a dispatch may have {limit}"
    return None


def _packing(geometry: ConvolutionGeometry, shape: Shape) -> tuple[int, FilterPacking]:
    """Words of a pixel in the packed input, and how the filter is packed."""
    if isinstance(shape, HaloShape):
        return shape.runs(geometry).quads, shape.filter_packing(geometry)
    if isinstance(shape, MatrixShape):
        return Runs.of(geometry).quads, matrix_filter_packing(geometry, shape)
    return ChannelWords.of(geometry).quads, FilterPacking.of(geometry, shape.channels_last)


def tensor_views(
    desc: QuantizedLinearConvolutionDesc,
    geometry: ConvolutionGeometry,
    builder: Builder,
    initialization: list[Dispatch],
    copied: tuple[str, ...],
) -> dict[str, View]:
    """The data tensors, by field; those named in `copied` that are OWNED_BY_DML as copies in persistent memory.

    The input is seen as `geometry` has it, which may step over some of its rows and columns.
    """
    views = {
        "input_tensor": View("input_tensor", 0, 1, geometry.input_strides),
        "filter_tensor": View("filter_tensor", 0, 1, geometry.filter_strides),
        "output_tensor": View("output_tensor", 0, 1, geometry.output_strides),
    }
    sizes = {
        "input_tensor": (geometry.batch, geometry.input_channels, *geometry.input_size),
        "filter_tensor": (
            geometry.output_channels,
            geometry.input_channels_per_group,
            *geometry.filter_size,
        ),
    }
    for name in copied:
        if not desc.tensors[name].flags & TensorFlags.OWNED_BY_DML:
            continue
        start = builder.persistent.allocate(math.prod(sizes[name]))
        view = dense(builder.persistent.name, start, 1, sizes[name])
        initialization.extend(copies(builder, views[name], view, sizes[name]))
        views[name] = view
    return views


def is_unsigned(desc: QuantizedLinearConvolutionDesc, field: str) -> bool:
    """Whether a tensor of bytes is UINT8."""
    return desc.tensors[field].data_type is DataType.UINT8


def finished_plan(
    path: str, builder: Builder, initialization: list[list[Dispatch]], stages: list[tuple[Dispatch, ...]]
) -> Plan:
    """A plan of these stages, less the empty ones, with the memory that was handed out for it."""
    return Plan(
        path=path,
        stages=tuple(stage for stage in stages if stage),
        initialization=tuple(tuple(stage) for stage in initialization if stage),
        scratch_size=builder.scratch.size,
        persistent_size=builder.persistent.size,
    )


def filter_stages(
    desc: QuantizedLinearConvolutionDesc,
    builder: Builder,
    geometry: ConvolutionGeometry,
    source: View,
    width: int,
    packing: FilterPacking,
    initialization: list[Dispatch],
    table: View | None,
    prepare: list[Dispatch],
) -> tuple[PackedFilter, list[list[Dispatch]], list[tuple[Dispatch, ...]], list[Dispatch]]:
    """The packed filter, the stages up to it, of the initialization and of the operator, and how its next stage begins.

    What is OWNED_BY_DML is packed once, and so is a `table` of parameters in persistent memory, which `prepare` makes.
    """
    filter_is_owned = bool(desc.filter_tensor.flags & TensorFlags.OWNED_BY_DML)
    packed, before, dispatches = pack_filter(
        builder,
        geometry,
        source,
        is_unsigned(desc, "filter_tensor"),
        width,
        packing,
        builder.persistent if filter_is_owned else builder.scratch,
    )
    initialization_stages = [initialization, []]
    stages: list[tuple[Dispatch, ...]] = []
    if table is not None and table.tensor == PERSISTENT:
        initialization_stages[1] += prepare
        prepare = []
    if filter_is_owned:
        initialization_stages[0] += before
        initialization_stages[1] += dispatches
    else:
        stages.append(tuple(before))
        prepare = [*prepare, *dispatches]
    return packed, initialization_stages, stages, prepare


def plan_product(
    desc: QuantizedLinearConvolutionDesc,
    profile: DeviceProfile,
    offsets: Mapping[str, int],
    geometry: ConvolutionGeometry,
    path: str,
    shape: Shape,
) -> Plan | str:
    """A plan, or why a shape that needs its input in place has none."""
    builder = Builder(profile, offsets)
    initialization: list[Dispatch] = []
    views = tensor_views(desc, geometry, builder, initialization, ("input_tensor",))
    parameters = parameter_views(desc, builder, initialization)
    table: View | None = None
    if isinstance(shape, MatrixShape):
        parameters, prepare = gathered_parameters(desc, builder, parameters)
    else:
        table, prepare = parameter_dispatches(desc, builder, parameters)
    quads, filter_packing = _packing(geometry, shape)

    packed_filter, initialization_stages, stages, prepare = filter_stages(
        desc, builder, geometry, views["filter_tensor"], shape.panel, filter_packing, initialization, table, prepare
    )

    def product(part: PackedInput, fetch: int, source: View | None = None) -> list[Dispatch]:
        common = (
            builder,
            geometry,
            shape,
            packed_filter,
            part,
            views["output_tensor"],
            is_unsigned(desc, "output_tensor"),
        )
        if table is not None:
            return product_dispatches(PackedProductCutter(*common, table))
        order = HaloCutter if isinstance(shape, HaloShape) else MatrixCutter
        return product_dispatches(order(*common, fetch, Sources.of(desc, parameters), source))

    if isinstance(shape, MatrixShape):
        source = views["input_tensor"]
        fetch = fetch_in_place(builder, geometry, shape, source, views["output_tensor"])
        if fetch is None:
            copied = channels_last(builder, geometry, source, _part_limit(builder, builder.scratch.size))
            if copied is not None:
                source, copying = copied
                prepare.append(copying)
                fetch = VECTORS
        if fetch is not None:
            stages.append(tuple(prepare))
            stages.append(tuple(product(whole_input(geometry, source), fetch, source)))
            return finished_plan(path, builder, initialization_stages, stages)
    if isinstance(shape, HaloShape):
        return "the input's channels do not lie side by side, and it is too large for a copy in which they do"

    parts = packed_parts(geometry, quads, _part_limit(builder, builder.scratch.size), shape.channels_last)
    room = max(part.size for part in parts) + PART_END
    starts = [builder.scratch.allocate(room) for _ in parts[:2]]
    for index, part in enumerate(parts):
        placed = replace(part, tensor=builder.scratch.name, start=starts[index % 2])
        zero_point = parameters.get("input_zero_point_tensor")
        unsigned = is_unsigned(desc, "input_tensor")
        packing = pack_input(builder, geometry, views["input_tensor"], zero_point, unsigned, placed)
        # While one part is multiplied the next one is packed, into the other of two places.
        stages.append((*prepare, *packing))
        prepare = product(placed, VECTORS if Runs.of(geometry).aligned else WORDS)
    stages.append(tuple(prepare))
    return finished_plan(path, builder, initialization_stages, stages)
