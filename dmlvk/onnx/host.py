"""The host: ONNX Runtime on the CPU, or else ONNX's reference evaluator, on a part of a graph."""

from __future__ import annotations

import ctypes
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlvk.onnx.acceptance import new_session
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.graph import Graph, HostOptions, Node, in_own_form, reading
from dmlvk.onnx.model_file import LARGEST_MESSAGE
from dmlvk.vulkan.interrupts.monitor import Monitor

# Bytes of a constant that a part of a large model is given at each run, because no message holds all constants.
LARGE = 1 << 16
# What ONNX Runtime's errors contain where the inference of sizes refuses a node.
INFERENCE_ERROR = "ShapeInferenceError"
NO_ONNX_RUNTIME = (
    "dmlvk.onnx: the package onnxruntime is not installed, so ONNX's reference evaluator, which is slow, runs the "
    "nodes that the device does not: pip install onnxruntime"
)


@cache
def _found_onnx_runtime() -> Any:
    """The package onnxruntime; None if it cannot be imported."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return onnxruntime


def has_onnx_runtime() -> bool:
    """Whether the host's nodes are ONNX Runtime's."""
    return _found_onnx_runtime() is not None


@cache
def _onnx_runtime() -> Any:
    """The package onnxruntime; None, and a warning, if it cannot be imported."""
    runtime = _found_onnx_runtime()
    if runtime is None:
        warnings.warn(NO_ONNX_RUNTIME, stacklevel=2)
    return runtime


# The reason of a node on the host that computes sizes.
SIZES = "it computes sizes"
# The element types that ONNX Runtime's arrays have. Values of all others are its OrtValues.
NUMPY_TYPES = {
    "bool",
    "double",
    "float",
    "float16",
    "string",
    *(f"{k}int{n}" for k in ("", "u") for n in (8, 16, 32, 64)),
}


def _session_options(runtime: Any, wanted: HostOptions, optimize: bool, threads: int, spins: bool = False) -> Any:
    options = runtime.SessionOptions()
    options.log_severity_level = wanted.log_severity_level
    # Threads that spin while they wait would take the processor from other parts, and from drivers that run on it.
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    # By default the processor decides whether ONNX Runtime replaces groups of signed values.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = wanted.inter_op_num_threads
    if wanted.is_parallel and threads != 1:  # it makes another pool
        options.execution_mode = runtime.ExecutionMode.ORT_PARALLEL
    if not optimize:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    elif wanted.graph_optimization_level is not None:
        options.graph_optimization_level = runtime.GraphOptimizationLevel(wanted.graph_optimization_level)
    return options


def processors() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def host_session_options() -> Any:
    """SessionOptions of ONNX Runtime as it makes them.

    Raises ModelError: ONNX Runtime is not installed.
    """
    runtime = _onnx_runtime()
    if runtime is None:
        raise ModelError("there are no SessionOptions without the package onnxruntime")
    return runtime.SessionOptions()


def host_name() -> str:
    """The name of the library that runs the host's nodes."""
    return "ONNX's reference evaluator" if _onnx_runtime() is None else "ONNX Runtime"


class HostPart:
    """Some nodes of a graph as a model of their own.

    nodes: in an order in which they can run.
    inputs, outputs: the values that come from outside, and those that are used outside.
    kinds: types of the inputs.
    optimize: whether ONNX Runtime may replace nodes by others, which can change the last bits.
    threads: the number that share the work; 0 for ONNX Runtime's default.
    spins: whether the threads may spin while they wait, as ONNX Runtime's do by default: the part is the whole model.
    run_arrays: ONNX Runtime's own run: from names of outputs, all inputs as arrays that NumPy has a type for, and None
        to a list of outputs. None where values have to be converted.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        inputs: Sequence[str],
        outputs: Sequence[str],
        kinds: Mapping[str, onnx.TypeProto],
        optimize: bool = True,
        threads: int = 0,
        spins: bool = False,
    ) -> None:
        nodes = _unknown(in_own_form(nodes), inputs, graph)
        written = {name for node in nodes for name in node.writes}
        self.outputs = list(outputs)
        self._label = _label(nodes)
        constants = sorted(name for name in reading(nodes) - written - {*inputs} if graph.is_constant(name))
        self._given: dict[str, Any] = {}
        if sum(graph.constant_size(name) for name in constants) > LARGEST_MESSAGE:
            self._given = {name: graph.constant(name) for name in constants if graph.constant_size(name) > LARGE}
            kinds = {**kinds, **{name: kind_of(array, None) for name, array in self._given.items()}}
            constants = [name for name in constants if name not in self._given]

        def part(kinds: Mapping[str, onnx.TypeProto]) -> onnx.ModelProto:
            return _part(graph, nodes, [*inputs, *self._given], self.outputs, kinds, constants)

        self._runtime = runtime = _onnx_runtime()
        self._evaluator = Monitor()  # ONNX's evaluator says nothing about threads; ONNX Runtime's sessions take several
        self._gives_ort_values = False
        self.run_arrays: Callable[[Sequence[str], Mapping[str, Any], None], list[Any]] | None = None
        try:
            if runtime is None:
                from onnx.reference import ReferenceEvaluator

                self._session = ReferenceEvaluator(part(kinds))
            else:
                options = _session_options(runtime, graph.host_options, optimize, threads, spins)
                try:
                    self._session = new_session(runtime, part(kinds).SerializeToString(), options)
                except Exception as error:
                    if INFERENCE_ERROR not in str(error):
                        raise
                    # Of the whole model, ONNX Runtime infers fewer sizes than are known of a part's inputs, and it
                    # runs some nodes whose sizes its inference refuses: a Concat with an empty input of another rank.
                    unsized = {name: _without_sizes(kind) for name, kind in kinds.items()}
                    self._session = new_session(runtime, part(unsized).SerializeToString(), options)
                types = [described.type for described in self._session.get_outputs()]
                self._gives_ort_values = any(not NUMPY_TYPES.issuperset(_elements(kind)) for kind in types)
                if not self._gives_ort_values and not self._given:
                    # Below its public method, which looks at names and feeds in Python at each run.
                    self.run_arrays = getattr(getattr(self._session, "_sess", None), "run", self._session.run)
        except Exception as error:
            raise self.error(error) from error

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs, in their order.

        Raises ModelError: the host's library refuses the nodes or their inputs.
        """
        try:
            return self._run({**feeds, **self._given})
        except Exception as error:
            raise self.error(error) from error

    def _run(self, feeds: Mapping[str, Any]) -> list[Any]:
        runtime = self._runtime
        if runtime is None:
            # Its results may be its inputs and constants themselves, and single elements are NumPy's scalars.
            return [
                np.array(value) if isinstance(value, (np.ndarray, np.generic)) else value
                for value in self._evaluator.run(self._session.run, self.outputs, feeds)
            ]
        if self._gives_ort_values:
            values = {name: ort_value(feed) for name, feed in feeds.items() if feed is not None}
            return [from_ort_value(value) for value in self._session.run_with_ort_values(self.outputs, values)]
        given = {name: ort_value(feed) if lacks_numpy_type(feed) else feed for name, feed in feeds.items()}
        found: list[Any] = self._session.run(self.outputs, given)
        return found

    def error(self, error: Exception) -> ModelError:
        """What a user is told of an exception of the host's library."""
        message = " ".join(str(error).split()) or type(error).__name__
        return ModelError(f"{host_name()} cannot run {self._label}: {message}")


def _without_sizes(kind: onnx.TypeProto) -> onnx.TypeProto:
    """The type of a tensor of any sizes; another type unchanged."""
    made = onnx.TypeProto()
    made.CopyFrom(kind)
    if made.HasField("tensor_type"):
        made.tensor_type.ClearField("shape")
    return made


def lacks_numpy_type(value: Any) -> bool:
    """Whether a value has elements of a type that NumPy has from the package ml_dtypes alone, as bfloat16."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, np.ndarray) and first.dtype.isbuiltin == 2


def is_ort_value(value: Any) -> bool:
    """Whether a value is ONNX Runtime's own."""
    return type(value).__name__ == "OrtValue" and hasattr(value, "data_ptr")


def ort_value(value: Any, *, owns_memory: bool = False) -> Any:
    """An array or a list of arrays as ONNX Runtime's OrtValue.

    owns_memory: whether an array is copied. Otherwise it is shared, and lives as long as the OrtValue; the array that
        its `numpy` gives does not keep it.
    """
    runtime = _onnx_runtime()
    if is_ort_value(value):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU":
        if not owns_memory and not lacks_numpy_type(value):
            return runtime.OrtValue.ortvalue_from_numpy(value)
        proto = numpy_helper.from_array(value)
        made = runtime.OrtValue.ortvalue_from_shape_and_type(list(value.shape), proto.data_type)
        ctypes.memmove(made.data_ptr(), proto.raw_data, len(proto.raw_data))
        return made
    # Text and sequences: ONNX Runtime makes their OrtValues as outputs alone.
    listed = value if isinstance(value, (list, tuple)) else [value]
    constants = [numpy_helper.from_array(np.asarray(array), f"v{k}") for k, array in enumerate(listed)]
    operator = "Identity" if isinstance(value, np.ndarray) else "SequenceConstruct"
    node = helper.make_node(operator, [constant.name for constant in constants], ["value"])
    graph = helper.make_graph([node], "a value", [], [onnx.ValueInfoProto(name="value")], constants)
    return _session_of(graph).run_with_ort_values(None, {})[0]


def from_ort_value(value: Any) -> Any:
    """ONNX Runtime's OrtValue as an array that owns its memory, or as a list of them."""
    kind = value.data_type()
    if value.is_tensor() and not NUMPY_TYPES.issuperset(_elements(kind)):
        content = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
        proto = onnx.TensorProto(data_type=value.element_type(), dims=value.shape(), raw_data=content)
        return np.array(numpy_helper.to_array(proto))
    if value.is_tensor() and "string" not in kind:
        return np.array(value.numpy())
    # Text and sequences: ONNX Runtime gives them to Python as outputs alone.
    return _identity(kind).run(None, {"value": value})[0]


@cache
def _identity(kind: str) -> Any:
    """A session that has a value of a type as its input and output."""
    names = {"float": "FLOAT", "double": "DOUBLE"}
    (element,) = _elements(kind)
    described = helper.make_tensor_type_proto(getattr(onnx.TensorProto, names.get(element, element.upper())), None)
    if kind.startswith("seq"):
        described = helper.make_sequence_type_proto(described)
    node = helper.make_node("Identity", ["value"], ["same"])
    values = [helper.make_value_info(name, described) for name in ("value", "same")]
    graph = helper.make_graph([node], "a value", values[:1], values[1:])
    return _session_of(graph)


@cache
def quantizer(kind: np.dtype[Any], threads: int, process: int) -> Any:
    """ONNX Runtime's session of a QuantizeLinear of any tensor, "x"; None without ONNX Runtime.

    kind: the type of "zero_point", and of "levels", the output.
    threads: all inputs of a process share them.
    process: the number of this process: a forked child has none of its parent's threads.
    """
    if _found_onnx_runtime() is None:
        return None
    names = ("x", "scale", "zero_point", "levels")
    element = helper.np_dtype_to_tensor_dtype(kind)
    elements = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT, element, element)
    shapes: tuple[list[int] | None, ...] = (None, [], [], None)
    values = [helper.make_tensor_value_info(*each) for each in zip(names, elements, shapes, strict=True)]
    node = helper.make_node("QuantizeLinear", names[:3], names[3:])
    return _session_of(helper.make_graph([node], "an input", values[:3], values[3:]), threads)


def _session_of(graph: onnx.GraphProto, threads: int = 1) -> Any:
    runtime = _onnx_runtime()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    options = _session_options(runtime, HostOptions(), optimize=False, threads=threads)
    return new_session(runtime, model.SerializeToString(), options)


def _elements(kind: str) -> set[str]:
    """The element types in ONNX Runtime's name of a type, such as "seq(tensor(float))"."""
    return set(re.findall(r"\((\w+)\)", kind))


def _unknown(nodes: Sequence[Node], inputs: Sequence[str], graph: Graph) -> list[Node]:
    """The nodes whose outputs are not constant: of a table's own, some may be, for given sizes of a model's inputs.

    A constant among a part's inputs stands for any value.
    """
    varying = {name for name in inputs if graph.is_constant(name)}
    found = []
    for node in nodes:
        if node.reads & varying or not node.writes or not all(map(graph.is_constant, node.writes)):
            found.append(node)
            varying.update(node.writes)
    return found


def _label(nodes: Sequence[Node]) -> str:
    names = [f"{node.name!r} ({node.op_type})" for node in nodes[:4]]
    if len(nodes) > len(names):
        names.append(f"{len(nodes) - len(names)} more")
    return ("the node " if len(nodes) == 1 else "the nodes ") + ", ".join(names)


def _part(
    graph: Graph,
    nodes: Sequence[Node],
    inputs: Iterable[str],
    outputs: Iterable[str],
    kinds: Mapping[str, onnx.TypeProto],
    constants: Iterable[str],
) -> onnx.ModelProto:
    part = helper.make_graph(
        [node.proto for node in nodes],
        "a part on the host",
        [helper.make_value_info(name, kinds[name]) for name in inputs],
        [_output(name, graph) for name in outputs],
        [graph.constant_proto(name) for name in constants],
    )
    source = graph.model
    imports = [helper.make_opsetid(entry.domain, entry.version) for entry in source.opset_import]
    return helper.make_model(
        part, opset_imports=imports, ir_version=source.ir_version, functions=list(source.functions)
    )


def _output(name: str, graph: Graph) -> onnx.ValueInfoProto:
    """An output. Where ONNX's inference does not know its type, the host's library finds it."""
    value = onnx.ValueInfoProto(name=name)
    kind = graph.types.get(name)
    if kind is not None:
        value.type.CopyFrom(kind)
        if name in graph.uncertain and kind.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return value


def is_known(kind: onnx.TypeProto | None) -> bool:
    """Whether inference has found a type."""
    return kind is not None and bool(kind.WhichOneof("value"))


def is_without_rank(kind: onnx.TypeProto) -> bool:
    """Whether a type is that of a tensor with any number of dimensions."""
    return kind.HasField("tensor_type") and not kind.tensor_type.HasField("shape")


def kind_of(value: Any, known: onnx.TypeProto | None) -> onnx.TypeProto:
    """The type of an input: the known one if the value has it, or else that of the value, with any sizes."""
    if known is not None and is_known(known) and _has_kind(value, known):
        return known
    if isinstance(value, np.ndarray):
        element = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_type_proto(element, [None] * value.ndim)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], np.ndarray):
        element = helper.np_dtype_to_tensor_dtype(value[0].dtype)
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None))
    raise ModelError(f"the type of a value between the host's nodes is not known: {type(value).__name__}")


def _has_kind(value: Any, kind: onnx.TypeProto) -> bool:
    if kind.HasField("optional_type"):
        return value is None or _has_kind(value, kind.optional_type.elem_type)
    if not isinstance(value, np.ndarray):
        return True
    tensor = kind.tensor_type
    if not kind.HasField("tensor_type") or tensor.elem_type != helper.np_dtype_to_tensor_dtype(value.dtype):
        return False
    dims = tensor.shape.dim
    return not tensor.HasField("shape") or (
        len(dims) == value.ndim
        and all(not dim.HasField("dim_value") or dim.dim_value == n for dim, n in zip(dims, value.shape, strict=True))
    )
