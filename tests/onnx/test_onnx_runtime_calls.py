"""What programs written for ONNX Runtime pass to a session, and call of it."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.on_device import POOLS
from dmlvk.onnx.steps import HostStep
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
from tests.programs import python
from tests.reference.onnx_runtime import ONNX_RUNTIME

NODES: list[Node] = [("Transpose", ["x"], ["o"], {"perm": [1, 0]}), ("Relu", ["x"], ["out"], {})]


def _model() -> bytes:
    x = helper.make_tensor_value_info("x", 1, ["b", 3])
    content: bytes = model_of(NODES, {"x": x}, {"o": np.float32, "out": np.float32}).SerializeToString()
    return content


def _options(runtime: Any, **changes: Any) -> Any:
    options = runtime.SessionOptions()
    for name, value in changes.items():
        setattr(options, name, value)
    return options


def _configured(runtime: Any, key: str) -> Any:
    options = runtime.SessionOptions()
    options.add_session_config_entry(key, "1")
    return options


# Each gives a session from the package, a model and a device; and says what the one warning names.
SESSIONS: dict[str, tuple[Callable[[Any, bytes, Any], InferenceSession], list[str]]] = {
    "options second": (
        lambda ort, model, device: InferenceSession(model, _options(ort, intra_op_num_threads=1), device=device),
        [],
    ),
    "options by name": (
        lambda ort, model, device: InferenceSession(
            model, sess_options=_options(ort, inter_op_num_threads=2, log_severity_level=4), device=device
        ),
        [],
    ),
    "profiling": (
        lambda ort, model, device: InferenceSession(
            model, _options(ort, enable_profiling=True, optimized_model_filepath="x.onnx"), device=device
        ),
        ["SessionOptions.enable_profiling", "SessionOptions.optimized_model_filepath", "device="],
    ),
    "providers": (
        lambda ort, model, device: InferenceSession(model, providers=["CUDAExecutionProvider"], device=device),
        ["CUDAExecutionProvider", "device="],
    ),
    "options and providers": (
        lambda ort, model, device: InferenceSession(
            model, _options(ort), [("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"], device=device
        ),
        ["CUDAExecutionProvider", "CPUExecutionProvider", "device="],
    ),
    "options of providers": (
        lambda ort, model, device: InferenceSession(
            model, None, ["CPUExecutionProvider"], [{"use_arena": "1"}], device=device
        ),
        ["CPUExecutionProvider", "device="],
    ),
    "an entry of the configuration": (
        lambda ort, model, device: InferenceSession(
            model, _configured(ort, "session.set_denormal_as_zero"), device=device
        ),
        ["add_session_config_entry('session.set_denormal_as_zero')", "device="],
    ),
    "by ONNX Runtime's names": (
        lambda ort, model, device: InferenceSession(
            path_or_bytes=model, providers=None, disabled_optimizers=["a"], device=device
        ),
        ["disabled_optimizers", "device="],
    ),
    "a device second": (lambda ort, model, device: InferenceSession(model, device), []),
}


def _sessions(device: str, model: bytes, x: Array) -> dict[str, tuple[list[str], list[Array]]]:
    import onnxruntime

    found = {}
    with dmlvk.Device(device) as opened:
        for name, (make, _) in SESSIONS.items():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                session = make(onnxruntime, model, opened)
            found[name] = [str(each.message) for each in caught], session.run(None, {"x": x})
    return found


def test_arguments_are_those_of_onnx_runtime(device: dmlvk.Device) -> None:
    x = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    found = ONNX_RUNTIME.call("arguments", _sessions, device.name, _model(), x)
    for name, (_, words) in SESSIONS.items():
        messages, outputs = found[name]
        require_equal(outputs, [np.ascontiguousarray(x.T), np.maximum(x, 0)])
        assert len(messages) == bool(words), (name, messages)
        assert all(word in messages[0] for word in words), (name, messages)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"providers": "CPUExecutionProvider"}, ValueError, "providers is a sequence"),
        ({"providers": [3]}, ValueError, "not 3"),
        ({"providers": ["a"], "provider_options": [{}, {}]}, ValueError, "has 2: one for each"),
        ({"providers": ["a"], "provider_options": {"a": 1}}, ValueError, "sequence of dicts"),
        ({"provider_options": [{}]}, ValueError, "without providers"),
        ({"fuse_qdp": False}, TypeError, "no argument 'fuse_qdp'"),
        ({"sess_options": "llvmpipe"}, TypeError, "a device is given twice"),
    ],
)
def test_wrong_arguments(device: dmlvk.Device, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        InferenceSession(_model(), device=device, **arguments)


def test_a_session_without_a_model_is_refused(device: dmlvk.Device) -> None:
    with pytest.raises(TypeError, match="needs a model"):
        InferenceSession(device=device)


def _called(device: str, model: bytes, x: Array) -> dict[str, Any]:
    import onnxruntime

    with dmlvk.Device(device) as opened:
        session = InferenceSession(model, opened)
        right = onnxruntime.InferenceSession(model)
        feeds = {"x": onnxruntime.OrtValue.ortvalue_from_numpy(x)}
        end = onnxruntime.RunOptions()
        end.terminate = True
        metadata = right.get_modelmeta()
        absent = []
        for name in dir(onnxruntime.InferenceSession):
            if name[0] == "_" or hasattr(session, name):
                continue
            try:
                getattr(session, name)
            except AttributeError as error:
                absent.append((name, str(error)))
        try:
            session.run(None, {"x": x}, end)
            ended = ""
        except dmlvk.onnx.ModelError as error:
            ended = str(error)
        return {
            "an OrtValue": session.run(None, feeds),
            "OrtValues": [value.numpy() for value in session.run_with_ort_values(None, feeds)],
            "run options": session.run(None, {"x": x}, onnxruntime.RunOptions()),
            "names": session.run(output_names=None, input_feed={"x": x}),
            "ended": ended,
            "metadata": [
                [getattr(found, name) for name in dir(metadata) if name[0] != "_"]
                for found in (session.get_modelmeta(), metadata)
            ],
            "absent": absent,
            "providers": (session.get_providers(), sorted(session.get_provider_options())),
            "options": type(session.get_session_options()).__name__,
        }


def test_calls_are_those_of_onnx_runtime(device: dmlvk.Device) -> None:
    x = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    found = ONNX_RUNTIME.call("calls", _called, device.name, _model(), x)
    for name in ("an OrtValue", "OrtValues", "run options", "names"):
        require_equal(found[name], [np.ascontiguousarray(x.T), np.maximum(x, 0)])
    assert "terminate" in found["ended"]
    ours, right = found["metadata"]
    assert ours == right
    assert found["absent"] and all(": " in message and name in message for name, message in found["absent"])
    assert found["providers"] == (
        ["DmlvkExecutionProvider", "CPUExecutionProvider"],
        ["CPUExecutionProvider", "DmlvkExecutionProvider"],
    )
    assert found["options"] == "SessionOptions"


@pytest.mark.parametrize(
    ("names", "message"),
    [("out", r"\['out'\], not 'out'"), (b"out", "sequence of names"), ([3], "not 3"), (3, "sequence of names")],
)
def test_wrong_names_of_outputs(device: dmlvk.Device, names: Any, message: str) -> None:
    session = InferenceSession(_model(), device)
    with pytest.raises(TypeError, match=message):
        session.run(names, {"x": np.ones((1, 3), np.float32)})


def test_nothing_asked_for_is_everything(device: dmlvk.Device) -> None:
    session = InferenceSession(_model(), device)
    x = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
    nothing: list[Any] = [None, [], (), ""]
    for names in nothing:
        assert len(session.run(names, {"x": x})) == 2
    require_equal(session.run(("out", "o", "out"), {"x": x}), [np.maximum(x, 0), x.T.copy(), np.maximum(x, 0)])


LISTS: list[tuple[type[np.generic], Any]] = [
    (np.float32, [[1.5], [2]]),
    (np.float32, [True]),
    (np.float32, [[]]),
    (np.int64, [1.5, -2.5]),
    (np.uint8, [255, np.int64(3)]),
    (np.float16, [np.float64(0.1)]),
    (np.float64, [np.arange(3)]),
    (np.bool_, [True, False]),
    (np.object_, ["a", ""]),
]


def _identities() -> dict[type[np.generic], bytes]:
    made = {}
    for kind, _ in LISTS:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        values = [helper.make_tensor_value_info(name, element, None) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", values[:1], values[1:])
        made[kind] = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
        ).SerializeToString()
    return made


def _given_lists(models: dict[type[np.generic], bytes]) -> list[Array]:
    import onnxruntime

    return [onnxruntime.InferenceSession(models[kind]).run(None, {"x": given})[0] for kind, given in LISTS]


def test_lists_have_the_type_of_the_input(device: dmlvk.Device) -> None:
    models = _identities()
    right = ONNX_RUNTIME.call("lists", _given_lists, models)
    for (kind, given), expected in zip(LISTS, right, strict=True):
        (found,) = InferenceSession(models[kind], device).run(None, {"x": given})
        assert found.dtype == expected.dtype and found.shape == expected.shape
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (np.uint8, [256], "uint8 has 0 to 255"),
        (np.int64, [float("nan")], "no NaN"),
        (np.float32, [[1.0], [1.0, 2.0]], "inhomogeneous"),
        (np.float32, ["a"], "an array of str"),
        (np.float32, np.ma.masked_array([1.0, 2.0], [True, False], np.float32), "masked"),  # type: ignore[no-untyped-call]
        (np.object_, np.array([b"\xff"]), "no UTF-8"),
    ],
)
def test_lists_and_arrays_that_an_input_does_not_take(
    device: dmlvk.Device, kind: type[np.generic], given: Any, message: str
) -> None:
    with pytest.raises(dmlvk.onnx.ModelError, match=message):
        InferenceSession(_identities()[kind], device).run(None, {"x": given})


def test_what_is_no_mapping_and_no_callback(device: dmlvk.Device) -> None:
    session = InferenceSession(_model(), device)
    x = np.ones((1, 3), np.float32)
    nothing: list[Any] = [None, [x], x]
    for feeds in nothing:
        for run in (session.run, session.run_async, session.run_with_ort_values):
            with pytest.raises(TypeError, match="feeds is a mapping"):
                run(None, feeds)
    callback: Any = "done"
    with pytest.raises(TypeError, match="str cannot be called"):
        session.run_async(None, {"x": x}, callback)


def test_a_callback_gets_outputs_or_the_error(device: dmlvk.Device) -> None:
    session = InferenceSession(_model(), device)
    x = np.random.default_rng(4).standard_normal((4, 3)).astype(np.float32)
    for feeds, error in (({"x": x}, ""), ({"q": x}, "no input 'q'")):
        called = threading.Event()
        got: list[Any] = []

        def callback(
            outputs: list[Array], data: str, message: str, called: threading.Event = called, got: list[Any] = got
        ) -> None:
            got.append((len(outputs), data, message))
            called.set()

        session.run_async(["out"], feeds, callback, "mine")
        assert called.wait(60)
        ((count, data, message),) = got
        assert (count, data) == (0 if error else 1, "mine")
        assert error in message and bool(error) == bool(message)


def _levels(device: str, model: bytes, x: Array) -> list[tuple[list[Array], list[Array], list[str]]]:
    import onnxruntime

    found = []
    with dmlvk.Device(device) as opened:
        for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"):
            options = _options(onnxruntime, graph_optimization_level=getattr(onnxruntime.GraphOptimizationLevel, level))
            session = InferenceSession(model, options, device=opened)
            right = onnxruntime.InferenceSession(model, options)
            outputs = session.run(None, {"x": x}), right.run(None, {"x": x})
            found.append((*outputs, [row.where for row in session.placement]))
    return found


def test_the_level_of_optimization_decides_what_is_fused(device: dmlvk.Device) -> None:
    generator = np.random.default_rng(5)
    x = generator.standard_normal((1, 4, 9, 9)).astype(np.float32)
    nodes: list[Node] = [
        ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
        ("DequantizeLinear", ["w", "ws", "wz"], ["f"], {}),
        ("Conv", ["d", "f"], ["c"], {}),
        ("QuantizeLinear", ["c", "s", "z"], ["y"], {}),
    ]
    constants: dict[str, Array] = {
        "s": np.array(0.021, np.float32),
        "z": np.array(120, np.uint8),
        "w": weights(generator, np.int8, (5, 4, 3, 3)),
        "ws": np.array(0.003, np.float32),
        "wz": np.array(0, np.int8),
    }
    model = model_of(nodes, {"x": x}, {"y": np.uint8}, constants).SerializeToString()
    for number, (found, right, places) in enumerate(ONNX_RUNTIME.call("levels", _levels, device.name, model, x)):
        require_equal(found, right)
        assert places[3] == ("device" if number >= 2 else "host")


def _threads(device: str, model: bytes, feeds: dict[str, Array], wanted: int) -> tuple[Any, ...]:
    import onnxruntime

    options = _options(onnxruntime, intra_op_num_threads=wanted)
    right = onnxruntime.InferenceSession(model, options).run(None, feeds)
    with dmlvk.Device(device) as opened:
        session = InferenceSession(model, options, device=opened, placement="device")
        before = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0
        found = session.run(None, feeds)
        after = len(os.listdir("/proc/self/task")) if before else 0
        schedule = session._parts[0].last
        assert schedule is not None
        steps = schedule.steps
        parts = [[(node.op_type, step.threads) for node in step.nodes] for step in steps if isinstance(step, HostStep)]
        # Other sessions of the process are as before.
        require_equal(onnxruntime.InferenceSession(model, options).run(None, feeds), right)
        return found, right, after - before, parts


@pytest.mark.parametrize("wanted", [8, 2, 1])
def test_parts_with_work_for_threads_have_those_of_one_session(device: dmlvk.Device, wanted: int) -> None:
    """Small parts have none. Of very many parts with such work, the first ones have them."""
    generator = np.random.default_rng(6)
    parameters = convolution_parameters(generator, (3, 3, 1, 1))
    constants: dict[str, Array] = {**parameters, "one": np.array([1], np.uint8)}
    constants["heavy"] = elements(generator, np.uint8, (32, 20000))
    nodes: list[Node] = []
    outputs: dict[str, Any] = {"x40": np.uint8}
    for k in range(40):
        nodes.append(convolution(parameters, f"x{k}" if k else "x", f"q{k}"))
        nodes.append(("BitShift", [f"q{k}", "one"], [f"x{k + 1}"], {"direction": "RIGHT"}))
        if k >= 20:
            nodes.append(("MatMulInteger", [f"x{k + 1}", "heavy"], [f"wide{k}"], {}))
            nodes.append(("ReduceMax", [f"wide{k}"], [f"most{k}"], {"keepdims": 0}))
            outputs[f"most{k}"] = np.int32
    x = elements(generator, np.uint8, (1, 3, 32, 32))
    model = model_of(nodes, {"x": x}, outputs, constants).SerializeToString()
    found, right, started, parts = ONNX_RUNTIME.call("threads", _threads, device.name, model, {"x": x}, wanted)
    require_equal(found, right)
    assert len(parts) == 40
    assert [part[0][1] for part in parts] == 20 * [1] + POOLS * [wanted] + (20 - POOLS) * [1]
    # The drivers have threads of their own, a few.
    assert started <= POOLS * (wanted - 1) + 8


def _started(device: str, models: list[bytes], feeds: list[dict[str, Array]]) -> list[int]:
    import onnxruntime

    found = []
    kept = []  # so that no threads end meanwhile
    with dmlvk.Device(device) as opened:
        for model, feed in zip(models, feeds, strict=True):
            options = _options(onnxruntime, intra_op_num_threads=4)
            counts = []
            for _ in range(2):  # the driver may start threads meanwhile, but not each time
                sessions = [InferenceSession(model, options, device=opened) for _ in range(3)]
                kept.append(sessions)
                sessions[0].run(None, feed)
                before = len(os.listdir("/proc/self/task"))
                for session in sessions[1:]:
                    session.run(None, feed)
                counts.append(len(os.listdir("/proc/self/task")) - before)
            found.append(min(counts))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted as Linux shows them")
def test_sessions_of_small_models_start_no_threads(device: dmlvk.Device) -> None:
    """What a Loop does is not seen in its sizes, so that it has what ONNX Runtime gives it."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["goes_on"], ["still"]), helper.make_node("Relu", ["x"], ["inside"])],
        "body",
        [helper.make_tensor_value_info("turn", 7, []), helper.make_tensor_value_info("goes_on", 9, [])],
        [helper.make_tensor_value_info("still", 9, []), helper.make_tensor_value_info("inside", 1, None)],
    )
    nodes: list[list[Node]] = [
        [("Sigmoid", ["x"], ["y"], {})],
        [("Sigmoid", ["x"], ["y"], {})],
        [("Loop", ["turns", ""], ["y"], {"body": body})],
    ]
    xs = [np.ones(sizes, np.float32) for sizes in ((2, 9), (100, 100), (2, 9))]
    constants = {"turns": np.array(3)}
    models = [
        model_of(each, {"x": x}, {"y": np.float32}, constants).SerializeToString()
        for each, x in zip(nodes, xs, strict=True)
    ]
    started = ONNX_RUNTIME.call("small models", _started, device.name, models, [{"x": x} for x in xs])
    assert started == [0, 2 * 3, 2 * 3]  # two sessions, each with its caller's thread


def _threads_of_a_whole(device: str, model: bytes, feeds: dict[str, Array]) -> list[int]:
    with dmlvk.Device(device) as opened:
        session = InferenceSession(model, device=opened, placement="fastest")
        session.run(None, feeds)
        schedule = session._parts[0].last
        assert schedule is not None
        return [step.threads for step in schedule.steps if isinstance(step, HostStep)]


@pytest.mark.parametrize(("size", "threads"), [(12, 1), (96, 0)])
def test_small_nodes_without_optimization_have_one_thread(device: dmlvk.Device, size: int, threads: int) -> None:
    """ONNX Runtime would share each of them. 0 is its own default."""
    generator = np.random.default_rng(9)
    x = elements(generator, np.uint8, (1, 16, size, size))
    parameters = convolution_parameters(generator, (16, 16, 3, 3))
    model = model_of([convolution(parameters)], {"x": x}, {"y": np.uint8}, parameters).SerializeToString()
    assert ONNX_RUNTIME.call("whole", _threads_of_a_whole, device.name, model, {"x": x}) == [threads]


WITH_ONE_POOL = """
import sys
import numpy as np
import onnxruntime
onnxruntime.set_global_thread_pool_sizes(2, 1)
from dmlvk.onnx import InferenceSession
session = InferenceSession(bytes.fromhex(sys.argv[1]), sys.argv[2])
print([array.tolist() for array in session.run(None, {"x": np.array([[1, -2, 3]], np.float32)})])
"""


def test_in_a_process_with_one_pool_for_all_sessions(device: dmlvk.Device) -> None:
    ended = python("-c", WITH_ONE_POOL, _model().hex(), device.name, timeout=120)
    assert ended.stdout.strip() == "[[[1.0], [-2.0], [3.0]], [[1.0, 0.0, 3.0]]]", ended.stderr
