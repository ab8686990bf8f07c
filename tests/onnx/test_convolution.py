"""QLinearConv and products of matrices run on the device with the bits of ONNX Runtime."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession, ModelError
from dmlvk.onnx.program import ProgramBuilder
from tests.onnx.models import (
    Node,
    convolution,
    convolution_parameters,
    convolved,
    elements,
    model_of,
    onnx_runtime,
    require_equal,
)

GEOMETRIES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ((2, 3, 9, 8), (5, 3, 3, 3), {"pads": [1, 0, 2, 1]}),
    "strided and dilated": ((1, 4, 13, 11), (3, 4, 3, 2), {"strides": [2, 3], "dilations": [2, 1], "pads": [2] * 4}),
    "groups": ((2, 6, 7, 7), (4, 3, 3, 3), {"group": 2, "kernel_shape": [3, 3]}),
    "depthwise": ((1, 8, 10, 9), (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}),
    "one tap": ((2, 16, 5, 5), (8, 16, 1, 1), {}),
    "one dimension": ((2, 3, 19), (4, 3, 5), {"pads": [2, 1], "strides": [2]}),
    "same upper": ((1, 3, 10, 7), (4, 3, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 3, 10, 7), (4, 3, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "valid": ((1, 3, 10, 7), (4, 3, 4, 3), {"auto_pad": "VALID"}),
}


def places(session: InferenceSession) -> list[str]:
    return [row.where for row in session.placement]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometries(device: dmlvk.Device, name: str, per_channel: bool) -> None:
    shape, filter_shape, attributes = GEOMETRIES[name]
    generator = np.random.default_rng(len(name))
    parameters = convolution_parameters(generator, filter_shape, per_channel=per_channel, bias=name != "one tap")
    x = elements(generator, np.uint8, shape)
    model = model_of([convolution(parameters, **attributes)], {"x": x}, {"y": np.uint8}, parameters)
    session = InferenceSession(model, device)
    found = session.run(None, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert places(session) == ["device"]
    assert np.unique(found[0]).size > 20  # neither clamped nor constant


@pytest.mark.parametrize("output", [np.int8, np.uint8])
@pytest.mark.parametrize("filter", [np.int8, np.uint8])
@pytest.mark.parametrize("input", [np.int8, np.uint8])
def test_all_mixes_of_types(device: dmlvk.Device, input: Any, filter: Any, output: Any) -> None:
    """ONNX Runtime lacks some of the mixes."""
    generator = np.random.default_rng(7)
    parameters = convolution_parameters(generator, (4, 2, 3, 3), (input, filter, output), per_channel=True)
    x = elements(generator, input, (1, 4, 9, 9))
    node = convolution(parameters, group=2, pads=[1, 2, 0, 1], strides=[1, 2])
    session = InferenceSession(model_of([node], {"x": x}, {"y": output}, parameters), device)
    require_equal(session.run(None, {"x": x}), [convolved(x, parameters, (1, 2, 0, 1), (1, 2), 2)])
    assert places(session) == ["device"]


@pytest.mark.parametrize("filter", [np.int8, np.uint8])
@pytest.mark.parametrize(("points", "is_kept"), [((0, 0, 0, 0), False), ((0, 0, 3, 0), True)])
def test_filter_zero_points_of_0_are_left_out(
    device: dmlvk.Device, points: tuple[int, ...], is_kept: bool, filter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX requires them, and DirectML does not."""
    generator = np.random.default_rng(10)
    parameters = convolution_parameters(generator, (4, 2, 3, 3), (np.uint8, filter, np.uint8), per_channel=True)
    parameters["w_zero"] = np.array(points, filter)
    x = elements(generator, np.uint8, (1, 4, 9, 9))
    described: list[dmlvk.QuantizedLinearConvolutionDesc] = []
    dispatch = ProgramBuilder.dispatch

    def noted(self: ProgramBuilder, desc: Any, *arguments: Any) -> None:
        described.append(desc)
        dispatch(self, desc, *arguments)

    monkeypatch.setattr(ProgramBuilder, "dispatch", noted)
    model = model_of([convolution(parameters, group=2)], {"x": x}, {"y": np.uint8}, parameters)
    require_equal(InferenceSession(model, device).run(None, {"x": x}), [convolved(x, parameters, (0,) * 4, (1, 1), 2)])
    assert described and all((desc.filter_zero_point_tensor is not None) == is_kept for desc in described)


def test_parameters_that_a_run_gives(device: dmlvk.Device) -> None:
    generator = np.random.default_rng(8)
    parameters = convolution_parameters(generator, (4, 3, 3, 3), per_channel=True)
    feeds = {"x": elements(generator, np.uint8, (1, 3, 6, 6)), **parameters}
    feeds = {name: feeds[name] for name in ("x", *parameters)}
    session = InferenceSession(model_of([convolution(parameters)], feeds, {"y": np.uint8}), device)
    for _ in range(2):
        feeds["w"] = elements(generator, np.int8, (4, 3, 3, 3))
        require_equal(session.run(None, feeds), [convolved(feeds["x"], feeds, (0,) * 4, (1, 1))])
    assert places(session) == ["device"]


def test_several_convolutions_at_several_sizes(device: dmlvk.Device) -> None:
    generator = np.random.default_rng(9)
    nodes: list[Node] = []
    constants: dict[str, np.ndarray] = {}
    names = ["x", "a", "b", "y"]
    for k, filter_shape in enumerate([(8, 3, 3, 3), (8, 1, 3, 3), (5, 8, 1, 1)]):
        made = convolution_parameters(generator, filter_shape, per_channel=k == 1)
        renamed = {name: f"{name}_{k}" for name in made}
        group = 8 if k == 1 else 1
        operator, read, _, _ = convolution(made, names[k])
        nodes.append((operator, [read[0], *map(renamed.__getitem__, read[1:])], [names[k + 1]], {"group": group}))
        constants |= {renamed[name]: array for name, array in made.items()}
    dimensions = ["n", 3, "h", "w"]
    given = value_info("x", np.uint8, dimensions)
    outputs = {"y": np.uint8, "a": np.uint8, "b": np.uint8}
    session = InferenceSession(model_of(nodes, {"x": given}, outputs, constants), device)
    for sizes in [(1, 3, 9, 8), (3, 3, 5, 7), (1, 3, 9, 8)]:
        x = elements(generator, np.uint8, sizes)
        require_equal(
            session.run(None, {"x": x}), onnx_runtime(model_of(nodes, {"x": given}, outputs, constants), {"x": x})
        )


def value_info(name: str, dtype: Any, dimensions: list[Any]) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dimensions)


def test_channels_last(device: dmlvk.Device) -> None:
    generator = np.random.default_rng(10)
    parameters = convolution_parameters(generator, (6, 4, 3, 3), per_channel=True)
    x = elements(generator, np.uint8, (2, 9, 7, 4))
    operator, read, written, _ = convolution(parameters)
    node = (f"com.microsoft.{operator}", read, written, {"channels_last": 1, "pads": [1, 1, 1, 1], "strides": [2, 1]})
    model = model_of([node], {"x": x}, {"y": np.uint8}, parameters)
    session = InferenceSession(model, device)
    require_equal(session.run(None, {"x": x}), onnx_runtime(model, {"x": x}))
    assert places(session) == ["device"]


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24), (24,)])
def test_products_with_a_constant_matrix(device: dmlvk.Device, shape: tuple[int, ...], per_column: bool) -> None:
    generator = np.random.default_rng(11)
    made = convolution_parameters(generator, (10, 24, 1, 1), per_channel=per_column, bias=False)
    constants = {**made, "w": np.ascontiguousarray(made["w"].reshape(10, 24).T)}
    x = elements(generator, np.uint8, shape)
    model = model_of([("QLinearMatMul", ["x", *constants], ["y"], {})], {"x": x}, {"y": np.uint8}, constants)
    session = InferenceSession(model, device)
    found = session.run(None, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert places(session) == ["device"]
    assert np.unique(found[0]).size > min(15, found[0].size - 1)


# Of every way in which the matrices of two operands can be one, the same number, or broadcast.
TWO_VALUES = (
    *(((5, 24), (24, 7)), ((2, 3, 5, 24), (2, 3, 24, 7)), ((2, 3, 5, 24), (24, 7)), ((5, 24), (2, 3, 24, 7))),
    *(((2, 1, 5, 24), (1, 3, 24, 7)), ((3, 5, 24), (2, 3, 24, 7)), ((2, 3, 5, 24), (1, 1, 24, 7))),
    *(((4, 1, 24), (4, 24, 1)), ((24,), (24, 7)), ((5, 24), (24,)), ((24,), (2, 24, 7)), ((2, 5, 24), (24,))),
    *(((24,), (24,)), ((1, 5, 1), (1, 1, 7))),
)


@pytest.mark.parametrize("constant", [None, "a", "b"])
@pytest.mark.parametrize("shapes", TWO_VALUES, ids=str)
def test_products_of_two_values(device: dmlvk.Device, shapes: tuple[Any, Any], constant: str | None) -> None:
    """Each of two operands may be known before the run or not; scales and zero points of both count."""
    generator = np.random.default_rng(13)
    a, b = (elements(generator, np.uint8, shape) for shape in shapes)
    scales = {"a_scale": 0.02, "b_scale": 0.03, "y_scale": 0.07 * a.shape[-1] ** 0.5}
    zeros = {"a_zero": 131, "b_zero": 90, "y_zero": 125}
    constants = {name: np.array(scale, np.float32) for name, scale in scales.items()}
    constants |= {name: np.array(zero, np.uint8) for name, zero in zeros.items()}
    inputs = {"a": a, "b": b}
    if constant is not None:
        constants[constant] = inputs.pop(constant)
    reads = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
    model = model_of([("QLinearMatMul", reads, ["y"], {})], inputs, {"y": np.uint8}, constants)
    session = InferenceSession(model, device)
    (found,) = session.run(None, inputs)
    require_equal([found], onnx_runtime(model, inputs))
    assert places(session) == ["device"]
    assert found.size < 20 or np.unique(found).size > 12


def test_operands_that_do_not_fit(device: dmlvk.Device) -> None:
    """Shapes that only a run knows, and that no product has: the host's library says so."""
    reads = ["a", "scale", "zero", "b", "scale", "zero", "scale", "zero"]
    constants: dict[str, Any] = {"scale": np.array(1, np.float32), "zero": np.array(0, np.uint8)}
    described = {name: value_info(name, np.uint8, [None, None]) for name in ("a", "b")}
    model = model_of([("QLinearMatMul", reads, ["y"], {})], described, {"y": np.uint8}, constants)
    session = InferenceSession(model, device)
    with pytest.raises(ModelError, match="dimension"):
        session.run(None, {"a": np.ones((2, 3), np.uint8), "b": np.ones((4, 5), np.uint8)})


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", [None, (10,), (1, 10), (1,)])
def test_gemm(device: dmlvk.Device, transposed: int, bias: tuple[int, ...] | None) -> None:
    generator = np.random.default_rng(12)
    made = convolution_parameters(generator, (10, 24, 1, 1), per_channel=True, bias=False)
    matrix = made["w"].reshape(10, 24)
    constants = {**made, "w": matrix if transposed else np.ascontiguousarray(matrix.T)}
    names = ["x_scale", "x_zero", "w", "w_scale", "w_zero", "c", "y_scale", "y_zero"]
    if bias is None:
        names[5] = ""
    else:
        constants["c"] = generator.integers(-20000, 20000, bias).astype(np.int32)
    x = elements(generator, np.uint8, (7, 24))
    node = ("com.microsoft.QGemm", ["x", *names], ["y"], {"transB": transposed})
    model = model_of([node], {"x": x}, {"y": np.uint8}, constants)
    session = InferenceSession(model, device)
    found = session.run(None, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}))
    assert places(session) == ["device"]
    assert np.unique(found[0]).size > 15


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "scale of 0": (
        {"constants": {"y_scale": np.array(0, np.float32)}},
        "its output scale is 0, which is no normal float32",
    ),
    "skipping same": (
        {"attributes": {"auto_pad": "SAME_UPPER", "strides": [6, 6]}},
        "auto_pad is SAME_UPPER, and strides (6, 6) step over a part of the input",
    ),
    "dilated same": (
        {"attributes": {"auto_pad": "SAME_LOWER", "dilations": [2, 1]}},
        "ONNX Runtime refuses auto_pad SAME_LOWER with dilations (2, 1)",
    ),
    "other kernel": (
        {"attributes": {"kernel_shape": [3, 2]}},
        "kernel_shape [3, 2] is not the filter's, [3, 3]",
    ),
    "unknown attribute": ({"attributes": {"shine": 1}}, "its attribute 'shine' is not known on the device"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_half_supported_nodes_go_to_the_host_with_the_reason(device: dmlvk.Device, name: str) -> None:
    changes, reason = REFUSED[name]
    generator = np.random.default_rng(13)
    parameters = convolution_parameters(generator, (4, 3, 3, 3)) | changes.get("constants", {})
    x = elements(generator, np.uint8, (1, 3, 11, 11))
    node = convolution(parameters, **changes.get("attributes", {}))
    if "shine" in node[3]:  # the checker knows ONNX's own operators
        node = (f"com.microsoft.{node[0]}", *node[1:])
    session = InferenceSession(model_of([node], {"x": x}, {"y": np.uint8}, parameters), device)
    with suppress(ModelError):  # the host's answer to what is no valid convolution
        session.run(None, {"x": x})
    (row,) = session.placement
    assert (row.name, row.op_type, row.where, row.reason) == ("node_0", "QLinearConv", "host", reason)
