"""The code with torch in README and in the documentation runs as it stands."""

from __future__ import annotations

import pytest

import dmlvk
from tests.documentation.blocks import Program, programs


@pytest.mark.parametrize("program", programs("torch"), ids=lambda program: program.name)
def test_a_page_runs(program: Program, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", device.profile.name)
    program.run()
