"""Runs like an earlier one take the direct way, and everything else has the answers that it had before."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.held import own
from tests.onnx.models import Array, Node, convolution, convolution_parameters, elements, model_of, require_equal
from tests.reference.onnx_runtime import ONNX_RUNTIME
from tests.vulkan.variants import open_variant

PACKAGE = str(Path(dmlvk.__file__).parent)
# What a run enters that is like the last one; on the device there are the transfers and the submission besides.
DIRECT = ["InferenceSession.run", "ModelOnDevice.run_again", "DirectHostRun.run", "DirectRun._fits"]
OTHER_SIZES = [*DIRECT, "ModelOnDevice._run_in_other_sizes", "_sizes", *DIRECT[2:]]


def floats(shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)


def host_model() -> bytes:
    """Two outputs of one input with any number of rows; another input is read by no node."""
    nodes: list[Node] = [("Elu", ["x"], ["y"], {}), ("Gather", ["table", "i"], ["z"], {"axis": 0})]
    i = helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [2])
    unread = helper.make_tensor_value_info("unread", onnx.TensorProto.FLOAT, [1])
    constants = {"table": np.arange(5, dtype=np.float32)}
    inputs = {"x": floats(["n", 3]), "i": i, "unread": unread}
    return model_of(nodes, inputs, {"y": np.float32, "z": np.float32}, constants).SerializeToString()


def host_feeds(rows: int = 2) -> dict[str, Array]:
    x = elements(np.random.default_rng(rows), np.float32, (rows, 3))
    return {"x": x, "i": np.array([4, 1]), "unread": np.ones(1, np.float32)}


def entered(function: Any) -> list[str]:
    """The functions of dmlvk that a call enters, in their order."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            owner = type(frame.f_locals["self"]).__mro__ if "self" in frame.f_locals else ()
            name = frame.f_code.co_name
            names.append(next((f"{each.__name__}.{name}" for each in owner if name in vars(each)), name))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return [name for name in names if name not in ("<listcomp>", "<genexpr>", "<dictcomp>", "own")]


def _entered(device: str, model: bytes, calls: list[tuple[Any, dict[str, Array]]]) -> list[list[str]]:
    session = InferenceSession(model, device)
    try:
        return [entered(lambda call=call: session.run(*call)) for call in calls]
    finally:
        session.device.close()


def test_a_run_like_an_earlier_one_enters_four_functions(device: dmlvk.Device) -> None:
    """On the host, whichever outputs are asked for, and also in sizes that were run before the last run."""
    a, b = host_feeds(2), host_feeds(5)
    turned = dict(reversed(a.items()))
    calls = [(None, a), (None, a), (["y", "z"], turned), (None, b), (None, b)]
    calls += [(None, a), (None, a), (["z"], a), (["z"], a)]
    found = ONNX_RUNTIME.call("direct runs", _entered, device.name, host_model(), calls)
    is_direct = {tuple(DIRECT): "last", tuple(OTHER_SIZES): "other sizes"}
    kinds = [is_direct.get(tuple(names), "with care") for names in found]
    again = ["other sizes", "last", "with care", "last"]
    assert kinds == ["with care", "last", "last", "with care", "last", *again], found


def test_a_run_on_the_device_looks_at_nothing_twice(device: dmlvk.Device) -> None:
    parameters = convolution_parameters(np.random.default_rng(1), (4, 3, 3, 3))
    x = elements(np.random.default_rng(2), np.uint8, (1, 3, 8, 8))
    session = InferenceSession(model_of([convolution(parameters)], {"x": x}, {"y": np.uint8}, parameters), device)
    assert "checked_feeds" in entered(lambda: session.run(None, {"x": x}))
    names = entered(lambda: session.run(None, {"x": x}))
    assert names[:5] == ["InferenceSession.run", "ModelOnDevice.run_again", "DirectDeviceRun.run", "DirectRun._fits",
                         "Monitor.run"]  # fmt: skip
    assert not {"checked_feeds", "names_of", "own_results"}.intersection(names)


@pytest.mark.parametrize("variant", ["direct", "staged"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16])
def test_all_bits_go_to_the_device_and_back(device: dmlvk.Device, variant: str, dtype: Any) -> None:
    """Of arrays with any strides, of scalars and of NaN; each result stays as it is when the next run comes."""
    random = np.random.default_rng(5)

    def bits(shape: tuple[int, ...]) -> Array:
        return random.integers(0, 2 if dtype is np.bool_ else 256, (*shape, np.dtype(dtype).itemsize), np.uint8)

    inputs = [bits((4, 6)).view(dtype)[..., 0] for _ in range(3)]
    inputs += [inputs[0][::-1, ::-1], inputs[1].reshape(6, 4).T, np.repeat(inputs[2], 2, axis=1)[:, ::2]]
    scalars = [bits(()).view(dtype).reshape(()) for _ in inputs]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    scalar = helper.make_tensor_value_info("s", kind, [])
    nodes: list[Node] = [("Transpose", ["x"], ["y"], {"perm": [1, 0]}), ("Expand", ["s", "sizes"], ["z"], {})]
    outputs = {"y": dtype, "z": dtype}
    model = model_of(nodes, {"x": inputs[0], "s": scalar}, outputs, {"sizes": np.array([2, 3])})
    with open_variant(device, variant) as opened:
        session = InferenceSession(model, opened)
        found = [session.run(None, {"x": x, "s": s}) for x, s in zip(inputs, scalars, strict=True)]
        assert session._parts[0].direct is not None
        for x, s, (y, z) in zip(inputs, scalars, found, strict=True):
            for array, right in ((y, x.T), (z, np.broadcast_to(s, (2, 3)))):
                assert (array.dtype, array.shape, array.flags.writeable) == (right.dtype, right.shape, True)
                assert array.tobytes() == right.tobytes()


class Subclass(np.ndarray):
    """An array as other libraries make them."""


def odd_calls() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Calls that are not like `session.run(None, host_feeds())` in one thing each."""
    feeds = host_feeds()
    x = feeds["x"]

    def given(**changes: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (None, {**feeds, **changes}), {}

    masked = np.ma.masked_array(x, mask=np.eye(2, 3, dtype=bool))
    wide = np.zeros((4, 6), np.float32)
    wide[::2, ::-2] = x
    return {
        "the same": given(),
        "a list": given(x=x.tolist()),
        "another byte order": given(x=x.astype(">f4")),
        "another type": given(x=x.astype(np.float64)),
        "integers": given(x=x.astype(np.int32)),
        "another rank": given(x=x[0]),
        "another fixed size": given(x=x[:, :2]),
        "more rows": given(x=np.tile(x, (3, 1))),
        "no rows": given(x=x[:0]),
        "masked": given(x=masked),
        "a subclass": given(x=x.view(Subclass)),
        "strides": given(x=wide[::2, ::-2]),
        "another size of an input that nobody reads": given(unread=np.ones(2, np.float32)),
        "text": given(x="text"),
        "nothing": given(x=None),
        "a number": given(x=1.5),
        "an odd shape": given(x=SimpleNamespace(shape=[1])),
        "an index outside": given(i=np.array([4, 5])),
        "an unknown input": given(w=x),
        "an unknown input for another": ((None, {"x": x, "i": feeds["i"], "w": x}), {}),
        "a missing input": ((None, {"x": x}), {}),
        "no feeds": ((None,), {}),
        "no mapping": ((None, [x]), {}),
        "by another name": ((None,), {"input_feed": feeds}),
        "a tuple of names": ((("z", "y"), feeds), {}),
        "no names": (([], feeds), {}),
        "an empty name": (("", feeds), {}),
        "names twice": ((["y", "y"], feeds), {}),
        "an unknown name": ((["y", "q"], feeds), {}),
        "names that are none": (([x, "z"], feeds), {}),
        "one name": (("y", feeds), {}),
        "no options of a run": ((None, feeds, 5), {}),
        "options that end a run": ((None, feeds, SimpleNamespace(terminate=True)), {}),
    }


def answer(session: InferenceSession, name: str) -> Any:
    """Outputs, or an error with its cause, in words."""
    arguments, named = odd_calls()[name]
    try:
        return session.run(*arguments, **named)
    except Exception as error:
        return type(error).__name__, str(error), type(error.__cause__).__name__


def _answers(device: str, model: bytes, names: list[str]) -> dict[str, tuple[Any, Any, Any]]:
    """By name of a call, the answers of a session without direct runs and of a warm one, and then the usual outputs."""
    careful, warm = InferenceSession(model, device), InferenceSession(model, device)
    careful._parts[0].run_again = lambda *_: None  # type: ignore[method-assign]
    found = {}
    for name in names:
        warm.run(None, host_feeds())
        assert warm._parts[0].direct is not None
        found[name] = (answer(careful, name), answer(warm, name), warm.run(None, host_feeds()))
    careful.device.close()
    return found


def test_whatever_is_odd_has_the_answer_that_it_has_without_direct_runs(device: dmlvk.Device) -> None:
    names = list(odd_calls())
    answers = ONNX_RUNTIME.call("odd calls", _answers, device.name, host_model(), names)
    refused = 0
    for name in names:
        expected, found, usual = answers[name]
        if isinstance(expected, tuple):
            assert found == expected, name
            refused += 1
        else:
            require_equal(found, expected)
        require_equal(usual, answers["the same"][0])
    assert refused == 21


def _at_once(device: str, model: bytes) -> list[list[Array]]:
    """Runs of three threads, each of which waits for the others inside ONNX Runtime's call."""
    session = InferenceSession(model, device)
    session.run(None, host_feeds())
    part = session._parts[0].direct._part  # type: ignore[union-attr]
    barrier, whole = threading.Barrier(3, timeout=60), part.run_arrays

    def run(*arguments: Any) -> Any:
        barrier.wait()
        return whole(*arguments)

    part.run_arrays = run
    found: list[list[Array]] = []
    threads = [threading.Thread(target=lambda: found.append(session.run(None, host_feeds()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.device.close()
    return found


def test_runs_of_a_model_on_the_host_go_on_at_once(device: dmlvk.Device) -> None:
    found = ONNX_RUNTIME.call("threads", _at_once, device.name, host_model())
    assert len(found) == 3
    for outputs in found[1:]:
        require_equal(outputs, found[0])


def test_the_last_run_is_that_of_its_sizes(device: dmlvk.Device) -> None:
    """What a session says about its last run, where runs take turns in three sizes."""
    parameters = convolution_parameters(np.random.default_rng(3), (4, 3, 3, 3))
    given = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 3, None, None])
    # Where sizes become constants, a run of other sizes has other steps.
    nodes: list[Node] = [
        convolution(parameters, y="c"),
        ("Shape", ["c"], ["sizes"], {"start": 0, "end": 1}),
        ("Concat", ["sizes", "rest"], ["flat"], {"axis": 0}),
        ("Reshape", ["c", "flat"], ["y"], {}),
    ]
    model = model_of(nodes, {"x": given}, {"y": np.uint8}, {**parameters, "rest": np.array([-1])}, opset=19)
    session = InferenceSession(model, device)
    inputs = [elements(np.random.default_rng(n), np.uint8, (n, 3, 8, 8 + n)) for n in (1, 2, 3)]
    first: list[Any] = []
    for number in range(9):
        x = inputs[number % 3]
        outputs = session.run(None, {"x": x})
        said = (outputs, session.traffic, session.memory, session.placement)
        if number < 3:
            first.append(said)
            assert said[1].bytes_to_device == x.nbytes
        require_equal(outputs, first[number % 3][0])
        assert said[1:] == first[number % 3][1:]


@pytest.mark.parametrize("shared", ["whole", "view", "below"])
def test_arrays_that_share_memory_become_the_callers_own(shared: str) -> None:
    whole = np.arange(12.0)
    others = {"whole": whole, "view": whole[2:], "below": np.asarray(memoryview(whole.data))}
    first = others["below"] if shared == "below" else whole
    found = own([first, others[shared][1:], "text"][: 2 if shared == "below" else 3])
    assert not np.shares_memory(found[0], found[1])
    np.testing.assert_array_equal(found[1], others[shared][1:])


def test_views_alone_stay_on_the_host(device: dmlvk.Device) -> None:
    """A device that would only describe the host's values anew takes none of them."""
    x = elements(np.random.default_rng(4), np.float32, (2, 3, 4))
    views: list[Node] = [("Flatten", ["x"], ["f"], {}), ("Identity", ["f"], ["i"], {})]
    outputs = {"y": np.float32, "i": np.float32}
    for last, where in (("Elu", ["host"] * 3), ("Transpose", ["view", "view", "device"])):
        session = InferenceSession(model_of([*views, (last, ["i"], ["y"], {})], {"x": x}, outputs), device)
        session.run(None, {"x": x})
        assert [row.where for row in session.placement] == where
        assert session.traffic.parts == 1
    assert session.placement[0].reason == "the same memory under another description"
