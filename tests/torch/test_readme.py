"""The README's examples with torch run as they stand."""

from __future__ import annotations

import pytest

import dmlvk
from tests.test_readme import TORCH_EXAMPLES


@pytest.mark.parametrize("example", TORCH_EXAMPLES, ids=[f"example{n}" for n in range(1, len(TORCH_EXAMPLES) + 1)])
def test_example_runs(example: str, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", device.profile.name)
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})


def test_there_is_an_example() -> None:
    assert any("dmlvk.torch.slice1(" in example for example in TORCH_EXAMPLES)
