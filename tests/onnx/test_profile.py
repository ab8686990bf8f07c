"""The times and bytes of a session's steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.profile import StepTimes
from tests.onnx.models import Node, elements, model_of

SHAPE = (6, 5)
BYTES = 4 * 6 * 5


def model() -> Any:
    """A part on the device, one on the host, and one on the device, which also reads a value of the first."""
    nodes: list[Node] = [
        ("Transpose", ["x"], ["t"], {}),
        ("Abs", ["t"], ["a"], {}),
        ("Concat", ["a", "t"], ["c"], {"axis": 0}),
        ("Neg", ["n"], ["m"], {}),
    ]
    inputs = {"x": np.ones(SHAPE, np.float32), "n": np.ones(3, np.float32)}
    return model_of(nodes, inputs, {"c": np.float32, "m": np.float32, "t": np.float32})


def steps_of(device: dmlvk.Device) -> list[StepTimes]:
    session = InferenceSession(model(), device)
    x = elements(np.random.default_rng(0), np.float32, SHAPE)
    feeds = {"x": x, "n": np.arange(3, dtype=np.float32)}
    for _ in range(2):  # the first run plans, and replaces steps that a node refuses
        outputs, profile = session.profiled(feeds)
        for found, expected in zip(outputs, session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, expected, strict=True)
        np.testing.assert_array_equal(outputs[0], np.concatenate([np.abs(x.T), x.T]))
        steps = profile.steps
        parts = [step.seconds + step.to_device_seconds + step.from_device_seconds for step in steps]
        assert min(parts) >= 0
        assert 0 < sum(parts) < profile.seconds
        assert 0 < profile.rest_seconds < profile.seconds
    return steps


def test_each_step_has_its_nodes_and_its_bytes(device: dmlvk.Device) -> None:
    found = [
        (step.where, step.operators, step.nodes, step.bytes_to_device, step.bytes_from_device)
        for step in steps_of(device)
    ]
    assert found == [
        ("host", ("Neg",), 1, 0, 0),
        ("device", ("Transpose",), 1, BYTES, 0),
        ("host", ("Abs",), 1, 0, BYTES),
        # The other input of Concat is on the device already.
        ("device", ("Concat",), 1, BYTES, 0),
        # The host has read t before.
        ("outputs", (), 0, 0, 2 * BYTES),
    ]


def test_times_on_the_gpu_are_those_of_a_device_with_timestamps(device: dmlvk.Device) -> None:
    assert all(step.gpu_seconds is None for step in steps_of(device))
    with dmlvk.Device(device.profile.name, timestamps=True) as own:
        for step in steps_of(own):
            assert (step.gpu_seconds is not None) == (step.where == "device")
            assert step.gpu_seconds is None or 0 < step.gpu_seconds < 60


def test_a_run_without_a_profile_makes_none(device: dmlvk.Device, monkeypatch: Any) -> None:
    monkeypatch.setattr("dmlvk.onnx.session.Profile", None)
    session = InferenceSession(model(), device)
    session.run(None, {"x": np.ones(SHAPE, np.float32), "n": np.ones(3, np.float32)})


def test_a_step_that_a_node_refuses_is_not_counted(device: dmlvk.Device) -> None:
    """The device has no tensors without elements, which only a run shows."""
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    constants = {"begin": np.array([0]), "end": np.array([-4])}
    graph = model_of([("Slice", ["x", "begin", "end"], ["y"], {})], {"x": given}, {"y": np.float32}, constants)
    session = InferenceSession(graph, device)
    for count, where in ((4, "host"), (6, "device")):
        x = elements(np.random.default_rng(count), np.float32, (count, 3))
        (found,), profile = session.profiled({"x": x})
        np.testing.assert_array_equal(found, x[:-4])
        assert [step.where for step in profile.steps] == [where, "outputs"]
