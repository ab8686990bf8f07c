"""The code in README and in the documentation runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

import dmlvk
from tests.conftest import DEVICE_NAMES
from tests.documentation.blocks import ROOT, Program, pages, programs, programs_of

PROGRAMS = programs()
README = [program for program in PROGRAMS if program.path.name == "README.md"]
PAGES = [program for program in PROGRAMS if program not in README]


@pytest.mark.every_driver
@pytest.mark.parametrize("program", README, ids=lambda program: program.name)
def test_readme_runs_on_every_test_driver(
    program: Program, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", device.profile.name)
    program.run()


# A page's cluster of its own takes ten seconds of a processor.
BY_DAY_AND_AT_NIGHT = [
    pytest.param(program, marks=pytest.mark.nightly) if program.has("LocalCluster(") else program for program in PAGES
]


@pytest.mark.parametrize("program", BY_DAY_AND_AT_NIGHT, ids=lambda program: program.name)
def test_a_page_runs(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # what a program writes
    monkeypatch.setenv("DMLVK_DEVICE", DEVICE_NAMES[0])
    program.run()


def test_no_page_is_left_out() -> None:
    assert len(PAGES) >= 30
    assert len(programs("torch")) >= 2
    assert len(programs("cuda")) >= 2
    with_code = {program.path for program in PAGES}
    for name in (
        "descriptors",
        "owned_tensors",
        "sequences",
        "interchange",
        "onnx",
        "dxdispatch",
        "clusters",
        "errors",
    ):
        assert ROOT / "docs" / f"{name}.md" in with_code


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_code_of_python_is_marked_as_such(path: Path) -> None:
    """Code that is indented, or in a block of another language, would not run."""
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        assert not line.startswith(("    import ", "    from ", "    session = ", "    device = ")) or any(
            line in code for program in programs_of(path) for _, code in program.blocks
        ), line


def test_a_wrong_block_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n```python\nx = 1\n```\n\n```python continued\nassert x == 2, 'two'\n```\n", encoding="utf-8"
    )
    (program,) = programs_of(page)
    with pytest.raises(AssertionError, match="two") as raised:
        program.run()
    assert raised.traceback[-1].lineno == 7
    page.write_text("```python\nimport dmlvk.onnx\n\nassert 1 == 2, 'apart'\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"(?s)line 4.*AssertionError: apart"):
        programs_of(page)[0].run()
    page.write_text("```python toch\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="'toch' is no mark"):
        programs_of(page)
