"""DMLVK_DEBUG."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dmlvk
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (4096,))
LINE = r"dmlvk (?P<device>.+): SLICE1 (?P<kernel>[\w/]+) \d+x\d+x\d+ groups of \d+ \d+\.\d us \d+\.\d\d GB/s"


def run(device: dmlvk.Device) -> int:
    """Runs copies as a call, a list and a sequence; returns how many dispatches."""
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source, target, third = own.tensor(np.arange(4096, dtype=np.int32)), own.tensor(DESC), own.tensor(DESC)
        bindings = [
            copy.bind(input_tensor=source, output_tensor=target),
            copy.bind(input_tensor=target, output_tensor=third),
        ]
        copy(input_tensor=source, output_tensor=target)
        own.submit(bindings)
        sequence = own.sequence(bindings)
        sequence.submit()
        sequence.submit()
        np.testing.assert_array_equal(third.numpy(), source.numpy())
        return 7 * len(copy.plan.dispatches)


def test_one_prints_a_line_a_dispatch(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DMLVK_DEBUG", "1")
    count = run(device)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == count
    for line in lines:
        match = re.fullmatch(LINE, line)
        assert match is not None, line
        assert match["device"] == device.name
        assert match["kernel"] == device.compile(copy_desc(DESC)).plan.dispatches[0].kernel


def test_two_prints_plan_and_specialization_constants(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DMLVK_DEBUG", "2")
    count = run(device)
    text = capsys.readouterr().err
    plan = device.compile(copy_desc(DESC)).plan
    assert text.count("specialization constants [") == count
    assert text.count(f"path {plan.path}, stage 0") == count
    assert str(list(plan.dispatches[0].specialization)) in text
    assert "read input_tensor[0:16384]" in text
    assert "write output_tensor[0:16384]" in text


def test_off_prints_nothing(device: dmlvk.Device, capsys: pytest.CaptureFixture[str]) -> None:
    run(device)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_another_value_is_refused(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DEBUG", "verbose")
    with pytest.raises(ValueError, match="DMLVK_DEBUG is 'verbose'; it can be 0, 1"):
        open_variant(device, "direct")
