"""The operators of ONNX that run on the device: one entry each, from which all else is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx import defs

from dmlvk.onnx import byte_functions, convolution, movement, neighbours, normalization, patterns, resize, views
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import MICROSOFT, Graph, Node
from dmlvk.onnx.program import MOVABLE_ELEMENTS, ProgramBuilder, type_name

# An attribute of operators of version 1, which never had a meaning.
OLD_ATTRIBUTES = {"consumed_inputs"}


@dataclass(frozen=True)
class Entry:
    """An operator.

    plan: adds a node's dispatches, or raises NotOnDeviceError.
    check: refuses a node by what is known when the model is loaded.
    attributes: the attributes that `plan` knows. A later version of ONNX may add others, which change the meaning.
    parameters: inputs that must be known before the dispatch, because sizes follow from them.
    scales: the positions of the scales of input, filter and output, whose values decide whether the device has its
        bits.
    is_view: whether its output is its input's memory.
    data: the position of the input that it reads.
    keeps_layout: whether its output can lie in memory as its input does, whatever the order of its dimensions.
    ends_layout: whether its output lies in memory in the same way for any order of its input's dimensions.
    """

    plan: Callable[[Node, ProgramBuilder], None]
    attributes: tuple[str, ...] = ()
    check: Callable[[Node, Graph], None] | None = None
    parameters: tuple[int, ...] = ()
    scales: tuple[int, ...] = ()
    is_view: bool = False
    data: int = 0
    keeps_layout: bool = False
    ends_layout: bool = False


# Operators of com.microsoft that are declared as one of ONNX is.
SAME_DECLARATION = {(MICROSOFT, "QLinearConv"): ("", "QLinearConv", 10)}
POOL = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides")
RESIZE = (
    *("antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "extrapolation_value"),
    *("keep_aspect_ratio_policy", "mode", "nearest_mode"),
)
CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")

ENTRIES: Mapping[tuple[str, str], Entry] = {
    ("", "QLinearConv"): Entry(convolution.plan_convolution, CONVOLUTION, scales=(1, 4, 6)),
    (MICROSOFT, "QLinearConv"): Entry(convolution.plan_convolution, (*CONVOLUTION, "channels_last"), scales=(1, 4, 6)),
    ("", "QLinearMatMul"): Entry(convolution.plan_product, scales=(1, 4, 6)),
    (MICROSOFT, "QGemm"): Entry(
        convolution.plan_gemm, ("alpha", "transA", "transB"), convolution.check_gemm, scales=(1, 4, 7)
    ),
    (byte_functions.DOMAIN, byte_functions.OPERATOR): Entry(neighbours.plan_byte_table, ("axis",), keeps_layout=True),
    (byte_functions.DOMAIN, byte_functions.MEAN): Entry(neighbours.plan_byte_table_mean, ends_layout=True),
    (MICROSOFT, "QLinearAdd"): Entry(neighbours.plan_add, check=neighbours.check_scales((1, 4, 6)), keeps_layout=True),
    (MICROSOFT, "QLinearConcat"): Entry(
        neighbours.plan_quantized_concat, ("axis",), neighbours.check_quantized_concat, data=2, keeps_layout=True
    ),
    (MICROSOFT, "QLinearWhere"): Entry(neighbours.plan_where, (), neighbours.check_where, data=1, keeps_layout=True),
    (MICROSOFT, "QLinearAveragePool"): Entry(
        neighbours.plan_average_pool,
        (*POOL, "channels_last", "count_include_pad"),
        neighbours.check_scales((1, 3)),
        keeps_layout=True,
    ),
    (MICROSOFT, "QLinearGlobalAveragePool"): Entry(
        neighbours.plan_average_pool,
        ("channels_last",),
        neighbours.check_scales((1, 3)),
        keeps_layout=True,
        ends_layout=True,
    ),
    (MICROSOFT, "QLinearSoftmax"): Entry(
        neighbours.plan_softmax, ("axis", "opset"), neighbours.check_softmax, keeps_layout=True
    ),
    **dict.fromkeys(
        (("", "ReduceMax"), ("", "ReduceMin")),
        Entry(
            neighbours.plan_extreme,
            ("axes", "keepdims", "noop_with_empty_axes"),
            neighbours.check_max_pool,
            parameters=(1,),
            ends_layout=True,
        ),
    ),
    **dict.fromkeys(
        (("", "Add"), ("", "Sum")), Entry(neighbours.plan_sum, check=neighbours.check_floats, keeps_layout=True)
    ),
    ("", "Sub"): Entry(neighbours.plan_difference, check=neighbours.check_difference, keeps_layout=True),
    ("", "Relu"): Entry(neighbours.plan_relu, check=neighbours.check_floats, keeps_layout=True),
    ("", "MaxPool"): Entry(neighbours.plan_max_pool, POOL, neighbours.check_max_pool, keeps_layout=True),
    ("", "Where"): Entry(neighbours.plan_where, (), neighbours.check_where, data=1, keeps_layout=True),
    ("", "QuantizeLinear"): Entry(
        neighbours.plan_quantize,
        ("axis", "block_size", "output_dtype", "precision", "saturate"),
        neighbours.check_quantize,
        keeps_layout=True,
    ),
    ("", "DequantizeLinear"): Entry(
        neighbours.plan_dequantize,
        ("axis", "block_size", "output_dtype"),
        neighbours.check_dequantize,
        keeps_layout=True,
    ),
    ("", "Resize"): Entry(resize.plan_resize, RESIZE, resize.check_resize, parameters=(2, 3), keeps_layout=True),
    (byte_functions.DOMAIN, byte_functions.RESIZE): Entry(
        resize.plan_resize, RESIZE, resize.check_resize, parameters=resize.SCALES_AND_SIZES, keeps_layout=True
    ),
    **dict.fromkeys(
        (("", "LayerNormalization"), (byte_functions.DOMAIN, byte_functions.NORMALIZATION)),
        Entry(
            normalization.plan_normalization,
            ("axis", "epsilon", "stash_type"),
            normalization.check_normalization,
            parameters=normalization.SCALE_AND_BIAS,
            keeps_layout=True,
        ),
    ),
    ("", "Slice"): Entry(movement.plan_slice, ("axes", "ends", "starts"), parameters=(1, 2, 3, 4), keeps_layout=True),
    ("", "Split"): Entry(movement.plan_split, ("axis", "num_outputs", "split"), parameters=(1,), keeps_layout=True),
    ("", "Gather"): Entry(movement.plan_gather, ("axis",), movement.check_gather, parameters=(1,)),
    ("", "Concat"): Entry(movement.plan_concat, ("axis",), keeps_layout=True),
    ("", "Pad"): Entry(movement.plan_pad, ("mode", "pads", "value"), parameters=(1, 2, 3), keeps_layout=True),
    ("", "Transpose"): Entry(movement.plan_transpose, ("perm",)),
    ("", "Expand"): Entry(movement.plan_expand, parameters=(1,)),
    ("", "DepthToSpace"): Entry(movement.plan_depth_to_space, ("blocksize", "mode")),
    ("", "SpaceToDepth"): Entry(movement.plan_space_to_depth, ("blocksize", "mode")),
    ("", "OneHot"): Entry(patterns.plan_one_hot, ("axis",), parameters=(1,)),
    ("", "Trilu"): Entry(patterns.plan_trilu, ("upper",), parameters=(1,)),
    ("", "EyeLike"): Entry(patterns.plan_eye_like, ("dtype", "k")),
    ("", "Identity"): Entry(views.plan_identity, is_view=True, keeps_layout=True),
    ("", "Reshape"): Entry(views.plan_reshape, ("allowzero", "shape"), parameters=(1,), is_view=True),
    ("", "Flatten"): Entry(views.plan_flatten, ("axis",), is_view=True),
    ("", "Squeeze"): Entry(views.plan_squeeze, ("axes",), parameters=(1,), is_view=True),
    ("", "Unsqueeze"): Entry(views.plan_unsqueeze, ("axes",), parameters=(1,), is_view=True),
}


def entry_of(node: Node) -> Entry | None:
    """The entry of a node's operator, if it has one."""
    return ENTRIES.get((node.domain, node.op_type))


def require_on_device(node: Node, graph: Graph) -> Entry:
    """The entry of a node that may run on the device.

    Raises NotOnDeviceError: with the reason.
    """
    entry = entry_of(node)
    if entry is None:
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        raise NotOnDeviceError(f"{operator} is not an operator of the device")
    unknown = sorted(node.attributes.keys() - set(entry.attributes) - OLD_ATTRIBUTES)
    if unknown:
        raise NotOnDeviceError(f"its attribute {unknown[0]!r} is not known on the device")
    _require_declared(node, graph)
    kind = graph.types.get(node.input(entry.data))
    if kind is not None and not kind.HasField("tensor_type"):
        raise NotOnDeviceError(f"its input {node.input(entry.data)!r} is no tensor")
    element = graph.element_type(node.input(entry.data))
    if element and element not in MOVABLE_ELEMENTS:
        raise NotOnDeviceError(f"the device has no tensors of {type_name(element)}")
    if entry.check is not None:
        entry.check(node, graph)
    scales = [graph.constant(name) for name in scales_of(node)]
    known = [scale for scale in scales if scale is not None]
    if known and len(known) == len(scales):
        convolution.require_exact_scales(known, are_constant=True)
    return entry


def _require_declared(node: Node, graph: Graph) -> None:
    """Refuse a node that is not as ONNX declares its operator. What is wrong with it, the host's library says.

    The planners rely on what is declared: which inputs are there, and the types of inputs and attributes.
    """
    operator = SAME_DECLARATION.get((node.domain, node.op_type), (node.domain, node.op_type, node.version))
    domain, op_type, version = operator
    if not defs.has(op_type, version, domain):
        return
    schema = defs.get_schema(op_type, version, domain)
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        raise NotOnDeviceError(f"it has {len(node.inputs)} inputs; {op_type} has {schema.min_input} or more")
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        raise NotOnDeviceError(f"it has the outputs {list(node.outputs)}")
    bound: dict[str, int] = {}
    for k in range(max(len(node.inputs), schema.min_input)):
        formal, name = schema.inputs[min(k, len(schema.inputs) - 1)], node.input(k)
        if not name:
            if formal.option != defs.OpSchema.FormalParameterOption.Optional:
                raise NotOnDeviceError(f"its input {k} ({formal.name}) is absent")
            continue
        element = graph.element_type(name)
        described = f"its input {name!r} has elements of {type_name(element)}"
        if element and f"tensor({type_name(element)})" not in formal.types:
            raise NotOnDeviceError(f"{described}, which {op_type} does not take there")
        if element and bound.setdefault(formal.type_str, element) != element:
            raise NotOnDeviceError(f"{described}, another input of the same type {type_name(bound[formal.type_str])}")
    given = {attribute.name: attribute for attribute in node.proto.attribute}
    for name, declared in schema.attributes.items():
        if name not in given:
            if declared.required:
                raise NotOnDeviceError(f"its attribute {name!r} is absent")
        elif given[name].type != int(declared.type.value):
            raise NotOnDeviceError(f"its attribute {name!r} is of another type than {declared.type.name}")


def parameters_of(node: Node) -> frozenset[str]:
    """The values that must be known before the node's dispatch."""
    entry = entry_of(node)
    return frozenset() if entry is None else frozenset(filter(None, map(node.input, entry.parameters)))


def scales_of(node: Node) -> tuple[str, ...]:
    """The values of a node's scales, which must be looked at before its dispatch."""
    entry = entry_of(node)
    return () if entry is None else tuple(map(node.input, entry.scales))
