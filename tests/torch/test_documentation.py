"""The code with torch in README and in the documentation runs as it stands."""

from __future__ import annotations

import doctest

import pytest

import dmlvk
from tests.conftest import DEVICE_NAMES
from tests.documentation.blocks import ROOT, Program, programs


@pytest.mark.parametrize("program", programs("torch"), ids=lambda program: program.name)
def test_a_page_runs(program: Program, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", device.profile.name)
    program.run()


def test_the_reference_gives_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", DEVICE_NAMES[0])
    page = ROOT / "docs" / "reference" / "torch.rst"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.failed == 0 and found.attempted >= 8
