"""Scales whose product leaves the range of float32: such nodes run on the host, with ONNX Runtime's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.convolution import require_exact_scales
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.model_file import load
from dmlvk.onnx.program import ProgramBuilder
from dmlvk.onnx.registry import ENTRIES
from tests.onnx.models import (
    Array,
    Node,
    convolution,
    convolution_parameters,
    elements,
    model_of,
    require_equal,
    weights,
)
from tests.reference.onnx_runtime import ONNX_RUNTIME

# x_scale, w_scale, y_scale, and whether the device may run them.
SCALES: dict[str, tuple[Any, Any, Any, bool]] = {
    "usual": (0.01, 0.02, 0.05, True),
    "large, and a usual product": (1e20, 1e-20, 1.0, True),
    "a product that overflows": (1e30, 1e5, 1e-10, False),
    "a quotient that overflows": (1e10, 1e10, 1e-20, False),
    "a product that overflows, and a quotient that would not": (1e30, 1e20, 1e30, False),
    "a product that is 0": (1e-30, 1e-30, 1e-30, False),
    "a denormal product": (1e-20, 1e-20, 1e-38, False),
    "a quotient that is 0": (1e-20, 1e-10, 1e30, False),
    "a scale of 0": (0.01, 0.0, 0.05, False),
    "infinity": (np.inf, 0.01, 0.05, False),
    "NaN": (0.01, 0.01, np.nan, False),
    "negative": (-0.01, 0.02, 0.05, True),
    "one channel": (1e30, [1e-30, 1e10, 1e-30], 1.0, False),
    "one channel of 0": (0.01, [0.02, 0.02, 0.0], 0.05, False),
    "channels": (0.01, [0.02, 0.03, 0.01], 0.05, True),
}


def _model(scales: tuple[Any, Any, Any], constant: bool, kind: str) -> tuple[bytes, dict[str, Array]]:
    """A model, and feeds whose sums are 0, positive and negative."""
    generator = np.random.default_rng(len(kind))
    x_scale, w_scale, y_scale = (np.array(scale, np.float32) for scale in scales)
    parameters = convolution_parameters(generator, (3, 2, 1, 1), bias=False)
    parameters |= {"x_scale": x_scale, "w_scale": w_scale, "y_scale": y_scale}
    parameters["w_zero"] = np.zeros(w_scale.shape, np.int8)
    if kind == "QLinearConv":
        node: Node = convolution(parameters)
        shape: tuple[int, ...] = (1, 2, 3, 5)
    else:
        parameters["w"], shape = weights(generator, np.int8, (2, 3)), (7, 2)
        names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"]
        if kind == "com.microsoft.QGemm":
            names.insert(6, "")
        node = (kind, names, ["y"], {})
    x = elements(generator, np.uint8, shape)
    x[:1] = parameters["x_zero"]
    feeds = {"x": x}
    constants = dict(parameters)
    if not constant:
        feeds |= {name: constants.pop(name) for name in ("x_scale", "w_scale", "y_scale")}
    model: bytes = model_of([node], feeds, {"y": np.uint8}, constants).SerializeToString()
    return model, feeds


def _answers(device: str, cases: list[tuple[bytes, dict[str, Array]]]) -> list[tuple[list[Array], list[Array], str]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    found = []
    with dmlvk.Device(device) as opened:
        for model, feeds in cases:
            right = onnxruntime.InferenceSession(model, options).run(None, feeds)
            session = InferenceSession(model, opened, placement="device")
            first, again = session.run(None, feeds), session.run(None, feeds)
            found.append((first + again, right + right, session.placement[0].where))
    return found


@pytest.mark.parametrize("kind", ["QLinearConv", "QLinearMatMul", "com.microsoft.QGemm"])
def test_bits_are_onnx_runtimes(device: dmlvk.Device, kind: str) -> None:
    """With the scales as constants, and as inputs that only a run knows."""
    names = [(name, constant) for name in SCALES for constant in (True, False)]
    cases = [_model(SCALES[name][:3], constant, kind) for name, constant in names]
    answers = ONNX_RUNTIME.call("scales", _answers, device.name, cases)
    for (name, constant), (found, right, place) in zip(names, answers, strict=True):
        for outputs, expected in zip(found, right, strict=True):
            np.testing.assert_array_equal(outputs, expected, strict=True, err_msg=f"{name}, {constant}")
        assert place == ("device" if SCALES[name][3] else "host"), (name, constant)


@pytest.mark.parametrize("kind", ["QLinearConv", "QLinearMatMul", "com.microsoft.QGemm"])
def test_a_denormal_product_of_constants(device: dmlvk.Device, kind: str) -> None:
    """The device is given the total, which is a usual number; scales that only a run knows are the host's."""
    triples: list[tuple[Any, Any, Any]] = [
        (1e-20, 1e-20, 2e-38),
        (1e-20, [3e-20, 1e-20, 1e-18], 2e-38),
        (1.2e-38, 0.1, 1e-3),  # as quantizers make them of a branch of zeros
        (-1e-20, 2e-20, 2e-38),
        (0.03, [0.002, 2.5e-38, 0.001], 0.7),  # and of a channel of zeros
    ]
    cases = [(triple, constant) for triple in triples for constant in (True, False)]
    models = [_model(triple, constant, kind) for triple, constant in cases]
    answers = ONNX_RUNTIME.call("scales", _answers, device.name, models)
    for case, (found, right, place) in zip(cases, answers, strict=True):
        for outputs, expected in zip(found, right, strict=True):
            np.testing.assert_array_equal(outputs, expected, strict=True, err_msg=f"{case}")
        assert place == ("device" if case[1] else "host"), case


def test_a_denormal_product_is_given_as_its_total() -> None:
    """A GPU may take a denormal for 0."""
    model, feeds = _model((1.2e-38, 0.1, 1e-3), True, "QLinearConv")
    graph = Graph(load(model))
    builder = ProgramBuilder(graph, {"x": (feeds["x"].shape, feeds["x"].dtype)}, {}, ())
    builder.plan(ENTRIES["", "QLinearConv"].plan, graph.nodes[0])
    owned = builder.program.operations[0].owned
    assert owned["input_scale_tensor"] == owned["output_scale_tensor"] == 1
    total = np.float32(1.2e-38) * np.float32(0.1) / np.float32(1e-3)
    np.testing.assert_array_equal(owned["filter_scale_tensor"], [total])


@pytest.mark.parametrize("name", SCALES)
def test_each_step_of_the_product_is_looked_at(name: str) -> None:
    *scales, is_exact = SCALES[name]
    arrays = [np.array(scale, np.float32) for scale in scales]
    if is_exact:
        require_exact_scales(arrays)
    else:
        with pytest.raises(NotOnDeviceError, match="scale is"):
            require_exact_scales(arrays)


def test_scales_that_change_between_runs(device: dmlvk.Device) -> None:
    """The first run's are usual, so the node was planned for the device."""
    model, feeds = _model((0.01, 0.02, 0.05), False, "QLinearConv")
    unusual = feeds | {"x_scale": np.array(1e30, np.float32), "w_scale": np.array(1e20, np.float32)}
    for found, right in ONNX_RUNTIME.call("scales", _changing, device.name, model, [feeds, unusual, feeds]):
        require_equal(found, right)


def _changing(device: str, model: bytes, runs: list[dict[str, Array]]) -> list[tuple[list[Array], list[Array]]]:
    import onnxruntime

    right = onnxruntime.InferenceSession(model)
    with dmlvk.Device(device) as opened:
        session = InferenceSession(model, opened, placement="device")
        return [(session.run(None, feeds), right.run(None, feeds)) for feeds in runs]
