"""Models in one form: what ONNX Runtime takes in several spellings has a single one here.

ONNX Runtime runs models that ONNX's own checker refuses: nodes out of order, a graph without a name, domains that are
not imported, an initializer given twice, sparse constants in any order. Whoever reads a model after this module sees
none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import defs, helper, numpy_helper

from dmlvk.onnx.errors import ModelError

Array = npt.NDArray[Any]
MICROSOFT = "com.microsoft"
# The first version of the format whose initializers need not be inputs. Before, those that are inputs are constants.
FREE_INITIALIZERS = 4
# ONNX Runtime reads initializers of more bytes ahead.
READ_AHEAD = 127
# A sparse tensor may be a few bytes that stand for any number of them.
LARGEST_DENSE = 1 << 30


def normalize(model: onnx.ModelProto, place: str) -> None:
    """Change a model to its normal form.

    Raises ModelError: a sparse tensor or a call of a function is not valid.
    """
    graph = model.graph
    _make_initializers_unique(graph)
    _require_one_description(graph, place)
    _name_domains(model)
    _number_versions(model)
    parts = list(_graphs(graph))
    outputs = {value.name for part in parts for value in part.output}
    for part in parts:
        part.name = part.name or "graph"
    for nodes in (graph.node, *(function.node for function in model.functions)):
        for node in nested(nodes):
            _spell_constant(node, outputs, place)
    _name_outputs(model)
    _make_dense(graph, place)
    if model.functions:
        _inline(model, place)
    _sort(graph)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in nested(graph.node):
        yield from _own_graphs(node)


def _own_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from _graphs_of(attribute)


def _graphs_of(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def nested(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of their own graphs."""
    for node in nodes:
        yield node
        for graph in _own_graphs(node):
            yield from nested(graph.node)


def _name_domains(model: onnx.ModelProto) -> None:
    """ONNX's own domain is "" and has one version, the last one given."""
    nodes = list(nested(model.graph.node))
    for each in (*nodes, *model.opset_import):
        if each.domain == "ai.onnx":
            each.domain = ""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in versions.items())


def _number_versions(model: onnx.ModelProto) -> None:
    """Import the last version of domains that lack an import, as ONNX Runtime does, and raise the format's version."""
    graph = model.graph
    imported = {entry.domain for entry in model.opset_import}
    latest = {"": defs.onnx_opset_version(), MICROSOFT: 1}
    for domain in sorted({node.domain for node in nested(graph.node)} - imported):
        if imported and domain in latest:
            model.opset_import.append(helper.make_opsetid(domain, latest[domain]))
    if not model.HasField("ir_version") or model.ir_version >= FREE_INITIALIZERS:
        return
    constant = {tensor.name for tensor in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    kept = [value for value in graph.input if value.name not in constant]
    del graph.input[:]
    graph.input.extend(kept)
    model.ir_version = FREE_INITIALIZERS


def _spell_constant(node: onnx.NodeProto, outputs: Container[str], place: str) -> None:
    """A Constant is ONNX's own, whatever its domain, and has no inputs, one attribute, and no sparse one."""
    if node.op_type != "Constant":
        return
    node.domain = ""
    del node.input[:]
    del node.attribute[1:]
    for attribute in node.attribute:
        if attribute.name == "sparse_value":
            if node.output and node.output[0] in outputs:
                raise ModelError(f"{place}: the sparse constant {node.output[0]!r} is an output of its graph")
            array = dense(attribute.sparse_tensor, node.output[0] if node.output else "", place)
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))


def _name_outputs(model: onnx.ModelProto) -> None:
    """Each output of a Split has a name: ONNX Runtime ends the process when it runs a Split with an absent one."""
    nodes = [*nested(model.graph.node), *(node for function in model.functions for node in nested(function.node))]
    unnamed = [node for node in nodes if node.op_type == "Split" and "" in node.output]
    taken = {name for node in nodes for name in node.output} if unnamed else set()
    numbers = (name for k in count() if (name := f"unused_part_{k}") not in taken)
    for node in unnamed:
        for k, name in enumerate(node.output):
            node.output[k] = name or next(numbers)


def _make_initializers_unique(graph: onnx.GraphProto) -> None:
    """Keep one initializer of each name: the one that ONNX Runtime takes, which is a sparse one if there is one."""
    sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
    tensors: dict[str, list[onnx.TensorProto]] = {}
    for tensor in graph.initializer:
        if tensor.name and tensor.name not in sparse:
            tensors.setdefault(tensor.name, []).append(tensor)
    if len(tensors) < len(graph.initializer):
        kept = [_counted_of(same) for same in tensors.values()]
        del graph.initializer[:]
        graph.initializer.extend(kept)
    if len(sparse) < len(graph.sparse_initializer):
        last = list(sparse.values())
        del graph.sparse_initializer[:]
        graph.sparse_initializer.extend(last)


def _counted_of(tensors: Sequence[onnx.TensorProto]) -> onnx.TensorProto:
    """The last of some initializers of one name counts; but of large ones, which are read ahead, the one before it."""
    last = tensors[-1]
    is_number = last.data_type in onnx.TensorProto.DataType.values() and last.data_type != onnx.TensorProto.UNDEFINED
    if len(tensors) == 1 or not is_number or last.data_type == onnx.TensorProto.STRING:
        return last
    size = math.prod(last.dims) * helper.tensor_dtype_to_np_dtype(last.data_type).itemsize
    return tensors[-2] if size > READ_AHEAD else last


def _require_one_description(graph: onnx.GraphProto, place: str) -> None:
    """An initializer that is an input too has the input's type and sizes."""
    given = {value.name: value.type.tensor_type for value in graph.input}
    for tensor in graph.initializer:
        kind = given.get(tensor.name)
        if kind is None:
            continue
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
        fits = len(sizes) == len(tensor.dims) and all(a in (None, b) for a, b in zip(sizes, tensor.dims, strict=True))
        if kind.elem_type != tensor.data_type or (kind.HasField("shape") and not fits):
            raise ModelError(
                f"{place}: the initializer {tensor.name!r} has the type {_type_name(tensor.data_type)} and the sizes "
                f"{list(tensor.dims)}; as an input it is of {_type_name(kind.elem_type)} and {sizes}"
            )


def _type_name(element: int) -> str:
    known = element in onnx.TensorProto.DataType.values()
    return onnx.TensorProto.DataType.Name(element) if known else str(element)


def _make_dense(graph: onnx.GraphProto, place: str) -> None:
    outputs = {value.name for value in graph.output}
    for tensor in graph.sparse_initializer:
        name = tensor.values.name
        if name in outputs:
            raise ModelError(f"{place}: the sparse initializer {name!r} is an output of the model")
        graph.initializer.append(numpy_helper.from_array(dense(tensor, name, place), name))
    del graph.sparse_initializer[:]


def dense(tensor: onnx.SparseTensorProto, name: str, place: str) -> Array:
    """The elements of a sparse tensor, zeros included.

    Raises ModelError: its indices do not fit its sizes or its values, or it is too large.
    """
    field = f"{place}: the sparse tensor {name!r}"
    sizes = tuple(tensor.dims)
    try:
        values = numpy_helper.to_array(tensor.values)
        indices = numpy_helper.to_array(tensor.indices) if tensor.HasField("indices") else np.zeros(0, np.int64)
    except Exception as error:  # whatever a damaged tensor raises
        raise ModelError(f"{field} cannot be read: {error}") from error
    elements = int(np.prod(sizes, dtype=object)) if sizes else 1
    if min(sizes, default=0) < 0 or elements * values.itemsize > LARGEST_DENSE:
        raise ModelError(f"{field} has the sizes {list(sizes)}; it may have at most {LARGEST_DENSE} bytes")
    if values.dtype == object or indices.dtype.kind != "i" or values.ndim != 1:
        raise ModelError(f"{field} has values of {values.dtype.name} and indices of {indices.dtype.name}")
    rank: int = indices.ndim
    if rank == 2 and indices.shape[-1] == len(sizes):
        is_inside = bool(((indices >= 0) & (indices < np.array(sizes))).all())
        linear = np.ravel_multi_index(tuple(indices.T), sizes) if is_inside and len(indices) else indices[:, 0]
    else:
        is_inside = rank == 1 and bool(((indices >= 0) & (indices < elements)).all())
        linear = indices
    if not is_inside or len(linear) != len(values):
        raise ModelError(
            f"{field} has {len(values)} values and indices of shape {indices.shape}; they must be one index for each "
            f"value, or one row of {len(sizes)}, inside the sizes {list(sizes)}"
        )
    found = np.zeros(elements, values.dtype)
    found[linear] = values
    return found.reshape(sizes)


def _sort(graph: onnx.GraphProto) -> None:
    """Put the nodes in an order in which they can run. Nodes of a cycle stay where they are: the checker names them."""
    nodes = list(graph.node)
    producers = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    needs = [
        {producers[name] for name in (*node.input, *captured(node)) if name in producers} - {k}
        for k, node in enumerate(nodes)
    ]
    if all(other < k for k, found in enumerate(needs) for other in found):
        return
    users: list[list[int]] = [[] for _ in nodes]
    for k, found in enumerate(needs):
        for other in found:
            users[other].append(k)
    waiting = [len(found) for found in needs]
    ready = [k for k, number in enumerate(waiting) if not number]
    for k in ready:
        for user in users[k]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(ready) == len(nodes):
        ordered = [nodes[k] for k in ready]
        del graph.node[:]
        graph.node.extend(ordered)


def captured(proto: onnx.NodeProto) -> set[str]:
    """Values that the node's own graphs read and do not define."""
    return {name for graph in _own_graphs(proto) for name in _free_names(graph)}


def _free_names(graph: onnx.GraphProto) -> set[str]:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    free: set[str] = set()
    for node in graph.node:
        free |= {name for name in (*node.input, *captured(node)) if name and name not in own}
        own |= set(node.output)
    return free | {value.name for value in graph.output if value.name not in own}


def _inline(model: onnx.ModelProto, place: str) -> None:
    """Put the bodies of local functions in the place of their calls.

    An operator of ONNX counts more than a function of its name. Those of com.microsoft only ONNX Runtime knows, so
    functions of that domain stay what they are, for the host.
    """
    versions = {entry.domain: entry.version for entry in model.opset_import}
    functions, kept = {}, []
    for function in model.functions:
        domain = "" if function.domain == "ai.onnx" else function.domain
        if domain == MICROSOFT:
            kept.append(function)
        elif not defs.has(function.name, domain):
            functions[domain, function.name, function.overload] = function
    del model.functions[:]
    model.functions.extend(kept)
    inliner = _Inliner(functions, versions, place)
    inliner.taken.update(_names(model.graph))
    nodes = inliner.inlined(model.graph.node, lambda name: name, {}, ())
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    missing = inliner.versions.keys() - {entry.domain for entry in model.opset_import}
    model.opset_import.extend(helper.make_opsetid(domain, inliner.versions[domain]) for domain in sorted(missing))


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)
        for part in _own_graphs(node):
            yield from _names(part)


def _defined(node: onnx.NodeProto) -> Iterator[str]:
    """The values that a node and its own graphs define."""
    yield from filter(None, node.output)
    for graph in _own_graphs(node):
        yield from _defined_inside(graph)


def _defined_inside(graph: onnx.GraphProto) -> Iterator[str]:
    for value in (*graph.input, *graph.initializer):
        yield value.name
    for tensor in graph.sparse_initializer:
        yield tensor.values.name
    for node in graph.node:
        yield from _defined(node)


FunctionName = tuple[str, str, str]


class _Inliner:
    """Replaces calls by bodies.

    taken: names that values or nodes have.
    versions: the versions of the domains: the model's, and those that only functions import.
    """

    def __init__(
        self, functions: Mapping[FunctionName, onnx.FunctionProto], versions: Mapping[str, int], place: str
    ) -> None:
        self._functions = functions
        self._place = place
        self._numbers = count()
        self.versions = dict(versions)
        self.taken: set[str] = set()

    def inlined(
        self,
        nodes: Iterable[onnx.NodeProto],
        rename: Callable[[str], str],
        attributes: Mapping[str, onnx.AttributeProto],
        callers: tuple[FunctionName, ...],
    ) -> list[onnx.NodeProto]:
        """Nodes without calls, their values renamed and their references to attributes resolved."""
        found = []
        for source in nodes:
            node = onnx.NodeProto()
            node.CopyFrom(source)
            del node.input[:], node.output[:], node.attribute[:]
            node.input.extend(map(rename, source.input))
            node.output.extend(map(rename, source.output))
            if callers and node.name:
                node.name = self._new(node.name)
            for attribute in source.attribute:
                if attribute.ref_attr_name:
                    if attribute.ref_attr_name in attributes:
                        node.attribute.add().CopyFrom(attributes[attribute.ref_attr_name])
                        node.attribute[-1].name = attribute.name
                        for graph in _graphs_of(node.attribute[-1]):
                            self._inline_passed(graph, rename, attributes, callers)
                    continue
                node.attribute.add().CopyFrom(attribute)
                for graph in _graphs_of(node.attribute[-1]):
                    self._inline_graph(graph, rename, attributes, callers)
            called = (node.domain, node.op_type, node.overload)
            if called in self._functions:
                found += self._body(node, called, callers)
            else:
                found.append(node)
        return found

    def _inline_passed(
        self,
        graph: onnx.GraphProto,
        rename: Callable[[str], str],
        attributes: Mapping[str, onnx.AttributeProto],
        callers: tuple[FunctionName, ...],
    ) -> None:
        """Put bodies in a graph that the caller passed as an attribute.

        As in ONNX Runtime, a name that the graph does not define is the function's value of that name, if it has one.
        """
        own = set(_defined_inside(graph))
        self._inline_graph(graph, lambda name: name if name in own else rename(name), attributes, callers)

    def _inline_graph(
        self,
        graph: onnx.GraphProto,
        rename: Callable[[str], str],
        attributes: Mapping[str, onnx.AttributeProto],
        callers: tuple[FunctionName, ...],
    ) -> None:
        nodes = self.inlined(graph.node, rename, attributes, callers)
        del graph.node[:]
        graph.node.extend(nodes)
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = rename(value.name)
        for tensor in graph.sparse_initializer:
            tensor.values.name = rename(tensor.values.name)

    def _body(
        self, call: onnx.NodeProto, called: FunctionName, callers: tuple[FunctionName, ...]
    ) -> list[onnx.NodeProto]:
        function = self._functions[called]
        field = f"{self._place}: the node {call.name!r} calls the function {function.name!r}"
        if called in callers:
            raise ModelError(f"{field}, which calls itself")
        if len(call.input) > len(function.input) or len(call.output) > len(function.output):
            raise ModelError(
                f"{field} with {len(call.input)} inputs and {len(call.output)} outputs; it has "
                f"{len(function.input)} and {len(function.output)}"
            )
        # ONNX Runtime takes a body's operators as those of the model's version, whatever the function imports.
        for entry in function.opset_import:
            self.versions.setdefault(entry.domain, entry.version)
        attributes = {attribute.name: attribute for attribute in (*function.attribute_proto, *call.attribute)}
        names = dict(zip(function.input, (*call.input, *[""] * len(function.input)), strict=False))
        passed = set(names)
        tail = []
        for formal, actual in zip(function.output, call.output, strict=False):
            if formal in passed and actual:  # an input that is returned
                tail.append(helper.make_node("Identity", [names[formal]], [actual]))
            elif actual:
                names[formal] = actual

        # Its graphs may read values of the caller, as ONNX Runtime has it.
        own = {name for node in function.node for name in _defined(node)}

        def rename(name: str) -> str:
            if name in own and name not in names:
                names[name] = self._new(name)
            return names.get(name, name)

        return self.inlined(function.node, rename, attributes, (*callers, called)) + tail

    def _new(self, name: str) -> str:
        while (made := f"{name}_of_call_{next(self._numbers)}") in self.taken:
            pass
        self.taken.add(made)
        return made
