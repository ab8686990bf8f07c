"""What a run will dispatch, before it begins: so its kernels can be compiled on all cores at once.

A run finds its parts one after the other, because sizes may depend on what the host computes. Mostly they do not, and
then ONNX's inference knows all of them from the sizes of the inputs. Whatever it does not know is compiled later.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from dmlvk.onnx import byte_functions, placement
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.folding import with_known_sizes
from dmlvk.onnx.fusion import as_run
from dmlvk.onnx.graph import Graph, Node, ShapeAndType, as_inference_knows
from dmlvk.onnx.inference import inferred
from dmlvk.onnx.program import ProgramBuilder
from dmlvk.onnx.registry import ENTRIES, parameters_of
from dmlvk.onnx.steps import between_convolutions
from dmlvk.operators import OperatorDesc

# Constants of at most this many bytes may be sizes, whose elements inference needs.
LARGEST_SIZES = 1024


def foreseen(
    graph: Graph, on_host: Mapping[int, str], kinds: Mapping[str, ShapeAndType], channels_last: bool
) -> tuple[list[OperatorDesc], dict[int, str]]:
    """The descriptors of a run's dispatches, and by number the reasons of the nodes that cannot run on the device.

    on_host: by number, the host's nodes.
    kinds: mapping of str to (tuple of int, dtype). Those of `inferred_kinds`. Nodes of other values are left out.
    channels_last: whether tensors between convolutions have their channels last.
    """
    descs: list[OperatorDesc] = []
    refused: dict[int, str] = {}
    for part in _device_parts(graph, on_host):
        builder = ProgramBuilder(graph, kinds, {}, between_convolutions(part) if channels_last else ())
        for node in part:
            dynamic = parameters_of(node)
            try:
                builder.plan(ENTRIES[node.domain, node.op_type].plan, node)
            except KeyError:  # of unknown sizes
                continue
            except NotOnDeviceError as error:
                # What depends on elements or sizes that only the run finds may run on the device all the same.
                if all(graph.is_constant(name) or (name in kinds and name not in dynamic) for name in node.reads):
                    refused[node.index] = str(error)
        inside = {node.index for node in part}
        outside = {name for node in graph.nodes if node.index not in inside for name in node.reads}.union(graph.outputs)
        kept = {value.storage for name, value in builder.program.outputs.items() if name in outside}
        descs += [operation.desc for operation in as_run(builder.program, kept)]
    return descs, refused


def _device_parts(graph: Graph, on_host: Mapping[int, str]) -> list[list[Node]]:
    """The device's parts of a run, in their order."""
    parts = []
    available = set(graph.inputs)
    done: set[int] = set()
    while remaining := placement.remaining(done, on_host, graph):
        host, nodes = placement.next_part(remaining, available, on_host, graph)
        if not host:
            parts.append(nodes)
        done.update(node.index for node in nodes)
        available.update(name for node in nodes for name in node.writes)
    return parts


def sized(graph: Graph, given: Mapping[str, ShapeAndType]) -> tuple[Graph, dict[int, str], dict[str, ShapeAndType]]:
    """A graph in which the sizes that follow from those of the inputs are constants.

    Returns the graph, or the given one where nothing becomes constant; by number, the reasons of the nodes that are
        gone; and the shapes and types that are known.
    """
    reasons: dict[int, str] = {}
    while True:
        kinds = inferred_kinds(graph, given)
        known, gone = with_known_sizes(graph, kinds)
        if known is graph:
            return graph, reasons, kinds
        graph, reasons = known, reasons | gone  # more sizes may follow from these


def inferred_kinds(graph: Graph, given: Mapping[str, ShapeAndType]) -> dict[str, ShapeAndType]:
    """Shapes and types of a graph's values for given inputs, as far as ONNX's inference knows them."""
    try:
        found = list(inferred(_sized(graph, given)).value_info)
    except Exception:  # of any type: the run itself reports the model's errors
        found = []
    return {value.name: kind for value in found if (kind := _kind(value.type)) is not None} | dict(given)


def _sized(graph: Graph, given: Mapping[str, ShapeAndType]) -> onnx.ModelProto:
    """A graph's nodes as a model whose inputs have sizes, without the elements of large constants."""
    element = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info(name, element(dtype), shape) for name, (shape, dtype) in given.items()]
    initializers = []
    for name in sorted({name for node in graph.nodes for name in node.reads}):
        array = graph.constant(name)
        if array is None:
            continue
        if array.nbytes <= LARGEST_SIZES:
            initializers.append(graph.constant_proto(name))
        else:
            inputs.append(helper.make_tensor_value_info(name, element(array.dtype), array.shape))
    nodes = [known for node in graph.nodes for known in _known(node, graph)]
    return helper.make_model(
        helper.make_graph(nodes, "sizes", inputs, [], initializers),
        opset_imports=graph.model.opset_import,
        ir_version=graph.model.ir_version,
    )


def _known(node: Node, graph: Graph) -> list[onnx.NodeProto]:
    """A node; for one that inference does not know, known nodes whose outputs have the same types and sizes."""
    if node.domain != byte_functions.DOMAIN:
        return [as_inference_knows(node.proto)]
    if node.op_type == byte_functions.RESIZE:
        resize = onnx.NodeProto()
        resize.CopyFrom(node.originals[-2].proto)
        resize.input[0], resize.output[0] = node.inputs[0], node.outputs[0]
        return [resize]
    if node.op_type == byte_functions.NORMALIZATION:
        return [helper.make_node("Identity", [node.inputs[0]], list(node.outputs))]
    between = f"{node.outputs[0]}:broadcast"
    if node.op_type == byte_functions.MEAN:
        mean = onnx.NodeProto()
        mean.CopyFrom(node.originals[-1].proto)
        mean.input[0] = between
        return [helper.make_node("Cast", list(node.inputs), [between], to=onnx.TensorProto.FLOAT), mean]
    return [
        helper.make_node("Sum", list(node.inputs), [between]),
        helper.make_node("Cast", [between], list(node.outputs), to=graph.element_type(node.outputs[0])),
    ]


def _kind(value: onnx.TypeProto) -> ShapeAndType | None:
    tensor = value.tensor_type
    if not value.HasField("tensor_type") or not tensor.HasField("shape") or not tensor.elem_type:
        return None
    if not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim), np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
