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
from types import MappingProxyType

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import shown
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import Builder, View
from dmlvk.planning.plan import PERSISTENT, Dispatch, PathError, Plan
from dmlvk.planning.quantized_linear_convolution.depthwise import (
    DEPTHWISE,
    Depthwise,
    multiplies_packed,
    obstacle_to_depthwise,
    prefers_depthwise,
)
from dmlvk.planning.quantized_linear_convolution.direct import Direct
from dmlvk.planning.quantized_linear_convolution.first_layer import (
    FIRST_LAYER,
    FirstLayer,
    first_layer_tile,
    prefers_first_layer,
)
from dmlvk.planning.quantized_linear_convolution.halo import (
    HALO,
    halo_shape,
    prefers_halo,
)
from dmlvk.planning.quantized_linear_convolution.matrix import (
    MATRIX,
    Runs,
    matrix_of,
    matrix_shape,
)
from dmlvk.planning.quantized_linear_convolution.packing import (
    ChannelWords,
    folded_geometry,
)
from dmlvk.planning.quantized_linear_convolution.parameters import (
    Sources,
    gathered_parameters,
    parameter_dispatches,
    parameter_views,
)
from dmlvk.planning.quantized_linear_convolution.product import (
    Shape,
    available_paths,
    product_shape,
)
from dmlvk.planning.quantized_linear_convolution.stages import (
    filter_stages,
    finished_plan,
    is_unsigned,
    obstacle_to_packing,
    plan_product,
    tensor_views,
)

NO_OFFSETS: Mapping[str, int] = MappingProxyType({})

DIRECT = "direct"

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
        raise PathError(
            f"QUANTIZED_LINEAR_CONVOLUTION has no kernel path {shown(path)} on {profile.name}; it has {names}"
        )
    for special, preferred in ((DEPTHWISE, prefers_depthwise(profile)), (FIRST_LAYER, prefers_first_layer(profile))):
        if name != special and (path is not None or not preferred):
            continue
        found = (_plan_depthwise if special == DEPTHWISE else _plan_first_layer)(desc, profile, offsets)
        if isinstance(found, Plan):
            return found
        if path is not None:
            raise PathError(f"QUANTIZED_LINEAR_CONVOLUTION cannot take path {shown(path)} here: {found}")
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
        raise PathError(f"QUANTIZED_LINEAR_CONVOLUTION cannot take path {shown(path)} here: {found}")
    shape = _shape(name, profile, geometry, tile)
    obstacle = obstacle_to_packing(geometry, profile, shape)
    if obstacle is not None:
        raise PathError(
            f"QUANTIZED_LINEAR_CONVOLUTION cannot take path {shown(path)} here, only {DIRECT!r}: {obstacle}"
        )
    found = plan_product(desc, profile, offsets, geometry, path, shape)
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
        if obstacle_to_packing(geometry, profile, shape) is not None or _is_narrow(geometry, shape):
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


def _is_narrow(geometry: ConvolutionGeometry, shape: Shape) -> bool:
    """Whether groups are so narrow that a product would mostly multiply what nobody stores."""
    channels = geometry.output_channels_per_group
    width = shape.panel * shape.panels
    computed = -(-channels // width) * width / channels
    return ChannelWords.of(geometry).per_output * computed > geometry.tap_count * DIRECT_COST


def _plan_direct(desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile, offsets: Mapping[str, int]) -> Plan:
    builder, geometry = Builder(profile, offsets), desc.geometry
    initialization: list[Dispatch] = []
    views = tensor_views(desc, geometry, builder, initialization, ("input_tensor", "filter_tensor"))
    parameters = parameter_views(desc, builder, initialization)
    table, prepare = parameter_dispatches(desc, builder, parameters)
    direct = Direct(
        builder,
        geometry,
        views["input_tensor"],
        views["filter_tensor"],
        table,
        views["output_tensor"],
        is_unsigned(desc, "input_tensor"),
        is_unsigned(desc, "filter_tensor"),
        is_unsigned(desc, "output_tensor"),
    )
    if table.tensor == PERSISTENT:
        return finished_plan(DIRECT, builder, [initialization, prepare], direct.stages())
    return finished_plan(DIRECT, builder, [initialization], [tuple(prepare), *direct.stages()])


def _plan_depthwise(
    desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile, offsets: Mapping[str, int]
) -> Plan | str:
    """A plan, or why there is none."""
    builder, geometry = Builder(profile, offsets), desc.geometry
    initialization: list[Dispatch] = []
    obstacle = obstacle_to_depthwise(geometry)
    if obstacle is not None:
        return obstacle
    views = tensor_views(desc, geometry, builder, initialization, ("input_tensor", "filter_tensor"))
    parameters = parameter_views(desc, builder, initialization)
    table: View | None = None
    if multiplies_packed(profile):
        parameters, prepare = gathered_parameters(desc, builder, parameters)
    else:
        table, prepare = parameter_dispatches(desc, builder, parameters)
    depthwise = Depthwise(
        builder,
        geometry,
        views["input_tensor"],
        views["output_tensor"],
        Sources.of(desc, parameters),
        views["filter_tensor"],
        table,
    )
    dispatches = depthwise.dispatches()
    if isinstance(dispatches, str):
        return dispatches
    if table is not None and table.tensor == PERSISTENT:
        return finished_plan(DEPTHWISE, builder, [initialization, prepare], [tuple(dispatches)])
    return finished_plan(DEPTHWISE, builder, [initialization], [tuple(prepare), tuple(dispatches)])


def _plan_first_layer(
    desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile, offsets: Mapping[str, int]
) -> Plan | str:
    """A plan, or why there is none."""
    builder, geometry = Builder(profile, offsets), desc.geometry
    tile = first_layer_tile(profile, geometry)
    if isinstance(tile, str):
        return tile
    initialization: list[Dispatch] = []
    views = tensor_views(desc, geometry, builder, initialization, ("input_tensor",))
    parameters, prepare = gathered_parameters(desc, builder, parameter_views(desc, builder, initialization))
    packed_filter, initialization_stages, stages, prepare = filter_stages(
        desc,
        builder,
        geometry,
        views["filter_tensor"],
        tile.channels,
        tile.packing(geometry),
        initialization,
        None,
        prepare,
    )
    dispatches = FirstLayer(
        builder,
        geometry,
        views["input_tensor"],
        views["output_tensor"],
        Sources.of(desc, parameters),
        packed_filter,
        tile,
    ).dispatches()
    if isinstance(dispatches, str):
        return dispatches
    return finished_plan(FIRST_LAYER, builder, initialization_stages, [*stages, tuple(prepare), tuple(dispatches)])


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
    obstacle = obstacle_to_packing(geometry, profile, shape)
    if obstacle is not None:
        return obstacle
    return plan_product(desc, profile, offsets, geometry, f"{HALO}:{tile}" if tile else HALO, shape)
