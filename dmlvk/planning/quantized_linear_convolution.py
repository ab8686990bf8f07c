"""QUANTIZED_LINEAR_CONVOLUTION: a product of packed operands, or straight from the tensors.

There are up to ten tensors and four storage buffers in a stage, so a first stage packs: a record of parameters for each
output channel, the filter and the input. Later stages multiply. The paths are

depthwise
    Straight from the tensors, by words of four neighbouring channels or columns: every output channel sees one input
    channel.
first_layer
    On matrix units, straight from an input of at most four channels.
halo
    The product on matrix units for filters of several taps at stride 1, whose tiles keep the input under them in shared
    memory. Inputs are read as they lie (NHWC) or turned to NHWC first.
matrix
    The product on matrix units (VK_KHR_cooperative_matrix). Inputs with whole vectors of channels are read as they lie
    (NHWC, and NCHW under filters of one tap) or turned to NHWC first; others are packed.
dot4, integer, float
    The packed product by packed dot products, by 32-bit multiplications, or by float32 multiplications in exact blocks.
direct
    One output at a time from the tensors as they lie: narrow groups, and what is too large for the others.

All give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.plan import PERSISTENT, Dispatch, PathError, Plan
from dmlvk.planning.quantized_linear_convolution_channels_last import channels_last
from dmlvk.planning.quantized_linear_convolution_depthwise import (
    DEPTHWISE,
    Depthwise,
    obstacle_to_depthwise,
    prefers_depthwise,
)
from dmlvk.planning.quantized_linear_convolution_direct import Direct
from dmlvk.planning.quantized_linear_convolution_first_layer import (
    FIRST_LAYER,
    FirstLayer,
    first_layer_tile,
    prefers_first_layer,
)
from dmlvk.planning.quantized_linear_convolution_halo import (
    HALO,
    HaloOrder,
    HaloShape,
    halo_shape,
    prefers_halo,
)
from dmlvk.planning.quantized_linear_convolution_matrix import (
    MATRIX,
    MatrixShape,
    Runs,
    matrix_filter_packing,
    matrix_of,
    matrix_shape,
)
from dmlvk.planning.quantized_linear_convolution_matrix_order import (
    VECTORS,
    WORDS,
    MatrixOrder,
    fetch_in_place,
    whole_input,
)
from dmlvk.planning.quantized_linear_convolution_memory import Builder, View, copies, dense
from dmlvk.planning.quantized_linear_convolution_packing import (
    FilterPacking,
    PackedFilter,
    PackedInput,
    Words,
    folded_geometry,
    pack_filter,
    pack_input,
    packed_parts,
)
from dmlvk.planning.quantized_linear_convolution_parameters import (
    RECORD_SIZE,
    gathered_parameters,
    parameter_dispatches,
    parameter_views,
)
from dmlvk.planning.quantized_linear_convolution_product import (
    LARGEST_WORD_COUNT,
    PackedOrder,
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

# Matrix kernels read up to a vector past the end of a part.
PART_END = 16

# What a multiplication of the direct kernel costs, in words of the packed product.
DIRECT_COST = 5

# Matrix units are this much faster than packed dot products at the very least.
WASTEFUL = 6


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
        "depthwise", "first_layer", "halo", "matrix", "dot4", "integer", "float" or "direct"; None chooses.
        "matrix:128x128x64:64x32" is the matrix path with a tile of 128 pixels and output channels by 64 bytes of K, in
        subgroups of 64 pixels and 32 channels.
    offsets : mapping of str to int, optional
        Bytes from the start of its memory to a tensor's own start, by field.

    Raises
    ------
    PathError
        When the path does not exist, not on this device, or not for a convolution of this size.
    """
    paths = convolution_paths(profile)
    name, _, tile = (path or "").partition(":")
    if path is not None and (name not in paths or (tile and name not in (MATRIX, HALO))):
        names = ", ".join(repr(name) for name in paths)
        raise PathError(f"QUANTIZED_LINEAR_CONVOLUTION has no kernel path {path!r} on {profile.name}; it has {names}")
    for special, preferred in ((DEPTHWISE, prefers_depthwise(profile)), (FIRST_LAYER, prefers_first_layer(profile))):
        if name != special and (path is not None or not preferred):
            continue
        found = (_plan_depthwise if special == DEPTHWISE else _plan_first_layer)(desc, profile, offsets)
        if isinstance(found, Plan):
            return found
        if path is not None:
            raise PathError(f"QUANTIZED_LINEAR_CONVOLUTION cannot take path {path!r} here: {found}")
    geometry = folded_geometry(desc.geometry)
    if path is None:
        path = name = _choose(paths, profile, geometry)
        if path == MATRIX and prefers_halo(profile, geometry):
            found = _plan_halo(desc, profile, offsets, geometry)
            if isinstance(found, Plan):
                return found
    if name == DIRECT:
        return _plan_direct(desc, profile, offsets)
    if name == HALO:
        found = _plan_halo(desc, profile, offsets, geometry, tile)
        if isinstance(found, Plan):
            return found
        raise PathError(f"QUANTIZED_LINEAR_CONVOLUTION cannot take path {path!r} here: {found}")
    shape = _shape(name, profile, geometry, tile)
    obstacle = _obstacle_to_packing(geometry, profile, shape)
    if obstacle is not None:
        raise PathError(f"QUANTIZED_LINEAR_CONVOLUTION cannot take path {path!r} here, only {DIRECT!r}: {obstacle}")
    found = _plan_product(desc, profile, offsets, geometry, path, shape)
    assert isinstance(found, Plan), "only a halo needs its input in place"
    return found


def convolution_paths(profile: DeviceProfile) -> tuple[str, ...]:
    """The kernel paths that a device can run, the best first."""
    others = available_paths(profile)
    if matrix_of(profile) is None:
        return (DEPTHWISE, *others, DIRECT)
    # A CPU's "matrix units" are loops.
    if profile.device_type is DeviceType.CPU:
        return (DEPTHWISE, FIRST_LAYER, HALO, *others, MATRIX, DIRECT)
    return (DEPTHWISE, FIRST_LAYER, HALO, MATRIX, *others, DIRECT)


def _choose(paths: tuple[str, ...], profile: DeviceProfile, geometry: ConvolutionGeometry) -> str:
    """One of the paths that take any convolution, as long as it is not too large."""
    for path in paths:
        if path in (DEPTHWISE, FIRST_LAYER, HALO, DIRECT):
            continue
        shape = _shape(path, profile, geometry)
        if path == MATRIX and _is_wasteful(geometry, shape):
            continue
        if _obstacle_to_packing(geometry, profile, shape) is not None or _is_narrow(geometry, shape):
            return DIRECT
        return path
    return DIRECT


def _shape(path: str, profile: DeviceProfile, geometry: ConvolutionGeometry, tile: str = "") -> Shape:
    return matrix_shape(profile, geometry, tile) if path == MATRIX else product_shape(path, profile, geometry)


def _is_wasteful(geometry: ConvolutionGeometry, shape: Shape) -> bool:
    """Whether matrix units would mostly multiply what nobody stores, or zeros."""
    channels = geometry.output_channels_per_group
    computed = -(-channels // shape.panel) * shape.panel / channels
    return 16 * Runs.of(geometry).total * computed > WASTEFUL * geometry.tap_count


def _scratch_limit(profile: DeviceProfile) -> int:
    return min(profile.segment_size, 1 << 31)


def _part_limit(builder: Builder, other_size: int) -> int:
    """Bytes that a packed part of the input may take, of which there are two."""
    room = (_scratch_limit(builder.profile) - other_size) // 2 - 256
    return max(0, min(builder.window_limit, room, LARGEST_PART))


def _obstacle_to_packing(geometry: ConvolutionGeometry, profile: DeviceProfile, shape: Shape) -> str | None:
    """Why the operands cannot be packed; None where they can."""
    words = Words.of(geometry)
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
    return Words.of(geometry).quads, FilterPacking.of(geometry, shape.channels_last)


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
    if table.tensor == PERSISTENT:
        return _finish(DIRECT, builder, [initialization, prepare], direct.stages())
    return _finish(DIRECT, builder, [initialization], [tuple(prepare), *direct.stages()])


def _plan_depthwise(
    desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile, offsets: Mapping[str, int]
) -> Plan | str:
    """A plan, or why there is none."""
    builder, geometry = Builder(profile, offsets), desc.geometry
    initialization: list[Dispatch] = []
    obstacle = obstacle_to_depthwise(geometry)
    if obstacle is not None:
        return obstacle
    views = _views(desc, geometry, builder, initialization, ("input_tensor", "filter_tensor"))
    parameters = parameter_views(desc, builder, initialization)
    table, prepare = parameter_dispatches(desc, builder, parameters)
    depthwise = Depthwise(
        builder,
        geometry,
        views["input_tensor"],
        views["filter_tensor"],
        table,
        views["output_tensor"],
        _unsigned(desc, "input_tensor"),
        _unsigned(desc, "filter_tensor"),
        _unsigned(desc, "output_tensor"),
        "filter_zero_point_tensor" in parameters or _unsigned(desc, "filter_tensor"),
    )
    dispatches = depthwise.dispatches()
    if isinstance(dispatches, str):
        return dispatches
    if table.tensor == PERSISTENT:
        return _finish(DEPTHWISE, builder, [initialization, prepare], [tuple(dispatches)])
    return _finish(DEPTHWISE, builder, [initialization], [tuple(prepare), tuple(dispatches)])


def _plan_first_layer(
    desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile, offsets: Mapping[str, int]
) -> Plan | str:
    """A plan, or why there is none."""
    builder, geometry = Builder(profile, offsets), desc.geometry
    tile = first_layer_tile(profile, geometry)
    if isinstance(tile, str):
        return tile
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
        tile.channels,
        tile.packing(geometry),
        builder.persistent if filter_is_owned else builder.scratch,
    )
    initialization_stages: list[list[Dispatch]] = [initialization, []]
    stages: list[tuple[Dispatch, ...]] = []
    if table is not None and table.tensor == PERSISTENT:
        initialization_stages[1] += prepare
        prepare = []
    if filter_is_owned:
        initialization_stages[0] += before
        initialization_stages[1] += packing
    else:
        stages.append(tuple(before))
        prepare += packing
    dispatches = FirstLayer(
        builder,
        geometry,
        tile,
        views["input_tensor"],
        packed_filter,
        table,
        views["output_tensor"],
        _unsigned(desc, "input_tensor"),
        _unsigned(desc, "output_tensor"),
        "filter_zero_point_tensor" in parameters or _unsigned(desc, "filter_tensor"),
    ).dispatches()
    if isinstance(dispatches, str):
        return dispatches
    return _finish(FIRST_LAYER, builder, initialization_stages, [*stages, tuple(prepare), tuple(dispatches)])


def _plan_halo(
    desc: QuantizedLinearConvolutionDesc,
    profile: DeviceProfile,
    offsets: Mapping[str, int],
    geometry: ConvolutionGeometry,
    tile: str = "",
) -> Plan | str:
    """A plan, or why there is none."""
    shape = halo_shape(profile, geometry, tile)
    if isinstance(shape, str):
        return shape
    obstacle = _obstacle_to_packing(geometry, profile, shape)
    if obstacle is not None:
        return obstacle
    return _plan_product(desc, profile, offsets, geometry, f"{HALO}:{tile}" if tile else HALO, shape)


def _plan_product(
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
    views = _views(desc, geometry, builder, initialization, ("input_tensor",))
    parameters = parameter_views(desc, builder, initialization)
    table: View | None = None
    if isinstance(shape, MatrixShape):
        parameters, prepare = gathered_parameters(desc, builder, parameters)
    else:
        table, prepare = parameter_dispatches(desc, builder, parameters)
    quads, filter_packing = _packing(geometry, shape)

    filter_is_owned = bool(desc.filter_tensor.flags & TensorFlags.OWNED_BY_DML)
    packed_filter, before, packing = pack_filter(
        builder,
        geometry,
        views["filter_tensor"],
        _unsigned(desc, "filter_tensor"),
        shape.panel,
        filter_packing,
        builder.persistent if filter_is_owned else builder.scratch,
    )
    initialization_stages: list[list[Dispatch]] = [initialization, []]
    stages: list[tuple[Dispatch, ...]] = []
    if table is not None and table.tensor == PERSISTENT:
        initialization_stages[1] += prepare
        prepare = []
    if filter_is_owned:
        initialization_stages[0] += before
        initialization_stages[1] += packing
    else:
        stages.append(tuple(before))
        prepare += packing

    def product(part: PackedInput, fetch: int, source: View | None = None) -> list[Dispatch]:
        common = (
            builder,
            geometry,
            shape,
            packed_filter,
            part,
            views["output_tensor"],
            _unsigned(desc, "output_tensor"),
        )
        if table is not None:
            return product_dispatches(PackedOrder(*common, table))
        unsigned = (_unsigned(desc, "input_tensor"), _unsigned(desc, "filter_tensor"))
        order = HaloOrder if isinstance(shape, HaloShape) else MatrixOrder
        return product_dispatches(order(*common, fetch, parameters, source, *unsigned))

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
            return _finish(path, builder, initialization_stages, stages)
    if isinstance(shape, HaloShape):
        return "the input's channels do not lie side by side, and it is too large for a copy in which they do"

    parts = packed_parts(geometry, quads, _part_limit(builder, builder.scratch.size), shape.channels_last)
    room = max(part.size for part in parts) + PART_END
    starts = [builder.scratch.allocate(room) for _ in parts[:2]]
    for index, part in enumerate(parts):
        placed = replace(part, tensor=builder.scratch.name, start=starts[index % 2])
        zero_point = parameters.get("input_zero_point_tensor")
        unsigned = _unsigned(desc, "input_tensor")
        packing = pack_input(builder, geometry, views["input_tensor"], zero_point, unsigned, placed)
        # While one part is multiplied the next one is packed, into the other of two places.
        stages.append((*prepare, *packing))
        prepare = product(placed, VECTORS if Runs.of(geometry).aligned else WORDS)
    stages.append(tuple(prepare))
    return _finish(path, builder, initialization_stages, stages)
