"""Where each node runs, and the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.host import SIZES
from dmlvk.onnx.inference import SIZE_OPERATORS
from dmlvk.onnx.registry import entry_of, parameters_of, require_on_device, scales_of


@dataclass(frozen=True)
class Row:
    """Where a node runs.

    Attributes:
        name (str): The node's name; a node without one has its operator and number.
        op_type (str):
        where (str): "device", "view" (on the device, no copy), "folded" (nothing runs for it), or "host".
        reason (str):
    """

    name: str
    op_type: str
    where: str
    reason: str


def obstacles(graph: Graph) -> dict[int, str]:
    """By number, the reasons of the nodes that the host must run, from what is known without sizes."""
    found: dict[int, str] = {}
    sizes: set[str] = set()
    for node in graph.nodes:
        data = [name for name in node.reads if not graph.is_constant(name)]
        if node.op_type in SIZE_OPERATORS or (data and all(name in sizes for name in data)):
            sizes.update(node.writes)
        try:
            require_on_device(node, graph)
        except NotOnDeviceError as error:
            found[node.index] = str(error)
            continue
        if data and all(name in sizes for name in data):
            found[node.index] = SIZES
    found |= _optimized_with_neighbours(graph, found)
    found |= {node.index: "it is a view between nodes of the host" for node in _enclosed_views(graph, found)}
    left = [node for node in graph.nodes if node.index not in found]
    if found and all(_is_view(node) for node in left):
        found |= {node.index: "it is a view, and nothing else runs on the device" for node in left}
    return found


def _is_view(node: Node) -> bool:
    entry = entry_of(node)
    return entry is not None and entry.is_view


# Operators of floats that ONNX Runtime may join with those before and behind them.
JOINED_WITH_NEIGHBOURS = {"Add", "Relu", "Sub", "Sum"}


def _optimized_with_neighbours(graph: Graph, on_host: Mapping[int, str]) -> dict[int, str]:
    """Nodes next to the host's ones: without them, ONNX Runtime would optimize these nodes in another way."""
    if not graph.host_optimizes:
        return {}
    producers, users = graph.producers(), graph.users()
    # By node, those that are the host's if it is.
    joined: defaultdict[int, list[int]] = defaultdict(list)
    for node in graph.nodes:
        joins = node.op_type in JOINED_WITH_NEIGHBOURS
        beside: list[Node] = []
        if joins or node.op_type == "DequantizeLinear":
            beside += [user for name in node.writes for user in users.get(name, ())]
        if joins or node.op_type == "QuantizeLinear":
            beside += [producers[name] for name in node.reads if name in producers]
        for other in beside:
            joined[other.index].append(node.index)
    found: dict[int, str] = {}
    pending = list(on_host)
    while pending:
        for index in joined[pending.pop()]:
            if index not in on_host and index not in found:
                found[index] = "ONNX Runtime optimizes it together with the host's node beside it"
                pending.append(index)
    return found


def _enclosed_views(graph: Graph, on_host: Mapping[int, str]) -> list[Node]:
    """Views whose input and outputs only nodes of the host use. On the device they would cut the host's parts."""
    producers, users = graph.producers(), graph.users()
    views = {}
    for node in graph.nodes:
        entry = entry_of(node)
        if entry is not None and entry.is_view and node.index not in on_host:
            views[node.index] = (node, producers.get(node.input(entry.data)))

    def is_inside(node: Node | None) -> bool:
        return node is not None and (node.index in on_host or node.index in views)

    while True:
        left = [
            index
            for index, (node, source) in views.items()
            if not is_inside(source)
            or any(name in graph.outputs for name in node.writes)
            or not all(is_inside(user) for name in node.writes for user in users.get(name, []))
        ]
        if not left:
            return [node for node, _ in views.values()]
        for index in left:
            del views[index]


def is_repeated(node: Node, on_host: Mapping[int, str], graph: Graph) -> bool:
    """Whether a node runs once more in each part of the host that uses it.

    ONNX Runtime replaces dequantize, compute, quantize by one node, if it sees all of them. A DequantizeLinear in an
    earlier part would leave it the computation in floats.
    """
    return graph.host_optimizes and node.op_type == "DequantizeLinear" and node.index in on_host


def remaining(done: Set[int], on_host: Mapping[int, str], graph: Graph) -> list[Node]:
    """The nodes that have not run, and those that run once more because of their users."""
    left = [node for node in graph.nodes if node.index not in done]
    if not left or not any(is_repeated(node, on_host, graph) for node in graph.nodes):
        return left
    users = graph.users()
    return [
        node
        for node in graph.nodes
        if node.index not in done
        or (
            is_repeated(node, on_host, graph)
            and any(user.index not in done for name in node.writes for user in users.get(name, []))
        )
    ]


def private_values(nodes: Sequence[Node], on_host: Mapping[int, str], graph: Graph) -> frozenset[str]:
    """The values that some of the host's nodes write for their own part alone, because the nodes are repeated."""
    repeated = [node for node in nodes if is_repeated(node, on_host, graph)]
    users = graph.users() if repeated else {}
    return frozenset(
        name
        for node in repeated
        for name in node.writes
        if name not in graph.outputs and all(user.index in on_host for user in users.get(name, []))
    )


def next_part(
    remaining: Sequence[Node], available: set[str], on_host: Mapping[int, str], graph: Graph
) -> tuple[bool, list[Node]]:
    """The largest set of nodes of one place that can run now, the host's first.

    remaining: in an order in which they can run.
    available: values that earlier parts or the caller have given.
    Returns whether the host runs them, and the nodes.
    """
    for host in (True, False):
        known = set(available)
        part = []
        for node in remaining:
            if (node.index in on_host) != host:
                continue
            needed = {name for name in node.reads if not graph.is_constant(name)}
            looked_at = () if host else (*parameters_of(node), *scales_of(node))
            early = {name for name in looked_at if not graph.is_constant(name)}
            if needed <= known and early <= available:
                part.append(node)
                known.update(node.writes)
        if host:
            part = _without_idle(part, available, on_host, graph)
        if part:
            return host, part
    raise AssertionError("the checker has found the nodes to be in order, so one of them can run")


def _without_idle(part: Sequence[Node], available: Set[str], on_host: Mapping[int, str], graph: Graph) -> list[Node]:
    """A part of the host without the repeated nodes that nobody needs yet."""
    if not any(is_repeated(node, on_host, graph) for node in part):
        return list(part)
    users = graph.users()
    needed: set[str] = set()
    kept = []
    for node in reversed(part):
        for_others = any(
            name not in available
            and (name in graph.outputs or any(user.index not in on_host for user in users.get(name, [])))
            for name in node.writes
        )
        if not is_repeated(node, on_host, graph) or for_others or not needed.isdisjoint(node.writes):
            kept.append(node)
            needed |= node.reads
    return kept[::-1]
