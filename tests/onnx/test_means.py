"""Means of floats over planes, between DequantizeLinear and QuantizeLinear, have ONNX Runtime's bits on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk.onnx.placement import Row
from tests.onnx.models import HAS_THESE_NORMALIZATIONS, Array, elements, model_of
from tests.onnx.test_neighbours import placed, quantized


def mean_of(
    shape: Sequence[int],
    operator: str,
    *,
    before: Sequence[tuple[str, dict[str, Any]]] = (),
    opset: int = 17,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of a mean behind other operators, whose outputs are the mean itself and the quantized mean."""
    x = elements(np.random.default_rng(len(shape)), np.float32, tuple(shape))
    nodes, constants = quantized(x)
    constants["t"] = np.array(0.0007, np.float32)
    nodes.append(("DequantizeLinear", ["v", "s", "z"], ["f0"], {}))
    for number, (name, given) in enumerate(before):
        nodes.append((name, [f"f{number}"], [f"f{number + 1}"], given))
    reads = [f"f{len(before)}"]
    if opset >= 18 and operator == "ReduceMean":
        constants["axes"] = np.array(attributes.pop("axes"), np.int64)
        reads.append("axes")
    nodes.append((operator, reads, ["mean"], attributes))
    nodes.append(("QuantizeLinear", ["mean", "t", "z"], ["y"], {}))
    return model_of(nodes, {"x": x}, {"mean": np.float32, "y": np.int8}, constants, opset=opset), {"x": x}


def place_of_mean(rows: Sequence[Row]) -> str:
    return next(row.where for row in rows if row.op_type in ("ReduceMean", "GlobalAveragePool"))


@pytest.mark.parametrize(
    ("shape", "operator", "attributes"),
    [
        ((2, 5, 7, 11), "GlobalAveragePool", {}),
        ((3, 4, 9), "GlobalAveragePool", {}),
        ((1, 6, 3, 5, 7), "GlobalAveragePool", {}),
        ((2, 5, 7, 11), "ReduceMean", {"axes": [2, 3]}),
        ((2, 7, 5, 3), "ReduceMean", {"axes": [-1, 1, 2], "keepdims": 0}),
        ((3, 5, 21), "ReduceMean", {"axes": [2], "opset": 18}),
        ((9, 7, 5), "ReduceMean", {}),
        ((1, 7, 9, 6), "ReduceMean", {"axes": [1, 2], "keepdims": 0}),
        ((13, 2, 5), "ReduceMean", {"axes": [0]}),
        ((4, 1), "ReduceMean", {"axes": [0]}),
    ],
    ids=str,
)
def test_a_mean_has_the_order_of_onnx_runtime(
    device: dmlvk.Device, shape: tuple[int, ...], operator: str, attributes: dict[str, Any]
) -> None:
    assert place_of_mean(placed(device, *mean_of(shape, operator, **attributes))) == "device"


@pytest.mark.parametrize("optimize", [False, True])
def test_functions_before_a_mean_are_its_table(device: dmlvk.Device, optimize: bool) -> None:
    before: list[tuple[str, dict[str, Any]]] = [("Relu", {}), ("HardSwish", {}), ("Sigmoid", {})]
    model, feeds = mean_of((2, 5, 7, 11), "GlobalAveragePool", before=before)
    rows = placed(device, model, feeds, optimize=optimize)
    assert [row.where for row in rows] == ["device", *["folded"] * 4, "device", "device"]


@pytest.mark.parametrize(
    ("shape", "axes", "before"),
    [
        ((2, 7, 9, 6), [1, 2], []),  # its order depends on the host's threads
        ((2, 7, 9, 6), [2, 3], [("Log", {})]),  # of numbers below 0
        ((2, 7, 9, 6), [2, 3], [("Neg", {})]),  # -0
        ((2, 7, 9, 6), [2, 3], [("Elu", {})]),  # no table
    ],
    ids=["between", "NaN", "-0", "place"],
)
def test_a_mean_stays_on_the_host(
    device: dmlvk.Device, shape: tuple[int, ...], axes: list[int], before: list[tuple[str, dict[str, Any]]]
) -> None:
    assert place_of_mean(placed(device, *mean_of(shape, "ReduceMean", axes=axes, before=before))) == "host"


def test_a_mean_of_negative_zeros_that_is_quantized(device: dmlvk.Device) -> None:
    """As behind a HardSwish. The quantized mean is the same for either zero."""
    model, feeds = mean_of((2, 7, 9, 6), "ReduceMean", axes=[2, 3], before=[("Neg", {})])
    del model.graph.output[0]
    feeds["x"][0, 0] = 0
    assert place_of_mean(placed(device, model, feeds)) == "device"


def test_a_mean_that_onnx_runtime_changes_stays_on_the_host(device: dmlvk.Device) -> None:
    """It moves a transpose behind a mean, and makes one node of a layer normalization."""
    before = [("Transpose", {"perm": [0, 3, 1, 2]})]
    model, feeds = mean_of((3, 7, 9, 6), "ReduceMean", axes=[2, 3], before=before)
    del model.graph.output[0]
    model.graph.node.insert(
        2, onnx.helper.make_node("Identity", ["f0"], ["again"])
    )  # so that no byte is moved before it
    model.graph.output.append(onnx.helper.make_tensor_value_info("again", onnx.TensorProto.FLOAT, None))
    assert place_of_mean(placed(device, model, feeds, optimize=True)) == "host"

    model, feeds = mean_of((3, 7, 6), "ReduceMean", axes=[2])
    model.graph.node.append(onnx.helper.make_node("Sub", ["f0", "mean"], ["difference"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("difference", onnx.TensorProto.FLOAT, None))
    assert place_of_mean(placed(device, model, feeds, optimize=True)) == "host"


@pytest.mark.parametrize("behind", ["Add", "LayerNormalization"])
def test_a_mean_that_no_transpose_comes_to(device: dmlvk.Device, behind: str) -> None:
    """As over a transformer's tokens: ONNX Runtime moves a transpose neither behind an addition of what has none, nor
    behind a normalization.
    """
    if behind == "LayerNormalization" and not HAS_THESE_NORMALIZATIONS:
        pytest.skip("an older ONNX Runtime rounds otherwise")
    model, feeds = mean_of((1, 8, 6), "ReduceMean", axes=[1])
    feeds["w"] = elements(np.random.default_rng(3), np.float32, (1, 6, 8))
    nodes = [
        onnx.helper.make_node("Identity", ["f0"], ["again"]),  # so that no byte is moved before the transpose
        onnx.helper.make_node("Transpose", ["f0"], ["turned"], perm=[0, 2, 1]),
        onnx.helper.make_node("QuantizeLinear", ["w", "s", "z"], ["bytes"]),
        onnx.helper.make_node("DequantizeLinear", ["bytes", "s", "z"], ["floats"]),
        onnx.helper.make_node("Add", ["turned", "floats"], ["sum"]),
        onnx.helper.make_node("LayerNormalization", ["turned", "g", "b"], ["sum"]),
        onnx.helper.make_node("QuantizeLinear", ["sum", "r", "z"], ["again_bytes"]),
        onnx.helper.make_node("DequantizeLinear", ["again_bytes", "r", "z"], ["given"]),
    ]
    mean = next(node for node in model.graph.node if node.op_type == "ReduceMean")
    mean.input[0] = "given"
    for node in reversed(
        [node for node in nodes if node.op_type in (behind, "Identity", "Transpose") or node.op_type[-6:] == "Linear"]
    ):
        model.graph.node.insert(2, node)
    for name, value in (("r", np.float32(0.03)), ("g", np.ones(8, np.float32)), ("b", np.zeros(8, np.float32))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [1, 6, 8]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("again", onnx.TensorProto.FLOAT, None))
    assert place_of_mean(placed(device, model, feeds, optimize=True)) == "device"
