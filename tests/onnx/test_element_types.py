"""Elements of types that NumPy lacks, and text: between parts, as constants, as inputs and outputs, and in checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.checking import check, check_values
from dmlvk.onnx.random_feeds import random_batch
from tests.onnx.models import Array
from tests.reference.onnx_runtime import ONNX_RUNTIME

FLOATS = ("BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
INTEGERS = ("INT4", "UINT4", "INT2", "UINT2")
X = np.array([[1.25, -2, 0.5], [3, 0, 1.75]], np.float32)


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name)))


def _model(nodes: list[Any], inputs: dict[str, int], outputs: dict[str, int], constants: dict[str, Array]) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(operator, read, written, **more) for operator, read, written, more in nodes],
        "types",
        [helper.make_tensor_value_info(name, element, [2, 3]) for name, element in inputs.items()],
        [helper.make_tensor_value_info(name, element, None) for name, element in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    content: bytes = model.SerializeToString()
    return content


def _models() -> dict[str, bytes]:
    """A Slice of the device between nodes of the host makes parts, between which values of the types pass."""
    made = {}
    for name in (*FLOATS, *INTEGERS):
        element, dtype = getattr(TensorProto, name), _dtype(name)
        constants: dict[str, Array] = {
            "c": np.array([[1, 1, 0], [1, 0, 1]], np.int8).astype(dtype),
            "s": np.array(0.5, np.float32),
            "z": np.zeros((), np.int8).astype(dtype),
            "shape": np.array([3, 2]),
            **{key: np.array([value]) for key, value in (("b", 9), ("e", -9), ("a", 1), ("t", -1))},
        }
        is_quantized = name != "BFLOAT16"
        to = ("QuantizeLinear", ["x", "s", "z"], ["k"], {}) if is_quantized else ("Cast", ["x"], ["k"], {"to": element})
        slice_: list[Any] = [("Abs", ["x"], ["h"], {}), ("Slice", ["h", "b", "e", "a", "t"], ["r"], {})]
        # The scale of the second part comes from the device, so that the second part cannot be one with the first.
        scale: list[Any] = [("ReduceMax", ["r"], ["m"], {"keepdims": 0})]
        back: Any = ("DequantizeLinear", ["k", "m"], ["y"], {})
        if not is_quantized:
            scale = [("Shape", ["r"], ["n"], {}), ("Reshape", ["k", "n"], ["l"], {})]
            back = ("Cast", ["l"], ["y"], {"to": 1})
        made[f"{name} between parts"] = _model([to, *slice_, *scale, back], {"x": 1}, {"y": 1}, constants)
        mid: list[Any] = [("Identity", [], {}), ("Transpose", [], {"perm": [1, 0]})]
        mid += [("Reshape", ["shape"], {})] if name in FLOATS else []
        for operator, more, attributes in mid:
            nodes: list[Any] = [
                (operator, ["c", *more], ["k"], attributes),
                ("DequantizeLinear", ["k", "s"], ["y"], {}) if is_quantized else ("Cast", ["k"], ["y"], {"to": 1}),
                ("Relu", ["x"], ["other"], {}),
            ]
            made[f"{name} constant through {operator}"] = _model(nodes, {"x": 1}, {"y": 1, "other": 1}, constants)
        made[f"{name} as an output"] = _model([to, *slice_], {"x": 1}, {"k": element, "r": 1}, constants)
        nodes = [("Transpose", ["k"], ["l"], {"perm": [1, 0]}), ("Cast", ["l"], ["y"], {"to": 1})]
        made[f"{name} as an input"] = _model(nodes, {"k": element}, {"y": 1}, {})
    nodes = [("Identity", ["k"], ["l"], {}), ("Transpose", ["l"], ["m"], {"perm": [1, 0]}), *slice_]
    made["text"] = _model(nodes, {"k": TensorProto.STRING, "x": 1}, {"m": TensorProto.STRING, "r": 1}, constants)
    return made


MODELS = _models()


def _feeds(model: bytes) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for value in onnx.load_model_from_string(model).graph.input:
        element = value.type.tensor_type.elem_type
        if element == TensorProto.STRING:
            feeds[value.name] = np.array([["a", "bc", ""], ["d", "é", "f"]], object)
        elif element == TensorProto.FLOAT:
            feeds[value.name] = X
        else:
            feeds[value.name] = np.abs(X).astype(helper.tensor_dtype_to_np_dtype(element))
    return feeds


def _as_plain(arrays: list[Array]) -> list[Array]:
    """Of types that pickle and NumPy know: bits."""
    return [array.view(f"u{array.itemsize}") if array.dtype.isbuiltin == 2 else array for array in arrays]


def _answers(device: str) -> dict[str, tuple[Any, ...]]:
    import onnxruntime

    from dmlvk.onnx.host import from_ort_value, ort_value

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    found = {}
    with dmlvk.Device(device) as opened:
        for name, model in MODELS.items():
            session, feeds = InferenceSession(model, opened, placement="device"), _feeds(model)
            outputs = session.run(None, feeds)
            oracle = onnxruntime.InferenceSession(model, options)
            if "text" in name:
                right = oracle.run(None, feeds)
            else:
                values = {key: ort_value(feed) for key, feed in feeds.items()}
                right = [from_ort_value(value) for value in oracle.run_with_ort_values(None, values)]
            findings = [*check(session, feeds), *check_values(session, feeds)]
            wrong = [finding for finding in findings if finding.is_equal is not True]
            dtypes = [[array.dtype.name for array in arrays] for arrays in (outputs, right)]
            found[name] = (_as_plain(outputs), _as_plain(right), dtypes, wrong, len(findings))
    return found


def test_values_are_onnx_runtimes_and_can_be_checked(device: dmlvk.Device) -> None:
    for name, (outputs, right, dtypes, wrong, count) in ONNX_RUNTIME.call("types", _answers, device.name).items():
        for found, expected in zip(outputs, right, strict=True):
            np.testing.assert_array_equal(found, expected, strict=True, err_msg=name)
        assert dtypes[0] == dtypes[1], name
        assert wrong == [] and (count or "constant" in name), name


def _float8(device: str) -> Array:
    constants: dict[str, Array] = {"c": np.array(1.25, _dtype("FLOAT8E4M3FN")), "s": np.array(0.5, np.float32)}
    nodes: list[Any] = [
        ("Identity", ["c"], ["k"], {}),
        ("DequantizeLinear", ["k", "s"], ["y"], {}),
        ("Relu", ["x"], ["r"], {}),
    ]
    session = InferenceSession(_model(nodes, {"x": 1}, {"y": 1, "r": 1}, constants), device)
    result: Array = session.run(["y"], {"x": X})[0]
    return result


def test_a_constant_of_8_bits_keeps_its_value(device: dmlvk.Device) -> None:
    np.testing.assert_array_equal(
        ONNX_RUNTIME.call("float8", _float8, device.name), np.array(0.625, np.float32), strict=True
    )


def test_random_inputs(device: dmlvk.Device) -> None:
    for name in (*FLOATS, *INTEGERS, "FLOAT4E2M1"):
        nodes: list[Any] = [("Identity", ["k"], ["y"], {})]
        element = getattr(TensorProto, name)
        session = InferenceSession(_model(nodes, {"k": element}, {"y": element}, {}), device)
        feed = random_batch(np.random.default_rng(7), session.get_inputs(), None)
        assert feed["k"].dtype == _dtype(name) and len(set(feed["k"].astype(np.float32).reshape(-1))) > 1
        (y,) = session.run(None, feed)
        np.testing.assert_array_equal(_as_plain([y])[0], _as_plain([feed["k"]])[0], strict=True)
        assert not np.shares_memory(y, feed["k"])
