"""Layouts of values on the device: channels last between convolutions, and nodes that copy nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk.device_profile import DeviceType
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.depths import depths
from dmlvk.onnx.foreseen import foreseen, inferred_kinds
from dmlvk.onnx.fusion import fused, written_in_place
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.model_file import load
from dmlvk.onnx.placement import obstacles
from dmlvk.onnx.program import Program, ProgramBuilder
from dmlvk.onnx.registry import ENTRIES
from dmlvk.onnx.steps import between_convolutions
from dmlvk.operators import QuantizedLinearAveragePoolingDesc, QuantizedLinearConvolutionAddDesc, Slice1Desc
from dmlvk.operators import QuantizedLinearConvolutionDesc as CONVOLUTION
from tests.amount import examples
from tests.onnx.models import (
    Array,
    Node,
    convolution,
    convolution_parameters,
    elements,
    model_of,
    onnx_runtime,
    require_equal,
)


class Network:
    """A network that grows from x node by node, with the shapes of its values."""

    def __init__(self, seed: int, shape: tuple[int, ...]) -> None:
        self.generator = np.random.default_rng(seed)
        self.x = elements(self.generator, np.uint8, shape)
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []

    def add(self, operator: str, reads: list[str], shapes: list[tuple[int, ...]], **attributes: Any) -> list[str]:
        """Add a node whose outputs have given shapes; their names."""
        names = [f"v{len(self.shapes) + k}" for k in range(len(shapes))]
        self.shapes.update(zip(names, shapes, strict=True))
        self.nodes.append((operator, reads, names, attributes))
        return names

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def convolve(self, x: str, filters: int, taps: int = 1) -> str:
        """Add a convolution that keeps the size of pictures."""
        n, channels, *spatial = self.shapes[x]
        filter_shape = (filters, channels, *[taps] * len(spatial))
        parameters = convolution_parameters(self.generator, filter_shape, per_channel=True)
        names = {name: self.constant(array) for name, array in parameters.items()}
        _, reads, _, _ = convolution(parameters, x)
        pads = [taps // 2] * 2 * len(spatial)
        return self.add("QLinearConv", [x, *(names[r] for r in reads[1:])], [(n, filters, *spatial)], pads=pads)[0]

    def split(self, x: str, axis: int, parts: list[int]) -> list[str]:
        shape = self.shapes[x]
        shapes = [(*shape[:axis], part, *shape[axis + 1 :]) for part in parts]
        return self.add("Split", [x, self.constant(np.array(parts))], shapes, axis=axis)

    def concat(self, names: list[str], axis: int) -> str:
        shape = list(self.shapes[names[0]])
        shape[axis] = sum(self.shapes[name][axis] for name in names)
        return self.add("Concat", names, [tuple(shape)], axis=axis)[0]

    def slice(self, x: str, axis: int, start: int, step: int) -> str:
        shape = list(self.shapes[x])
        shape[axis] = len(range(shape[axis])[start::step])
        reads = [self.constant(np.array([k])) for k in (start, 2**31 if step > 0 else -(2**31), axis, step)]
        return self.add("Slice", [x, *reads], [tuple(shape)])[0]

    def transpose(self, x: str, order: list[int]) -> str:
        shape = self.shapes[x]
        return self.add("Transpose", [x], [tuple(shape[k] for k in order)], perm=order)[0]

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        return model_of(self.nodes, {"x": self.x}, dict.fromkeys(outputs, np.uint8), self.constants)

    def program(self, outputs: list[str], channels_last: bool = True) -> Program:
        """The program of all nodes, without a device."""
        graph = Graph(load(self.model(outputs)))
        chosen = between_convolutions(graph.nodes) if channels_last else frozenset()
        builder = ProgramBuilder(graph, {"x": (self.x.shape, self.x.dtype)}, {}, chosen)
        for node in graph.nodes:
            builder.plan(ENTRIES[node.domain, node.op_type].plan, node)
        return builder.finish(outputs)

    def check(self, device: dmlvk.Device, outputs: list[str]) -> None:
        """All outputs are ONNX Runtime's, wherever channels lie."""
        model = self.model(outputs)
        expected = onnx_runtime(model, {"x": self.x})
        for channels_last in (False, True):
            session = InferenceSession(model, device, channels_last=channels_last)
            for _ in range(2):
                require_equal(session.run(None, {"x": self.x}), expected)
            assert "host" not in [row.where for row in session.placement]


def copies(program: Program) -> int:
    return sum(isinstance(operation.desc, Slice1Desc) for operation in program.operations)


def test_channels_lie_last_between_convolutions_alone(device: dmlvk.Device) -> None:
    network = Network(1, (2, 5, 6, 7))
    last = network.convolve(network.convolve(network.convolve("x", 8, 3), 12), 3, 3)
    program = network.program([last])
    strides = [
        [operation.desc.tensors[f].strides for f in ("input_tensor", "output_tensor")]
        for operation in program.operations
    ]
    first, second = (6 * 7 * 8, 1, 7 * 8, 8), (6 * 7 * 12, 1, 7 * 12, 12)
    assert strides == [[None, first], [first, second], [second, None]]
    network.check(device, [last])


@pytest.mark.parametrize("channels", [12, 7])
def test_a_sum_before_a_mean_of_planes_is_the_last_step_of_a_convolution(device: dmlvk.Device, channels: int) -> None:
    """The mean reads channels that lie last too, so that both operands of the sum lie alike."""
    network = Network(6, (2, 5, 6, 7))
    first = network.convolve("x", channels, 3)
    second = network.convolve(first, channels)
    convolved = network.nodes[-1][1]
    scales = [network.constant(np.array(each, np.float32)) for each in (0.03, 0.04, 0.05)]
    points = [network.constant(np.array(each, np.uint8)) for each in (120, 110, 99)]
    operands = [first, scales[0], points[0], second, *convolved[6:8], scales[1], points[1]]
    summed = network.add("com.microsoft.QLinearAdd", operands, [network.shapes[first]])[0]
    parameters = [scales[1], points[1], scales[2], points[2]]
    (mean,) = network.add("com.microsoft.QLinearGlobalAveragePool", [summed, *parameters], [(2, channels, 1, 1)])
    operations = fused(network.program([mean]).operations, set())
    assert [type(operation.desc) for operation in operations] == [
        CONVOLUTION,
        QuantizedLinearConvolutionAddDesc,
        QuantizedLinearAveragePoolingDesc,
    ]
    tensors = operations[1].desc.tensors
    assert tensors["addend_tensor"].element_strides == tensors["output_tensor"].element_strides
    network.check(device, [mean])


def test_a_value_that_is_read_on_the_host_too_is_turned_once(device: dmlvk.Device) -> None:
    network = Network(2, (2, 4, 5, 5))
    middle = network.convolve("x", 8, 3)
    last = network.convolve(middle, 3)
    assert copies(network.program([middle, last])) == 1
    assert copies(network.program([middle, last], channels_last=False)) == 0
    network.check(device, [middle, last])


def test_convolutions_of_one_dimension(device: dmlvk.Device) -> None:
    network = Network(3, (2, 5, 19))
    last = network.convolve(network.convolve("x", 7, 3), 4)
    assert network.program([last]).operations[0].desc.tensors["output_tensor"].strides == (19 * 7, 1, 7)
    network.check(device, [last])


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_branches_are_joined_by_channels_and_by_pixels(device: dmlvk.Device, axis: int) -> None:
    network = Network(4, (2, 5, 8, 8))
    branches = [network.convolve("x", 16), network.convolve("x", 16, 3)]
    joined = network.concat(branches, axis)
    network.check(device, [joined, network.convolve(joined, 4)])


def test_parts_of_one_picture_take_no_copy(device: dmlvk.Device) -> None:
    """The channels of a single picture follow each other, so that a part of them is a place in memory."""
    network = Network(5, (1, 6, 8, 4))
    first, second = network.split(network.convolve("x", 8), 1, [3, 5])
    joined = network.concat([network.convolve(second, 4), network.convolve(first, 4, 3)], 1)
    again = network.slice(joined, 1, 2, 1)
    last = network.convolve(again, 3)
    program = network.program([last], channels_last=False)
    assert copies(program) == 0
    written = {operation.places["output_tensor"] for operation in program.operations}
    assert {offset for _, offset in written} == {0, 4 * 8 * 4}
    network.check(device, [last])


def test_a_part_follows_its_whole_to_another_place(device: dmlvk.Device) -> None:
    network = Network(9, (1, 4, 8, 8))
    whole = network.convolve("x", 6)
    _, second = network.split(whole, 1, [2, 4])
    joined = network.concat([network.convolve("x", 3), whole], 1)
    outputs = [joined, network.convolve(second, 5, 3)]
    assert copies(network.program(outputs, channels_last=False)) == 0
    network.check(device, outputs)


def test_a_part_is_copied_to_where_it_is_joined(device: dmlvk.Device) -> None:
    network = Network(10, (1, 4, 8, 8))
    first, second = network.split(network.convolve("x", 6), 1, [2, 4])
    joined = network.concat([first, network.convolve("x", 3)], 1)
    outputs = [joined, network.convolve(second, 5, 3)]
    assert copies(network.program(outputs, channels_last=False)) == 1
    network.check(device, outputs)


def test_parts_of_what_was_given_are_copies_if_they_are_outputs(device: dmlvk.Device) -> None:
    network = Network(6, (2, 64))
    first, second = network.split("x", 0, [1, 1])
    assert copies(network.program([first, second])) == 2
    network.check(device, [first, second])


def test_a_value_joined_twice_is_written_once_and_copied_once(device: dmlvk.Device) -> None:
    network = Network(7, (1, 4, 8, 8))
    middle = network.convolve("x", 3)
    joined = network.concat([middle, middle, "x"], 1)
    assert copies(network.program([joined, middle], channels_last=False)) == 2
    network.check(device, [joined, middle, network.convolve(joined, 2)])


def test_joined_channels_are_written_where_they_are_joined(device: dmlvk.Device) -> None:
    """No part waits for another, and a node that reads one finds its rows among those of the others."""
    network = Network(12, (2, 5, 8, 8))
    first, third = network.convolve("x", 16, 3), network.convolve("x", 16)
    second = network.convolve(first, 32, 3)
    last = network.convolve(network.concat([first, second, third], 1), 4)
    program = network.program([last])
    assert copies(program) == 3
    operations = written_in_place(program.operations, {program.inputs["x"].storage, program.outputs[last].storage})
    assert [type(operation.desc) for operation in operations] == [CONVOLUTION] * 4
    assert depths(operations) == [0, 0, 1, 2]
    network.check(device, [last])


def test_joined_channels_are_joined_again(device: dmlvk.Device) -> None:
    """As in DenseNet: a convolution reads all parts so far, and writes one more beside them."""
    network = Network(15, (2, 5, 8, 8))
    joined = network.concat([network.convolve("x", 16, 3), network.convolve("x", 32)], 1)
    again = network.concat([joined, network.convolve(joined, 16, 3)], 1)
    last = network.convolve(again, 4)
    program = network.program([last])
    kept = {program.inputs["x"].storage, program.outputs[last].storage}
    operations = written_in_place(program.operations, kept)
    assert [type(operation.desc) for operation in operations] == [CONVOLUTION] * 4
    places = [operation.places["output_tensor"] for operation in operations[:3]]
    assert sorted(offset for _, offset in places) == [0, 16, 48] and len({storage for storage, _ in places}) == 1
    network.check(device, [last])


def test_rows_of_pixels_are_joined_by_channels(device: dmlvk.Device) -> None:
    """A part of the picture begins at another row: its place among longer rows is another one, so that it is copied."""
    network = Network(16, (2, 5, 4, 8))
    tall = network.concat([network.convolve("x", 16), network.convolve("x", 16, 3)], 2)
    wide = network.concat([tall, network.convolve(tall, 32)], 1)
    last = network.convolve(wide, 4)
    program = network.program([last])
    kept = {program.inputs["x"].storage, program.outputs[last].storage}
    left = [type(operation.desc) for operation in written_in_place(program.operations, kept)]
    assert left.count(Slice1Desc) == 1
    network.check(device, [last])


def test_what_is_given_or_joined_twice_is_copied_once(device: dmlvk.Device) -> None:
    network = Network(13, (2, 16, 8, 8))
    middle = network.convolve("x", 16, 3)
    last = network.convolve(network.concat([middle, "x", middle], 1), 4)
    program = network.program([last])
    kept = {program.inputs["x"].storage, program.outputs[last].storage}
    assert copies(program) == 4  # one turns the value in the middle, whose channels lie last
    assert copies(replace(program, operations=written_in_place(program.operations, kept))) == 3
    network.check(device, [last])


def test_repeated_pixels_are_written_where_they_are_joined(device: dmlvk.Device) -> None:
    network = Network(14, (2, 5, 8, 8))
    small = network.add("MaxPool", [network.convolve("x", 16)], [(2, 16, 4, 4)], kernel_shape=[2, 2], strides=[2, 2])
    reads = [network.convolve(small[0], 32), "", network.constant(np.array([1, 1, 2, 2], np.float32))]
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    (large,) = network.add("Resize", reads, [(2, 32, 8, 8)], **attributes)
    last = network.convolve(network.concat([large, network.convolve("x", 16, 3)], 1), 4)
    program = network.program([last])
    kept = {program.inputs["x"].storage, program.outputs[last].storage}
    assert copies(replace(program, operations=written_in_place(program.operations, kept))) == copies(program) - 2
    network.check(device, [last])


def test_transposes_are_orders_of_dimensions(device: dmlvk.Device) -> None:
    """A network whose pictures come with channels last, as converters from TensorFlow leave it."""
    network = Network(8, (2, 6, 7, 5))
    there = network.transpose("x", [0, 3, 1, 2])
    middle = network.convolve(there, 8, 3)
    back = network.transpose(network.convolve(middle, 4), [0, 2, 3, 1])
    assert copies(network.program([back])) == 1
    network.check(device, [back])


def test_runs_after_runs_with_other_sizes_outputs_and_arrays(device: dmlvk.Device) -> None:
    """A repeated run takes a shorter way; what differs from the run before does not."""
    network = Network(11, (2, 3, 8, 6))
    middle = network.convolve("x", 4, 3)
    last = network.convolve(middle, 5)
    model = network.model([middle, last])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    session = InferenceSession(model, device)
    inverse = {"x": np.ascontiguousarray(network.x.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)}
    feeds = [{"x": network.x}, inverse, {"x": network.x[:1]}, {"x": network.x[::-1]}]
    kept = []
    for number in range(3 * len(feeds)):
        given = feeds[number // 3]
        names = ([middle, last], [last, middle], [last])[number % 3 if number < 6 else 0]
        expected = dict(zip([middle, last], onnx_runtime(model, given), strict=True))
        kept.append((session.run(names, given), [expected[name] for name in names]))
    for found, right in kept:  # at the end, because a later run must not change an earlier result
        require_equal(found, right)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, list[str]]:
    """A network of up to 12 nodes on values of rank 4, and some of its values as outputs."""
    network = Network(draw(st.integers(0, 1 << 20)), (draw(st.integers(1, 2)), draw(st.sampled_from([3, 16])), 4, 8))
    for _ in range(draw(st.integers(1, 12))):
        x = draw(st.sampled_from(sorted(network.shapes)))
        shape = network.shapes[x]
        kind = draw(
            st.sampled_from(["convolution", "convolution", "split", "concat", "slice", "transpose", "identity"])
        )
        axis = draw(st.integers(0, 3))
        if kind == "convolution":
            network.convolve(x, draw(st.sampled_from([2, 16])), draw(st.sampled_from([1, 3])))
        elif kind == "split" and shape[axis] > 1:
            part = draw(st.integers(1, shape[axis] - 1))
            network.split(x, axis, [part, shape[axis] - part])
        elif kind == "concat":
            others = [name for name, other in network.shapes.items() if other == shape]
            network.concat(draw(st.lists(st.sampled_from(others), min_size=2, max_size=3)), axis)
        elif kind == "slice":
            start = draw(st.integers(0, shape[axis] - 1))
            network.slice(x, axis, start, draw(st.sampled_from([1, 1, 2, -1])))
        elif kind == "transpose":
            network.transpose(x, list(draw(st.permutations(range(4)))))
        else:
            network.add("Identity", [x], [shape])
    made = sorted(network.shapes.keys() - {"x"})
    return network, draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True)) if made else ["x"]


@given(networks())
@examples(0.5)
def test_any_network(device: dmlvk.Device, drawn: tuple[Network, list[str]]) -> None:
    network, outputs = drawn
    if network.nodes:
        network.check(device, outputs)


def two_parts(operator: str) -> tuple[Network, str]:
    """A network with a node of the host in its middle."""
    network = Network(12, (2, 6, 8, 8))
    middle = network.convolve(network.convolve("x", 16, 3), 6)
    # A softmax with such a scale stays on the host.
    scales = [network.constant(np.array(each)) for each in (np.float32(0), np.uint8(3))]
    if operator == "BitShift":
        (added,) = network.add(operator, [middle, "x"], [(2, 6, 8, 8)], direction="LEFT")
    else:
        (added,) = network.add(operator, [middle, *scales, *scales], [(2, 6, 8, 8)], axis=1, opset=13)
    first, second = network.split(added, 1, [2, 4])
    last = network.convolve(network.concat([network.convolve(second, 16), network.convolve(first, 16)], 1), 3)
    return network, last


@pytest.mark.parametrize("channels_last", [False, True])
def test_what_a_run_will_dispatch_is_foreseen(
    device: dmlvk.Device, channels_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, last = two_parts("BitShift")
    model = network.model([last])
    compiled: list[list[Any]] = []
    honest = type(device).compile_all

    def compile_all(self: dmlvk.Device, descs: Any) -> Any:
        compiled.append(list(descs))
        return honest(self, compiled[-1])

    monkeypatch.setattr(type(device), "compile_all", compile_all)
    session = InferenceSession(model, device, channels_last=channels_last)
    session.run(None, {"x": network.x})
    assert "host" in [row.where for row in session.placement]
    found = foreseen_of(network, last, channels_last)
    # On a GPU, what is foreseen is compiled before both parts.
    parts = compiled[1:] if device.profile.device_type is not DeviceType.CPU else compiled
    assert len(parts) == 2
    assert set(found) >= {desc for descs in parts for desc in descs if isinstance(desc, CONVOLUTION)}
    assert sum(isinstance(desc, CONVOLUTION) for desc in found) == 5


def foreseen_of(network: Network, last: str, channels_last: bool) -> list[Any]:
    graph = Graph(load(network.model([last])))
    kinds = inferred_kinds(graph, {"x": (network.x.shape, network.x.dtype)})
    return foreseen(graph, obstacles(graph), kinds, channels_last)[0]


def test_operators_that_inference_does_not_know_are_foreseen() -> None:
    network, last = two_parts("com.microsoft.QLinearSoftmax")
    expected, _ = two_parts("BitShift")
    assert foreseen_of(network, last, True) == foreseen_of(expected, last, True)


def test_what_cannot_be_foreseen() -> None:
    """Sizes that the host computes, and a model that inference refuses."""
    x = np.ones((3, 4), np.float32)
    nodes: list[Node] = [("NonZero", ["x"], ["n"], {}), ("Transpose", ["n"], ["y"], {"perm": [1, 0]})]
    graph = Graph(load(model_of(nodes, {"x": x}, {"y": np.int64})))
    assert foreseen(graph, obstacles(graph), {"x": (x.shape, x.dtype)}, False) == ([], {})
    for kind in (((3,), np.dtype(np.bool_)), ((3,), np.dtype("U3")), ((0, 4), np.dtype("V5"))):
        assert foreseen(graph, obstacles(graph), {"x": kind}, False) == ([], {})
