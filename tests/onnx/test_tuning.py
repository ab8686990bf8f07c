"""`session.tune()` and `InferenceSession(model, tune=True)`: layers are measured once, and results stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk import planning
from dmlvk.onnx import InferenceSession
from dmlvk.operators import OperatorDesc
from dmlvk.runtime import tuned_paths, tuning
from tests.onnx.models import convolution, convolution_parameters, model_of


def _fastest_is_direct(engine: object, desc: OperatorDesc, *_: object) -> tuning.Tuning:
    return tuning.Tuning(desc, "integer", {"integer": 2.0, "direct": 1.0}, {})


@pytest.fixture
def own(device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dmlvk.Device]:
    """A device that remembers nothing yet, for which two paths are close and the second one is the faster."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(planning, "close_paths", lambda desc, profile: ["integer", "direct"])
    monkeypatch.setattr(tuning, "_measured", _fastest_is_direct)
    with dmlvk.Device(device.name) as opened:
        yield opened


def model_and_input() -> tuple[onnx.ModelProto, dict[str, Any]]:
    generator = np.random.default_rng(3)
    x = generator.integers(0, 256, (1, 6, 7, 7)).astype(np.uint8)
    parameters = convolution_parameters(generator, (8, 6, 3, 3))
    return model_of([convolution(parameters)], {"x": x}, {"y": np.uint8}, parameters), {"x": x}


@pytest.mark.parametrize("at_once", [True, False])
def test_a_session_takes_what_was_measured(own: dmlvk.Device, at_once: bool) -> None:
    model, feeds = model_and_input()
    expected = InferenceSession(model, own).run(None, feeds)
    session = InferenceSession(model, own, tune=at_once, placement="device")
    if not at_once:
        session.run(None, feeds)
        session.tune()
    found = session.run(None, feeds)
    np.testing.assert_array_equal(found, expected)
    (choice,) = tuned_paths.read(tuned_paths.TunedPaths(own.profile).file)
    assert choice.path == "direct"
    again = InferenceSession(model, own, placement="device")
    np.testing.assert_array_equal(again.run(None, feeds), expected)


def test_sizes_that_a_model_leaves_open_need_inputs(own: dmlvk.Device) -> None:
    model, feeds = model_and_input()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "rows"
    session = InferenceSession(model, own, placement="device")
    with pytest.raises(ValueError, match=r"input 'x' has sizes .*'rows'.*pass inputs"):
        session.tune()
    session.tune(feeds)
    (choice,) = tuned_paths.read(tuned_paths.TunedPaths(own.profile).file)
    assert choice.descriptor["input_tensor"]["sizes"] == [1, 6, 7, 7]
