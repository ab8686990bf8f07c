"""A model's graph: nodes with their attributes, constants, and the uses of values."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import defs, helper, numpy_helper

from dmlvk.onnx.inference import inferred
from dmlvk.onnx.model_file import LoadedModel
from dmlvk.onnx.normal_form import captured

Array = npt.NDArray[Any]
ShapeAndType = tuple[tuple[int, ...], np.dtype[Any]]
MICROSOFT = "com.microsoft"
STANDARD_DOMAINS = ("", "ai.onnx")


# Larger constants are no sizes, and nobody needs their elements to find types.
LARGEST_SIZES = 1 << 12


class HostOptions(NamedTuple):
    """What the library of the host's nodes is told, by the names of ONNX Runtime's SessionOptions.

    intra_op_num_threads, inter_op_num_threads: threads within an operator, and of operators beside each other; 0 for
        the library's own choice.
    is_parallel: whether operators run beside each other.
    log_severity_level: from 0, all messages, to 4, none but those after which it cannot go on.
    graph_optimization_level: as ONNX Runtime numbers them.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    is_parallel: bool = False
    log_severity_level: int = 3
    graph_optimization_level: int | None = None


@dataclass(frozen=True)
class Node:
    """A node.

    index: its number, unique in the graph.
    version: the version of its domain's operator set; 0 if the model does not say.
    captured: values of the graph that only the node's own graphs (the branches of an If) name.
    originals: the model's own nodes, where this one is the device's form of several.
    """

    index: int
    proto: onnx.NodeProto
    version: int
    captured: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    originals: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        """The node's name, or else its operator and number."""
        return self.proto.name or f"{self.proto.op_type}_{self.index}"

    @property
    def op_type(self) -> str:
        return self.proto.op_type

    @property
    def domain(self) -> str:
        """The operator's domain; "" is ONNX's own."""
        return "" if self.proto.domain in STANDARD_DOMAINS else self.proto.domain

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of values; "" is an absent optional one."""
        return tuple(self.proto.input)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.proto.output)

    def input(self, position: int) -> str:
        """The name of an input; "" if it is absent."""
        return self.proto.input[position] if position < len(self.proto.input) else ""

    @cached_property
    def reads(self) -> frozenset[str]:
        """All values that the node needs."""
        return frozenset(filter(None, (*self.proto.input, *self.captured)))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        return tuple(filter(None, self.proto.output))


class Graph:
    """The nodes of a model in an order in which they can run, and what is known of its values.

    inputs: those that a run must be given: inputs without an initializer.
    replaceable: inputs with an initializer, which a run may be given too.
    types: as far as ONNX's inference finds them, or else as the model says.
    uncertain: the values whose types only the model says. Their sizes may be those of another batch or of an earlier
        model.
    host_optimizes: whether ONNX Runtime may replace the host's nodes by others, which changes bits.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.model = model = loaded.proto
        self.versions = {"" if o.domain in STANDARD_DOMAINS else o.domain: o.version for o in model.opset_import}
        graph = model.graph
        self._protos = {tensor.name: tensor for tensor in graph.initializer}
        self._arrays: dict[str, Array] = dict(loaded.constants)
        given = {value.name: value for value in graph.input}
        self.inputs = {name: value for name, value in given.items() if not self.is_constant(name)}
        self.replaceable = {name: value for name, value in given.items() if name in loaded.replaceable}
        self.outputs = [value.name for value in graph.output]
        self.types, self.uncertain = _types(model)
        self.host_optimizes = True
        self.host_options = HostOptions()
        self.tables: dict[Any, Array] = {}
        self.nodes: list[Node] = []
        self._count = 0
        self._taken: set[str] = set()  # names of values, found when the first new one is made
        self._numbers = count()
        for proto in graph.node:
            self.nodes.append(self.new_node(proto))

    def new_node(self, proto: onnx.NodeProto) -> Node:
        """A node of this graph with a number of its own; the caller puts it in its place."""
        domain = "" if proto.domain in STANDARD_DOMAINS else proto.domain
        index = self._count
        self._count += 1
        attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        return Node(index, proto, self.versions.get(domain, 0), tuple(sorted(captured(proto))), attributes)

    def with_constants(self, values: Mapping[str, Array]) -> Graph:
        """A graph of the same model in which some nodes' outputs are constants. Those nodes are not in it."""
        made = copy.copy(self)
        made._arrays = {**self._arrays, **values}
        made.nodes = [node for node in self.nodes if not values.keys() & set(node.writes)]
        return made

    def is_constant(self, name: str) -> bool:
        """Whether a value is an initializer or was computed when the model was loaded."""
        return name in self._protos or name in self._arrays

    def constant(self, name: str) -> Array | None:
        """The elements of a constant; None for other values."""
        found = self._arrays.get(name)
        if found is None and name in self._protos:
            found = self._arrays[name] = numpy_helper.to_array(self._protos[name])
        return found

    def constant_size(self, name: str) -> int:
        """Bytes of a constant."""
        found = self._arrays.get(name)
        return self._protos[name].ByteSize() if found is None else found.nbytes

    def constant_proto(self, name: str) -> onnx.TensorProto:
        """A constant as a tensor of a model."""
        found = self._protos.get(name)
        return numpy_helper.from_array(self._arrays[name], name) if found is None else found

    def new_value(self, stem: str, element: int, like: str) -> str:
        """The name of a new value: of an element type, and with the sizes of another value."""
        name = self.new_name(stem)
        kind = onnx.TypeProto()
        kind.CopyFrom(self.types.get(like, kind))
        kind.tensor_type.elem_type = element
        self.types[name] = kind
        return name

    def set_constant(self, name: str, array: Array) -> None:
        """Make a value a constant."""
        self._arrays[name] = array

    def new_name(self, stem: str) -> str:
        """A name that no value of the graph has."""
        if not self._taken:
            self._taken.update(self._protos, self._arrays, self.inputs, self.producers())
        while (name := f"{stem}_{next(self._numbers)}") in self._taken:
            pass
        self._taken.add(name)
        return name

    def users(self) -> dict[str, list[Node]]:
        """By value, the nodes that read it."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.reads:
                found.setdefault(name, []).append(node)
        return found

    def producers(self) -> dict[str, Node]:
        """By value, the node that writes it."""
        return {name: node for node in self.nodes for name in node.writes}

    def rank(self, name: str) -> int | None:
        """The number of a value's dimensions; None if it is not known."""
        constant = self.constant(name)
        if constant is not None:
            return constant.ndim
        kind = self.types.get(name)
        known = kind is not None and kind.HasField("tensor_type") and kind.tensor_type.HasField("shape")
        return len(kind.tensor_type.shape.dim) if known and kind is not None else None

    def element_type(self, name: str) -> int:
        """The element type of a tensor, as TensorProto numbers it; 0 if it is not known."""
        if name in self._protos:
            return self._protos[name].data_type
        if name in self._arrays:
            return int(helper.np_dtype_to_tensor_dtype(self._arrays[name].dtype))
        kind = self.types.get(name)
        return kind.tensor_type.elem_type if kind is not None and kind.HasField("tensor_type") else 0


# Before this version of ONNX, a Softmax has all dimensions from its axis on in one row.
ROWS_OF_ONE_AXIS = 13
# Operators of com.microsoft that ONNX's inference does not know: an operator of ONNX with the same sizes and the type
# of the first input, and the positions of its inputs among theirs.
SIMILAR: Mapping[str, tuple[str, Sequence[int] | slice]] = {
    **{name: (name, (0, 1, 2)) for name in ("QuantizeLinear", "DequantizeLinear")},
    "QLinearAdd": ("Add", (0, 3)),
    "QLinearMul": ("Mul", (0, 3)),
    "QLinearLeakyRelu": ("Identity", (0,)),
    "QLinearSigmoid": ("Identity", (0,)),
    "QLinearSoftmax": ("Identity", (0,)),
    "QLinearConcat": ("Concat", slice(2, None, 3)),
    "QLinearWhere": ("Where", (0, 1, 4)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)),
    "QGemm": ("Gemm", (0, 3)),
}
# The attributes that decide about sizes.
OF_SIZES = (
    *("auto_pad", "axis", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides", "transA", "transB"),
)


def as_inference_knows(proto: onnx.NodeProto) -> onnx.NodeProto:
    """A node, or one that ONNX's inference knows in its place."""
    if proto.domain != MICROSOFT or proto.op_type not in SIMILAR:
        return proto
    if any(attribute.name == "channels_last" and attribute.i for attribute in proto.attribute):
        return proto
    if proto.op_type == "QGemm" and not any(proto.input[7:8]):  # its output is of floats
        return proto
    operator, positions = SIMILAR[proto.op_type]
    if isinstance(positions, slice):
        positions = range(len(proto.input))[positions]
    given = [proto.input[k] for k in positions if k < len(proto.input)]
    made = helper.make_node(operator, given, list(proto.output), name=proto.name)
    made.attribute.extend(each for each in proto.attribute if each.name in OF_SIZES and operator != "Identity")
    return made


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with the same types, which lacks the elements of large constants: those are inputs."""
    graph = onnx.GraphProto(name=model.graph.name or "graph")
    graph.node.extend(as_inference_knows(node) for node in model.graph.node)
    graph.input.extend(model.graph.input)
    # The sizes that a model states may be out of date, and inference would prefer them to what the nodes give.
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in model.graph.output)
    inputs = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= LARGEST_SIZES:
            graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, functions=model.functions
    )


def _types(model: onnx.ModelProto) -> tuple[dict[str, onnx.TypeProto], set[str]]:
    """The types of a model's values, and the names of those whose types only the model states."""
    declared = {value.name: value.type for value in (*model.graph.value_info, *model.graph.output)}
    bare = _skeleton(model)
    try:
        graph = inferred(bare)
    except Exception:  # inference is an aid; whoever runs the model reports its errors
        graph = bare.graph
    given = {dim.dim_param for value in (*model.graph.input, *model.graph.output) for dim in _dims(value)}
    for value in (*graph.value_info, *graph.output):
        for dim in _dims(value):
            if dim.dim_param and dim.dim_param not in given:  # a name that inference made
                dim.ClearField("dim_param")
    # The declaration as an input overrules those of the same value as an output or in between.
    found = {value.name: value.type for value in (*graph.output, *graph.value_info, *graph.input)}
    inputs = {value.name for value in graph.input}
    # Where inference refuses sizes, as at a Concat behind a pool whose sizes ONNX Runtime counts otherwise, and behind
    # that, elements still have the types that operators declare.
    elements = {name: kind.tensor_type.elem_type for name, kind in found.items()}
    elements |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    versions = {each.domain: each.version for each in model.opset_import}
    for node in bare.graph.node:
        for position, name in enumerate(node.output):
            if name and not elements.get(name) and (element := _declared_element(node, position, elements, versions)):
                elements[name] = element
                found[name] = helper.make_tensor_type_proto(element, None)
    uncertain = {name for name in declared if name not in found or not _is_certain(found[name])} - inputs
    return found | {name: declared[name] for name in uncertain if declared[name].WhichOneof("value")}, uncertain


def _declared_element(
    node: onnx.NodeProto, position: int, elements: Mapping[str, int], versions: Mapping[str, int]
) -> int:
    """The element type of an output, from its operator's declaration and the inputs' types; 0 if they do not say it."""
    version = versions.get(node.domain, 0)
    if node.domain not in STANDARD_DOMAINS or not defs.has(node.op_type, version, ""):
        return 0
    schema = defs.get_schema(node.op_type, version, "")
    formal = schema.outputs[min(position, len(schema.outputs) - 1)] if schema.outputs else None
    if formal is None or not formal.is_homogeneous:
        return 0
    known = [
        elements.get(name, 0)
        for k, name in enumerate(node.input)
        if name and schema.inputs[min(k, len(schema.inputs) - 1)].type_str == formal.type_str
    ]
    names = [*formal.types] if len(formal.types) == 1 else []
    known += [onnx.TensorProto.DataType.Value(name[7:-1].upper()) for name in names if name.startswith("tensor(")]
    return next(filter(None, known), 0)


def _is_certain(kind: onnx.TypeProto) -> bool:
    """Whether inference has found a type and, of a tensor, how many dimensions it has."""
    if kind.HasField("tensor_type"):
        return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")
    return bool(kind.WhichOneof("value"))


def _dims(value: onnx.ValueInfoProto) -> Any:
    return value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ()


def in_own_form(nodes: Iterable[Node]) -> list[Node]:
    """The model's own nodes of some nodes, each once; in an order in which they can run."""
    found = {own.index: own for node in nodes for own in (node.originals or (node,))}
    return list(found.values())


def reading(nodes: Iterable[Node]) -> set[str]:
    """All values that some nodes read."""
    return {name for node in nodes for name in node.reads}
