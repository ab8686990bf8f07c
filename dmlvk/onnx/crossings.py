"""Where a graph is cut between host and device: the division that costs the least time, for the whole graph at once.

A node costs the time of the side that runs it. A value that the other side needs costs a crossing. The cheapest
division of such a graph is a minimum cut (Greig, Porteous and Seheult, 1989): an edge from the host's end to a node has
the time that the device takes, an edge from a node to the device's end has that of the host, and an edge between two
nodes has the time of the crossing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import onnx

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.onnx.graph import MICROSOFT, Graph, Node, ShapeAndType
from dmlvk.onnx.host import processors
from dmlvk.onnx.registry import entry_of
from dmlvk.planning.device_rates import rates_of

# Products, and the position of their weights.
PRODUCTS = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QGemm"), 3),
    **dict.fromkeys(("Conv", "ConvInteger", "Gemm", "MatMul", "MatMulInteger"), 1),
}
# Operators whose work threads cannot share.
IDLE_OPERATORS = {
    *("Cast", "Concat", "Constant", "ConstantOfShape", "Flatten", "Gather", "Identity", "Range", "Reshape", "Shape"),
    *("Size", "Slice", "Squeeze", "Unsqueeze"),
}
# A node that moves at most this many bytes, with at most this many operations, runs on one thread in ONNX Runtime.
FEW_BYTES, FEW_OPERATIONS = 1 << 14, 1 << 17
# ONNX Runtime has work for a further thread in each of these seconds of a node: 100,000 clocks.
SECONDS_OF_A_THREAD = 33e-6
# Bytes that one processor moves in a second. Its operations: eight multiply-adds of bytes a clock, at 2 GHz, which is
# what a whole network reaches, not the peak.
HOST_BYTES, HOST_OPERATIONS = 4e9, 32e9
# Bytes that the host's memory gives or takes in a second: those of one channel of DDR4-2400.
HOST_MEMORY = 19.2e9
# Bytes that cross 16 lanes of PCIe 4.0 in a second, in packets of 256.
PCIE_BYTES = 25e9
# Operators whose windows, which may be whole planes, one invocation reads; the seconds between two of its elements, a
# load from the nearest cache: some 35 clocks at 1.75 GHz.
READ_IN_TURN = {"GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin"}
SECONDS_OF_A_TAP = 20e-9
# Operations of a product whose sizes are not known before the run: those of a small convolution.
UNKNOWN_OPERATIONS = 1e8
REASON = "it costs less on the host: what the device would save is less than what crossing the bus costs"


@dataclass(frozen=True)
class Costs:
    """What runs and crossings cost. Each is a physical quantity; the choice needs no more than their magnitudes.

    host_call: seconds of a node on the host beside its work: ONNX Runtime's own dispatch.
    processors: the host's.
    host_bytes, host_memory: bytes that one of them moves in a second, and all of them: those of the memory.
    host_operations: operations of quantized products that all do in a second.
    device_dispatch: seconds of a dispatch beside its work.
    device_bytes, device_operations: the same of the device.
    device_tap: seconds of an element of a window that one invocation reads.
    crossing: seconds of a value's way over the bus beside its bytes: the end of a submission or of a part on the host,
        a wait, and the call that begins the next one.
    bus_bytes: bytes of pageable memory that cross the bus in a second.
    written_bytes: bytes that the device itself writes over the bus into the host's memory in a second.
    """

    host_call: float
    processors: int
    host_bytes: float
    host_memory: float
    host_operations: float
    device_dispatch: float
    device_bytes: float
    device_operations: float
    device_tap: float
    crossing: float
    bus_bytes: float
    written_bytes: float


def costs_of(profile: DeviceProfile) -> Costs:
    """The costs of a device beside this host."""
    rates = rates_of(profile)
    is_cpu = profile.device_type is DeviceType.CPU
    units = (rates.matrix if profile.cooperative_matrices else 0.0, rates.dot_product, rates.integer)
    return Costs(
        host_call=4e-6,
        processors=processors(),
        host_bytes=HOST_BYTES,
        host_memory=HOST_MEMORY,
        host_operations=HOST_OPERATIONS * processors(),
        device_dispatch=rates.dispatch,
        device_bytes=min(rates.copy, 1e11) if is_cpu else rates.copy,
        device_operations=max(units),
        device_tap=0.0 if is_cpu else SECONDS_OF_A_TAP,
        crossing=50e-6,
        bus_bytes=math.inf if is_cpu else 10e9,
        written_bytes=math.inf if is_cpu else PCIE_BYTES,
    )


class Division(NamedTuple):
    """What the cheapest division of a graph is, and what it takes.

    cheaper_on_host: by number, the nodes that the host runs although the device could, with the reason.
    seconds: the estimate of the divided run.
    whole_on_host: that of the host alone.
    """

    cheaper_on_host: dict[int, str]
    seconds: float
    whole_on_host: float


def divided(graph: Graph, on_host: Mapping[int, str], kinds: Mapping[str, ShapeAndType], costs: Costs) -> Division:
    """The cheapest division of a graph.

    on_host: by number, the nodes that the host must run.
    kinds: mapping of str to (tuple of int, dtype). Shape and type of the values, as far as they are known. The bytes of
        others are not counted.
    """
    from networkx import DiGraph, minimum_cut
    from networkx.algorithms.flow import boykov_kolmogorov

    producers = graph.producers()
    network = DiGraph()
    host, device = "host", "device"

    def place(name: str) -> object:
        """The vertex of the network that has a value first: that of the node that writes it, or the host's."""
        node = producers.get(name)
        return host if node is None or node.index in on_host else node.index

    in_any_case = movable = 0.0
    for node in graph.nodes:
        on_device, by_host = _seconds(node, graph, kinds, costs)
        if node.index in on_host:
            in_any_case += by_host
            continue
        movable += by_host
        network.add_edge(host, node.index, capacity=on_device)
        network.add_edge(node.index, device, capacity=by_host)
    if not network:
        return Division({}, in_any_case, in_any_case)
    users = graph.users()
    for name in {name for node in graph.nodes for name in (*node.writes, *node.reads)}:
        if graph.is_constant(name):
            continue
        source = place(name)
        readers = {host if user.index in on_host else user.index for user in users.get(name, ())}
        if name in graph.outputs:
            readers.add(host)
        readers.discard(source)
        if not readers or (source == host and readers == {host}):
            continue
        size, rate = _size(name, graph, kinds), costs.bus_bytes
        if name in graph.inputs and [user.op_type for user in users[name]] == ["QuantizeLinear"]:
            # The host quantizes a large input on its way: see `quantized_inputs`.
            size = _size(users[name][0].writes[0], graph, kinds)
        elif name in graph.outputs and name not in users and producers[name].op_type == "DequantizeLinear":
            # The device writes such an output into the host's memory as it converts it: see `is_best_on_host`.
            rate = costs.written_bytes
        seconds = costs.crossing + size / rate
        # However many nodes read a value on the other side, it crosses once: they share an end of their own.
        up, down = ("up", name), ("down", name)
        if source != host:
            network.add_edge(down, source, capacity=seconds)
        network.add_edge(source, up, capacity=seconds)
        for reader in readers:
            if reader != host:
                network.add_edge(up, reader)
            if source != host:
                network.add_edge(reader, down)
    seconds, (stays, _) = minimum_cut(network, host, device, flow_func=boykov_kolmogorov)
    cheaper = {node.index: REASON for node in graph.nodes if node.index in stays and node.index not in on_host}
    return Division(cheaper, in_any_case + seconds, in_any_case + movable)


def _seconds(node: Node, graph: Graph, kinds: Mapping[str, ShapeAndType], costs: Costs) -> tuple[float, float]:
    """What a node takes on the device, and on the host."""
    entry = entry_of(node)
    if entry is not None and entry.is_view:
        return 0.0, costs.host_call
    moved = sum(_size(name, graph, kinds) for name in (*node.reads, *node.writes))
    operations = _operations(node, graph, kinds)
    taps = _taps(node, graph, kinds) if node.op_type in READ_IN_TURN else 0.0
    on_device = max(moved / costs.device_bytes, operations / costs.device_operations, taps * costs.device_tap)
    alone = moved / costs.host_bytes
    threads = 1.0 if node.op_type in IDLE_OPERATORS else min(max(1.0, alone / SECONDS_OF_A_THREAD), costs.processors)
    on_host = max(alone / threads, moved / costs.host_memory, operations / costs.host_operations)
    return costs.device_dispatch + on_device, costs.host_call + on_host


def _taps(node: Node, graph: Graph, kinds: Mapping[str, ShapeAndType]) -> float:
    """How many elements become one; 0 where sizes are not known."""
    read, written = (
        max((math.prod(kind[0]) for name in names if (kind := _kind(name, graph, kinds)) is not None), default=0)
        for names in (node.reads, node.writes)
    )
    return read / written if written else 0.0


def host_work(graph: Graph, kinds: Mapping[str, ShapeAndType]) -> dict[int, float]:
    """By number, the seconds of each node on one processor of the host that threads can share."""
    found = {}
    for node in graph.nodes:
        names = (*node.reads, *node.writes)
        moved, operations = sum(_size(name, graph, kinds) for name in names), _operations(node, graph, kinds)
        is_known = all(name in kinds or graph.is_constant(name) for name in names) and _shows_its_work(node)
        is_small = is_known and moved <= FEW_BYTES and operations <= FEW_OPERATIONS
        seconds = max(moved / HOST_BYTES, operations / HOST_OPERATIONS)
        # Nodes of unknown cost all have the same cost, a very small one.
        found[node.index] = 0.0 if is_small or node.op_type in IDLE_OPERATORS else max(seconds, 1e-9)
    return found


def _shows_its_work(node: Node) -> bool:
    """Whether a node's values bound its work: those of a Loop do not, nor those of a tree of decisions (ai.onnx.ml)."""
    has_graphs = any(isinstance(value, onnx.GraphProto) for value in node.attributes.values())
    return node.domain in ("", MICROSOFT) and not has_graphs


def _kind(name: str, graph: Graph, kinds: Mapping[str, ShapeAndType]) -> ShapeAndType | None:
    constant = graph.constant(name)
    return kinds.get(name) if constant is None else (constant.shape, constant.dtype)


def _size(name: str, graph: Graph, kinds: Mapping[str, ShapeAndType]) -> int:
    """Bytes of a value; 0 where inference does not know them."""
    if graph.is_constant(name):
        return graph.constant_size(name)
    kind = kinds.get(name)
    return 0 if kind is None else math.prod(kind[0]) * kind[1].itemsize


def _operations(node: Node, graph: Graph, kinds: Mapping[str, ShapeAndType]) -> float:
    """Multiplications and additions of a quantized product; 0 for other nodes."""
    if node.op_type not in PRODUCTS or not node.writes:
        return 0.0
    output, weights = kinds.get(node.writes[0]), _kind(node.input(PRODUCTS[node.op_type]), graph, kinds)
    if output is None or weights is None:
        return UNKNOWN_OPERATIONS
    shape = weights[0]
    # Each output is a sum over a filter's elements, or over the depth of a matrix.
    if node.op_type == "QLinearConv":
        depth = math.prod(shape[1:])
    elif not shape:
        depth = 1
    else:
        depth = shape[-1 if node.attributes.get("transB", 0) else 0] if len(shape) < 3 else shape[-2]
    return 2.0 * math.prod(output[0]) * depth
