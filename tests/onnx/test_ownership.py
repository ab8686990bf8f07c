"""Each array that a run returns is the caller's own: no other output, run or feed shares its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import dmlvk
from dmlvk.onnx import InferenceSession
from tests.onnx.models import Array, model_of, require_equal
from tests.reference.onnx_runtime import ONNX_RUNTIME

CONSTANTS = {
    "c": np.arange(1, 13, dtype=np.float32).reshape(3, 4),
    "one": np.array([1]),
    "flat": np.array([12]),
    "own": np.array([3, 4]),
    "first": np.array([0]),
    "all": np.array([100]),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}
# Nodes that may return their input's memory, or a constant's.
VIEWS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "Identity": ("Identity", [], {}),
    "Flatten": ("Flatten", [], {"axis": 1}),
    "Unsqueeze": ("Unsqueeze", ["first"], {}),
    "Reshape": ("Reshape", ["own"], {}),
    "Reshape to a row": ("Reshape", ["flat"], {}),
    "Transpose": ("Transpose", [], {"perm": [0, 1]}),
    "Slice": ("Slice", ["first", "all", "first"], {}),
    "Split": ("Split", [], {"num_outputs": 1, "axis": 0}),
    "Concat": ("Concat", [], {"axis": 0}),
    "Expand": ("Expand", ["own"], {}),
    "Dropout": ("Dropout", [], {}),
    "Cast": ("Cast", [], {"to": 1}),
}


def _models() -> dict[str, onnx.ModelProto]:
    x = np.zeros((3, 4), np.float32)
    made = {}
    for name, (operator, more, attributes) in VIEWS.items():
        for source in ("x", "r", "c"):
            nodes = [("Relu", ["x"], ["r"], {}), (operator, [source, *more], ["v"], attributes)]
            again = (operator, [source, *more], ["w"], attributes)
            outputs = dict.fromkeys(("r", "v", "w"), np.float32)
            made[f"{name} of {source}"] = model_of([*nodes, again], {"x": x}, outputs, CONSTANTS, opset=18)
    for name in ("scalar", "empty"):
        nodes = [("Identity", [name], ["v"], {}), ("Expand", [name, "one"], ["w"], {})]
        if name == "empty":
            nodes[1] = ("Flatten", [name], ["w"], {})
        nodes.append(("Relu", ["x"], ["r"], {}))
        made[name] = model_of(nodes, {"x": x}, dict.fromkeys(("r", "v", "w"), np.float32), CONSTANTS, opset=18)
    straight = model_of([("Relu", ["x"], ["r"], {})], {"x": x}, {"r": np.float32}, CONSTANTS)
    straight.graph.output.extend(
        [helper.make_tensor_value_info("x", 1, None), helper.make_tensor_value_info("c", 1, [3, 4])]
    )
    made["feeds and constants are outputs"] = straight
    node = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(CONSTANTS["c"]))
    straight = model_of([("Relu", ["x"], ["r"], {})], {"x": x}, {"r": np.float32, "k": np.float32})
    straight.graph.node.append(node)
    made["Constant"] = straight
    return made


MODELS = _models()


def wrongs(session: Any, feed: Array, names: list[str]) -> list[str]:
    """What writing into each output of a session's run changes, beside that output."""
    found = []
    for dropped in range(len(names)):
        given = feed.copy()
        expected = session.run(names, {"x": feed.copy()})
        expected = [np.array(array) for array in expected]
        outputs = session.run(names, {"x": given})
        target = outputs[dropped]
        if not target.flags.writeable:
            found.append(f"{names[dropped]} is read-only")
            continue
        target[...] = 77
        others = [k for k in range(len(names)) if k != dropped]
        found += [
            f"{names[k]} changes with {names[dropped]}" for k in others if not np.array_equal(outputs[k], expected[k])
        ]
        if not np.array_equal(given, feed):
            found.append(f"the feed changes with {names[dropped]}")
        later = session.run(names, {"x": feed.copy()})
        if not all(np.array_equal(array, right) for array, right in zip(later, expected, strict=True)):
            found.append(f"a later run changes with {names[dropped]}")
    return found


def _checked(device: str, models: dict[str, bytes], feed: Array) -> tuple[list[str], list[Array], list[Array]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    found, outputs, expected = [], [], []
    with dmlvk.Device(device) as opened:
        for label, model in models.items():
            session = InferenceSession(model, opened)
            names = [described.name for described in session.get_outputs()]
            for asked in (names, [*names, names[0], names[-1]]):
                found += [f"{label}: {wrong}" for wrong in wrongs(session, feed, asked)]
            outputs += session.run(names, {"x": feed})
            expected += onnxruntime.InferenceSession(model, options).run(names, {"x": feed})
    return found, outputs, expected


def test_writing_into_an_output_changes_nothing_else(device: dmlvk.Device) -> None:
    feed = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    models = {name: model.SerializeToString() for name, model in MODELS.items()}
    found, outputs, expected = ONNX_RUNTIME.call("ownership", _checked, device.name, models, feed)
    assert found == []
    require_equal(outputs, expected)


def test_the_same_without_onnx_runtime(device: dmlvk.Device) -> None:
    feed = np.random.default_rng(4).standard_normal((3, 4)).astype(np.float32)
    for label, model in list(MODELS.items())[::4]:
        session = InferenceSession(model, device)
        names = [described.name for described in session.get_outputs()]
        assert wrongs(session, feed, [*names, names[0]]) == [], label


def test_an_array_that_is_the_callers_alone_is_not_copied_again(device: dmlvk.Device) -> None:
    x = np.random.default_rng(5).standard_normal((3, 4)).astype(np.float32)
    model = model_of([("Transpose", ["x"], ["y"], {"perm": [1, 0]})], {"x": x}, {"y": np.float32})
    session = InferenceSession(model, device)
    for _ in range(3):
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, x.T, strict=True)
        assert y.base is None or y.base.base is None
