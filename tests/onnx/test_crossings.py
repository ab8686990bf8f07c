"""Where nodes run is decided for the whole graph: the cheapest division, against all divisions of small graphs."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession, placement
from dmlvk.onnx.crossings import Costs, costs_of, divided
from dmlvk.onnx.foreseen import inferred_kinds
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.model_file import load
from dmlvk.onnx.on_device import Traffic
from dmlvk.onnx.placement import obstacles
from tests import profiles
from tests.onnx.models import (
    convolution,
    convolution_parameters,
    elements,
    model_of,
    onnx_runtime,
    require_equal,
    session_with_onnx_runtime,
)

COSTS = Costs(
    host_call=1.0,
    processors=1,
    host_bytes=10.0,
    host_memory=1e9,
    host_operations=1e3,
    device_dispatch=0.5,
    device_bytes=100.0,
    device_operations=1e6,
    device_tap=0.001,
    crossing=3.0,
    bus_bytes=50.0,
    written_bytes=50.0,
)


def random_graph(seed: int) -> tuple[Graph, dict[str, Any]]:
    """Twelve nodes, each of which reads one or two values before it; half of them are for the host alone."""
    generator = np.random.default_rng(seed)
    shapes = {"x": (2, 3), "z": (2, 3)}
    nodes: list[Any] = []
    for number in range(12):
        names = list(shapes)
        a, b = generator.choice(names, 2)
        operator = generator.choice(["Abs", "Neg", "Transpose", "Concat", "Identity"])
        if operator == "Concat" and shapes[a][1] == shapes[b][1]:
            nodes.append((operator, [a, b], [f"v{number}"], {"axis": 0}))
            shapes[f"v{number}"] = (shapes[a][0] + shapes[b][0], shapes[a][1])
        elif operator == "Transpose":
            nodes.append((operator, [a], [f"v{number}"], {}))
            shapes[f"v{number}"] = shapes[a][::-1]
        else:
            nodes.append((operator if operator != "Concat" else "Abs", [a], [f"v{number}"], {}))
            shapes[f"v{number}"] = shapes[a]
    read = {name for _, reads, _, _ in nodes for name in reads}
    outputs = {name: np.float32 for name in shapes if name not in read and name.startswith("v")}
    inputs = {name: np.ones((2, 3), np.float32) for name in ("x", "z")}
    graph = Graph(load(model_of(nodes, inputs, outputs)))
    return graph, inferred_kinds(graph, {name: (array.shape, array.dtype) for name, array in inputs.items()})


def cost(graph: Graph, kinds: dict[str, Any], host: set[int], costs: Costs) -> float:
    """What a division costs, counted from its definition."""
    size = {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in kinds.items()}
    producers, users = graph.producers(), graph.users()
    total = 0.0
    for node in graph.nodes:
        moved = sum(size[name] for name in (*node.reads, *node.writes))
        is_view = node.op_type == "Identity"
        if node.index in host:
            threads = 1 if node.op_type == "Concat" else costs.processors
            seconds = max(moved / costs.host_bytes / threads, moved / costs.host_memory)
            total += costs.host_call + (0 if is_view else seconds)
        elif not is_view:
            total += costs.device_dispatch + moved / costs.device_bytes
    for name, bytes_ in size.items():
        source: Node | None = producers.get(name)
        from_host = source is None or source.index in host
        to = {user.index in host for user in users.get(name, ())} | ({True} if name in graph.outputs else set())
        if (not from_host) in to:
            total += costs.crossing + bytes_ / costs.bus_bytes
    return total


def test_traffic_is_what_a_profile_counts(device: dmlvk.Device) -> None:
    """A value that both sides need, one that two parts of the device read, and an output from the middle."""
    x = elements(np.random.default_rng(8), np.float32, (6, 5))
    nodes: list[Any] = [
        ("Transpose", ["x"], ["t"], {}),
        ("Abs", ["t"], ["a"], {}),
        ("Concat", ["a", "t"], ["c"], {"axis": 0}),
        ("Neg", ["c"], ["n"], {}),
        ("Concat", ["n", "a"], ["y"], {"axis": 0}),
    ]
    session = InferenceSession(
        model_of(nodes, {"x": x}, {"y": np.float32, "t": np.float32}), device, placement="device"
    )
    session.run(None, {"x": x})
    _, profile = session.profiled({"x": x})
    assert session.traffic == Traffic(
        sum(step.where != "outputs" for step in profile.steps),
        sum(step.bytes_to_device for step in profile.steps),
        sum(step.bytes_from_device for step in profile.steps),
    )


def test_an_input_that_is_quantized_crosses_as_levels() -> None:
    """The host does that on the way to the device, so nothing is gained by a part of the host before it."""
    generator = np.random.default_rng(3)
    parameters = convolution_parameters(generator, (8, 8, 3, 3))
    quantized: Any = ("QuantizeLinear", ["x", "x_scale", "x_zero"], ["q"], {})
    x = elements(generator, np.float32, (1, 8, 64, 64))
    model = model_of([quantized, convolution(parameters, "q")], {"x": x}, {"y": np.uint8}, parameters)
    graph = Graph(load(model))
    kinds = inferred_kinds(graph, {"x": (x.shape, x.dtype)})
    costs = replace(COSTS, host_bytes=1e9, device_bytes=1e9)
    assert not divided(graph, obstacles(graph), kinds, costs).cheaper_on_host


@pytest.mark.parametrize("size", [256, 512])
@pytest.mark.parametrize("processors", [2, 16, 64])
def test_an_output_that_is_dequantized_is_written_over_the_bus(processors: int, size: int) -> None:
    """As the device converts it, so that no copy follows, and no part of the host."""
    generator = np.random.default_rng(3)
    parameters = convolution_parameters(generator, (8, 8, 3, 3))
    dequantized: Any = ("DequantizeLinear", ["q", "y_scale", "y_zero"], ["y"], {})
    x = elements(generator, np.uint8, (1, 8, size, size))
    model = model_of([convolution(parameters, "x", "q"), dequantized], {"x": x}, {"y": np.float32}, parameters)
    graph = Graph(load(model))
    kinds = inferred_kinds(graph, {"x": (x.shape, x.dtype)})
    costs = replace(costs_of(profiles.load("nvidia-h200")), processors=processors)
    assert not divided(graph, obstacles(graph), kinds, costs).cheaper_on_host


@pytest.mark.parametrize(("size", "is_for_the_host"), [(16, False), (256, True)])
def test_an_invocation_reads_a_window_alone(size: int, is_for_the_host: bool) -> None:
    """The smallest element of a large plane takes long on a GPU, and none of the host's parts ends for it."""
    x = elements(np.random.default_rng(3), np.float32, (1, 1, size, size))
    constants: dict[str, Any] = {"s": np.array(0.01, np.float32), "zero": np.array(128, np.uint8)}
    nodes: list[Any] = [
        ("Acos", ["x"], ["a"], {}),
        ("QuantizeLinear", ["a", "s", "zero"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "zero"], ["f"], {}),
        ("ReduceMin", ["f"], ["least"], {"keepdims": 1}),
        ("Acos", ["least"], ["y"], {}),
    ]
    graph = Graph(load(model_of(nodes, {"x": x}, {"y": np.float32}, constants, opset=13)))
    (reduction,) = (node for node in graph.nodes if node.op_type == "ReduceMin")
    on_host = {node.index: "by the test" for node in graph.nodes if node.op_type == "Acos"}
    kinds = inferred_kinds(graph, {"x": (x.shape, x.dtype)})
    costs = replace(costs_of(profiles.load("nvidia-h200")), crossing=0.0, host_call=1e-4, processors=16)
    found = divided(graph, on_host, kinds, costs).cheaper_on_host
    assert (reduction.index in found) == is_for_the_host


@pytest.mark.parametrize("seed", range(12))
def test_no_division_costs_less(seed: int) -> None:
    graph, kinds = random_graph(seed)
    generator = np.random.default_rng(seed)
    costs = replace(
        COSTS,
        crossing=float(generator.choice([0.01, 0.3, 3.0])),
        host_bytes=float(generator.choice([5, 50])),
        host_memory=float(generator.choice([100, 1e9])),
        processors=int(generator.choice([1, 8])),
    )
    on_host = obstacles(graph)
    free = [node.index for node in graph.nodes if node.index not in on_host]
    found, seconds, whole_on_host = divided(graph, on_host, kinds, costs)
    assert found.keys() <= set(free)
    least = min(
        cost(graph, kinds, on_host.keys() | set(chosen), costs)
        for count in range(len(free) + 1)
        for chosen in itertools.combinations(free, count)
    )
    assert cost(graph, kinds, on_host.keys() | found.keys(), costs) == pytest.approx(least)
    assert seconds == pytest.approx(least)
    assert whole_on_host == pytest.approx(cost(graph, kinds, on_host.keys() | set(free), costs))


def test_both_ends_are_taken() -> None:
    """The seeds above divide some graphs, and leave others whole."""
    found = [
        len(divided(graph, obstacles(graph), kinds, COSTS).cheaper_on_host)
        for graph, kinds in map(random_graph, range(12))
    ]
    cheap = replace(COSTS, crossing=0.0, bus_bytes=math.inf, written_bytes=math.inf)
    free = [
        divided(graph, obstacles(graph), kinds, cheap).cheaper_on_host for graph, kinds in map(random_graph, range(12))
    ]
    assert max(found) > 0 and not all(free)


def between_sizes(generator: np.random.Generator, size: int) -> tuple[Any, dict[str, Any]]:
    """Two convolutions with a Reshape between them whose shape is computed from Shape."""
    first, second = (convolution_parameters(generator, (16, 16, 1, 1)) for _ in range(2))
    constants = {f"{k}_{name}": array for k, part in enumerate((first, second)) for name, array in part.items()}
    names = [[f"{k}_{name}" for name in convolution(part)[1][1:]] for k, part in enumerate((first, second))]
    constants |= {"zero": np.array([0]), "rest": np.array([16, -1, 2])}
    nodes: list[Any] = [
        ("QLinearConv", ["x", *names[0]], ["a"], {}),
        ("Shape", ["a"], ["s"], {}),
        ("Gather", ["s", "zero"], ["n"], {}),
        ("Concat", ["n", "rest"], ["shape"], {"axis": 0}),
        ("Reshape", ["a", "shape"], ["b"], {}),
        ("QLinearConv", ["b", *names[1]], ["y"], {}),
    ]
    x = elements(generator, np.uint8, (1, 16, size, size))
    return model_of(nodes, {"x": x}, {"y": np.uint8}, constants), {"x": x}


def test_sizes_end_no_part(device: dmlvk.Device) -> None:
    model, feeds = between_sizes(np.random.default_rng(5), 8)
    session = InferenceSession(model, device)
    for _ in range(2):
        require_equal(session.run(None, feeds), onnx_runtime(model, feeds, optimize=False))
    assert [row.where for row in session.placement] == ["device", "folded", "folded", "folded", "view", "device"]
    assert session.placement[1].reason == "its input's sizes are known"
    assert session.traffic == Traffic(parts=1, bytes_to_device=16 * 8 * 8, bytes_from_device=16 * 8 * 8)
    _, profile = session.profiled(feeds)
    assert [step.where for step in profile.steps] == ["device", "outputs"]


def test_sizes_of_some_dimensions_are_those_that_the_node_names(device: dmlvk.Device) -> None:
    ranges: list[dict[str, Any]] = [{}, {"start": 1}, {"end": -1}, {"start": -3, "end": 2}, {"start": 2, "end": 1}]
    nodes: list[Any] = [("Shape", ["x"], [f"y{k}"], named) for k, named in enumerate(ranges)]
    feeds = {"x": elements(np.random.default_rng(10), np.float32, (2, 3, 4, 5))}
    outputs = {f"y{k}": np.int64 for k in range(len(ranges))} | {"count": np.int64}
    model = model_of([*nodes, ("Size", ["x"], ["count"], {})], feeds, outputs)
    session = InferenceSession(model, device)
    require_equal(session.run(None, feeds), onnx_runtime(model, feeds))
    assert {row.where for row in session.placement} == {"folded"}


def test_what_sizes_alone_decide_is_constant(device: dmlvk.Device) -> None:
    """Sizes may follow from values that follow from sizes; small values that sizes give are constants as well."""
    x = elements(np.random.default_rng(8), np.uint8, (2, 6, 5))
    nodes: list[Any] = [
        ("Shape", ["x"], ["s"], {}),
        ("Slice", ["s", "start", "end"], ["tail"], {}),
        ("ConstantOfShape", ["tail"], ["zeros"], {}),
        ("QuantizeLinear", ["zeros", "scale", "zero"], ["bytes"], {}),
        ("com.microsoft.QLinearAdd", ["bytes", *["scale", "zero", "row"], *["scale", "zero"] * 2], ["grid"], {}),
        ("DequantizeLinear", ["grid", "scale", "zero"], ["floats"], {}),
        ("Shape", ["floats"], ["again"], {}),
        ("Concat", ["one", "again"], ["wide"], {"axis": 0}),
        ("Expand", ["grid", "wide"], ["expanded"], {}),
        ("com.microsoft.QLinearAdd", ["x", *["scale", "zero", "expanded"], *["scale", "zero"] * 2], ["y"], {}),
    ]
    constants: dict[str, Any] = {"start": np.array([1]), "end": np.array([3]), "one": np.array([1])}
    constants |= {"scale": np.array(0.5, np.float32), "zero": np.array(128, np.uint8)}
    constants["row"] = elements(np.random.default_rng(9), np.uint8, (5,))
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", "h", "w"])
    model = model_of(nodes, {"x": given}, {"y": np.uint8}, constants)
    expected = onnx_runtime(model, {"x": x}, optimize=False)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, expected)
    assert [where for _, _, where in rows] == ["folded"] * 9 + ["device"]


def test_fastest_is_the_same_and_keeps_cheap_nodes_on_the_host(device: dmlvk.Device) -> None:
    """A model in which nothing is worth a crossing runs as a whole on the host; the bits are the same."""
    generator = np.random.default_rng(6)
    x = elements(generator, np.float32, (3, 4))
    nodes: list[Any] = [("Abs", ["x"], ["a"], {}), ("Transpose", ["a"], ["t"], {}), ("Neg", ["t"], ["y"], {})]
    model = model_of(nodes, {"x": x}, {"y": np.float32})
    session = InferenceSession(model, device, placement="fastest")
    require_equal(session.run(None, {"x": x}), onnx_runtime(model, {"x": x}))
    assert [row.where for row in session.placement] == ["host"] * 3
    assert session.placement[1].reason.startswith("it costs less on the host")
    assert [row.where for row in InferenceSession(model, device, placement="device").placement][1] == "device"
    with pytest.raises(ValueError, match="placement is 'host'; it must be 'fastest', 'device' or None"):
        InferenceSession(model, device, placement="host")  # type: ignore[arg-type]


def test_a_gpu_keeps_a_network_in_one_part() -> None:
    """Convolutions of usual sizes are worth their crossings on a GPU, and movement between the host's nodes is not."""
    model, feeds = between_sizes(np.random.default_rng(7), 512)
    graph = Graph(load(model))
    kinds = inferred_kinds(graph, {name: (array.shape, array.dtype) for name, array in feeds.items()})
    costs = costs_of(profiles.load("nvidia-h200"))
    found = divided(graph, obstacles(graph), kinds, costs).cheaper_on_host
    assert all(graph.nodes[k].op_type not in ("QLinearConv", "Reshape") for k in found), found


def _lines_of_placement(device: dmlvk.Device, count: int) -> int:
    """The lines that placing a chain of additions before a node of the host runs."""
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
        ("Add", ["c", f"v{k - 1}" if k else "x"], [f"v{k}"], {}) for k in range(count)
    ]
    nodes.append(("Softmax", [f"v{count - 1}"], ["y"], {}))
    ones = np.ones((2, 4), np.float32)
    model = model_of(nodes, {"x": ones}, {"y": np.float32}, {"c": ones}).SerializeToString()
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != placement.__file__:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        session = InferenceSession(model, device)
    finally:
        sys.settrace(before)
    assert {row.where for row in session.placement} == {"host"}
    return lines


def test_a_chain_beside_the_host_is_followed_once(device: dmlvk.Device) -> None:
    few, many = _lines_of_placement(device, 50), _lines_of_placement(device, 200)
    assert few > 50 and many < 5 * few
