"""QUANTIZED_LINEAR_CONVOLUTION: a product of packed operands, or straight from the tensors.

There are up to ten tensors and four storage buffers in a stage, so a first stage packs: a record of parameters for each
output channel, the filter and the input. Later stages multiply. The paths are

dot4, integer, float
    The packed product by packed dot products, by 32-bit multiplications, or by float32 multiplications in exact blocks.
direct
    One output at a time from the tensors as they lie: depthwise and narrow groups, and what is too large to pack.

All give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.plan import Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution_direct import Direct
from dmlvk.planning.quantized_linear_convolution_memory import Builder, View, copies, dense
from dmlvk.planning.quantized_linear_convolution_packing import (
    PackedFilter,
    Words,
    folded_geometry,
    pack_filter,
    pack_input,
    packed_parts,
)
from dmlvk.planning.quantized_linear_convolution_parameters import RECORD_SIZE, parameter_dispatches, parameter_views
from dmlvk.planning.quantized_linear_convolution_product import (
    LARGEST_WORD_COUNT,
    Shape,
    available_paths,
    product_dispatches,
    product_shape,
)
from dmlvk.tensor_desc import TensorFlags

NO_OFFSETS: Mapping[str, int] = MappingProxyType({})

DIRECT = "direct"

# More of the input than this is packed in parts: enough to keep any GPU busy, little enough to be found.
LARGEST_PART = 1 << 28

# What a multiplication of the direct kernel costs, in words of the packed product.
DIRECT_COST = 5


def plan_quantized_linear_convolution(
    desc: QuantizedLinearConvolutionDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int] = NO_OFFSETS,
) -> Plan:
    """Plan a QUANTIZED_LINEAR_CONVOLUTION.

    Parameters
    ----------
    desc : QuantizedLinearConvolutionDesc
    profile : DeviceProfile
    path : str, optional
        "dot4", "integer", "float" or "direct"; None chooses.
    offsets : mapping of str to int, optional
        Bytes from the start of its memory to a tensor's own start, by field.

    Raises
    ------
    ValueError
        When the path does not exist, not on this device, or not for a convolution of this size.
    """
    paths = (*available_paths(profile), DIRECT)
    if path is not None and path not in paths:
        names = ", ".join(repr(name) for name in paths)
        raise ValueError(f"QUANTIZED_LINEAR_CONVOLUTION has no kernel path {path!r} on {profile.name}; it has {names}")
    geometry = folded_geometry(desc.geometry)
    obstacle = _obstacle_to_packing(geometry, profile)
    if path in (None, DIRECT):
        shape = product_shape(paths[0], profile, geometry)
        if path == DIRECT or obstacle is not None or _is_narrow(geometry, shape):
            return _plan_direct(desc, profile, offsets)
        path = paths[0]
    elif obstacle is not None:
        raise ValueError(f"QUANTIZED_LINEAR_CONVOLUTION cannot take path {path!r} here, only {DIRECT!r}: {obstacle}")
    return _plan_product(desc, profile, offsets, geometry, path)


def _scratch_limit(profile: DeviceProfile) -> int:
    return min(profile.segment_size, 1 << 31)


def _part_limit(builder: Builder, other_size: int) -> int:
    """Bytes that a packed part of the input may take, of which there are two."""
    room = (_scratch_limit(builder.profile) - other_size) // 2 - 256
    return max(0, min(builder.window_limit, room, LARGEST_PART))


def _obstacle_to_packing(geometry: ConvolutionGeometry, profile: DeviceProfile) -> str | None:
    """Why the operands cannot be packed; None where they can."""
    words = Words.of(geometry)
    if words.per_output > LARGEST_WORD_COUNT:
        return (
            f"an output has {words.per_output} words of four taps, of which {LARGEST_WORD_COUNT} are sure to fit the "
            "32 bits of a sum"
        )
    # The widest panels bound the filter's size on every path.
    widest = 128
    builder = Builder(profile, {})
    filter_size = PackedFilter.size_of(geometry, widest) + geometry.output_channels * geometry.tap_count
    other_size = filter_size + geometry.output_channels * RECORD_SIZE + 4096
    if other_size > _scratch_limit(profile) // 2:
        return f"the packed filter takes {filter_size} bytes, too many beside the packed input"
    panel_size = (words.per_output + 1) * widest * 4
    rows, columns = ((k - 1) * d + 1 for k, d in zip(geometry.filter_size, geometry.dilations, strict=True))
    smallest_part = words.quads * rows * columns * 4
    limit = min(_part_limit(builder, other_size), builder.window_limit)
    if smallest_part > limit:
        return f"the input under one output takes {smallest_part} bytes packed, of which a dispatch may have {limit}"
    if panel_size > limit:
        return f"{widest} channels of the filter take {panel_size} bytes packed, of which a dispatch may have {limit}"
    return None


def _is_narrow(geometry: ConvolutionGeometry, shape: Shape) -> bool:
    """Whether groups are so narrow that a product would mostly multiply what nobody stores."""
    channels = geometry.output_channels_per_group
    width = shape.panel * shape.panels
    computed = -(-channels // width) * width / channels
    return Words.of(geometry).per_output * computed > geometry.tap_count * DIRECT_COST


def _views(
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
        count = 1
        for size in sizes[name]:
            count *= size
        view = dense(builder.persistent.name, builder.persistent.allocate(count), 1, sizes[name])
        initialization.extend(copies(builder, views[name], view, sizes[name]))
        views[name] = view
    return views


def _unsigned(desc: QuantizedLinearConvolutionDesc, field: str) -> bool:
    return desc.tensors[field].data_type is DataType.UINT8


def _finish(
    path: str, builder: Builder, initialization: list[list[Dispatch]], stages: list[tuple[Dispatch, ...]]
) -> Plan:
    return Plan(
        path=path,
        stages=tuple(stage for stage in stages if stage),
        initialization=tuple(tuple(stage) for stage in initialization if stage),
        scratch_size=builder.scratch.size,
        persistent_size=builder.persistent.size,
    )


def _plan_direct(desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile, offsets: Mapping[str, int]) -> Plan:
    builder, geometry = Builder(profile, offsets), desc.geometry
    initialization: list[Dispatch] = []
    views = _views(desc, geometry, builder, initialization, ("input_tensor", "filter_tensor"))
    parameters = parameter_views(desc, builder, initialization)
    table, prepare = parameter_dispatches(desc, builder, parameters)
    direct = Direct(
        builder,
        geometry,
        views["input_tensor"],
        views["filter_tensor"],
        table,
        views["output_tensor"],
        _unsigned(desc, "input_tensor"),
        _unsigned(desc, "filter_tensor"),
        _unsigned(desc, "output_tensor"),
    )
    return _finish(DIRECT, builder, [initialization], [tuple(prepare), *direct.stages()])


def _plan_product(
    desc: QuantizedLinearConvolutionDesc,
    profile: DeviceProfile,
    offsets: Mapping[str, int],
    geometry: ConvolutionGeometry,
    path: str,
) -> Plan:
    builder, shape = Builder(profile, offsets), product_shape(path, profile, geometry)
    initialization: list[Dispatch] = []
    views = _views(desc, geometry, builder, initialization, ("input_tensor",))
    parameters = parameter_views(desc, builder, initialization)
    table, prepare = parameter_dispatches(desc, builder, parameters)

    filter_is_owned = bool(desc.filter_tensor.flags & TensorFlags.OWNED_BY_DML)
    packed_filter, before, packing = pack_filter(
        builder,
        geometry,
        views["filter_tensor"],
        _unsigned(desc, "filter_tensor"),
        shape.panel,
        builder.persistent if filter_is_owned else builder.scratch,
    )
    initialization_stages = [initialization]
    stages: list[tuple[Dispatch, ...]] = []
    if filter_is_owned:
        initialization_stages = [initialization + before, packing]
    else:
        stages.append(tuple(before))
        prepare += packing

    parts = packed_parts(builder, geometry, _part_limit(builder, builder.scratch.size))
    room = max(part.size for part in parts)
    starts = [builder.scratch.allocate(room) for _ in parts[:2]]
    for index, part in enumerate(parts):
        placed = replace(part, tensor=builder.scratch.name, start=starts[index % 2])
        zero_point = parameters.get("input_zero_point_tensor")
        unsigned = _unsigned(desc, "input_tensor")
        # While one part is multiplied the next one is packed, into the other of two places.
        stages.append((*prepare, *pack_input(builder, geometry, views["input_tensor"], zero_point, unsigned, placed)))
        prepare = product_dispatches(
            builder,
            geometry,
            shape,
            packed_filter,
            placed,
            table,
            views["output_tensor"],
            _unsigned(desc, "output_tensor"),
        )
    stages.append(tuple(prepare))
    return _finish(path, builder, initialization_stages, stages)
