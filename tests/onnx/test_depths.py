"""The order of a program's dispatches, and the barriers between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.runtime.command_writer import Hazards
from tests.onnx.models import Node, elements, model_of, onnx_runtime, require_equal, weights

SIZES = (1, 16, 20, 20)


def convolution(source: str, output: str) -> Node:
    """QLinearConv, one by one, from 16 to 16 channels."""
    read = [source, "scale", "point", f"w_{output}", "scale", "zero", "wide", "point"]
    return ("QLinearConv", read, [output], {"kernel_shape": [1, 1]})


# By name: the convolutions, with what they read; two that are added; and the barriers.
CASES: dict[str, tuple[dict[str, str], tuple[str, str], int]] = {
    "the branches of a residual block": ({"a": "x", "b": "a", "c": "b", "d": "x"}, ("d", "c"), 2),
    "two inputs": ({"a": "x", "b": "z", "c": "a", "d": "b"}, ("c", "d"), 2),
    "a chain": ({"a": "x", "b": "a"}, ("a", "b"), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_branches_run_at_the_same_time(device: dmlvk.Device, case: str) -> None:
    """No barrier is between dispatches that do not need one; none comes up because two values share memory."""
    read, summands, barriers = CASES[case]
    random = np.random.default_rng(8)
    constants: dict[str, Any] = {
        **{f"w_{name}": weights(random, np.int8, (16, 16, 1, 1)) for name in read},
        "scale": np.float32(0.02),
        "wide": np.float32(0.3),
        "point": np.uint8(117),
        "zero": np.int8(0),
    }
    parts = [part for name in summands for part in (name, "wide", "point")]
    nodes = [convolution(source, output) for output, source in read.items()]
    nodes.append(("com.microsoft.QLinearAdd", [*parts, "wide", "point"], ["y"], {}))
    given = sorted({*read.values()} - {*read})
    feeds: dict[str, Any] = {name: elements(random, np.uint8, SIZES) for name in given}
    model = model_of(nodes, feeds, {"y": np.uint8}, constants)
    session = InferenceSession(model, device)
    for _ in range(2):
        require_equal(session.run(None, feeds), onnx_runtime(model, feeds))
        feeds = {name: elements(random, np.uint8, SIZES) for name in feeds}
    (bindings,) = session._bindings()
    hazards = Hazards()
    assert sum(hazards.add(binding) for binding in bindings) == barriers
