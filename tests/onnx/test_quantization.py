"""Convolutions between dequantized inputs and a quantized output are fused as ONNX Runtime fuses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dmlvk
from dmlvk.onnx import InferenceSession, folding, quantization
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.graph import Node as GraphNode
from dmlvk.onnx.model_file import load
from tests.onnx.models import (
    Array,
    Node,
    convolution_parameters,
    elements,
    model_of,
    onnx_runtime,
    require_equal,
    session_with_onnx_runtime,
)


def network(
    parameters: dict[str, Array], between: list[Node], *, bias_scale: float = 1.0, **attributes: Any
) -> tuple[list[Node], dict[str, Array]]:
    """x, dequantized, convolved, quantized to y; the nodes between convolution and quantizer read "c", write "q"."""
    constants = dict(parameters)
    constants["b_scale"] = (parameters["x_scale"] * parameters["w_scale"] * np.float32(bias_scale)).astype(np.float32)
    constants["b_zero"] = np.zeros(constants["b_scale"].shape, np.int32)
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "x_scale", "x_zero"], ["xf"], {}),
        ("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wf"], {"axis": 0}),
        ("DequantizeLinear", ["b", "b_scale", "b_zero"], ["bf"], {"axis": 0}),
        ("Conv", ["xf", "wf", "bf"], ["c" if between else "q"], attributes),
        *between,
        ("QuantizeLinear", ["q", "y_scale", "y_zero"], ["y"], {}),
    ]
    return nodes, constants


def parameters_of(seed: int) -> dict[str, Array]:
    made = convolution_parameters(np.random.default_rng(seed), (5, 4, 3, 3), per_channel=True)
    made["w_zero"] = np.zeros(5, np.int8)  # as quantizers have it, and as ONNX Runtime wants it
    return made


BETWEEN: dict[str, tuple[list[Node], int | None]] = {
    "nothing": ([], None),
    "relu": ([("Relu", ["c"], ["q"], {})], 0),
    "clip": ([("Clip", ["c", "low", "high"], ["q"], {})], 0),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_fused_as_by_onnx_runtime(device: dmlvk.Device, name: str) -> None:
    between, zero = BETWEEN[name]
    parameters = parameters_of(len(name))
    if zero is not None:
        parameters["y_zero"] = np.array(zero, np.uint8)
    nodes, constants = network(parameters, between, pads=[1, 1, 1, 1])
    constants |= {"low": np.array(0, np.float32), "high": np.array(1e6, np.float32)} if name == "clip" else {}
    x = elements(np.random.default_rng(1), np.uint8, (2, 4, 9, 8))
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants, opset=19)
    session = InferenceSession(model, device)
    found = session.run(None, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    where = {row.name: row.where for row in session.placement}
    assert where.pop("node_3") == "device"
    assert set(where.values()) == {"folded"}
    assert np.unique(found[0]).size > 20


def of_com_microsoft(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = "com.microsoft"
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def with_nodes_of_constants(model: onnx.ModelProto) -> None:
    nodes = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in model.graph.initializer]
    nodes += model.graph.node
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)


def with_transposed_weights(model: onnx.ModelProto) -> None:
    """Weights with their input channels last, as TensorFlow has them."""
    (weights,) = (tensor for tensor in model.graph.initializer if tensor.name == "w")
    turned = np.ascontiguousarray(numpy_helper.to_array(weights).transpose(1, 2, 0, 3))
    weights.CopyFrom(numpy_helper.from_array(turned, "w"))
    (dequantized,) = (node for node in model.graph.node if node.output[0] == "wf")
    dequantized.output[0] = "w_turned"
    dequantized.attribute[0].i = -2
    place = [*model.graph.node].index(dequantized) + 1
    model.graph.node.insert(place, helper.make_node("Transpose", ["w_turned"], ["wf"], perm=[2, 0, 1, 3]))


def with_weights_of_floats(model: onnx.ModelProto) -> None:
    """Weights that a QuantizeLinear makes bytes of at each run."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    levels, scale = (numpy_helper.to_array(tensors[name]) for name in ("w", "w_scale"))
    floats = levels.astype(np.float32) * scale.reshape(-1, 1, 1, 1)
    tensors["w"].CopyFrom(numpy_helper.from_array(floats, "w_floats"))
    made = helper.make_node("QuantizeLinear", ["w_floats", "w_scale", "w_zero"], ["w"], axis=0)
    model.graph.node.insert(0, made)


def with_a_bias_of_floats(model: onnx.ModelProto) -> None:
    (dequantized,) = (node for node in model.graph.node if node.output[0] == "bf")
    (levels,) = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == "b")
    (scale,) = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == "b_scale")
    model.graph.node.remove(dequantized)
    floats = (levels + np.random.default_rng(0).uniform(-0.6, 0.6, levels.shape)) * scale
    model.graph.initializer.append(numpy_helper.from_array(floats.astype(np.float32), "bf"))


def with_a_pair_for_each_reader(model: onnx.ModelProto) -> None:
    """Each of two readers of a convolution has a QuantizeLinear and a DequantizeLinear of its own."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    model.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(tensors["y_scale"]), "scale"))
    model.graph.node[-1].output[0] = "y1"
    model.graph.node.extend(
        [
            helper.make_node("QuantizeLinear", ["q", "scale", "y_zero"], ["y2"]),
            helper.make_node("DequantizeLinear", ["y1", "y_scale", "y_zero"], ["f1"]),
            helper.make_node("DequantizeLinear", ["y2", "scale", "y_zero"], ["f2"]),
            helper.make_node("Mul", ["f1", "f2"], ["m"]),
            helper.make_node("QuantizeLinear", ["m", "scale", "y_zero"], ["y"]),
        ]
    )


OTHER_QUANTIZERS = (
    *(of_com_microsoft, with_nodes_of_constants, with_transposed_weights, with_weights_of_floats),
    *(with_a_bias_of_floats, with_a_pair_for_each_reader),
)


@pytest.mark.parametrize("write", OTHER_QUANTIZERS)
def test_fused_whichever_quantizer_wrote_it(device: dmlvk.Device, write: Callable[[onnx.ModelProto], None]) -> None:
    nodes, constants = network(parameters_of(9), [], pads=[1, 1, 1, 1])
    x = elements(np.random.default_rng(10), np.uint8, (2, 4, 61, 64))  # so many that a step of a bias shows
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants, opset=19)
    write(model)
    session = InferenceSession(model, device)
    (found,) = session.run(None, {"x": x})
    require_equal([found], onnx_runtime(model, {"x": x}))
    assert "host" not in {row.where for row in session.placement}
    assert not any(row.op_type == "QuantizeLinear" and row.where == "device" for row in session.placement[:-1])
    assert np.unique(found).size > 20


def test_conversions_of_other_scales_are_not_merged(device: dmlvk.Device) -> None:
    nodes, constants = network(parameters_of(9), [], pads=[1, 1, 1, 1])
    x = elements(np.random.default_rng(10), np.uint8, (2, 4, 9, 8))
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants, opset=19)
    with_a_pair_for_each_reader(model)
    scale = model.graph.initializer[-1]
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1.5), "scale"))
    (found,) = InferenceSession(model, device).run(None, {"x": x})
    require_equal([found], onnx_runtime(model, {"x": x}))
    assert np.unique(found).size > 20


@pytest.mark.parametrize("fault", ["a row of two dimensions", "more than int32", "no number", "a type of 16 bits"])
def test_not_made_what_another_quantizer_does_not_mean(device: dmlvk.Device, fault: str) -> None:
    nodes, constants = network(parameters_of(9), [])
    x = elements(np.random.default_rng(10), np.uint8, (2, 4, 9, 8))
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants, opset=19)
    with_a_bias_of_floats(model)
    bias = model.graph.initializer[-1]
    if fault == "a row of two dimensions":
        parameters = convolution_parameters(np.random.default_rng(1), (5, 12, 1, 1))
        constants = {**network(parameters, [])[1], "w": parameters["w"].reshape(5, 12).T.copy()}
        constants |= {"bf": np.ones((1, 5), np.float32), "w_zero": np.zeros((), np.int8)}
        gemm: Node = ("Gemm", ["xf", "wf", "bf"], ["q"], {})
        nodes = [*nodes[:2], gemm, *nodes[4:]]
        x = elements(np.random.default_rng(1), np.uint8, (3, 12))
        model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants, opset=19)
    elif fault == "a type of 16 bits":
        of_com_microsoft(model)
        for tensor in model.graph.initializer:
            if tensor.name == "y_zero":
                tensor.CopyFrom(numpy_helper.from_array(np.array(700, np.uint16), "y_zero"))
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UINT16
    else:
        floats = numpy_helper.to_array(bias).copy()
        floats[0] = np.nan if fault == "no number" else 1e9
        bias.CopyFrom(numpy_helper.from_array(floats, "bf"))
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    assert {where for _, operator, where in rows if operator in ("Conv", "Gemm")} == {"host"}
    require_equal(found, onnx_runtime(model, {"x": x}))


UNFUSED: dict[str, dict[str, Any]] = {
    "a Relu that is no clamp of the type": {"between": [("Relu", ["c"], ["q"], {})]},
    "a Clip below the type": {"between": [("Clip", ["c", "low", "high"], ["q"], {})]},
    "a bias of another scale": {"between": [], "bias_scale": 1.5},
}


@pytest.mark.parametrize("name", UNFUSED)
def test_not_fused_where_the_meaning_would_change(device: dmlvk.Device, name: str) -> None:
    options = dict(UNFUSED[name])
    parameters = parameters_of(3)
    if name == "a Clip below the type":
        parameters["y_zero"] = np.array(0, np.uint8)
    nodes, constants = network(parameters, options.pop("between"), **options)
    if "Clip" in name:
        constants |= {"low": np.array(0, np.float32), "high": parameters["y_scale"] * np.float32(100)}
    x = elements(np.random.default_rng(2), np.uint8, (1, 4, 9, 8))
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants, opset=19)
    session = InferenceSession(model, device)
    (found,) = session.run(None, {"x": x})
    (expected,) = onnx_runtime(model, {"x": x}, optimize=False)
    assert {row.op_type: row.where for row in session.placement}["Conv"] == "host"
    assert np.abs(found.astype(int) - expected).max() <= 1  # float convolutions of two libraries


def test_a_value_that_others_use_too_is_left_alone(device: dmlvk.Device) -> None:
    nodes, constants = network(parameters_of(4), [("Relu", ["c"], ["q"], {})])
    constants["y_zero"] = np.array(0, np.uint8)
    x = elements(np.random.default_rng(3), np.uint8, (1, 4, 9, 8))
    model = model_of(nodes, {"x": x}, {"y": np.uint8, "c": np.float32}, constants, opset=19)
    session = InferenceSession(model, device)
    session.run(None, {"x": x})
    assert {row.op_type: row.where for row in session.placement}["Conv"] == "host"


def test_fusion_can_be_switched_off(device: dmlvk.Device) -> None:
    nodes, constants = network(parameters_of(5), [])
    x = elements(np.random.default_rng(4), np.uint8, (1, 4, 9, 8))
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants, opset=19)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x}, fuse_qdq=False)
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert {operator: where for _, operator, where in rows}["Conv"] == "host"


def test_a_network_between_host_nodes(device: dmlvk.Device) -> None:
    """Floats in and out, a residual that is an output too: what the host runs is the same with and without fusion."""
    parameters = convolution_parameters(np.random.default_rng(6), (4, 4, 3, 3))
    parameters["w_zero"] = np.zeros((), np.int8)
    nodes, constants = network(parameters, [], pads=[1, 1, 1, 1])
    nodes = [
        ("QuantizeLinear", ["input", "x_scale", "x_zero"], ["x"], {}),
        *nodes,
        ("DequantizeLinear", ["y", "y_scale", "y_zero"], ["yf"], {}),
        ("Add", ["yf", "input"], ["sum"], {}),
        ("GlobalAveragePool", ["sum"], ["pooled"], {}),
        ("Flatten", ["pooled"], ["flat"], {}),
        ("Softmax", ["flat"], ["output"], {}),
    ]
    x = elements(np.random.default_rng(7), np.float32, (2, 4, 8, 8))
    outputs = {"output": np.float32, "y": np.uint8, "yf": np.float32}
    model = model_of(nodes, {"input": x}, outputs, constants, opset=19)
    found, rows = session_with_onnx_runtime(device.name, model, {"input": x})
    output, *exact = onnx_runtime(model, {"input": x})
    require_equal(found[1:], exact)
    np.testing.assert_allclose(found[0], output, rtol=1e-6)
    assert {operator: where for _, operator, where in rows}["Conv"] == "device"


def test_what_the_host_fuses_across_the_devices_parts(device: dmlvk.Device) -> None:
    """ONNX Runtime adds integers if it sees both dequantizers, of a residual or of a constant, and the quantizer.

    The parts of the host between the convolutions see them too, though one operand is there long before the other. The
    dequantized residual is also read by another node of an earlier part, and by one on the device.
    """
    generator = np.random.default_rng(8)
    constants: dict[str, Array] = {}
    nodes: list[Node] = []
    scales = {"x_scale": 0.013, "w_scale": 0.007, "y_scale": 0.0597}
    for stage, given in (("a", "x"), ("b", "a_y"), ("c", "sum_y")):
        parameters = convolution_parameters(generator, (4, 4, 3, 3))
        parameters["w_zero"] = np.zeros((), np.int8)
        # A sum of scale 2 s of operands of scale s has many ties, and rounding errors of floats break them.
        parameters |= {name: np.array(scale, np.float32) for name, scale in scales.items()}
        part, made = network(parameters, [], pads=[1, 1, 1, 1])
        constants |= {f"{stage}_{name}": array for name, array in made.items()}
        nodes += [
            (operator, [given if name == "x" else f"{stage}_{name}" for name in read], [f"{stage}_{written[0]}"], more)
            for operator, read, written, more in part
        ]
    constants |= {"k": elements(generator, np.uint8, (4, 1, 1)), "k_zero": np.array(121, np.uint8)}
    constants |= {"k_scale": constants["b_y_scale"], "s_scale": constants["b_y_scale"] * np.float32(2)}
    nodes += [
        ("DequantizeLinear", ["a_y", "a_y_scale", "a_y_zero"], ["residual"], {}),
        ("GlobalAveragePool", ["residual"], ["mean"], {}),
        ("Transpose", ["residual"], ["turned"], {}),
        ("DequantizeLinear", ["b_y", "b_y_scale", "b_y_zero"], ["b_float"], {}),
        ("Add", ["residual", "b_float"], ["sum"], {}),
        ("QuantizeLinear", ["sum", "s_scale", "b_y_zero"], ["sum_y"], {}),
        ("DequantizeLinear", ["k", "k_scale", "k_zero"], ["k_float"], {}),
        ("DequantizeLinear", ["c_y", "c_y_scale", "c_y_zero"], ["c_float"], {}),
        ("Add", ["c_float", "k_float"], ["shifted"], {}),
        ("QuantizeLinear", ["shifted", "s_scale", "b_y_zero"], ["output"], {}),
    ]
    # In an order in which they can run: the third convolution reads the sum.
    nodes = [*nodes[:10], *nodes[15:21], *nodes[10:15], *nodes[21:]]
    outputs = {"output": np.uint8, "sum_y": np.uint8, "mean": np.float32, "turned": np.float32}
    x = elements(generator, np.uint8, (3, 4, 24, 23))
    model = model_of(nodes, {"x": x}, outputs, constants, opset=19)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    expected = onnx_runtime(model, {"x": x})
    for array, right in zip(found[:2], expected[:2], strict=True):
        require_equal([array], [right])
        assert np.unique(array).size > 20
    require_equal(found[3:], expected[3:])
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-5)  # a mean of floats or of integers
    assert [where for _, operator, where in rows if operator in ("Conv", "Transpose")] == ["device"] * 4
    assert not np.array_equal(found[0], onnx_runtime(model, {"x": x}, optimize=False)[0])


@pytest.mark.parametrize("moves_twice", [False, True])
@pytest.mark.parametrize("function", ["HardSigmoid", "Tanh", "Sigmoid", "Max"])
def test_a_function_before_movement_is_a_table(device: dmlvk.Device, function: str, moves_twice: bool) -> None:
    """As in a squeeze and excitation of products. ONNX Runtime makes a Sigmoid of bytes."""
    x = elements(np.random.default_rng(11), np.uint8, (2, 300))
    constants: dict[str, Array] = {"s": np.array(0.031, np.float32), "z": np.array(130, np.uint8)}
    constants |= {"zero": np.array(1, np.uint8), "t": np.array(1 / 257, np.float32), "shape": np.array([-1, 300, 1, 1])}
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "s", "z"], ["xf"], {}),
        (function, ["xf", "t"] if function == "Max" else ["xf"], ["f"], {}),
        ("Reshape", ["f", "shape"], ["r"], {}),
        *([("Transpose", ["r"], ["m"], {"perm": [0, 3, 2, 1]})] if moves_twice else []),
        ("QuantizeLinear", ["m" if moves_twice else "r", "t", "zero"], ["y"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants, opset=19)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert "host" not in {place for *_, place in rows}
    assert np.unique(found[0]).size > 20


def test_quantizers_of_several_scales_pass_all_movement(device: dmlvk.Device) -> None:
    """In the QOperator format: two read what was moved twice, and each moves bytes of its own."""
    x = elements(np.random.default_rng(12), np.uint8, (2, 300))
    constants: dict[str, Array] = {"s": np.array(0.031, np.float32), "z": np.array(130, np.uint8)}
    constants |= {"zero": np.array(1, np.uint8), "t": np.array(1 / 257, np.float32), "v": np.array(1 / 99, np.float32)}
    constants |= {"shape": np.array([-1, 300, 1, 1])}
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "s", "z"], ["xf"], {}),
        ("HardSigmoid", ["xf"], ["f"], {}),
        ("Reshape", ["f", "shape"], ["r"], {}),
        ("Transpose", ["r"], ["m"], {"perm": [0, 3, 2, 1]}),
        ("QuantizeLinear", ["m", "t", "zero"], ["y"], {}),
        ("QuantizeLinear", ["m", "v", "zero"], ["w"], {}),
        ("com.microsoft.QLinearSigmoid", ["w", "v", "zero", "t", "zero"], ["u"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.uint8, "u": np.uint8}, constants, opset=19)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert "host" not in {place for *_, place in rows}


MOVERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Reshape": ([np.array([1, 8, -1])], {}),
    "Transpose": ([], {"perm": [0, 2, 3, 1]}),
    "Squeeze": ([np.array([0])], {}),
    "Unsqueeze": ([np.array([0])], {}),
    "Slice": ([np.array([0]), np.array([5]), np.array([1])], {}),
    "MaxPool": ([], {"kernel_shape": [2, 2]}),
    "Flatten": ([], {}),
    "Gather": ([np.array([3, 0, 1])], {"axis": 1}),
    "Pad": ([np.array([0, 0, 1, 1, 0, 0, 1, 1])], {}),
    "DepthToSpace": ([], {"blocksize": 2}),
}
GROUPS: dict[str, dict[str, Any]] = {
    "AveragePool": {"kernel_shape": [3, 3]},
    "GlobalAveragePool": {},
    "Softmax": {"axis": -1},
    "Conv": {"pads": [1, 1, 1, 1]},
}


# Three of the groups take planes alone.
BESIDE = [(group, mover, False) for group in GROUPS for mover in MOVERS]
BESIDE += [(group, mover, True) for group in GROUPS for mover in ("Slice", "MaxPool", "Pad")]
BESIDE += [
    ("Softmax", mover, True) for mover in ("Reshape", "Transpose", "Unsqueeze", "Flatten", "Gather", "DepthToSpace")
]


@pytest.mark.half_by_day
@pytest.mark.parametrize(("group", "mover", "is_before"), BESIDE)
def test_movement_beside_a_group(device: dmlvk.Device, group: str, mover: str, is_before: bool) -> None:
    """ONNX Runtime moves conversions past some operators, and replaces groups that come about by that. Others not."""
    generator = np.random.default_rng(len(group + mover))
    x = elements(generator, np.uint8, (1, 8, 6, 6))
    constants: dict[str, Array] = {
        "s": np.array(0.05, np.float32),
        "z": np.array(3, np.uint8),
        "t": np.array(0.031, np.float32),
        "u": np.array(7, np.uint8),
        # Seven bits: the sums of two products do not saturate on any processor.
        "w": generator.integers(-64, 64, (8, 5 if is_before and mover == "Slice" else 8, 3, 3)).astype(np.int8),
        "ws": np.array(0.002, np.float32),
        "b": generator.standard_normal(8).astype(np.float32),
    }
    inputs, attributes = MOVERS[mover]
    constants |= {f"c{k}": value for k, value in enumerate(inputs)}
    first, last = ("f", "m") if is_before else ("p", "p")
    moving = (mover, [first, *(f"c{k}" for k in range(len(inputs)))], ["m"], attributes)
    computing = (group, [last if is_before else "f", *(["wf", "b"] if group == "Conv" else [])], ["p"], GROUPS[group])
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "s", "z"], ["f"], {}),
        *([("DequantizeLinear", ["w", "ws"], ["wf"], {})] if group == "Conv" else []),
        *([moving, computing] if is_before else [computing, moving]),
        ("QuantizeLinear", ["p" if is_before else "m", "t", "u"], ["y"], {}),
    ]
    read = {name for _, names, _, _ in nodes for name in names}
    constants = {name: value for name, value in constants.items() if name in read}
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants)
    found, _ = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))


@pytest.mark.parametrize("mover", [None, "Slice", "Unsqueeze"])
def test_attention(device: dmlvk.Device, mover: str | None) -> None:
    """Products of two values, which movement of floats parts from their conversions, run on the device."""
    x = elements(np.random.default_rng(14), np.uint8, (3, 6, 8))
    reads = {"Slice": ["f", "start", "end", "axes"], "Unsqueeze": ["f", "axes"]}.get(mover or "", [])
    constants: dict[str, Array] = {
        **{name: np.array(scale, np.float32) for name, scale in {"s": 0.05, "t": 0.9, "u": 1 / 256}.items()},
        **{name: np.array(zero, np.uint8) for name, zero in {"z": 120, "middle": 131, "least": 0}.items()},
        **{name: np.array([place], np.int64) for name, place in {"start": 1, "end": 5, "axes": 1}.items()},
    }
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "s", "z"], ["f"], {}),
        ("Transpose", ["f"], ["turned"], {"perm": [0, 2, 1]}),
        *([(mover, reads, ["moved"], {})] if mover else []),
        ("MatMul", ["moved" if mover else "f", "turned"], ["p"], {}),
        ("QuantizeLinear", ["p", "t", "middle"], ["q"], {}),
        ("DequantizeLinear", ["q", "t", "middle"], ["pf"], {}),
        ("Softmax", ["pf"], ["w"], {"axis": -1}),
        ("QuantizeLinear", ["w", "u", "least"], ["wq"], {}),
        ("DequantizeLinear", ["wq", "u", "least"], ["wf"], {}),
        ("MatMul", ["wf", "f"], ["o"], {}),
        ("QuantizeLinear", ["o", "s", "z"], ["y"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert "host" not in {place for _, _, place in rows}, rows
    assert np.unique(found[0]).size > 20


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("pads", "fill"),
    [([0, 0, 1, 1, 0, 0, 1, 1], 0.0), ([0, 0, 1, 1, 0, 0, 1, 1], 0.5), ([0, 1, 0, 0, 0, 0, 1, 1], 0.0)],
)
def test_padding_before_a_convolution(device: dmlvk.Device, pads: list[int], fill: float, kind: Any) -> None:
    """ONNX Runtime makes zeros around planes a part of the Conv, which then reads a DequantizeLinear."""
    generator = np.random.default_rng(4)
    x = elements(generator, kind, (1, 8, 40, 40))
    constants: dict[str, Array] = {
        "s": np.array(0.05, np.float32),
        "z": np.array(3, kind),
        "pads": np.array(pads),
        "fill": np.array(fill, np.float32),
        "w": generator.integers(-64, 64, (8, 8 + pads[1], 3, 3)).astype(np.int8),
        "ws": np.array(0.002, np.float32),
        "b": generator.standard_normal(8).astype(np.float32),
        "t": np.array(0.031, np.float32),
        "u": np.array(7, kind),
    }
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "s", "z"], ["f"], {}),
        ("DequantizeLinear", ["w", "ws"], ["wf"], {}),
        ("Pad", ["f", "pads", "fill"], ["m"], {}),
        ("Conv", ["m", "wf", "b"], ["p"], {}),
        ("QuantizeLinear", ["p", "t", "u"], ["y"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": kind}, constants)
    found, _ = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))


@pytest.mark.parametrize("is_before", [True, False])
def test_padding_by_reflection_with_a_fill(device: dmlvk.Device, is_before: bool) -> None:
    """Some exporters give each Pad a fill of floats: nothing reads it there, and no Pad of bytes takes it."""
    x = elements(np.random.default_rng(4), np.uint8, (1, 2, 5, 5))
    constants: dict[str, Array] = {"s": np.array(0.05, np.float32), "z": np.array(3, np.uint8)}
    constants |= {"pads": np.array([0, 0, 1, 2, 0, 0, 1, 0]), "fill": np.array(0.5, np.float32)}
    first, last = ("f", "p") if is_before else ("t", "t")
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "s", "z"], ["f"], {}),
        ("Tanh", [last if is_before else "f"], ["t"], {}),
        ("Pad", [first, "pads", "fill"], ["p"], {"mode": "reflect"}),
        ("QuantizeLinear", ["t" if is_before else "p", "s", "z"], ["y"], {}),
    ]
    nodes = [nodes[k] for k in ((0, 2, 1, 3) if is_before else (0, 1, 2, 3))]
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert "host" not in {place for *_, place in rows}


# Scale and zero point of two quantizations: either is finer or wider, they have half a range in common, all of it, or
# one whose zero point is no integer and is rounded up.
TWICE = [
    *(((0.02, 128), (0.05, 100)), ((0.05, 3), (0.02, 250)), ((0.03, 0), (0.03, 255)), ((0.04, 77), (0.04, 77))),
    ((0.031, 97), (0.03, 131)),
]


@pytest.mark.parametrize("between", [[], ["Identity"], ["Relu"]])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("pairs", TWICE)
def test_values_that_are_quantized_twice(
    device: dmlvk.Device, pairs: tuple[tuple[float, int], tuple[float, int]], kind: Any, between: list[str]
) -> None:
    """ONNX Runtime quantizes once, to the range that both have, unless something is between them."""
    x = elements(np.random.default_rng(6), np.float32, (2, 300)) * 3
    constants: dict[str, Array] = {}
    nodes: list[Node] = []
    value = "x"
    for k, (scale, zero) in enumerate(pairs):
        constants |= {
            f"s{k}": np.array(scale, np.float32),
            f"z{k}": np.array(zero - (128 if kind == np.int8 else 0), kind),
        }
        nodes.append(("QuantizeLinear", [value, f"s{k}", f"z{k}"], [f"q{k}"], {}))
        nodes.append(("DequantizeLinear", [f"q{k}", f"s{k}", f"z{k}"], [f"f{k}"], {}))
        value = f"f{k}"
        for operator in between if k == 0 else ["LeakyRelu"]:
            nodes.append((operator, [value], [f"o{k}"], {}))
            value = f"o{k}"
    model = model_of(nodes, {"x": x}, {"o1": np.float32}, constants)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    places = [place for _, operator, place in rows[1:-2] if operator != "Relu"]
    assert (set(places) == {"folded"}) == (between != ["Relu"])


# Scale and zero point of up to five quantizations. ONNX Runtime merges each pair once before it merges merged ones, so
# the last bits of their scales depend on the order.
OFTEN = [(0.03, 165), (0.03, 139), (0.03, 97), (0.0555, 91), (0.02, 89)]


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        *(([], ["LeakyRelu"]), (["LeakyRelu"], ["MaxPool"]), (["MaxPool"], ["Transpose", "LeakyRelu"])),
        *((["Sigmoid", "Identity", "MaxPool", "Transpose"], ["Identity", "LeakyRelu"]), (["Identity"], ["Identity"])),
        (["MaxPool"], ["Transpose", "MaxPool", "QuantizeLinear"]),
    ],
)
@pytest.mark.parametrize("count", [3, 5])
def test_values_that_are_quantized_often(
    device: dmlvk.Device, count: int, before: list[str], behind: list[str]
) -> None:
    """Conversions pass movement before the second merging, and keep the scales that they had then."""
    x = elements(np.random.default_rng(6), np.float32, (2, 3, 6, 6)) * 3
    attributes = {"MaxPool": {"kernel_shape": [2, 2]}, "Transpose": {"perm": [0, 2, 1, 3]}}
    constants: dict[str, Array] = {}
    nodes: list[Node] = []

    def add(operator: str, *parameters: str) -> None:
        value = nodes[-1][2][0] if nodes else "x"
        nodes.append((operator, [value, *parameters], [f"v{len(nodes)}"], attributes.get(operator, {})))

    for operator in before:
        add(operator)
    for k, (scale, zero) in enumerate(OFTEN[:count]):
        constants |= {f"s{k}": np.array(scale, np.float32), f"z{k}": np.array(zero, np.uint8)}
        add("QuantizeLinear", f"s{k}", f"z{k}")
        add("DequantizeLinear", f"s{k}", f"z{k}")
    for operator in behind:
        add(operator, *(["s0", "z0"] if operator == "QuantizeLinear" else []))
    result = np.uint8 if behind[-1] == "QuantizeLinear" else np.float32
    model = model_of(nodes, {"x": x}, {nodes[-1][2][0]: result}, constants)
    found, _ = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))


def counted(getter: Callable[[GraphNode], Any], counts: Counter[str]) -> property:
    def get(node: GraphNode) -> Any:
        counts["asked"] += 1
        return getter(node)

    return property(get)


def test_a_mask_of_scaled_values(device: dmlvk.Device) -> None:
    """As in GPT-2's attention: what a constant mask leaves is a function of bytes, and is quantized before it."""
    x = elements(np.random.default_rng(8), np.float32, (2, 5, 5))
    constants: dict[str, Array] = {"s": np.array(0.02, np.float32), "z": np.array(3, np.int8)}
    constants |= {"eight": np.array(8, np.float32), "mask": np.tril(np.ones((1, 5, 5))) > 0}
    constants |= {"low": np.array(-128, np.int8), "t": np.array(0.01, np.float32), "ten": np.array(9, np.float32)}
    nodes: list[Node] = [
        ("QuantizeLinear", ["x", "s", "z"], ["v"], {}),
        ("DequantizeLinear", ["v", "s", "z"], ["f"], {}),
        ("Div", ["f", "eight"], ["scaled"], {}),
        ("DequantizeLinear", ["low", "ten", "z"], ["least"], {}),
        ("Where", ["mask", "scaled", "least"], ["masked"], {}),
        ("QuantizeLinear", ["masked", "t", "z"], ["y"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.int8}, constants)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert "host" not in {place for *_, place in rows}


def test_fusion_takes_time_by_the_number_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: how often anybody asks what a node reads or writes."""

    def asked(layers: int) -> int:
        generator = np.random.default_rng(layers)
        nodes: list[Node] = []
        constants: dict[str, Array] = {"s": np.array(0.1, np.float32)}
        for k in range(layers):
            constants[f"w{k}"] = elements(generator, np.int8, (1, 1, 1, 1))
            # Without zero points, so that fusion makes some.
            nodes += [
                ("DequantizeLinear", [f"x{k}", "s"], [f"d{k}"], {}),
                ("DequantizeLinear", [f"w{k}", "s"], [f"f{k}"], {}),
                ("Conv", [f"d{k}", f"f{k}"], [f"c{k}"], {}),
                ("QuantizeLinear", [f"c{k}", "s"], [f"x{k + 1}"], {}),
            ]
        x = elements(generator, np.uint8, (1, 1, 2, 2))
        graph = Graph(load(model_of(nodes, {"x0": x}, {f"x{layers}": np.uint8}, constants)))
        counts = Counter[str]()
        with monkeypatch.context() as patch:
            for name in ("reads", "writes"):
                patch.setattr(GraphNode, name, counted(getattr(GraphNode, name).func, counts))
            reasons, replaced = quantization.fuse(graph)
            reasons |= folding.prune(graph)
        assert len(replaced) == layers and len(graph.nodes) == layers
        assert len(reasons) == 3 * layers
        return counts["asked"]

    few, many = asked(10), asked(80)
    assert few < many <= 8 * few
