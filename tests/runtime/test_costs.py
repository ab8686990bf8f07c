"""What calls cost the host, in bytecodes: the same on a loaded machine as on an idle one.

`python -m bench.dispatch` measures the time. A bytecode takes about 10 ns on the machines where that was tried, and a
mark of 5% is a handful of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession
from tests.onnx.models import model_of
from tests.vulkan.variants import copy_desc

VALUES = np.arange(64, dtype=np.int32)
DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, VALUES.shape)

# Limits are for Python 3.11 with the validation layer, for whose messages each call looks. Other versions divide the
# same work into other bytecodes.
SLACK = 1.05 if sys.version_info[:2] == (3, 11) else 1.6


def bytecodes(step: Callable[[], object]) -> int:
    """The number of bytecodes that a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(earlier)
    return count


@pytest.fixture
def bindings(device: dmlvk.Device) -> list[Any]:
    copy = device.compile(copy_desc(DESC))
    tensors = [device.tensor(VALUES), device.tensor(DESC)]
    there, back = (copy.bind(input_tensor=a, output_tensor=b) for a, b in (tensors, tensors[::-1]))
    return [there, back] * 50


def warm(device: dmlvk.Device, step: Callable[[], object]) -> int:
    """The fewest bytecodes of nine calls: in one of them, work of another thread may have just ended."""
    for _ in range(3):
        step()
        device.wait()
    found = []
    for _ in range(9):
        found.append(bytecodes(step))
        device.wait()
    return min(found)


def test_a_call(device: dmlvk.Device) -> None:
    copy = device.compile(copy_desc(DESC))
    source, target = device.tensor(VALUES), device.tensor(DESC)
    assert warm(device, lambda: copy(input_tensor=source, output_tensor=target)) <= 148 * SLACK


def test_a_list_of_one(device: dmlvk.Device, bindings: list[Any]) -> None:
    assert warm(device, lambda: device.submit(bindings[:1])) <= 183 * SLACK


def test_a_list(device: dmlvk.Device, bindings: list[Any]) -> None:
    """A remembered list costs one look at each binding."""
    two = warm(device, lambda: device.submit(bindings[:2]))
    hundred = warm(device, lambda: device.submit(bindings))
    assert (hundred - two) / 98 <= 24 * SLACK


def test_a_sequence(device: dmlvk.Device, bindings: list[Any]) -> None:
    sequence = device.sequence(bindings)
    assert warm(device, sequence.submit) <= 130 * SLACK


def test_a_models_run(device: dmlvk.Device) -> None:
    """From array to array; a run is like the one before, and looks at nothing else."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    session = InferenceSession(model_of([("Transpose", ["x"], ["y"], {})], {"x": x}, {"y": np.float32}), device)
    # 908 or 48 more, as the device is done before the run looks for it or after that.
    assert warm(device, lambda: session.run(None, {"x": x})) <= (908 + 48) * SLACK


def test_descriptors() -> None:
    assert bytecodes(lambda: dmlvk.TensorDesc(dmlvk.DataType.INT8, (1, 8, 8, 8))) <= 560 * SLACK
    window = {"input_window_offsets": [0], "input_window_sizes": [64], "input_window_strides": [-1]}
    assert bytecodes(lambda: dmlvk.Slice1Desc(input_tensor=DESC, output_tensor=DESC, **window)) <= 920 * SLACK
