"""Inputs and outputs that stay in the host's memory, where the device has memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession
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


@pytest.mark.parametrize("sizes", [(2, 3, 20, 30), (1, 8, 64, 70), (1, 2, 400, 400)])
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
