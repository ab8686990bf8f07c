"""The host: ONNX Runtime on the CPU, or else ONNX's reference evaluator, on a part of a graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.graph import Graph, Node, reading
from dmlvk.onnx.model_file import LARGEST_MESSAGE

# Bytes of a constant that a part of a large model is given at each run, because no message holds all constants.
LARGE = 1 << 16
NO_ONNX_RUNTIME = (
    "dmlvk.onnx: the package onnxruntime is not installed, so ONNX's reference evaluator, which is slow, runs the "
    "nodes that the device does not: pip install onnxruntime"
)


@cache
def _onnx_runtime() -> Any:
    """The package onnxruntime; None, and a warning, if it cannot be imported."""
    try:
        import onnxruntime
    except ImportError:
        warnings.warn(NO_ONNX_RUNTIME, stacklevel=2)
        return None
    return onnxruntime


def host_name() -> str:
    """The name of the library that runs the host's nodes."""
    return "ONNX's reference evaluator" if _onnx_runtime() is None else "ONNX Runtime"


class HostPart:
    """Some nodes of a graph as a model of their own.

    Parameters
    ----------
    graph : Graph
    nodes : sequence of Node
        In an order in which they can run.
    inputs, outputs : sequence of str
        The values that come from outside, and those that are used outside.
    kinds : mapping of str to TypeProto
        Types of the inputs.
    optimize : bool
        Whether ONNX Runtime may replace nodes by others, which can change the last bits.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        inputs: Sequence[str],
        outputs: Sequence[str],
        kinds: Mapping[str, onnx.TypeProto],
        optimize: bool = True,
    ) -> None:
        self._outputs = list(outputs)
        self._label = _label(nodes)
        constants = sorted(name for name in reading(nodes) if graph.is_constant(name))
        self._given: dict[str, Any] = {}
        if sum(graph.constant_size(name) for name in constants) > LARGEST_MESSAGE:
            self._given = {name: graph.constant(name) for name in constants if graph.constant_size(name) > LARGE}
            kinds = {**kinds, **{name: kind_of(array, None) for name, array in self._given.items()}}
            constants = [name for name in constants if name not in self._given]
        model = _part(graph, nodes, [*inputs, *self._given], self._outputs, kinds, constants)
        runtime = _onnx_runtime()
        try:
            if runtime is None:
                from onnx.reference import ReferenceEvaluator

                self._run = ReferenceEvaluator(model).run
            else:
                options = runtime.SessionOptions()
                options.log_severity_level = 3
                # A model may have a hundred parts. Threads of all parts that spin while they wait would take the
                # processor from the part that runs, and from drivers that run on the processor.
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                if not optimize:
                    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
                session = runtime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
                self._run = session.run
        except Exception as error:
            raise self._error(error) from error

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs, in their order.

        Raises
        ------
        ModelError
            The host's library refuses the nodes or their inputs.
        """
        try:
            found = self._run(self._outputs, {**feeds, **self._given})
        except Exception as error:
            raise self._error(error) from error
        # Single elements come as NumPy's scalars from the reference evaluator.
        return [np.asarray(value) if isinstance(value, np.generic) else value for value in found]

    def _error(self, error: Exception) -> ModelError:
        message = " ".join(str(error).split()) or type(error).__name__
        return ModelError(f"{host_name()} cannot run {self._label}: {message}")


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
        [_output(name, graph.types.get(name)) for name in outputs],
        [graph.constant_proto(name) for name in constants],
    )
    source = graph.model
    imports = [helper.make_opsetid(entry.domain, entry.version) for entry in source.opset_import]
    return helper.make_model(
        part, opset_imports=imports, ir_version=source.ir_version, functions=list(source.functions)
    )


def _output(name: str, kind: onnx.TypeProto | None) -> onnx.ValueInfoProto:
    """An output. Where ONNX's inference does not know its type, the host's library finds it."""
    value = onnx.ValueInfoProto(name=name)
    if kind is not None:
        value.type.CopyFrom(kind)
    return value


def is_known(kind: onnx.TypeProto | None) -> bool:
    """Whether inference has found a type."""
    return kind is not None and bool(kind.WhichOneof("value"))


def kind_of(value: Any, known: onnx.TypeProto | None) -> onnx.TypeProto:
    """The type of an input: the inferred one, or else that of the value, with any sizes."""
    if known is not None and is_known(known):
        return known
    if isinstance(value, np.ndarray):
        element = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_type_proto(element, [None] * value.ndim)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], np.ndarray):
        element = helper.np_dtype_to_tensor_dtype(value[0].dtype)
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None))
    raise ModelError(f"the type of a value between the host's nodes is not known: {type(value).__name__}")
