"""`session.tune()` and `InferenceSession(model, tune=True)`: layers are measured once, and results stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk import planning
from dmlvk.onnx import InferenceSession, on_device
from dmlvk.operators import OperatorDesc
from dmlvk.runtime import tuned_paths, tuning
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.sequence import Sequence
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


@pytest.mark.parametrize(
    ("saves", "alone", "late", "taken"),
    [
        pytest.param(0.2, 1.0, {}, "direct", id="faster"),
        pytest.param(0.2, 0.5, {}, "direct", id="faster alone, too"),
        pytest.param(-0.2, 0.5, {}, None, id="faster alone only"),
        pytest.param(0.05, 1.0, {}, None, id="by less than chance"),
        pytest.param(0.2, 1.0, {15: 0.15}, None, id="by chance in two of three recordings"),
        pytest.param(0.2, 1.0, {19: 0.25}, None, id="not together with all others"),
    ],
)
def test_on_a_gpu_a_path_is_taken_if_the_whole_run_is_faster(
    device: dmlvk.Device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    saves: float,
    alone: float,
    late: dict[int, float],
    taken: str | None,
) -> None:
    """By more than chance saves: bound anew, the same paths take a tenth longer or less here.

    alone: the seconds of the other path by itself; those of the planner's are 1.
    late: what recordings take more, by their number: 1 to 9 find out what chance saves, 10 to 15 measure the path, and
        16 to 21 all paths that were taken, with those of the beginning before them.
    """
    late = {3: 0.1, 5: 0.1, 7: -0.1, 9: 0.1} | late
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(planning, "close_paths", lambda desc, profile: ["integer", "direct"])
    monkeypatch.setattr(tuning, "STEADY_SECONDS", 0.0)
    monkeypatch.setattr(on_device, "DeviceType", SimpleNamespace(CPU=None))
    measured = {"integer": 1.0, "direct": alone}
    monkeypatch.setattr(tuning, "_measured", lambda _, desc, *__: tuning.Tuning(desc, "integer", measured, {}))
    recorded: list[list[Binding]] = []
    sequence, times = tuning._sequence, {"integer": 1.0, "direct": 1.0 - saves}

    def record(engine: Engine, bindings: list[Binding]) -> Sequence:
        recorded.append(bindings)
        made = sequence(engine, bindings)
        time = sum(times.get(each.plan.path, 1.0) for each in bindings) + late.get(len(recorded), 0.0)
        seconds[id(made)] = made, time
        return made

    seconds: dict[int, tuple[Sequence, float]] = {}
    monkeypatch.setattr(tuning, "_sequence", record)
    monkeypatch.setattr(tuning, "_timed", lambda _, made: seconds[id(made)][1])
    with dmlvk.Device(device.name) as opened:
        model, feeds = model_and_input()
        session = InferenceSession(model, opened, placement="device")
        expected = session.run(None, feeds)
        session.tune(feeds)
        found = session.run(None, feeds)
        np.testing.assert_array_equal(found, expected)
        (choice,) = tuned_paths.read(tuned_paths.TunedPaths(opened.profile).file)
        assert choice.path == taken
        assert (session._bindings()[0][0].plan.path == "direct") == (taken == "direct")
        count = len(recorded)
        session.tune(feeds)
        assert len(recorded) == count, "what is remembered is not measured again"


def test_sizes_that_a_model_leaves_open_need_inputs(own: dmlvk.Device) -> None:
    model, feeds = model_and_input()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "rows"
    session = InferenceSession(model, own, placement="device")
    with pytest.raises(ValueError, match=r"input 'x' has sizes .*'rows'.*pass inputs"):
        session.tune()
    session.tune(feeds)
    (choice,) = tuned_paths.read(tuned_paths.TunedPaths(own.profile).file)
    assert choice.descriptor["input_tensor"]["sizes"] == [1, 6, 7, 7]
