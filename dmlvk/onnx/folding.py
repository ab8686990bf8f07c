"""What is done once, when a model is loaded: constants computed, and nodes without a user left out."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from onnx import numpy_helper

from dmlvk.onnx.graph import MICROSOFT, Array, Graph, Node, ShapeAndType
from dmlvk.onnx.host import HostPart
from dmlvk.onnx.inference import SIZE_OPERATORS

# Constant inputs or not, these are left as they are: they do not depend on their inputs alone.
NOT_FOLDED = {
    *("EyeLike", "Bernoulli", "Dropout", "Multinomial", "If", "Loop", "Scan"),
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
}
# These may write far more than they read: they become constants where that is known to be little.
GROWING = {"DequantizeLinear", "ConstantOfShape", "Expand", "Tile"}
FEW_ELEMENTS = 1 << 14


def take_constants(graph: Graph) -> dict[int, str]:
    """Take nodes Constant out of a graph. Returns by number, their reasons."""
    reasons: dict[int, str] = {}
    for node in graph.nodes:
        if node.op_type == "Constant" and not node.domain and node.writes:
            value = _constant(node)
            if value is not None:
                graph.set_constant(node.outputs[0], value)
                reasons[node.index] = "a constant"
    graph.nodes = [node for node in graph.nodes if node.index not in reasons]
    return reasons


def fold(graph: Graph, kinds: Mapping[str, ShapeAndType] | None = None) -> dict[int, str]:
    """Compute what follows from constants, and take unused nodes out of a graph.

    graph: it is changed.
    kinds: mapping of str to (tuple of int, dtype). Shape and type of values, where more is known of them than the graph
        says.
    Returns by number, the reasons of the nodes that are gone.
    """
    reasons: dict[int, str] = {}
    computed: set[str] = set()
    foldable: list[Node] = []
    for node in graph.nodes:
        if not _may_fold(node, graph, kinds or {}):
            continue
        if all(graph.is_constant(name) or name in computed for name in node.reads):
            foldable.append(node)
            computed.update(node.writes)
    if foldable:
        reasons |= _compute(graph, foldable)
    return reasons | prune(graph)


def with_known_sizes(graph: Graph, kinds: Mapping[str, ShapeAndType]) -> tuple[Graph, dict[int, str]]:
    """A graph in which the sizes of known values, and what is computed from them alone, are constants.

    graph: it is not changed.
    kinds: mapping of str to (tuple of int, dtype). Shape and type of values for one combination of input sizes.
    Returns the graph, or the given one where nothing becomes constant, and the reasons of the nodes that are gone.
    """
    found: dict[str, Array] = {}
    reasons: dict[int, str] = {}
    for node in graph.nodes:
        if node.op_type in SIZE_OPERATORS and not node.domain and node.input(0) in kinds and node.writes:
            shape = kinds[node.input(0)][0]
            if node.op_type == "Shape":
                value = np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end")], np.int64)
            else:
                value = np.array(math.prod(shape), np.int64)
            found[node.writes[0]] = value
            reasons[node.index] = "its input's sizes are known"
    if not found:
        return graph, {}
    sized = graph.with_constants(found)
    return sized, reasons | fold(sized, kinds)


def _may_fold(node: Node, graph: Graph, kinds: Mapping[str, ShapeAndType]) -> bool:
    """Whether a node's outputs may become constants, once its inputs are."""
    if node.op_type in NOT_FOLDED or node.captured or not node.reads:
        return False
    is_quantized = node.domain == MICROSOFT or node.op_type in ("QuantizeLinear", "DequantizeLinear")
    if node.domain not in ("", MICROSOFT):
        return False
    if node.op_type == "QuantizeLinear" and graph.is_constant(node.input(0)):
        return True  # weights, of which ONNX Runtime makes bytes as well
    # Where ONNX Runtime optimizes, it may replace these together with the nodes around them.
    if is_quantized and graph.host_optimizes:
        return False
    if is_quantized or node.op_type in GROWING:
        return all(_elements(name, graph, kinds) <= FEW_ELEMENTS for name in node.writes)
    return True


def _elements(name: str, graph: Graph, kinds: Mapping[str, ShapeAndType]) -> float:
    """How many elements a value has; infinity where that is not known."""
    if name in kinds:
        return math.prod(kinds[name][0])
    kind = graph.types.get(name)
    if kind is None or name in graph.uncertain or not kind.tensor_type.HasField("shape"):
        return math.inf
    dims = kind.tensor_type.shape.dim
    return math.prod(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else math.inf


def _constant(node: Node) -> Array | None:
    found = node.attributes
    if "value" in found:
        return numpy_helper.to_array(found["value"])
    dtypes = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for name, dtype in dtypes.items():
        if name in found:
            return np.asarray(found[name], dtype)
    return None  # strings stay with the host


def _compute(graph: Graph, nodes: list[Node]) -> dict[int, str]:
    written = [name for node in nodes for name in node.writes]
    try:
        values = HostPart(graph, nodes, [], written, {}, optimize=False).run({})
    except ValueError:
        return {}  # an error of the model belongs to its run
    if not all(isinstance(value, np.ndarray) for value in values):
        return {}
    for name, value in zip(written, values, strict=True):
        graph.set_constant(name, value)
    folded = {node.index for node in nodes}
    graph.nodes = [node for node in graph.nodes if node.index not in folded]
    return dict.fromkeys(folded, "computed from constants when the model was loaded")


def prune(graph: Graph) -> dict[int, str]:
    """Leave out nodes whose outputs nobody reads. Returns the reasons by the nodes' numbers."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed & set(node.writes):
            needed |= node.reads
            kept.append(node)
    unused = {node.index for node in graph.nodes} - {node.index for node in kept}
    graph.nodes = kept[::-1]
    return dict.fromkeys(unused, "nothing uses its outputs")
