"""The suite can fail: it catches a few broken kernels here. `make test-mutants` runs all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import dmlvk
from dmlvk.conformance.results import Result, Status
from tests.mutants import __main__ as command_line
from tests.mutants.__main__ import MUTANTS
from tests.mutants.mutant import Mutant, Verdict, compile_mutant, verdict

# One mutant of each operator; only guard bytes show the third. The last one is in the host's part.
SAMPLE = (
    "begin == end is filled",
    "the low 32 bits of an index alone",
    "a gap is written",
    "an unsigned input read as signed, directly",
    "a sequence is recorded again with the dispatches of its last binding alone",
)


def named(name: str) -> Mutant:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == name)
    return mutant


@pytest.mark.parametrize("name", SAMPLE)
def test_a_broken_kernel_is_caught(device: dmlvk.Device, tmp_path: Path, name: str) -> None:
    found = verdict(named(name), device.name, tmp_path)
    assert found.caught_by is not None, f"{found.passed} cases passed with a kernel in which {name}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_s_edit_fits_the_kernel(mutant: Mutant) -> None:
    assert mutant.broken_source()


@pytest.mark.parametrize(
    ("options", "runs_on", "status"),
    [
        ([], "nothing", 0),
        (["--must-run"], "nothing", 1),
        (["--must-run"], "llvmpipe", 0),
        (["--fetch"], "SwiftShader", 0),
        (["--fetch"], "newest Mesa", 0),
        (["--fetch"], "nothing", 1),
    ],
)
def test_what_a_device_does_not_run_has_to_run_elsewhere(
    options: list[str], runs_on: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[list[str]] = []

    def judged(mutant: Mutant, device: str, folder: Path) -> Verdict:
        caught = Result("a:x=1", "device", Status.FAIL)
        return Verdict(caught, 0, True) if runs_on == device else Verdict(None, 3, False)

    def run_elsewhere(names: list[str]) -> int:
        fetched.append(names)
        return 0 if runs_on == "newest Mesa" else 1

    monkeypatch.setattr(command_line, "verdict", judged)
    monkeypatch.setattr(command_line, "run_elsewhere", run_elsewhere)
    monkeypatch.setattr(dmlvk, "devices", lambda: [SimpleNamespace(name="SwiftShader Device")])
    monkeypatch.setattr(sys, "argv", ["tests.mutants", *options, SAMPLE[0], SAMPLE[1]])
    assert command_line.main() == status
    is_fetched = "--fetch" in options and runs_on != "SwiftShader"
    assert fetched == ([list(SAMPLE[:2])] if is_fetched else [])


def test_there_are_twenty_mutants_and_more_with_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20


def test_an_edit_that_no_longer_fits_is_told() -> None:
    mutant = Mutant("nothing", "slice1/blocks.comp", (("no such text", ""),), ("slice1",))
    with pytest.raises(ValueError, match="holds this text 0 times"):
        mutant.broken_source()


NEVER = "void main() {\n    if (push.block_count == 0xFFFFFFFFu)\n        return;\n"


def test_a_kernel_that_means_the_same_is_not_caught(device: dmlvk.Device, tmp_path: Path) -> None:
    """Running a kernel as a mutant does not make it fail."""
    mutant = Mutant(
        "a branch that is never taken", "one_hot/blocks.glsl", (("void main() {\n", NEVER),), ("one_hot:page",)
    )
    assert "one_hot/blocks" in compile_mutant(mutant, tmp_path / "once")
    found = verdict(mutant, device.name, tmp_path / "twice")
    assert (found.caught_by, found.passed, found.was_run) == (None, 4, True)


def test_an_edit_without_effect_changes_no_kernel(tmp_path: Path) -> None:
    edit = (("void main() {\n", "// A comment.\nvoid main() {\n"),)
    assert compile_mutant(Mutant("a comment", "one_hot/blocks.glsl", edit, ("one_hot:page",)), tmp_path / "once") == {}


def test_a_kernel_that_is_not_taken_is_told(device: dmlvk.Device, tmp_path: Path) -> None:
    mutant = Mutant("tiles elsewhere", "slice1/tiles.comp", (("void main() {\n", NEVER),), ("one_hot:page",))
    found = verdict(mutant, device.name, tmp_path)
    assert (found.caught_by, found.passed, found.was_run) == (None, 4, False)
