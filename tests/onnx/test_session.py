"""Sessions: their description of inputs and outputs, their errors, threads, and the host."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession, ModelError, host, model_file
from tests.onnx.models import (
    Array,
    Node,
    convolution,
    convolution_parameters,
    convolved,
    elements,
    model_of,
    onnx_runtime,
    require_equal,
    session_with_onnx_runtime,
)
from tests.oracle import OracleError
from tests.programs import python
from tests.reference.onnx_runtime import ONNX_RUNTIME


def small_model() -> onnx.ModelProto:
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, None])
    nodes: list[Node] = [("Transpose", ["x"], ["t"], {"perm": [1, 0, 2]}), ("Abs", ["t"], ["y"], {})]
    return model_of(nodes, {"x": given}, {"y": np.float32})


def test_inputs_and_outputs_as_onnx_runtime_describes_them(device: dmlvk.Device) -> None:
    session = InferenceSession(small_model(), device)
    (given,), (returned,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("x", ["n", 3, None], "tensor(float)")
    assert (returned.name, returned.shape, returned.type) == ("y", [3, "n", None], "tensor(float)")


def test_a_size_of_minus_one_is_any_size(device: dmlvk.Device) -> None:
    """PaddlePaddle's exporter writes it."""
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [-1, 3])
    session = InferenceSession(model_of([("Transpose", ["x"], ["y"], {})], {"x": given}, {"y": np.float32}), device)
    assert session.get_inputs()[0].shape == [None, 3]
    for count in (2, 5):
        x = elements(np.random.default_rng(count), np.float32, (count, 3))
        require_equal(session.run(None, {"x": x}), [x.T])


def test_outputs_are_chosen_by_name(device: dmlvk.Device) -> None:
    x = elements(np.random.default_rng(0), np.float32, (4, 6))
    nodes: list[Node] = [("Transpose", ["x"], ["t"], {}), ("Slice", ["t", "one", "two"], ["s"], {})]
    constants = {"one": np.array([1]), "two": np.array([2])}
    session = InferenceSession(model_of(nodes, {"x": x}, {"t": np.float32, "s": np.float32}, constants), device)
    require_equal(session.run(["s", "t"], {"x": x}), [x.T[1:2], x.T])
    require_equal(session.run(["s"], {"x": x.tolist() and x[:]}), [x.T[1:2]])


FEEDS: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({}, "the input 'x' is missing; its inputs are x"),
    "unknown": ({"x": np.ones((1, 3, 2), np.float32), "z": 1}, "has no input 'z'; its inputs are x"),
    "type": (
        {"x": np.ones((1, 3, 2))},
        "'x' is an array of float64; it must be of float32, tensor(float): array.astype(np.float32)",
    ),
    "rank": ({"x": np.ones((3, 3), np.float32)[0]}, "'x' has the shape (3,); it must have rank 3, ['n', 3, None]"),
    "batch": ({"x": np.ones((3, 2), np.float32)}, "['n', 3, None]; is it one of a batch? array[np.newaxis] fits"),
    "size": ({"x": np.ones((1, 4, 2), np.float32)}, "'x' has the shape (1, 4, 2); its dimension 1 must have size 3"),
    "text": ({"x": "text"}, "it must be of float32"),
}


@pytest.mark.parametrize("name", FEEDS)
def test_wrong_feeds(device: dmlvk.Device, name: str) -> None:
    feeds, message = FEEDS[name]
    with pytest.raises(ModelError) as caught:
        InferenceSession(small_model(), device).run(None, feeds)
    assert message in str(caught.value)


def test_unknown_output(device: dmlvk.Device) -> None:
    with pytest.raises(ModelError, match=r"has no output 'q'; it has y"):
        InferenceSession(small_model(), device).run(["q"], {"x": np.ones((1, 3, 2), np.float32)})


def test_feeds_that_are_no_mapping(device: dmlvk.Device) -> None:
    with pytest.raises(TypeError, match="feeds is a mapping"):
        InferenceSession(small_model(), device).run(None, [1])  # type: ignore[arg-type]


def changed(change: str, folder: Path) -> Any:
    """A model that is wrong in one way."""
    model = small_model()
    if change == "cycle":
        model.graph.node[0].input[0] = "y"
    elif change == "empty":
        del model.graph.node[:]
    elif change == "unknown operator":
        model.graph.node[1].op_type = "Absolutely"
    elif change == "attribute":
        model.graph.node[1].attribute.append(helper.make_attribute("depth", 3))
    elif change == "bytes":
        return b"this is no model"
    elif change == "no bytes":
        return b""
    elif change == "no file":
        return folder / "absent.onnx"
    elif change in ("external data", "external data of bytes"):
        weight = onnx.numpy_helper.from_array(np.ones(99, np.float32), "w")
        onnx.external_data_helper.set_external_data(weight, "weights.bin")
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        model.graph.initializer.append(weight)
        model.graph.node.append(helper.make_node("Identity", ["w"], ["read"]))  # no file is read for nothing
        if change == "external data of bytes":
            return model.SerializeToString()
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path
    return model


BAD_MODELS = {
    "cycle": "topologically sorted",
    "empty": "Graph output 'y' is not an output of any node",
    "unknown operator": "Absolutely",
    "attribute": "Unrecognized attribute: depth for operator Abs",
    "bytes": "It has 16 bytes, and begins with b'this is no model'",
    "no bytes": "this is no ONNX model: it is empty",
    "no file": "absent.onnx: the model cannot be read",
    "external data": "the external data of the tensor 'w' (location 'weights.bin'",
    "external data of bytes": "the tensor 'w' lies in a file of external data",
}


@pytest.mark.parametrize("change", BAD_MODELS)
def test_bad_models(device: dmlvk.Device, change: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        InferenceSession(changed(change, tmp_path), device)
    assert BAD_MODELS[change] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_with_external_data(device: dmlvk.Device, tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    parameters = convolution_parameters(generator, (4, 3, 3, 3))
    x = elements(generator, np.uint8, (1, 3, 8, 8))
    model = model_of([convolution(parameters)], {"x": x}, {"y": np.uint8}, parameters)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").exists()
    require_equal(InferenceSession(path, device).run(None, {"x": x}), [convolved(x, parameters, (0,) * 4, (1, 1))])


def test_a_model_that_is_too_large_for_a_message(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its constants stay outside the messages to the checker and to the host's library."""
    monkeypatch.setattr(model_file, "LARGEST_MESSAGE", 100)
    monkeypatch.setattr(host, "LARGEST_MESSAGE", 100)
    monkeypatch.setattr(host, "LARGE", 100)
    generator = np.random.default_rng(1)
    parameters = convolution_parameters(generator, (4, 3, 3, 3))
    added = elements(generator, np.float32, (1, 4, 6, 6))
    x = elements(generator, np.uint8, (1, 3, 8, 8))
    nodes: list[Node] = [
        convolution(parameters),
        ("Cast", ["y"], ["f"], {"to": onnx.TensorProto.FLOAT}),
        ("Add", ["f", "added"], ["z"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"z": np.float32}, {**parameters, "added": added})
    path, copy = tmp_path / "model.onnx", onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save(copy, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    right = convolved(x, parameters, (0,) * 4, (1, 1)).astype(np.float32) + added
    for given in (model, path):
        assert model_file.load(given).constants.keys() == {*parameters, "added"}
        session = InferenceSession(given, device)
        assert [each.name for each in session.get_inputs()] == ["x"]
        require_equal(session.run(None, {"x": x}), [right])


def test_initializers_that_are_inputs_may_be_replaced(device: dmlvk.Device) -> None:
    generator = np.random.default_rng(2)
    parameters, others = (convolution_parameters(generator, (4, 3, 3, 3)) for _ in range(2))
    x = elements(generator, np.uint8, (1, 3, 8, 8))
    inputs = {"x": x, "w": parameters["w"], "b": parameters["b"]}
    session = InferenceSession(model_of([convolution(parameters)], inputs, {"y": np.uint8}, parameters), device)
    assert [each.name for each in session.get_inputs()] == ["x"]
    assert [each.name for each in session.get_overridable_initializers()] == ["w", "b"]
    for replaced in ({}, {"w": others["w"]}, {"w": others["w"], "b": others["b"]}, {}):
        right = convolved(x, {**parameters, **replaced}, (0,) * 4, (1, 1))
        require_equal(session.run(None, {"x": x, **replaced}), [right])
    with pytest.raises(ModelError, match="'y_scale' is a constant of the model; a run can replace only initializers"):
        session.run(None, {"x": x, "y_scale": parameters["y_scale"]})
    with pytest.raises(ModelError, match=r"the input 'w' has the shape \(2, 2\); it must have rank 4"):
        session.run(None, {"x": x, "w": np.ones((2, 2), np.int8)})


def test_something_that_is_no_model(device: dmlvk.Device) -> None:
    with pytest.raises(TypeError, match="not int"):
        InferenceSession(3, device)  # type: ignore[arg-type]


def test_an_operator_of_a_library(device: dmlvk.Device) -> None:
    model = small_model()
    model.graph.node[1].domain = "library"
    model.opset_import.append(helper.make_opsetid("library", 1))
    with pytest.raises(OracleError, match="operators of libraries that SessionOptions register do not run here"):
        session_with_onnx_runtime(device.name, model, {"x": np.ones((1, 3, 2), np.float32)})


def test_the_host_names_the_node_that_it_refuses(device: dmlvk.Device) -> None:
    x = np.ones((2, 3), np.float32)
    nodes: list[Node] = [("Transpose", ["x"], ["t"], {}), ("MatMul", ["t", "t"], ["y"], {})]
    session = InferenceSession(model_of(nodes, {"x": x}, {"y": np.float32}), device)
    with pytest.raises(ModelError, match=r"cannot run the node 'node_1' \(MatMul\)"):
        session.run(None, {"x": x})


@pytest.mark.parametrize("runs_at_once", [1, 2])
def test_a_run_after_one_that_the_host_ends_in_the_middle_is_right(device: dmlvk.Device, runs_at_once: int) -> None:
    """The host raises between two parts of the device, for some elements alone, in both runs that share the device."""
    random = np.random.default_rng(11)
    first = convolution_parameters(random, (4, 3, 3, 3))
    second = convolution_parameters(random, (5, 4, 1, 1))
    operator, (data, *read), written, attributes = convolution(second, "g")
    nodes: list[Node] = [
        convolution(first, y="c"),
        ("Gather", ["c", "places"], ["g"], {"axis": 3}),
        (operator, [data, *(f"{name}_2" for name in read)], written, attributes),
    ]
    inputs = [elements(random, np.uint8, (1, 3, 8, 7 + k)) for k in range(2)]
    places = [random.integers(0, 5, 6 + k) for k in range(2)]
    given = {
        "x": helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, 3, 8, "w"]),
        "places": helper.make_tensor_value_info("places", onnx.TensorProto.INT64, ["n"]),
    }
    outputs = {"y": np.uint8, "c": np.uint8}
    constants = first | {f"{name}_2": array for name, array in second.items()}
    session = InferenceSession(model_of(nodes, given, outputs, constants), device, runs_at_once=runs_at_once)
    feeds = [{"x": x, "places": each} for x, each in zip(inputs, places, strict=True)]
    expected = [[np.array(array) for array in session.run(None, each)] for each in feeds]
    assert [row.where for row in session.placement] == ["device", "host", "device"]
    if runs_at_once == 2:
        session._parts[0].turns.users.add(0)  # as if another thread's run were there
    for x, each, right in zip(inputs, places, expected, strict=True):
        wrong = np.where(each == each.max(), 100, each)
        for _ in range(2):
            with pytest.raises(ModelError, match=r"cannot run the node 'node_1' \(Gather\)"):
                session.run(None, {"x": x[:, ::-1], "places": wrong})
        for _ in range(2):
            require_equal(session.run(None, {"x": x, "places": each}), right)
    assert [part.turns.users for part in session._parts] == ([{0}, set()] if runs_at_once == 2 else [set()])


def test_results_are_the_callers_own(device: dmlvk.Device) -> None:
    """A view of an input, a constant, and values of the device: changing them changes nothing else."""
    x = elements(np.random.default_rng(2), np.float32, (2, 3))
    nodes: list[Node] = [("Flatten", ["x"], ["f"], {}), ("Transpose", ["x"], ["t"], {}), ("Identity", ["k"], ["i"], {})]
    constants = {"k": np.array([1.5, 2.5], np.float32)}
    outputs = {"f": np.float32, "t": np.float32, "i": np.float32}
    session = InferenceSession(model_of(nodes, {"x": x}, outputs, constants), device)
    kept = x.copy()
    first = session.run(None, {"x": x})
    for array in first:
        array[...] = 9
    np.testing.assert_array_equal(x, kept)
    require_equal(session.run(None, {"x": x}), [kept, kept.T, np.array([1.5, 2.5], np.float32)])
    for array in first:
        assert (array == 9).all()


def test_branches_read_values_of_the_graph_around_them(device: dmlvk.Device) -> None:
    """A branch of an If names a value that the device has made."""
    x = elements(np.random.default_rng(3), np.float32, (2, 3))
    value = helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None)

    def branch(name: str, operator: str, inputs: list[str], **attributes: Any) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(operator, inputs, ["b"], **attributes)], name, [], [value])

    # The value is named in a branch of a branch alone.
    inner = {"then_branch": branch("p", "Abs", ["t"]), "else_branch": branch("q", "Abs", ["t"])}
    branches = {"then_branch": branch("r", "If", ["c"], **inner), "else_branch": branch("s", "Neg", ["x"])}
    nodes: list[Node] = [("Transpose", ["x"], ["t"], {}), ("If", ["c"], ["y"], branches)]
    for value_of_c, expected in ((True, np.abs(x.T)), (False, -x)):
        feeds = {"x": x, "c": np.array(value_of_c)}
        session = InferenceSession(model_of(nodes, feeds, {"y": np.float32}), device)
        require_equal(session.run(None, feeds), [expected])
        assert [row.where for row in session.placement] == ["device", "host"]


def test_a_sparse_constant_is_a_constant(device: dmlvk.Device) -> None:
    model = model_of([("Transpose", ["w"], ["y"], {})], {"x": np.ones(1, np.float32)}, {"y": np.float32})
    values = helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], [1.5, -2])
    places = helper.make_tensor("places", onnx.TensorProto.INT64, [2], [1, 5])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 3]))
    session = InferenceSession(model, device)
    require_equal(session.run(None, {"x": np.ones(1, np.float32)}), [np.array([[0, 0], [1.5, 0], [0, -2]], np.float32)])


def test_threads(device: dmlvk.Device) -> None:
    generator = np.random.default_rng(4)
    parameters = convolution_parameters(generator, (4, 3, 3, 3))
    given = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 3, 8, 8])
    session = InferenceSession(model_of([convolution(parameters)], {"x": given}, {"y": np.uint8}, parameters), device)
    inputs = [elements(generator, np.uint8, (1 + k % 3, 3, 8, 8)) for k in range(12)]
    expected = [convolved(x, parameters, (0,) * 4, (1, 1)) for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for k in range(number, 12, 3):
            if not np.array_equal(session.run(None, {"x": inputs[k]})[0], expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    futures = [session.run_async(None, {"x": x}) for x in inputs]
    for future, right in zip(futures, expected, strict=True):
        require_equal(future.result(), [right])


def residual_network(generator: np.random.Generator) -> tuple[list[Node], dict[str, Array]]:
    """Two convolutions with a QLinearAdd of com.microsoft between them, whose shape ONNX cannot infer."""
    first = convolution_parameters(generator, (4, 4, 3, 3))
    second = convolution_parameters(generator, (6, 4, 1, 1), per_channel=True)
    constants = first | {f"{name}_2": array for name, array in second.items()}
    operator, read, _, _ = convolution(second, "s")
    output = ("y_scale", "y_zero")
    nodes: list[Node] = [
        convolution(first, y="c", pads=[1, 1, 1, 1]),
        (
            "com.microsoft.QLinearAdd",
            ["c", *output, "x", "x_scale", "x_zero", *output],
            ["s"],
            {},
        ),
        (operator, ["s", *(f"{name}_2" for name in read[1:])], ["y"], {}),
        ("DequantizeLinear", ["y", "y_scale_2", "y_zero_2"], ["d"], {}),
        ("Flatten", ["d"], ["f"], {}),
        ("Softmax", ["f"], ["p"], {}),
    ]
    return nodes, constants


def test_onnx_runtime_as_the_host(device: dmlvk.Device) -> None:
    generator = np.random.default_rng(5)
    nodes, constants = residual_network(generator)
    given = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 4, None, None])
    model = model_of(nodes, {"x": given}, {"p": np.float32, "s": np.uint8, "y": np.uint8}, constants)
    x = elements(generator, np.uint8, (2, 4, 6, 7))
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}, optimize=False))
    assert [where for _, _, where in rows] == ["device", "device", "device", "folded", "view", "host"]


@pytest.mark.parametrize("format", ["QOperator", "QDQ"])
def test_the_host_optimizes_where_onnx_runtime_is_to_be_followed(device: dmlvk.Device, format: str) -> None:
    """ONNX Runtime quantizes the float filter of a ConvTranspose between quantized neighbours when it optimizes."""
    generator = np.random.default_rng(6)
    constants = convolution_parameters(generator, (4, 3, 3, 3))
    constants["w_zero"] = np.zeros((), np.int8)
    constants |= {"transposed": elements(generator, np.float32, (4, 5, 2, 2)), "z_scale": np.array(0.4, np.float32)}
    nodes: list[Node] = [convolution(constants)]
    if format == "QDQ":
        constants |= {"b_scale": constants["x_scale"] * constants["w_scale"]}
        nodes = [
            ("DequantizeLinear", ["x", "x_scale", "x_zero"], ["xf"], {}),
            ("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wf"], {}),
            ("DequantizeLinear", ["b", "b_scale"], ["bf"], {}),
            ("Conv", ["xf", "wf", "bf"], ["c"], {}),
            ("QuantizeLinear", ["c", "y_scale", "y_zero"], ["y"], {}),
        ]
    nodes += [
        ("DequantizeLinear", ["y", "y_scale", "y_zero"], ["yf"], {}),
        ("ConvTranspose", ["yf", "transposed"], ["zf"], {"strides": [2, 2]}),
        ("QuantizeLinear", ["zf", "z_scale", "y_zero"], ["z"], {}),
        ("DequantizeLinear", ["z", "z_scale", "y_zero"], ["output"], {}),
    ]
    x = elements(generator, np.uint8, (2, 3, 9, 8))
    model = model_of(nodes, {"x": x}, {"output": np.float32, "y": np.uint8}, constants, opset=19)
    found, rows = session_with_onnx_runtime(device.name, model, {"x": x})
    require_equal(found, onnx_runtime(model, {"x": x}, optimize=format == "QDQ"))
    assert "device" in {where for _, _, where in rows}
    assert np.unique(found[0]).size > 20


def _spinning(model: bytes, device: str, feeds: dict[str, Array]) -> list[str]:
    """Whether the threads of each part of the host spin."""
    import onnxruntime

    made, original = [], onnxruntime.InferenceSession

    def observed(*arguments: Any, **options: Any) -> Any:
        made.append(original(*arguments, **options))
        return made[-1]

    onnxruntime.InferenceSession = observed
    try:
        session = InferenceSession(model, device)
        session.run(None, feeds)
        session.device.close()
    finally:
        onnxruntime.InferenceSession = original
    return [part.get_session_options().get_session_config_entry("session.intra_op.allow_spinning") for part in made]


def test_threads_of_the_hosts_parts_do_not_spin(device: dmlvk.Device) -> None:
    feeds = {"x": elements(np.random.default_rng(7), np.float32, (2, 3, 4))}
    model = small_model().SerializeToString()
    assert ONNX_RUNTIME.call("options", _spinning, model, device.name, feeds) == ["0", "0"]


def test_threads_of_a_whole_model_spin_as_onnx_runtimes_do(device: dmlvk.Device) -> None:
    """Those of the session that the model is run in, behind the one that accepts it."""
    feeds = {"x": elements(np.random.default_rng(7), np.float32, (2, 3, 4))}
    model = model_of([("Elu", ["x"], ["y"], {})], feeds, {"y": np.float32}).SerializeToString()
    assert ONNX_RUNTIME.call("options", _spinning, model, device.name, feeds) == ["0", "1"]


WITHOUT_ONNX_RUNTIME = """
import sys, warnings
sys.modules["onnxruntime"] = None
import numpy as np
from dmlvk.onnx import InferenceSession
from tests.onnx.test_session import small_model
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        x = np.full((1, 3, 2), -1, np.float32)
        (y,) = InferenceSession(small_model(), sys.argv[1]).run(None, {"x": x})
        assert (y == 1).all() and y.shape == (3, 1, 2)
print(len(caught), caught[0].message)
"""


def test_without_onnx_runtime_a_warning_says_so_once(device: dmlvk.Device) -> None:
    done = python("-c", WITHOUT_ONNX_RUNTIME, device.name, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 dmlvk.onnx: the package onnxruntime is not installed"), done.stdout


def test_a_cpu_driver_that_nobody_named_says_once_that_the_host_is_faster(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.profile.device_type is not dmlvk.DeviceType.CPU:
        return
    monkeypatch.setenv("DMLVK_DEVICE", device.name)
    monkeypatch.setattr("dmlvk.onnx.session._said", set())
    model = model_of([("Identity", ["x"], ["y"], {})], {"x": np.ones(3, np.float32)}, {"y": np.float32})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InferenceSession(model, device)
    with pytest.warns(UserWarning, match="where ONNX Runtime itself is faster"):
        InferenceSession(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InferenceSession(model)
