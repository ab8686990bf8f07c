"""CONTRIBUTING.md, the issue forms, the hooks and the Makefile agree with each other and with the tree."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from dmlvk.command_line import main
from tests.conftest import pytest_collection_modifyitems
from tools import bootstrap
from tools.format_kernels import kernel_files, run_clang_format

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
TEXTS = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *FORMS]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):(?!=)", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_targets_of_make_exist(path: Path) -> None:
    named = re.findall(r"(?:`|^ {4,}|[a-z] )make ([a-z-]+)(?=`| |$)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name in named if name in TARGETS or "-" in name} <= TARGETS


def test_targets_of_make_are_phony_and_in_its_help() -> None:
    phony = {name for line in re.findall(r"^\.PHONY:(.*)$", MAKEFILE, re.MULTILINE) for name in line.split()}
    assert phony == TARGETS
    assert set(re.findall(r"^make ([a-z-]+)", bootstrap.HELP, re.MULTILINE)) == TARGETS - {"help"}


def test_files_that_contributing_names_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\.?[a-z_]+/)*\.?[A-Za-z_-]+(?:\.[a-z]+|/))`", text)
    files = [name for name in named if name.startswith((".", *(path.name for path in ROOT.iterdir())))]
    assert len(files) >= 15
    assert [name for name in files if not (ROOT / name).exists() and name != ".venv"] == []


@pytest.mark.parametrize("path", [ROOT / "CONTRIBUTING.md", *FORMS], ids=lambda path: path.name)
def test_commands_and_their_options_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for command_line in re.findall(r"`dmlvk ([^`]+)`", text):
        name, *words = command_line.split()
        command = main.commands[name]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
        assert isinstance(command, click.Command)


def test_forms_ask_for_what_a_report_needs() -> None:
    assert [path.stem for path in FORMS] == ["config", "driver_report", "wrong_result"]
    driver, wrong = (path.read_text(encoding="utf-8") for path in FORMS[1:])
    for text in (driver, wrong):
        assert "`dmlvk devices`" in text
        assert "required: true" in text
    assert "`dmlvk conformance --json results.jsonl --export failures`" in driver


def test_hooks_call_what_the_environment_has() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"^ +entry: (.*)$", text, re.MULTILINE)
    assert len(entries) == text.count("language: system") == text.count("- id: ") >= 5
    assert all(entry.startswith(".venv/bin/") for entry in entries)
    assert "repo: local" in text
    assert text.count("- repo:") == 1


def test_kernels_are_formatted() -> None:
    files = kernel_files()
    assert len(files) > 50
    assert run_clang_format(files, check=True) == 0


def test_a_kernel_that_is_not_formatted_is_found(tmp_path: Path) -> None:
    (kernel,) = (path for path in kernel_files() if path.name == "copy.comp" and path.parent.name == "benchmark")
    source = kernel.read_text(encoding="utf-8")
    copied = tmp_path / "copy.comp"
    copied.write_text(source.replace("    uint ", "  uint ", 1), encoding="utf-8")
    assert run_clang_format([copied], check=True) != 0
    assert run_clang_format([copied], check=False) == 0
    assert copied.read_text(encoding="utf-8") == source


def test_a_mark_names_the_sample_that_further_drivers_run_by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the bullets on drivers say: the first driver runs everything, and the night too."""
    mark = pytest.mark.every_driver(x_type=["u8"], bits=[8, 64]).mark

    def collected(is_night: bool, mark: pytest.Mark) -> list[tuple[Any, ...]]:
        items: list[Any] = [
            SimpleNamespace(
                callspec=SimpleNamespace(params={"device": device, "x_type": x_type, "bits": bits}),
                get_closest_marker={"every_driver": mark}.get,
            )
            for device in ("first", "second")
            for x_type in ("u8", "s8")
            for bits in (8, 16)
        ]
        hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
        left_out: list[Any] = []
        count = len(items)
        config: Any = SimpleNamespace(getoption={"--every-driver": is_night}.get, hook=hook)
        pytest_collection_modifyitems(config, items)
        assert len(items) + len(left_out) == count
        return [tuple(item.callspec.params.values()) for item in items]

    monkeypatch.setattr("tests.conftest.DEVICE_NAMES", ["first", "second"])
    monkeypatch.setattr("tests.conftest.THOROUGH", False)
    monkeypatch.setattr("tests.conftest.has_named_devices", False)
    on_first = [("first", x_type, bits) for x_type in ("u8", "s8") for bits in (8, 16)]
    assert collected(False, mark) == [*on_first, ("second", "u8", 8)]
    assert len(collected(True, mark)) == 8
    assert len(collected(False, pytest.mark.every_driver.mark)) == 8
    monkeypatch.setattr("tests.conftest.has_named_devices", True)
    assert len(collected(False, mark)) == 8


def test_half_of_the_values_by_day_still_meet_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixture's parameter, and two of the test, of which one has two names."""
    monkeypatch.setattr("tests.conftest.THOROUGH", False)
    monkeypatch.setattr("tests.conftest.has_named_devices", False)
    types: list[tuple[str, dict[str, int]]] = [("u8", {}), ("s8", {})]
    numbers = [7, pytest.param(8, marks=pytest.mark.every_driver), 9]
    marks = [pytest.mark.parametrize(("x", "y"), types).mark, pytest.mark.parametrize("number", numbers).mark]
    items: list[Any] = [
        SimpleNamespace(
            callspec=SimpleNamespace(
                params={"device": "first", "form": form, "x": x, "y": y, "number": number}, indices={"form": place}
            ),
            get_closest_marker={"half_by_day": pytest.mark.half_by_day.mark}.get,
            iter_markers=lambda name: marks,
        )
        for place, form in enumerate("ab")
        for x, y in types
        for number in (7, 8, 9)
    ]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    config: Any = SimpleNamespace(getoption=lambda name: False, hook=hook)
    pytest_collection_modifyitems(config, items)
    left = [item.callspec.params for item in items]
    assert len(left) == 6
    for one, other, count in (("form", "x", 4), ("form", "number", 6), ("x", "number", 6)):
        assert len({(params[one], params[other]) for params in left}) == count
