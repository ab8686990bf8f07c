"""The example of a pipeline with torch runs, and notices a wrong result."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

import dmlvk
from examples import torch_pipeline


def test_the_pipeline(device: dmlvk.Device) -> None:
    result = CliRunner().invoke(torch_pipeline.main, ["--device", device.name, "--images", "2"])
    assert result.exit_code == 0, result.output
    assert "(2, 3, 36, 36) of uint8 to (2, 8, 16, 16)" in result.output
    assert "dmlvk.slice1.default, dmlvk.quantized_linear_convolution.default" in result.output
    assert "torch's own result, bit for bit" in result.output


def test_it_notices_a_wrong_result(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = torch_pipeline.expected

    def other(*tensors: torch.Tensor) -> torch.Tensor:
        found = expected(*tensors)
        found[-1, -1, -1, -1] += 1
        return found

    monkeypatch.setattr(torch_pipeline, "expected", other)
    result = CliRunner().invoke(torch_pipeline.main, ["--device", device.name])
    assert result.exit_code == 1
    assert "differs from torch's own result: the module and the exported program" in result.output
