"""Functions of bytes: chains of nodes whose output is a function of one or two 8-bit values become one table.

Such a chain ends in a QuantizeLinear or in an operator whose output is of bytes, and begins at 8-bit values. The host's
library computes the table from the chain's own nodes, from all 256 values or all 65,536 pairs, so the bits are those
of that library. A chain has no table, and stays on the host, if its results depend on where an element stands in its
tensor.

A mean over a plane may end a chain as well, which begins at one 8-bit value: its table is one of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from onnx import TensorProto, helper

from dmlvk.onnx.errors import ModelError, NotOnDeviceError
from dmlvk.onnx.graph import MICROSOFT, Array, Graph, Node
from dmlvk.onnx.host import HostPart

DOMAIN, OPERATOR, MEAN, RESIZE = "dmlvk", "ByteTable", "ByteTableMean", "QLinearResize"
NORMALIZATION = "QLinearLayerNormalization"
BYTES = (TensorProto.UINT8, TensorProto.INT8)
# Operators that map each element by itself, and those of two operands. Elu, Celu, Selu and Softplus are not among them:
# ONNX Runtime's results depend on an element's place in a vector.
UNARY = {
    *("Abs", "BatchNormalization", "Ceil", "Clip", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish"),
    *("Identity", "LeakyRelu", "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sqrt", "Tanh"),
    "ThresholdedRelu",
}
BINARY = {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Sum"}
# Functions of floats that ONNX Runtime makes operators of bytes of, together with the conversions around them.
QUANTIZED_UNARY = {"LeakyRelu", "Sigmoid"}
# Means over planes.
MEANS = {"GlobalAveragePool", "ReduceMean"}
# The only operators that may follow a mean where ONNX Runtime optimizes: it may fuse others with the mean.
BESIDE_MEANS = {"QuantizeLinear", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
# Operators behind which ONNX Runtime moves no transpose.
KEEPING_DIMENSIONS = {"Conv", "QLinearConv", "ConvTranspose", "MatMul", "QLinearMatMul", "Gemm", "QGemm", NORMALIZATION}
# More than any number of dimensions.
UNKNOWN_RANK = 1 << 16
# Operators of bytes of com.microsoft.
QUANTIZED = {"QLinearSigmoid", "QLinearLeakyRelu", "QLinearMul", "QLinearAdd"}
MOST_SOURCES = 2


def fuse(graph: Graph) -> tuple[dict[int, str], dict[int, int]]:
    """Put tables in the places of chains.

    Returns why nodes are no longer in the graph, by number; and the number of its table, by that of
        the last node of each chain.
    """
    reasons: dict[int, str] = {}
    replaced: dict[int, int] = {}
    finder = _Finder(graph)
    made: dict[int, Node] = {}
    for end in reversed(graph.nodes):
        if end.index in reasons:
            continue
        chain = finder.chain(end)
        if chain is None:
            continue
        attributes = {} if chain.axis is None else {"axis": chain.axis}
        operator = MEAN if end.op_type in MEANS else OPERATOR
        proto = helper.make_node(operator, chain.sources, list(end.outputs), name=end.name, domain=DOMAIN, **attributes)
        table = replace(graph.new_node(proto), originals=tuple(chain.nodes))
        made[end.index] = table
        replaced[end.index] = table.index
        gone = finder.inside(chain.nodes, end)
        reasons |= dict.fromkeys(gone, f"into the table of {end.name!r}")
    graph.nodes = [made.get(node.index, node) for node in graph.nodes if node.index not in reasons]
    return reasons, replaced


class FloatFinder:
    """Says of floats whether they are functions of bytes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._finder = _Finder(graph)

    def is_apart(self, name: str) -> bool:
        """Whether a value is a function of bytes of which ONNX Runtime has no quantized operator to make."""
        chain = self._finder.chain_to(name)
        return chain is not None and all(
            node.op_type == "DequantizeLinear"
            or (node.op_type in UNARY and node.op_type not in QUANTIZED_UNARY)
            or (node.op_type == "Div" and len(chain.sources) == 1)
            for node in chain.nodes
        )

    def is_number(self, name: str) -> bool:
        """Whether a value is a function of one or two bytes that is a number for all of them."""
        chain = self._finder.chain_to(name)
        if chain is None:
            return False
        questions = _of_one() if len(chain.sources) == 1 else _of_two(None)
        if chain.axis is not None:
            dims = self._graph.types[chain.sources[0]].tensor_type.shape.dim
            if not dims[chain.axis].HasField("dim_value"):
                return False
            questions = _by_channel(len(dims), chain.axis, dims[chain.axis].dim_value)
        part = _part(self._graph, chain.nodes, chain.sources, [name])
        try:
            return not np.isnan(_asked(self._graph, part, chain.sources, questions[0][0])).any()
        except ModelError:  # a fault of the model belongs to its run
            return False


def is_quantized_alone(graph: Graph, name: str) -> bool:
    """Whether nothing but views and QuantizeLinear nodes read a value."""
    users, pending = graph.users(), [name]
    while pending:
        name = pending.pop()
        following = [user for user in users.get(name, ()) if user.op_type != "QuantizeLinear"]
        if name in graph.outputs or any(user.op_type not in BESIDE_MEANS or user.domain for user in following):
            return False
        pending += [each for user in following for each in user.writes]
    return True


class _Chain:
    """Nodes that compute one value from 8-bit sources; in an order in which they can run."""

    def __init__(self, nodes: Sequence[Node], sources: Sequence[str], axis: int | None) -> None:
        self.nodes = nodes
        self.sources = list(sources)
        self.axis = axis


class _Refused(Exception):
    """A value depends on more than one or two bytes."""


class _Finder:
    """Finds the chain that ends in a node."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producers, self._users = graph.producers(), graph.users()
        self._places = {node.index: place for place, node in enumerate(graph.nodes)}

    def chain(self, end: Node) -> _Chain | None:
        """The longest chain to an 8-bit output, or the one to a mean; None if there is none."""
        if end.op_type in MEANS and not end.domain:
            return self._chain_to_mean(end)
        if not self._gives_bytes(end) or end.op_type == "Identity":
            return None
        try:
            nodes, sources = self._expanded({end.index: end})
            while True:
                for source in sources:
                    longer = self._with_producer(nodes, source, end)
                    if longer is not None:
                        nodes, sources = longer
                        break
                else:
                    break
            axis = self._axis(nodes, sources)
        except _Refused:
            return None
        return _Chain(self._ordered(nodes.values()), sources, axis) if sources else None

    def chain_to(self, name: str) -> _Chain | None:
        """The chain of functions to a value of floats; None if there is none."""
        producer = self._producers.get(name)
        if producer is None or not self._is_function(producer):
            return None
        try:
            nodes, sources = self._expanded({producer.index: producer})
            axis = self._axis(nodes, sources)
        except _Refused:
            return None
        return _Chain(self._ordered(nodes.values()), sources, axis) if sources else None

    def _chain_to_mean(self, mean: Node) -> _Chain | None:
        """The chain of functions to a mean of floats, if ONNX Runtime leaves the mean as it is."""
        if self._graph.element_type(mean.input(0)) != TensorProto.FLOAT or self._graph.is_constant(mean.input(0)):
            return None
        if any(not self._graph.is_constant(name) for name in mean.inputs[1:] if name) or len(mean.writes) != 1:
            return None
        if self._graph.host_optimizes and not (self._is_apart(mean) and self._keeps_dimensions(mean)):
            return None
        try:
            nodes, sources = self._expanded({mean.index: mean})
            functions = {index: node for index, node in nodes.items() if node is not mean}
            if len(sources) != 1 or self._axis(functions, sources) is not None:
                return None
        except _Refused:
            return None
        return _Chain(self._ordered(nodes.values()), sources, None)

    def _is_apart(self, node: Node) -> bool:
        """Whether nothing but views and conversions follows a node, so that it is part of no larger operator."""
        following = self._users.get(node.writes[0], ())
        return all(
            user.op_type in BESIDE_MEANS
            and not user.domain
            and (user.op_type == "QuantizeLinear" or (len(user.writes) == 1 and self._is_apart(user)))
            for user in following
        )

    def _keeps_dimensions(self, mean: Node) -> bool:
        """Whether no transpose is before a mean, which ONNX Runtime would move behind it."""
        return mean.op_type != "ReduceMean" or mean.input(0) not in self._transposed

    @cached_property
    def _transposed(self) -> set[str]:
        """The values behind which ONNX Runtime may move transposes that are before them.

        Before a node of several values, those that have a transpose must have more dimensions of several elements than
        the others, which would get one.
        """
        found: set[str] = set()
        for node in self._graph.nodes:
            given = [name for name in node.reads if not self._graph.is_constant(name)]
            ranks = [self._several(name) for name in given]
            removed = sum(rank for name, rank in zip(given, ranks, strict=True) if name in found)
            is_moved = removed > 0 and (UNKNOWN_RANK in ranks or 2 * removed > sum(ranks))
            if node.op_type == "Transpose" or (is_moved and node.op_type not in KEEPING_DIMENSIONS):
                found.update(node.writes)
        return found

    def _several(self, name: str) -> int:
        """How many dimensions of a value may have several elements."""
        if self._graph.rank(name) is None:
            return UNKNOWN_RANK
        producer = self._producers.get(name)
        if producer is not None and self._is_parameter(producer):
            return 0
        return sum(dim.dim_value != 1 for dim in self._graph.types[name].tensor_type.shape.dim)

    def inside(self, nodes: Iterable[Node], end: Node) -> set[int]:
        """The nodes of a chain that are unused once a table replaces its last node, which is not among them."""
        unneeded = {end.index}
        for node in reversed(self._ordered(nodes)):
            if self._is_private(node, unneeded):
                unneeded.add(node.index)
        return unneeded - {end.index}

    def _ordered(self, nodes: Iterable[Node]) -> list[Node]:
        return sorted(nodes, key=lambda node: self._places[node.index])

    def _is_private(self, node: Node, indexes: set[int]) -> bool:
        return all(
            name not in self._graph.outputs and all(user.index in indexes for user in self._users.get(name, ()))
            for name in node.writes
        )

    def _gives_bytes(self, node: Node) -> bool:
        return len(node.writes) == 1 and self._is_byte(node.writes[0]) and self._is_function(node)

    def _is_byte(self, name: str) -> bool:
        return self._graph.element_type(name) in BYTES

    def _is_function(self, node: Node) -> bool:
        """Whether a node maps each element by itself, with constant parameters."""
        if node.captured or len(node.writes) != 1:
            return False
        variable = self._variables(node)
        if node.domain == MICROSOFT:
            operands = {node.input(position) for position in _operands(node)}
            # A sum of two values is faster by its formula.
            most = 1 if node.op_type == "QLinearAdd" else MOST_SOURCES
            return node.op_type in QUANTIZED and set(variable) <= operands and len(variable) <= most
        if node.domain:
            return False
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return variable == [node.input(0)] and not node.attributes.get("block_size", 0)
        if node.op_type in UNARY:
            return variable == [node.input(0)]
        return node.op_type in BINARY and 1 <= len(variable) <= 2 and len(node.inputs) <= 2

    def _variables(self, node: Node) -> list[str]:
        """The inputs that are no parameters: values, and constants of several bytes."""
        if self._is_parameter(node):
            return []
        is_of_bytes = node.domain == MICROSOFT or node.op_type == "DequantizeLinear"
        operands = {node.input(position) for position in _operands(node)} if is_of_bytes else set()
        return [name for name in dict.fromkeys(node.inputs) if name and self._is_variable(name, name in operands)]

    def _is_variable(self, name: str, is_operand: bool) -> bool:
        constant = self._graph.constant(name)
        if constant is None:
            producer = self._producers.get(name)
            return producer is None or not self._is_parameter(producer)
        return is_operand and constant.size > 1

    def _is_parameter(self, node: Node) -> bool:
        """Whether a node dequantizes a constant that is one number, or a number for each index along a dimension."""
        if node.op_type != "DequantizeLinear" or node.domain or node.attributes.get("block_size", 0):
            return False
        constant = self._graph.constant(node.input(0))
        is_constant = constant is not None and all(map(self._graph.is_constant, node.reads))
        return is_constant and constant is not None and sum(size != 1 for size in constant.shape) < 2

    def _parameter(self, name: str) -> Array | None:
        """A constant, or the one that a node dequantizes, whose shape it has."""
        producer = self._producers.get(name)
        if producer is not None and self._is_parameter(producer):
            name = producer.input(0)
        return self._graph.constant(name) if name else None

    def _expanded(self, nodes: dict[int, Node]) -> tuple[dict[int, Node], list[str]]:
        """The nodes with those before them, up to values of bytes: these are the sources."""
        found: dict[int, Node] = {}
        sources: list[str] = []
        written = {name for node in nodes.values() for name in node.writes}
        pending: list[str] = []

        def add(node: Node) -> None:
            found[node.index] = node
            pending.extend(name for name in self._variables(node) if name not in written)
            given = [self._producers[name] for name in node.reads if name in self._producers]
            found.update({other.index: other for other in given if self._is_parameter(other)})

        for node in nodes.values():
            add(node)
        while pending:
            name = pending.pop(0)
            if self._is_byte(name):
                if name not in sources:
                    sources.append(name)
                continue
            producer = self._producers.get(name)
            if producer is None or not self._is_function(producer):
                raise _Refused
            if producer.index not in found:
                add(producer)
        # Where ONNX Runtime optimizes, it replaces a group of nodes by one only if nobody else reads the floats between
        # them. It duplicates DequantizeLinear for that.
        indexes = set(found)
        for index, node in found.items() if self._graph.host_optimizes else ():
            if index not in nodes and node.op_type != "DequantizeLinear" and not self._is_private(node, indexes):
                raise _Refused
        if len(sources) > MOST_SOURCES:
            raise _Refused
        return found, sources

    def _with_producer(
        self, nodes: dict[int, Node], source: str, end: Node
    ) -> tuple[dict[int, Node], list[str]] | None:
        """A longer chain, which computes a source from others; None where it cannot be or helps nobody."""
        producer = self._producers.get(source)
        if producer is None or not self._gives_bytes(producer):
            return None
        try:
            longer = self._expanded({**nodes, producer.index: producer})
            self._axis(*longer)  # refused where parameters differ along several dimensions, or beside two sources
        except _Refused:
            return None
        return longer if producer.index in self.inside(longer[0].values(), end) else None

    def _axis(self, nodes: dict[int, Node], sources: Sequence[str]) -> int | None:
        """The dimension along which parameters differ; None if each has one element."""
        ranks = [self._graph.rank(source) for source in sources]
        rank = ranks[0] if len(sources) == 1 else None
        # An operand of more dimensions than the sources would give its own to the output.
        most = 0 if None in ranks else max(filter(None, ranks), default=0)
        axes = set()
        for node in nodes.values():
            for position, name in enumerate(node.inputs if not self._is_parameter(node) else ()):
                constant = self._parameter(name)
                # A batch normalization of one channel needs a dimension of channels, too.
                is_one = constant is not None and constant.size == 1 and node.op_type != "BatchNormalization"
                if constant is None or name in sources:
                    continue
                if position in _operands(node) and constant.ndim > most:
                    raise _Refused
                if is_one:
                    continue
                if rank is None or constant.ndim > rank:
                    raise _Refused
                if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
                    axis = node.attributes.get("axis", 1)
                    axes.add(axis + rank if axis < 0 else axis)
                elif node.op_type == "BatchNormalization":
                    axes.add(1)
                elif node.op_type in BINARY and position in _operands(node):
                    axes |= {rank - constant.ndim + k for k, size in enumerate(constant.shape) if size != 1}
                else:
                    raise _Refused
        if len(axes) > 1 or any(not 0 <= axis < (rank or 0) for axis in axes):
            raise _Refused
        return axes.pop() if axes else None


def _operands(node: Node) -> Sequence[int]:
    """The positions of a node's values and of constants in their place; its other inputs are parameters."""
    if node.op_type in BINARY:
        return range(len(node.inputs))
    return (0, 3) if node.op_type in ("QLinearMul", "QLinearAdd") else (0,)


def table_of(graph: Graph, node: Node, shapes: Sequence[tuple[int, ...]]) -> Array:
    """The table of a chain.

    node: its table's.
    shapes: those of the sources: where one of two operands is repeated, the host's addition depends on which.
    Returns of the output's type, or of that of a mean's input: (256,), (channels, 256) where parameters differ along a
        dimension, or (256, 256) with the first source's values along the first dimension.
    Raises NotOnDeviceError: the host's library refuses the chain, or its results depend on an element's place.
    """
    if len(shapes) == 2:
        questions = _of_two(repeated(*shapes))
    elif "axis" in node.attributes:
        axis = node.attributes["axis"]
        questions = _by_channel(len(shapes[0]), axis, shapes[0][axis])
    else:
        questions = _of_one()
    key = node.index, *(tuple(array.shape for array in arrays) for arrays, _ in questions)
    if key not in graph.tables:
        *functions, end = node.originals
        if node.op_type == MEAN:
            outputs = [end.input(0)]
        else:
            functions, outputs = list(node.originals), list(end.outputs)
        try:
            part = _part(graph, functions, node.inputs, outputs)
            found = [table(_asked(graph, part, node.inputs, arrays)) for arrays, table in questions]
        except ModelError as error:
            raise NotOnDeviceError(str(error)) from error
        if any(not np.array_equal(each, found[0]) for each in found):
            raise NotOnDeviceError("its results depend on where an element stands in its tensor")
        graph.tables[key] = found[0]
    return graph.tables[key]


def _part(graph: Graph, functions: Sequence[Node], sources: Sequence[str], outputs: Sequence[str]) -> HostPart:
    """The nodes of a chain, as the host's library runs them on tensors of any shape."""
    kinds = {name: helper.make_tensor_type_proto(graph.element_type(name), None) for name in sources}
    return HostPart(graph, functions, list(sources), outputs, kinds, graph.host_optimizes, 1)


def _asked(graph: Graph, part: HostPart, sources: Sequence[str], arrays: Sequence[Array]) -> Array:
    """What a chain gives for some bytes of its sources."""
    dtypes = [helper.tensor_dtype_to_np_dtype(graph.element_type(name)) for name in sources]
    typed = [array.view(dtype) for array, dtype in zip(arrays, dtypes, strict=True)]
    (found,) = part.run(dict(zip(sources, typed, strict=True)))
    return np.asarray(found)


# Arrays for the sources, and how the table follows from the output. Each table is asked for twice, with the values in
# other places.
_Questions = list[tuple[tuple[Array, ...], Callable[[Array], Array]]]
_VALUES = np.arange(256, dtype=np.uint8)


def _of_one() -> _Questions:
    moved = np.concatenate([_VALUES[:5], _VALUES[::-1], _VALUES[:3]])
    return [
        ((_VALUES,), lambda output: output.reshape(-1)),
        ((moved,), lambda output: output.reshape(-1)[5:261][::-1]),
    ]


def _by_channel(rank: int, axis: int, channels: int) -> _Questions:
    """All values for each channel, along the first other dimension, and along the last in the opposite order."""
    others = [k for k in range(rank) if k != axis]
    if not others:
        raise NotOnDeviceError("its parameters differ from element to element")

    def question(along: int, values: Array) -> tuple[tuple[Array, ...], Callable[[Array], Array]]:
        shape = [1] * rank
        shape[along] = 256
        wide = values.reshape(shape)
        shape[axis] = channels
        array = np.ascontiguousarray(np.broadcast_to(wide, shape))
        order = np.argsort(values)
        return (array,), lambda output: np.moveaxis(output, (axis, along), (0, 1)).reshape(channels, 256)[:, order]

    return [question(others[0], _VALUES), question(others[-1], np.ascontiguousarray(_VALUES[::-1]))]


def _of_two(repeated: int | None) -> _Questions:
    """All pairs: side by side, or with one operand repeated along the last dimension."""
    if repeated is None:
        first, second = np.repeat(_VALUES, 256), np.tile(_VALUES, 256)
        order = np.random.default_rng(0).permutation(first.size)
        moved = np.concatenate([order, order[:7]])
        back = np.argsort(order)
        return [
            ((first, second), lambda output: output.reshape(256, 256)),
            ((first[moved], second[moved]), lambda output: output.reshape(-1)[: first.size][back].reshape(256, 256)),
        ]
    shapes = ((256, 1), (1, 256)) if repeated == 0 else ((1, 256), (256, 1))

    def question(values: Array) -> tuple[tuple[Array, ...], Callable[[Array], Array]]:
        order = np.argsort(values)
        arrays = tuple(np.ascontiguousarray(values.reshape(shape)) for shape in shapes)
        return arrays, lambda output: (output if repeated == 0 else output.T)[order][:, order]

    return [question(_VALUES), question(_VALUES[::-1])]


def repeated(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Which of two operands is repeated along the last dimension where not both have one element; None if neither."""
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (first, second)]
    for sizes in reversed(list(zip(*padded, strict=True))):
        if sizes != (1, 1):
            return sizes.index(1) if 1 in sizes else None
    return 0
