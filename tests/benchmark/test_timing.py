"""Times on the device are held against the host's clock."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import dmlvk
from dmlvk.benchmark.measurement import measure
from dmlvk.benchmark.networks.timing import time_chain
from dmlvk.benchmark.tables import failures
from dmlvk.benchmark.timing import Rounds, Times, require_final, time_bindings
from dmlvk.runtime.submission import MeasuredSubmission


@pytest.mark.parametrize(
    ("device", "host", "said"),
    [
        ((0.010, 0.011), (0.0101, 0.0112), None),
        ((0.010, 0.011), (0.0100, 0.0110), None),  # the clocks differ
        ((0.010, 0.011), (0.0101, 0.0100), "11.000 ms on the device, and 10.000 ms by the host's clock"),
        ((0.00001, 0.00001), (0.004, 0.004), None),  # a slow driver
        ((0.00001, 0.00001), (0.012, 0.004), None),  # a disturbed round
        ((0.00001, 0.00002), (0.012, 0.013), "at most 0.020 ms on the device, and at least 12.000 ms"),
        ((0.010, 0.010), (0.036, 0.036), "at most 10.000 ms"),
        ((0.010, 0.010), (0.034, 0.036), None),
    ],
)
def test_what_cannot_be_true(device: tuple[float, ...], host: tuple[float, ...], said: str | None) -> None:
    found = Rounds(Times(device), (Times(device),), None, Times(host)).untrue
    assert found is None if said is None else found is not None and found.startswith(said)


def test_kernels_that_others_take_the_place_of_are_not_timed(device: dmlvk.Device) -> None:
    final, general = (SimpleNamespace(is_final=is_final) for is_final in (True, False))
    require_final([final, final])  # type: ignore[list-item]
    for time_them in (time_bindings, partial(time_chain, is_repeated=False)):
        with pytest.raises(ValueError, match="compile with wait=True"):
            time_them(device, [final, general], 1)  # type: ignore[list-item]


@pytest.mark.parametrize("seconds", [None, 1e-6, 1e4])
def test_timestamps_that_cannot_be_true_are_told(
    device: dmlvk.Device, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = MeasuredSubmission.measured_times

    def times(submission: MeasuredSubmission) -> tuple[float, ...]:
        found = whole(submission)
        time.sleep(0.008)  # work that the timestamps leave out
        return (seconds or 0.0,) * len(found)

    if seconds is not None:
        monkeypatch.setattr(MeasuredSubmission, "measured_times", times)
    matrix = np.zeros((64, 64), np.float32)
    desc = dmlvk.DiagonalMatrix1Desc(
        output_tensor=dmlvk.TensorDesc.of(matrix), value=0, diagonal_fill_begin=0, diagonal_fill_end=1
    )
    with dmlvk.Device(device.profile.name, timestamps=True) as own:
        found = measure(own, desc, {}, matrix, rounds=50)
    assert found.correct
    assert (found.untrue is not None) is (seconds is not None)
    row = {"name": "a case", "untrue_timestamps": found.untrue}
    told = [f"a case: the driver's timestamps cannot be true: {found.untrue}"]
    assert list(failures({"cases": [row]})) == ([] if seconds is None else told)
