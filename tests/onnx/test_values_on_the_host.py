"""Inputs and outputs that stay in the host's memory, where the device has memory of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk.errors import OutOfMemoryError
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.held import write
from dmlvk.runtime.tensor import Buffer
from dmlvk.vulkan.allocation import HostView
from dmlvk.vulkan.library import vk
from tests.onnx.models import Array, Node, elements, model_of, onnx_runtime, require_equal
from tests.reference.onnx_runtime import ONNX_RUNTIME
from tests.vulkan.variants import open_variant

NODES: list[Node] = [
    ("QuantizeLinear", ["x", "scale", "point"], ["levels"], {}),
    ("MaxPool", ["levels"], ["largest"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("DequantizeLinear", ["largest", "scale", "point"], ["y"], {}),
]
CONSTANTS: dict[str, Any] = {"scale": np.float32(0.02), "point": np.uint8(117)}


@pytest.fixture(params=["staged", "segmented-staged", "direct"])
def variant(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    with open_variant(device, request.param) as found:
        yield found


@pytest.mark.half_by_day
@pytest.mark.parametrize("sizes", [(2, 3, 20, 30), (1, 8, 64, 70), (1, 2, 400, 400), (7, 4, 262, 250)])
def test_runs_with_other_elements(variant: dmlvk.Device, sizes: tuple[int, ...]) -> None:
    """Small values, those of more than a segment, and large ones; each result stays as it is."""
    random = np.random.default_rng(3)
    feeds = [elements(random, np.float32, sizes) for _ in range(4)]
    model = model_of(NODES, {"x": feeds[0]}, {"y": np.float32}, CONSTANTS)
    session = InferenceSession(model, variant)
    found = [session.run(None, {"x": x}) for x in feeds]
    for x, outputs in zip(feeds, found, strict=True):
        require_equal(outputs, onnx_runtime(model, {"x": x}))


@pytest.mark.parametrize("size", [16, 300])
def test_a_run_is_one_submission(device: dmlvk.Device, size: int) -> None:
    """No transfer is submitted, not even of large inputs: dispatches read its copy on the host, and write there."""
    with open_variant(device, "staged") as staged:
        x = elements(np.random.default_rng(4), np.float32, (1, 4, size, size))
        session = InferenceSession(model_of(NODES, {"x": x}, {"y": np.float32}, CONSTANTS), staged)
        first = session.run(None, {"x": x})
        before = staged.vulkan.queue.submitted
        require_equal(session.run(None, {"x": x}), first)
        assert staged.vulkan.queue.submitted == before + 1


def test_an_execution_in_the_devices_memory(device: dmlvk.Device) -> None:
    """Inputs and outputs are copied: `dmlvk bench --model` times what is between."""
    with open_variant(device, "staged") as staged:
        x = elements(np.random.default_rng(4), np.float32, (1, 4, 300, 300))
        session = InferenceSession(model_of(NODES, {"x": x}, {"y": np.float32}, CONSTANTS), staged)
        right = session.run(None, {"x": x})
        (execution,) = session._executions()
        alone = execution.in_device_memory()
        before = staged.vulkan.queue.submitted
        write(alone.input_tensors["x"], x)
        alone.submit()
        require_equal([alone.output_tensors["y"].numpy().view(np.float32)], right)
        assert staged.vulkan.queue.submitted == before + 3


def test_values_that_are_read_again_are_copied(device: dmlvk.Device) -> None:
    """A window reads its input several times, which the bus would make slow."""
    with open_variant(device, "staged") as staged:
        x = elements(np.random.default_rng(5), np.uint8, (1, 4, 16, 16))
        model = model_of(NODES[1:2], {"levels": x}, {"largest": np.uint8})
        session = InferenceSession(model, staged)
        session.run(None, {"levels": x})
        before = staged.vulkan.queue.submitted
        require_equal(session.run(None, {"levels": x}), onnx_runtime(model, {"levels": x}))
        assert staged.vulkan.queue.submitted > before + 1


@pytest.mark.parametrize(("size", "submissions"), [(32, 1), (400, 2)])
def test_a_small_output_of_any_dispatch_is_written_to_the_host(
    device: dmlvk.Device, size: int, submissions: int
) -> None:
    with open_variant(device, "staged") as staged:
        x = elements(np.random.default_rng(5), np.float32, (1, 4, size, size))
        model = model_of(NODES[:2], {"x": x}, {"largest": np.uint8}, CONSTANTS)
        session = InferenceSession(model, staged)
        session.run(None, {"x": x})
        before = staged.vulkan.queue.submitted
        require_equal(session.run(None, {"x": x}), onnx_runtime(model, {"x": x}))
        assert staged.vulkan.queue.submitted == before + submissions


# The sizes, the constants, and what the device does with the input.
LARGE_INPUTS: dict[str, tuple[tuple[int, ...], dict[str, Any], str]] = {
    "levels": ((9, 3, 200, 200), {}, "SLICE1"),
    "signed levels": ((1, 1000000), {"point": np.int8(-3)}, "SLICE1"),
    "a scale for each channel": (
        (1, 3, 600, 600),
        {"scale": np.array([0.02, 0.03, 0.01], np.float32), "point": np.full(3, 117, np.uint8)},
        "ELEMENT_WISE_QUANTIZE_LINEAR",
    ),
    "an input that one thread copies as fast": ((1, 3, 200, 200), {}, "ELEMENT_WISE_QUANTIZE_LINEAR"),
}


@pytest.mark.parametrize("case", LARGE_INPUTS)
@pytest.mark.parametrize("is_packed", [True, False])
def test_a_large_input_is_quantized_by_the_host(device: dmlvk.Device, case: str, is_packed: bool) -> None:
    """The device gets levels in place of floats."""
    sizes, constants, operator = LARGE_INPUTS[case]
    constants = {"point": np.uint8(117), "scale": np.float32(0.02), **constants}
    random = np.random.default_rng(6)
    runs = [{"x": elements(random, np.float32, sizes)} for _ in range(3)]
    model = model_of(NODES[:1], runs[0], {"levels": constants["point"].dtype}, constants)
    check(device, model, runs, is_packed, [operator])


def test_two_large_inputs(device: dmlvk.Device) -> None:
    """The levels of both are there before what follows reads them."""
    random = np.random.default_rng(7)
    runs = [{name: elements(random, np.float32, (4, 3, 300, 300)) for name in ("x", "z")} for _ in range(3)]
    operands = ["a", "scale", "point", "b", "scale", "point", "scale", "point"]
    nodes: list[Node] = [
        ("QuantizeLinear", ["x", "scale", "point"], ["a"], {}),
        ("QuantizeLinear", ["z", "scale", "point"], ["b"], {}),
        ("com.microsoft.QLinearAdd", operands, ["y"], {}),
    ]
    model = model_of(nodes, runs[0], {"y": np.uint8}, CONSTANTS)
    check(device, model, runs, True, ["SLICE1", "SLICE1", "ELEMENT_WISE_QUANTIZED_LINEAR_ADD"])


def overtaken(device: str, model: bytes, runs: Sequence[Mapping[str, Array]]) -> Array:
    """What runs that nobody waited for leave, if the next input is written at once. Runs where ONNX Runtime is."""
    with dmlvk.Device(device, force_staging=True) as staged:
        session = InferenceSession(model, staged)
        session.run(None, runs[0])
        (execution,) = session._executions()
        for _ in range(20):
            execution.submit()
        execution.input_tensors["x"].write(runs[1]["x"])
        return execution.output_tensors["levels"].numpy()


def test_a_large_input_waits_for_runs_that_were_interrupted(device: dmlvk.Device) -> None:
    random = np.random.default_rng(8)
    runs = [{"x": elements(random, np.float32, (9, 3, 200, 200))} for _ in range(2)]
    model = model_of(NODES[:1], runs[0], {"levels": np.uint8}, CONSTANTS)
    found = ONNX_RUNTIME.call("overtaken", overtaken, device.name, model.SerializeToString(), runs)
    require_equal([found], onnx_runtime(model, runs[0]))


def check(
    device: dmlvk.Device,
    model: onnx.ModelProto,
    runs: Sequence[Mapping[str, Array]],
    is_packed: bool,
    operators: Sequence[str],
) -> None:
    """All runs have ONNX Runtime's outputs, with these operators and without it."""
    expected = [onnx_runtime(model, feeds) for feeds in runs]
    found, used = ONNX_RUNTIME.call(
        "a session", run_staged, device.name, model.SerializeToString(), list(map(dict, runs)), is_packed
    )
    assert used == operators
    without, used = run_staged(device.name, model.SerializeToString(), runs, is_packed)
    assert "SLICE1" not in used
    for outputs in (found, without):
        for each, right in zip(outputs, expected, strict=True):
            require_equal(each, right)


def run_staged(
    device: str, model: bytes, runs: Sequence[Mapping[str, Array]], is_packed: bool
) -> tuple[list[list[Array]], list[str]]:
    """The outputs of runs of one session, and its operators; also in the process that has ONNX Runtime."""
    with dmlvk.Device(device, force_staging=True) as staged:
        session = InferenceSession(model, staged)
        given = [{name: x if is_packed else spread(x) for name, x in feeds.items()} for feeds in runs]
        found = [session.run(None, feeds) for feeds in given]
        (bindings,) = session._bindings()
        return found, [binding.operator_name for binding in bindings]


def spread(array: Array) -> Array:
    """The elements of an array, each with a gap behind it."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


@pytest.fixture
def large(device: dmlvk.Device) -> Iterator[tuple[InferenceSession, dict[str, Any], list[Any]]]:
    """A session with an input of 5 MB and an output of 1 MB, its feeds and their outputs."""
    x = elements(np.random.default_rng(8), np.float32, (4, 4, 280, 280))
    described = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["images", *x.shape[1:]])
    model = model_of(NODES, {"x": described}, {"y": np.float32}, CONSTANTS)
    with open_variant(device, "staged") as staged:
        yield InferenceSession(model, staged), {"x": x}, onnx_runtime(model, {"x": x})


def test_the_device_has_what_the_host_has_no_memory_for(large: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, feeds, expected = large

    def refuse(engine: Any, size: int) -> None:
        refused.append(size)
        raise OutOfMemoryError(f"{size} bytes requested")

    refused: list[int] = []
    monkeypatch.setattr(Buffer, "on_host", refuse)
    for _ in range(3):
        require_equal(session.run(None, feeds), expected)
    assert len(refused) == 1
    (bindings,) = session._bindings()
    assert len(bindings) == len(NODES)


def test_a_run_after_one_that_found_no_memory_is_right(large: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """None on the host or on the device; then, for a result, none in NumPy."""
    session, feeds, expected = large
    require_equal(session.run(None, feeds), expected)
    other = {"x": np.concatenate([feeds["x"]] * 8)}
    with monkeypatch.context() as patch:
        patch.setattr(vk, "vkAllocateMemory", lambda *arguments: -2)
        with pytest.raises(
            OutOfMemoryError, match=r"out of memory: .* bytes\) requested; the heap has .*OUT_OF_DEVICE_MEMORY"
        ):
            session.run(None, other)
    (right,) = expected
    require_equal(session.run(None, other), [np.concatenate([right] * 8)])
    held = [session.run(None, feeds) for _ in range(3)]
    with monkeypatch.context() as patch:
        whole = np.empty
        patch.setattr(
            np, "empty", lambda sizes, *kind: whole((*sizes, 1 << 40) if np.size(sizes) > 2 else sizes, *kind)
        )
        with pytest.raises(MemoryError, match=r"Unable to allocate .* for an array with shape"):
            session.run(None, feeds)
    require_equal(session.run(None, feeds), expected)
    for outputs in held:
        require_equal(outputs, expected)


def test_large_outputs_are_given_away(large: Any) -> None:
    """Where the device has written them, while no array has that memory; else a copy."""
    session, feeds, (expected,) = large
    addresses = [session.run(None, feeds)[0].ctypes.data for _ in range(8)]
    assert len(set(addresses[1:])) == 1
    others = [{"x": feeds["x"] * np.float32(k)} for k in (0.9, 0.8, 0.7, 0.6)]
    held = [session.run(None, other)[0] for other in others]
    assert [addresses[-1] == each.ctypes.data for each in held] == [True, False, False, False]
    assert [is_given_away(each) for each in held] == [True, True, False, False]
    rights = [each.copy() for each in held]
    held[1][...] = -1  # the caller's own
    parts = [held[0][1:, ::2, 7:], memoryview(held[2])]
    held[0] = held[2] = None
    for _ in range(4):
        require_equal(session.run(None, feeds), [expected])
    assert np.array_equal(parts[0], rights[0][1:, ::2, 7:])
    assert np.array_equal(np.asarray(parts[1]), rights[2])
    assert (held[1] == -1).all()
    assert np.array_equal(held[3], rights[3])
    del parts[0]
    assert session.run(None, feeds)[0].ctypes.data == addresses[-1]


def is_given_away(array: Any) -> bool:
    """Whether an array lies where the device has written it."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, HostView)


def test_outputs_that_were_given_away_outlive_the_device(large: Any) -> None:
    session, feeds, expected = large
    session.run(None, feeds)
    held = [session.run(None, feeds) for _ in range(2)]
    session.device.close()
    for outputs in held:
        require_equal(outputs, expected)
    with pytest.raises(dmlvk.DeviceError, match="closed"):
        session.run(None, feeds)
    del held, outputs
    assert session.device.vulkan._is_destroyed


def test_an_output_that_is_asked_for_twice_is_copied(large: Any) -> None:
    session, feeds, (expected,) = large
    for _ in range(3):
        first, second = session.run(["y", "y"], feeds)
        first[...] = -1
        assert np.array_equal(second, expected)
