"""The same run again and again, and a device that once gives other bits."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import dmlvk
from dmlvk.command_line import main
from dmlvk.onnx import InferenceSession
from tests.onnx.models import convolution, convolution_parameters, elements, model_of

SHAPE = (2, 3, 9, 8)


@pytest.fixture
def model() -> onnx.ModelProto:
    parameters = convolution_parameters(np.random.default_rng(0), (4, 3, 3, 3), per_channel=True)
    return model_of(
        [convolution(parameters)],
        {"x": elements(np.random.default_rng(1), np.uint8, SHAPE)},
        {"y": np.uint8},
        parameters,
    )


def inject(monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    """Have one run of all change a bit of one element of its output."""
    real, count = InferenceSession.run, [0]

    def wrong(self: InferenceSession, *arguments: object, **options: object) -> list[np.ndarray]:
        outputs = real(self, *arguments, **options)  # type: ignore[arg-type]
        count[0] += 1
        if count[0] == run:
            outputs[0][1, 2, 3, 4] ^= 1
        return outputs

    monkeypatch.setattr(InferenceSession, "run", wrong)


def test_a_difference_is_named_and_both_arrays_are_kept(
    device: dmlvk.Device, model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = InferenceSession(model, device)
    feeds = {"x": elements(np.random.default_rng(1), np.uint8, SHAPE)}
    told: list[tuple[int, int]] = []
    assert session.repeat(feeds, 5, lambda *numbers: told.append(numbers)) == []
    assert told == [(2, 5), (3, 5), (4, 5), (5, 5)]
    ended: list[int] = []

    def ends(number: int, runs: int) -> bool:
        ended.append(number)
        return number < 3

    assert session.repeat(feeds, 5, ends) == [] and ended == [2, 3]
    inject(monkeypatch, 3)
    (found,) = session.repeat(feeds, 5)
    assert (found.run, found.output, found.element, found.count) == (3, "y", (1, 2, 3, 4), 1)
    assert np.count_nonzero(found.first != found.found) == 1
    assert f"run 3: y[1, 2, 3, 4] is {found.found[1, 2, 3, 4]}; in the first run it was" in str(found)
    with pytest.raises(ValueError, match="runs"):
        session.repeat(feeds, 1)


def test_the_command(model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    arguments = ["run", str(path), "--device", "llvmpipe", "--repeat", "4", "--output", str(tmp_path / "kept")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "Each of 4 runs gave the same bits." in done.output
    assert "a GPU would be faster" in done.output and "the device's nodes" in done.output
    inject(monkeypatch, 4)  # the first run of the command is one more
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1 and "the same run gave other bits: run 3: y[1, 2, 3, 4]" in done.output
    first, other = (np.load(tmp_path / "kept" / f"y_{kind}.npy") for kind in ("first", "run_3"))
    assert np.argwhere(first != other).tolist() == [[1, 2, 3, 4]]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_tells_how_many_runs_were_the_same(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    run, count = InferenceSession.run, 0

    def interrupted(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count == 6:  # the command's own run comes first
            os.kill(os.getpid(), signal.SIGINT)
        return run(*arguments, **named)

    monkeypatch.setattr(InferenceSession, "run", interrupted)
    done = CliRunner().invoke(main, ["run", str(path), "--device", "llvmpipe", "--repeat", "1000000"])
    assert done.exit_code == 130, done.output
    assert "Each of 5 runs gave the same bits." in done.output
    assert "Interrupted after 5 of 1,000,000 runs" in done.output
