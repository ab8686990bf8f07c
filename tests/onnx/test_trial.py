"""A divided run is measured beside the host alone, and the faster is kept. The clock of these tests is their own."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession, ModelError, crossings, host, trial
from dmlvk.onnx.steps import DeviceStep
from dmlvk.onnx.trial import RUNS, DivisionTrial
from tests.onnx.models import Array, elements, model_of, require_equal


class Ways:
    """Two ways to run that take given times by a clock that only they move; and what ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, divided: float = 2.0, alone: float = 1.0) -> None:
        self.seconds = {"divided": divided, "alone": alone}
        self.outputs: dict[str, Any] = {way: [np.array([1.0, np.nan], np.float32)] for way in self.seconds}
        self.ran: list[str] = []
        self.now = 0.0
        monkeypatch.setattr(trial, "perf_counter", lambda: self.now)

    def run(self, way: str) -> Sequence[Any]:
        self.ran.append(way)
        self.now += self.seconds[way]
        found: Sequence[Any] = self.outputs[way]
        return found


def test_the_faster_way_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a stretch of its own."""
    ways, choice = Ways(monkeypatch), DivisionTrial("alone")
    assert choice.choose("divided", 3, ways.run) == "alone"
    assert ways.ran == ["divided"] * (1 + RUNS) + ["alone"] * (2 + RUNS)
    assert choice.reason == "measured: 1e+03 ms as a whole on the host, 2e+03 in 3 parts"
    assert choice.choose("divided", 3, ways.run) == "alone" and len(ways.ran) == 2 * RUNS + 3


@pytest.mark.parametrize(("alone", "runs"), [(2.0, 1 + RUNS), (2.5, 1 + RUNS), (9.0, 1)])
def test_the_divided_way_stays_if_it_is_as_fast(monkeypatch: pytest.MonkeyPatch, alone: float, runs: int) -> None:
    """A way that takes more than four times as long is not timed again."""
    ways, choice = Ways(monkeypatch, alone=alone), DivisionTrial("alone")
    assert choice.choose("divided", 3, ways.run) == "divided" and choice.is_decided
    assert ways.ran.count("alone") == 1 + runs and "measured" in choice.reason
    assert choice.alone is None


@pytest.mark.parametrize(
    "other",
    [
        [np.array([1.0, -np.nan], np.float32)],
        [np.array([1.0, np.nan])],
        [np.array([[1.0, np.nan]], np.float32)],
        [[np.array([1.0, np.nan], np.float32)]],
    ],
)
def test_a_way_with_other_bits_is_not_chosen(monkeypatch: pytest.MonkeyPatch, other: list[Any]) -> None:
    ways, choice = Ways(monkeypatch), DivisionTrial("alone")
    ways.outputs["alone"] = other
    assert choice.choose("divided", 3, ways.run) == "divided" and choice.is_decided
    assert ways.ran.count("alone") == 1 and "other bits" in choice.reason


def test_a_host_that_refuses_the_whole_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    ways, choice = Ways(monkeypatch), DivisionTrial("alone")

    def run(way: str) -> Sequence[Any]:
        if way == "alone":
            raise ModelError("no memory")
        return ways.run(way)

    assert choice.choose("divided", 3, run) == "divided" and choice.is_decided
    assert choice.reason == "not as a whole on the host: no memory"


def test_the_first_runs_of_a_way_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of ONNX Runtime's session, for example: it is timed until it gets no faster, but not for ever."""
    ways, choice = Ways(monkeypatch), DivisionTrial("alone")
    slow = iter([7.0, 5.0, 3.0, 2.5, 2.2])

    def run(way: str) -> Sequence[Any]:
        ways.seconds["alone"] = next(slow, 1.0) if way == "alone" else 2.0
        return ways.run(way)

    assert choice.choose("divided", 3, run) == "alone"
    ways, choice = Ways(monkeypatch, alone=1e-3), DivisionTrial("alone")

    def ever_faster(way: str) -> Sequence[Any]:
        ways.seconds[way] *= 0.9
        return ways.run(way)

    choice.choose("divided", 3, ever_faster)
    assert choice.is_decided and len(ways.ran) == 2 * trial.MOST_RUNS + 1


@pytest.mark.parametrize("failing", ["divided", "alone"])
def test_an_exception_leaves_the_choice_to_a_later_run(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    ways, choice = Ways(monkeypatch), DivisionTrial("alone")

    def run(way: str) -> Sequence[Any]:
        if way == failing:
            raise KeyboardInterrupt
        return ways.run(way)

    with pytest.raises(KeyboardInterrupt):
        choice.choose("divided", 3, run)
    assert not choice.is_decided and not choice.reason
    assert choice.choose("divided", 3, ways.run) == "alone"


def test_other_threads_run_divided_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    ways, choice = Ways(monkeypatch), DivisionTrial("alone")
    found: list[str] = []

    def run(way: str) -> Sequence[Any]:
        if not found:
            other = threading.Thread(target=lambda: found.append(choice.choose("divided", 3, ways.run)))
            other.start()
            other.join()
        return ways.run(way)

    assert choice.choose("divided", 3, run) == "alone"
    assert found == ["divided"] and len(ways.ran) == 2 * RUNS + 3


def network() -> onnx.ModelProto:
    """Movement for batches of any size, and in its middle a function that the host computes."""
    nodes: list[Any] = [
        ("Transpose", ["x"], ["turned"], {"perm": [0, 2, 3, 1]}),
        ("Softmax", ["turned"], ["shares"], {"axis": -1}),
        ("Transpose", ["shares"], ["back"], {"perm": [0, 3, 1, 2]}),
        ("Concat", ["back", "back"], ["y"], {"axis": 1}),
    ]
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 12, 12])
    return model_of(nodes, {"x": given}, {"y": np.float32})


def image(seed: int, count: int = 1) -> dict[str, Array]:
    return {"x": elements(np.random.default_rng(seed), np.float32, (count, 3, 12, 12))}


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the divided way and of the host alone, which a test sets; crossings cost nothing."""
    found = [2.0, 1.0]
    costs_of = crossings.costs_of

    def free_crossings(profile: Any) -> Any:
        return replace(costs_of(profile), crossing=0.0, host_call=1e-4, host_operations=1e6)

    def least_seconds(run: Callable[[], Sequence[Any]], most: float | None = None) -> tuple[Sequence[Any], float]:
        return run(), found[0 if most is None else 1]

    monkeypatch.setattr(crossings, "costs_of", free_crossings)
    monkeypatch.setattr(trial, "_least_seconds", least_seconds)
    monkeypatch.setattr("dmlvk.onnx.on_device.DOUBT", 1e9)
    monkeypatch.setattr("dmlvk.onnx.on_device.has_onnx_runtime", lambda: True)
    return found


def test_a_session_keeps_the_faster_way(device: dmlvk.Device, times: list[float]) -> None:
    """With the same bits before and after, and without the memory of the way that it leaves."""
    model = network()
    plain = InferenceSession(model, device, placement="device")
    session = InferenceSession(model, device, placement="fastest")
    expected = [plain.run(None, image(seed)) for seed in range(4)]
    require_equal(session.run(None, image(0)), expected[0])
    assert session.traffic.parts == 3 and session.memory.peak > 0
    assert not any("measured" in row.reason for row in session.placement)
    executions = [weakref.ref(execution) for execution in session._executions()]
    for seed in (1, 2, 3):
        require_equal(session.run(None, image(seed)), expected[seed])
        assert session.traffic.parts == 1 and session.memory.peak == 0
        assert {row.where for row in session.placement} == {"host"}
        assert session.placement[0].reason == "measured: 1e+03 ms as a whole on the host, 2e+03 in 3 parts"
        assert "measured" not in session.placement[1].reason, "the device has no Softmax"
    gc.collect()
    assert executions and not any(each() for each in executions)
    require_equal(session.run(None, image(4, count=2)), plain.run(None, image(4, count=2)))
    assert session.traffic.parts == 3, "other sizes are measured by themselves"


def test_a_session_stays_divided_where_that_is_faster(device: dmlvk.Device, times: list[float]) -> None:
    times[:] = [1.0, 2.0]
    session = InferenceSession(network(), device, placement="fastest")
    expected = InferenceSession(network(), device, placement="device").run(None, image(1))
    for _ in range(3):
        require_equal(session.run(None, image(1)), expected)
        assert session.traffic.parts == 3
    rows = [row for row in session.placement if row.where == "device"]
    assert rows and all(row.reason.endswith("2e+03 ms as a whole on the host, 1e+03 in 3 parts") for row in rows)


@pytest.mark.parametrize("placement", ["device", "fastest"])
def test_nothing_is_measured_without_doubt(
    device: dmlvk.Device, times: list[float], monkeypatch: pytest.MonkeyPatch, placement: Any
) -> None:
    monkeypatch.setattr("dmlvk.onnx.on_device.DOUBT", 1.0)
    session = InferenceSession(network(), device, placement=placement)
    monkeypatch.setattr(DivisionTrial, "choose", None)
    for _ in range(3):
        session.run(None, image(1))
    assert session.traffic.parts == 3 and not any("measured" in row.reason for row in session.placement)


def test_a_host_that_cannot_run_the_whole(
    device: dmlvk.Device, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = InferenceSession(network(), device, placement="fastest")
    (expected,) = session.run(None, image(1))
    run = host.HostPart.run

    def refuse(self: host.HostPart, feeds: Any) -> Any:
        if "x" in feeds:
            raise ModelError("no memory")
        return run(self, feeds)

    monkeypatch.setattr(host.HostPart, "run", refuse)
    for _ in range(2):
        require_equal(session.run(None, image(1)), [expected])
        assert session.traffic.parts == 3
    assert session.placement[0].reason == "not as a whole on the host: no memory"


def test_an_error_of_a_measured_run_is_the_callers(
    device: dmlvk.Device, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*arguments: Any) -> None:
        raise dmlvk.DeviceError("lost")

    session = InferenceSession(network(), device, placement="fastest")
    (expected,) = session.run(None, image(1))
    with monkeypatch.context() as patch:
        patch.setattr(DeviceStep, "run", lose)
        with pytest.raises(dmlvk.DeviceError, match="lost"):
            session.run(None, image(1))
    require_equal(session.run(None, image(1)), [expected])
    assert session.traffic.parts == 1


def test_runs_at_once_share_the_choice(device: dmlvk.Device, times: list[float]) -> None:
    session = InferenceSession(network(), device, placement="fastest", runs_at_once=3)
    plain = InferenceSession(network(), device, placement="device")
    batches = [image(seed) for seed in range(24)]
    for found, batch in zip(session.map(batches), batches, strict=True):
        require_equal(found, plain.run(None, batch))
    for part in session._parts:
        part.run(["y"], batches[0])
        part.run(["y"], batches[0])
        assert part.last is not None and len(part.last.steps) == 1
