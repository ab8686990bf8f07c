"""Nodes that move elements, write patterns or are views, at several versions of their operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession
from tests.onnx.models import Node, elements, model_of, onnx_runtime, require_equal
from tests.onnx.random_networks import runs
from tests.reference.onnx_runtime import ONNX_RUNTIME

Case = tuple[str, tuple[int, ...], dict[str, Any], dict[str, Any], int, int, str]
# Operator, shape of x, attributes, further inputs, number of outputs, version, and where it runs.
CASES: dict[str, Case] = {
    "slice by attributes": ("Slice", (4, 7), {"starts": [1, -4], "ends": [9, -1], "axes": [0, 1]}, {}, 1, 9, "device"),
    "slice": ("Slice", (4, 9), {}, {"s": [3, -1], "e": [0, -9], "a": [0, 1], "t": [-2, -3]}, 1, 13, "device"),
    "slice to the front": ("Slice", (5, 3), {}, {"s": [9], "e": [-(2**63)], "a": [0], "t": [-1]}, 1, 13, "device"),
    "slice of one": ("Slice", (5, 3), {}, {"s": [1], "e": [2**63 - 1], "a": [0], "t": [2**40]}, 1, 13, "device"),
    "slice of all": ("Slice", (5, 3), {}, {"s": [0], "e": [5]}, 1, 13, "device"),
    "empty slice": ("Slice", (5, 3), {}, {"s": [3], "e": [3]}, 1, 13, "host"),
    "split": ("Split", (2, 7, 3), {"axis": 1}, {"parts": [3, 1, 3]}, 3, 13, "device"),
    "split by attribute": ("Split", (7, 2), {"split": [5, 2]}, {}, 2, 11, "device"),
    "equal split": ("Split", (2, 9), {"axis": -1}, {}, 3, 13, "device"),
    "uneven split": ("Split", (7, 2), {"num_outputs": 3}, {}, 3, 18, "device"),
    "concat": ("Concat", (2, 3, 5), {"axis": 1}, {"c": [[[1, 2, 3, 4, 5]], [[6, 7, 8, 9, 10]]]}, 1, 13, "device"),
    "concat of blocks": ("Concat", (4, 16), {"axis": 0}, {"c": [[*range(16)]]}, 1, 13, "device"),
    "concat of a line": ("Concat", (5,), {"axis": -1}, {"c": [7]}, 1, 4, "device"),
    "transpose": ("Transpose", (2, 3, 4, 5), {"perm": [0, 3, 1, 2]}, {}, 1, 13, "device"),
    "reversed transpose": ("Transpose", (3, 1, 5), {}, {}, 1, 13, "device"),
    "transpose of one line": ("Transpose", (1, 5, 1), {"perm": [1, 2, 0]}, {}, 1, 13, "device"),
    "gather": ("Gather", (2, 12, 3), {"axis": 1}, {"indices": [[0, 1, 2, 6], [7, 8, -1, -3]]}, 1, 13, "device"),
    "gather of one": ("Gather", (2, 5, 3), {"axis": -2}, {"indices": -2}, 1, 13, "device"),
    "gather of the same": ("Gather", (3, 4), {}, {"indices": [2, 2, 1, 0]}, 1, 13, "device"),
    "gather of odd ones": ("Gather", (99, 2), {}, {"indices": [k * k for k in range(9)] * 4}, 1, 13, "host"),
    "pad": ("Pad", (2, 3, 4, 5), {}, {"pads": [0, 0, 1, 3, 0, 1, 2, 0]}, 1, 13, "device"),
    "pad by attributes": ("Pad", (3, 5), {"pads": [2, 0, 0, 17], "value": 1.5}, {}, 1, 2, "device"),
    "pad with a value": ("Pad", (7,), {}, {"pads": [4, 1], "value": 3}, 1, 11, "device"),
    "pad some axes": ("Pad", (2, 3, 4), {}, {"pads": [1, 2, 3, 0], "value": 9, "axes": [-1, 0]}, 1, 18, "device"),
    "pad of less than nothing": ("Pad", (5, 6), {}, {"pads": [-1, 2, -2, -3]}, 1, 13, "device"),
    "pad by reflection": ("Pad", (2, 4, 6), {"mode": "reflect"}, {"pads": [0, 3, 1, 0, 2, 5]}, 1, 13, "device"),
    "pad by edges": ("Pad", (3, 6), {"mode": "edge"}, {"pads": [2, 0, 0, 4]}, 1, 13, "device"),
    "pad by the other end": ("Pad", (3, 6), {"mode": "wrap"}, {"pads": [2, 1, 0, 4]}, 1, 19, "device"),
    "pad by many edges": ("Pad", (3, 6), {"mode": "edge"}, {"pads": [0, 9, 0, 9]}, 1, 13, "host"),
    "expand": ("Expand", (3, 1), {}, {"sizes": [2, 1, 4]}, 1, 13, "device"),
    "depth to space": ("DepthToSpace", (2, 12, 2, 3), {"blocksize": 2}, {}, 1, 13, "device"),
    "depth to space, crd": ("DepthToSpace", (1, 8, 2, 3), {"blocksize": 2, "mode": "CRD"}, {}, 1, 13, "device"),
    "space to depth": ("SpaceToDepth", (2, 3, 4, 6), {"blocksize": 2}, {}, 1, 13, "device"),
    "upper": ("Trilu", (2, 4, 5), {}, {"k": [1]}, 1, 14, "device"),
    "lower": ("Trilu", (2, 2, 3, 4, 5), {"upper": 0}, {"k": [-1]}, 1, 14, "device"),
    "eye": ("EyeLike", (4, 6), {"k": -2}, {}, 1, 9, "device"),
    "reshape": ("Reshape", (2, 3, 4), {}, {"shape": [0, -1, 2]}, 1, 13, "view"),
    "flatten": ("Flatten", (2, 3, 4), {"axis": -1}, {}, 1, 13, "view"),
    "flatten to a row": ("Flatten", (2, 3), {"axis": 0}, {}, 1, 9, "view"),
    "squeeze": ("Squeeze", (1, 3, 1), {}, {"axes": [-1]}, 1, 13, "view"),
    "squeeze by attribute": ("Squeeze", (1, 3, 1), {"axes": [0]}, {}, 1, 11, "view"),
    "squeeze all": ("Squeeze", (1, 1), {}, {}, 1, 13, "view"),
    "unsqueeze": ("Unsqueeze", (3,), {}, {"axes": [0, -1]}, 1, 13, "view"),
    "unsqueeze by attribute": ("Unsqueeze", (3, 2), {"axes": [1]}, {}, 1, 11, "view"),
    "identity": ("Identity", (), {}, {}, 1, 13, "view"),
}


@pytest.mark.half_by_day
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("name", CASES)
def test_nodes(device: dmlvk.Device, name: str, dtype: Any) -> None:
    operator, shape, attributes, further, count, opset, where = CASES[name]
    if operator == "Trilu" and dtype == np.uint8:
        dtype = np.int32  # which ONNX Runtime has
    if ("Space" in operator and dtype == np.int64) or (opset == 2 and dtype != np.float32):
        dtype = np.float64
    if operator == "EyeLike" and dtype == np.uint8:
        dtype = np.float64
    x = elements(np.random.default_rng(len(name)), dtype, shape)
    outputs = {f"y{k}": dtype for k in range(count)}
    constants = {key: np.array(values, dtype if key in ("c", "value") else np.int64) for key, values in further.items()}
    constants |= {key: constants[key].reshape(()) for key in ("k", "value") if key in constants}
    model = model_of(
        [(operator, ["x", *constants], list(outputs), attributes)], {"x": x}, outputs, constants, opset=opset
    )
    session = InferenceSession(model, device)
    for _ in range(2):
        require_equal(session.run(None, {"x": x}), onnx_runtime(model, {"x": x}))
    (row,) = session.placement
    assert row.where == where, row


@pytest.mark.parametrize("opset", [9, 11])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(device: dmlvk.Device, axis: int, opset: int) -> None:
    indices = np.array([[0, 3, -1], [-5, 4, 2**33 + 1]], np.int64)
    constants: dict[str, np.ndarray] = {"depth": np.array(4, np.int64), "values": np.array([-2.5, 7], np.float32)}
    node = ("OneHot", ["x", "depth", "values"], ["y"], {"axis": axis})
    model = model_of([node], {"x": indices}, {"y": np.float32}, constants, opset=opset)
    session = InferenceSession(model, device)
    require_equal(session.run(None, {"x": indices}), onnx_runtime(model, {"x": indices}))
    assert [row.where for row in session.placement] == ["device"]


def test_elements_keep_their_bits(device: dmlvk.Device) -> None:
    bits = np.random.default_rng(3).integers(0, 2**32, (33, 17), np.uint32)
    bits[0, :3] = [0x7F800001, 0x80000000, 1]  # a NaN with a payload, -0.0, a denormal
    model = model_of([("Transpose", ["x"], ["y"], {})], {"x": bits.view(np.float32)}, {"y": np.float32})
    (found,) = InferenceSession(model, device).run(None, {"x": bits.view(np.float32)})
    np.testing.assert_array_equal(found.view(np.uint32), bits.T)


def test_bool(device: dmlvk.Device) -> None:
    x = elements(np.random.default_rng(4), bool, (5, 7))
    model = model_of([("Trilu", ["x"], ["t"], {}), ("Transpose", ["t"], ["y"], {})], {"x": x}, {"y": bool}, opset=14)
    require_equal(InferenceSession(model, device).run(None, {"x": x}), [np.triu(x).T])


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_sizes_that_a_run_computes(device: dmlvk.Device, dtype: Any) -> None:
    """The sizes of a Reshape come from the host's arithmetic on the sizes of another value."""
    x = elements(np.random.default_rng(5), dtype, (6, 4))
    nodes: list[Node] = [
        ("Shape", ["like"], ["sizes"], {}),
        ("Gather", ["sizes", "order"], ["turned"], {}),
        ("Transpose", ["x"], ["moved"], {}),
        ("Reshape", ["moved", "turned"], ["y"], {}),
    ]
    given = onnx.helper.make_tensor_value_info("like", onnx.TensorProto.FLOAT, ["a", "b"])
    model = model_of(nodes, {"x": x, "like": given}, {"y": dtype}, {"order": np.array([1, 0])})
    session = InferenceSession(model, device)
    for shape in ((3, 8), (2, 12), (3, 8)):
        require_equal(session.run(None, {"x": x, "like": np.ones(shape, np.float32)}), [x.T.reshape(shape[::-1])])
    assert [row.where for row in session.placement][2:] == ["device", "view"]


def test_a_window_that_a_run_gives(device: dmlvk.Device) -> None:
    """Other values of the same sizes are another window."""
    x = elements(np.random.default_rng(7), np.float32, (6, 40))
    nodes: list[Node] = [("Slice", ["x", "start", "end"], ["y"], {})]
    window = {"start": np.array([1, 2]), "end": np.array([4, 30])}
    session = InferenceSession(model_of(nodes, {"x": x, **window}, {"y": np.float32}), device)
    for start, end in (((1, 2), (4, 30)), ((0, 2), (3, 30)), ((1, 2), (4, 30)), ((5, 5), (5, 9))):
        feeds = {"x": x, "start": np.array(start), "end": np.array(end)}
        require_equal(session.run(None, feeds), [x[start[0] : end[0], start[1] : end[1]]])
        # The last window is empty, which only the host has. The schedule of these sizes stays there.
        assert session.placement[0].where == ("device" if start[0] < end[0] else "host")


def test_memory_is_shared_by_lifetime(device: dmlvk.Device) -> None:
    """A long chain takes the memory of two values, and values that are still needed keep theirs."""
    x = elements(np.random.default_rng(6), np.float32, (32, 48))
    nodes: list[Node] = [("Trilu", ["x" if k == 0 else f"v{k}", f"k{k}"], [f"v{k + 1}"], {}) for k in range(9)]
    diagonals = {f"k{k}": np.array(k - 20) for k in range(9)}
    model = model_of(nodes, {"x": x}, {"v2": np.float32, "v9": np.float32}, diagonals)
    session = InferenceSession(model, device)
    for _ in range(2):
        require_equal(session.run(None, {"x": x}), [np.triu(x, -19), np.triu(x, -12)])
    assert session.memory.peak <= 4 * x.nbytes
    assert session.memory.sum == 10 * x.nbytes


def test_a_size_of_0_that_is_meant_is_not_kept(device: dmlvk.Device) -> None:
    """Reshape with allowzero: ONNX Runtime refuses it, since no element is left."""
    x = elements(np.random.default_rng(6), np.float32, (2, 3, 4))
    node = ("Reshape", ["x", "sizes"], ["y"], {"allowzero": 1})
    model = model_of([node], {"x": x}, {"y": np.float32}, {"sizes": np.array([0, 3, 4])}, opset=14)
    (refused,) = ONNX_RUNTIME.call("networks", runs, model, [{"x": x}], device.name)
    assert "ONNX Runtime cannot run the node 'node_0' (Reshape)" in refused
