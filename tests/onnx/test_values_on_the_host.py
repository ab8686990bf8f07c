"""Inputs and outputs that stay in the host's memory, where the device has memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk.errors import OutOfMemoryError
from dmlvk.onnx import InferenceSession
from dmlvk.runtime.tensor import Buffer
from dmlvk.vulkan.library import vk
from tests.onnx.models import Node, elements, model_of, onnx_runtime, require_equal
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


# Inputs of 3 to 5 MB, with the pieces that they go to the device in.
PIECES: dict[str, tuple[tuple[int, ...], dict[str, Any], int]] = {
    "images": ((9, 3, 200, 200), {}, 2),
    "channels of one image": ((1, 5, 400, 500), {}, 2),
    "rows that begin at multiples of 16 bytes": ((1100, 901), {}, 2),
    "one row": ((1, 1000000), {}, 2),
    "no channels with scales of their own": ((1, 3, 600, 600), {"scale": np.array([0.02, 0.03, 0.01], np.float32)}, 1),
}


@pytest.mark.parametrize("case", PIECES)
@pytest.mark.parametrize("is_packed", [True, False])
def test_a_large_input_goes_in_pieces(device: dmlvk.Device, case: str, is_packed: bool) -> None:
    """The device converts a piece while the host copies the next one; the elements are those of the whole."""
    sizes, constants, pieces = PIECES[case]
    constants = {
        "point": np.full(np.shape(constants.get("scale", 0)), 117, np.uint8),
        "scale": np.float32(0.02),
        **constants,
    }
    random = np.random.default_rng(6)
    with open_variant(device, "staged") as staged:
        feeds = [elements(random, np.float32, (*sizes[:-1], 2 * sizes[-1]))[..., ::2] for _ in range(2)]
        feeds = [np.ascontiguousarray(x) for x in feeds] if is_packed else feeds
        model = model_of(NODES[:1], {"x": feeds[0]}, {"levels": np.uint8}, constants)
        session = InferenceSession(model, staged)
        for x in [*feeds, feeds[0]]:
            require_equal(session.run(None, {"x": x}), onnx_runtime(model, {"x": x}))
        (bindings,) = session._bindings()
        assert len(bindings) == pieces


def test_two_inputs_go_in_pieces(device: dmlvk.Device) -> None:
    """All pieces are there before what follows reads them."""
    random = np.random.default_rng(7)
    with open_variant(device, "staged") as staged:
        feeds = {name: elements(random, np.float32, (4, 3, 300, 300)) for name in ("x", "z")}
        nodes: list[Node] = [
            ("QuantizeLinear", ["x", "scale", "point"], ["a"], {}),
            ("QuantizeLinear", ["z", "scale", "point"], ["b"], {}),
            (
                "com.microsoft.QLinearAdd",
                ["a", "scale", "point", "b", "scale", "point", "scale", "point"],
                ["y"],
                {},
            ),
        ]
        model = model_of(nodes, feeds, {"y": np.uint8}, CONSTANTS)
        session = InferenceSession(model, staged)
        for _ in range(3):
            feeds = {name: elements(random, np.float32, x.shape) for name, x in feeds.items()}
            require_equal(session.run(None, feeds), onnx_runtime(model, feeds))
        (bindings,) = session._bindings()
        assert len(bindings) == 5


@pytest.fixture
def large(device: dmlvk.Device) -> Iterator[tuple[InferenceSession, dict[str, Any], list[Any]]]:
    """A session with an input of 5 MB, which goes in pieces, and an output of 1 MB, its feeds and their outputs."""
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
    with monkeypatch.context() as patch:
        whole = np.empty
        patch.setattr(
            np, "empty", lambda sizes, *kind: whole((*sizes, 1 << 40) if np.size(sizes) > 2 else sizes, *kind)
        )
        with pytest.raises(MemoryError, match=r"Unable to allocate .* for an array with shape"):
            session.run(None, feeds)
    require_equal(session.run(None, feeds), expected)
