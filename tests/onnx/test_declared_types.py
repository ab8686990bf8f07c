"""Types and sizes that a model states and that are wrong: believed no further than ONNX Runtime believes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession, ModelError
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.model_file import load
from tests.onnx.models import Array, Node, model_of, onnx_runtime, require_equal
from tests.reference.onnx_runtime import ONNX_RUNTIME

CONSTANTS = {"begin": np.array([4]), "end": np.array([-100]), "axis": np.array([1]), "step": np.array([-1])}
# A value on the host, one on the device, and again.
NODES: list[Node] = [
    ("Relu", ["x"], ["a"], {}),
    ("Slice", ["a", "begin", "end", "axis", "step"], ["b"], {}),
    ("Neg", ["b"], ["c"], {}),
    ("com.microsoft.Gelu", ["c"], ["d"], {}),
    ("Slice", ["d", "begin", "end", "axis", "step"], ["e"], {}),
    ("Abs", ["e"], ["y"], {}),
]
STATED = {
    "smaller batch": [1, 5],
    "larger batch": [9, 5],
    "another size": [3, 4],
    "another rank": [3, 5, 1],
    "scalar": [],
    "names": ["n", "m"],
    "right": [3, 5],
}


def _model(stated: dict[str, Any], first: int | str, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", 1, [first, 5])
    model = model_of(NODES, {"x": x}, dict.fromkeys(outputs, np.float32), CONSTANTS)
    model.graph.value_info.extend(
        helper.make_tensor_value_info(name, 1, sizes) for name, sizes in stated.items() if name not in outputs
    )
    for value in model.graph.output:
        if value.name in stated:
            value.CopyFrom(helper.make_tensor_value_info(value.name, 1, stated[value.name]))
    return model


def _run(device: str, models: list[bytes], x: Array) -> list[tuple[Any, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    found: list[tuple[Any, Any]] = []
    with dmlvk.Device(device) as opened:
        for model in models:
            try:
                right = onnxruntime.InferenceSession(model, options)
            except Exception:  # such sizes that ONNX Runtime does not forgive, as a scalar with an axis
                found.append((_refusal(opened, model).count("refuses the model"), 1))
                continue
            ours = InferenceSession(model, opened)
            # Also after a run with another batch.
            feeds = [{"x": x}, {"x": x[:2]}] if isinstance(ours.get_inputs()[0].shape[0], str) else [{"x": x}]
            for feed in (*feeds, feeds[0]):
                found.append((ours.run(None, feed), right.run(None, feed)))
    return found


def test_stale_sizes(device: dmlvk.Device) -> None:
    """Of each value and of all, as value_info and as graph outputs in the middle."""
    models = []
    for stated in STATED.values():
        for first in (3, "n"):
            models += [_model({name: stated}, first) for name in ("a", "c", "e")]
            models.append(_model(dict.fromkeys("abcde", stated), first))
            models.append(_model(dict.fromkeys("abcdey", stated), first, tuple("abcdey")))
    x = np.random.default_rng(8).standard_normal((3, 5)).astype(np.float32)
    contents = [model.SerializeToString() for model in models]
    for found, right in ONNX_RUNTIME.call("stale sizes", _run, device.name, contents, x):
        if isinstance(found, list) and isinstance(found[0], np.ndarray):
            require_equal(found, right)
        else:
            assert found == right


def _described(device: str, models: list[bytes]) -> list[tuple[Any, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    found: list[Any] = []
    with dmlvk.Device(device) as opened:
        for model in models:
            sessions = InferenceSession(model, opened), onnxruntime.InferenceSession(model, options)
            found.append(tuple([(v.name, v.shape, v.type) for v in session.get_outputs()] for session in sessions))
    return found


def test_outputs_are_described_as_by_onnx_runtime(device: dmlvk.Device) -> None:
    models = []
    for first in (3, "n"):
        x = helper.make_tensor_value_info("x", 1, [first, 5])
        for stated in (*STATED.values(), None, [None, 5], ["b", 5], [4, 7]):
            model = model_of([("Relu", ["x"], ["a"], {}), ("Neg", ["a"], ["y"], {})], {"x": x}, {"y": np.float32})
            model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, stated))
            models.append(model.SerializeToString())
    for found, right in ONNX_RUNTIME.call("descriptions", _described, device.name, models):
        assert found == right


@pytest.mark.parametrize("name", ["a", "b", "y"])
def test_another_element_type_is_refused(device: dmlvk.Device, name: str) -> None:
    model = _model({}, 3)
    stated = helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None)
    if name == "y":
        model.graph.output[0].CopyFrom(stated)
    else:
        model.graph.value_info.append(stated)
    message = ONNX_RUNTIME.call("element types", _refusal, device.name, model.SerializeToString())
    assert "int64" in message and name in message


def _refusal(device: str | dmlvk.Device, model: bytes) -> str:
    try:
        InferenceSession(model, device)
    except ModelError as error:
        return str(error)
    return "not refused"


def test_a_rank_that_does_not_fit_is_refused_when_the_model_is_loaded(device: dmlvk.Device) -> None:
    nodes: list[Node] = [
        ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
        ("Conv", ["d", "w"], ["c"], {}),
        ("QuantizeLinear", ["c", "s", "z"], ["y"], {}),
    ]
    constants: dict[str, Array] = {
        "s": np.array(0.1, np.float32),
        "z": np.array(3, np.uint8),
        "w": np.ones((2, 2, 1), np.float32),
    }
    model = model_of(nodes, {"x": np.zeros((1, 2, 4, 4), np.float32)}, {"y": np.uint8}, constants)
    message = ONNX_RUNTIME.call("ranks", _refusal, device.name, model.SerializeToString())
    assert "refuses the model" in message and "Conv" in message


def test_right_sizes_are_used(device: dmlvk.Device) -> None:
    x = np.random.default_rng(9).standard_normal((3, 5)).astype(np.float32)
    model = model_of(NODES[:3], {"x": x}, {"c": np.float32}, CONSTANTS)
    session = InferenceSession(model, device)
    require_equal(session.run(None, {"x": x}), onnx_runtime(model, {"x": x}))
    assert session.get_outputs()[0].shape == [3, 5]


def test_elements_have_a_type_where_inference_refuses_sizes() -> None:
    """ONNX counts the outputs of some pools otherwise than ONNX Runtime, and then refuses what joins them."""
    scale, point = np.array(0.1, np.float32), np.array(3, np.uint8)
    nodes: list[Node] = [
        ("com.microsoft.QLinearAdd", ["constant", "s", "z", "x", "s", "z", "s", "z"], ["sum"], {}),
        ("com.microsoft.QLinearSigmoid", ["sum", "s", "z", "s", "z"], ["sigmoid"], {}),
        ("QLinearMatMul", ["sigmoid", "s", "z", "constant", "s", "z", "s", "signed"], ["product"], {}),
        ("MaxPool", ["product"], ["pool"], {"kernel_shape": [1]}),
        ("Split", ["pool"], ["half", "y"], {"axis": 1}),
        ("DequantizeLinear", ["half", "s", "signed"], ["float"], {}),
    ]
    x, other = np.ones((2, 3), np.uint8), np.ones((2, 4), np.uint8)
    constants: dict[str, Array] = {"constant": other, "s": scale, "z": point, "signed": np.array(3, np.int8)}
    graph = Graph(load(model_of(nodes, {"x": x}, {"y": np.int8, "float": np.float32}, constants)))
    assert graph.element_type("sum") == graph.element_type("sigmoid") == onnx.TensorProto.UINT8
    assert {graph.element_type(name) for name in ("product", "pool", "half", "y")} == {onnx.TensorProto.INT8}
    assert graph.element_type("float") == onnx.TensorProto.FLOAT
