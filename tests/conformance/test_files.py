"""`dmlvk conformance` with wrong files: files of others stay as they are, and the error is one line."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dmlvk.command_line import main
from dmlvk.conformance.outputs import folder_name
from dmlvk.conformance.results import Environment, ResultsError, Status
from dmlvk.conformance.results import Result as ConformanceResult
from dmlvk.conformance.results_file import ResultsWriter, read_results
from dmlvk.conformance.running.runner import Runner
from tests.conformance.drill_cases import all_cases
from tests.conftest import DEVICE_NAMES
from tests.damaged_files import Damage, damages, damages_of, is_named

DRILLS = "tests.conformance.drill_cases:all_cases"
REPORTS = importlib.import_module("dmlvk.command_line.conformance_reports")
ENVIRONMENT = Environment(
    "GPU", "driver 1", "1.3.0", "1", {}, ("shaderInt8",), "0.1", "3.11", "2.0", "Linux", {"a": "b"}
)
PASSED = ConformanceResult("slice1:good:type=u8;number=0", "device", Status.PASS, digest="0" * 16, seconds=0.5)


def conformance(*arguments: str) -> Result:
    command = ["conformance", "--device", DEVICE_NAMES[0], "--cases", DRILLS, "--jobs", "1", "slice1:good:type=u8;*"]
    return CliRunner().invoke(main, [*command, *arguments])


def refused(finished: Result, *names: str) -> None:
    assert finished.exit_code in (1, 2), (finished.output, finished.exception)
    (line,) = finished.output.splitlines()
    assert line.startswith("Error: ")
    assert len(line) < 1000
    for name in names:
        assert is_named(name, line)


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that opens a device fails."""
    monkeypatch.setattr(Runner, "open", None)


def whole_results(path: Path) -> bytes:
    with ResultsWriter(path) as writer:
        writer.write(ENVIRONMENT)
        writer.write(PASSED)
    return path.read_bytes()


# A FIFO and a device file hold nothing that could be lost. They may be written to, but not read.
THEIRS = [damage for damage in damages() if not damage.is_empty]
UNWRITABLE = [damage for damage in THEIRS if damage.name not in ("FIFO", "/dev/full", "/dev/zero")]


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize("damage", UNWRITABLE, ids=str)
def test_results_are_not_added_to_a_file_that_is_none_of_ours(damage: Damage, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    damage.make(path)
    refused(conformance("--json", str(path)), str(path))
    assert damage.is_untouched()
    with pytest.raises((OSError, ResultsError)):
        ResultsWriter(path)
    assert damage.is_untouched()


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize("option", ["--resume", "--waivers", "--compare"])
@pytest.mark.parametrize("damage", THEIRS, ids=str)
def test_what_cannot_be_read_is_one_line(option: str, damage: Damage, tmp_path: Path) -> None:
    path = tmp_path / "file"
    damage.make(path)
    refused(conformance(option, str(path)), str(path))
    assert damage.is_untouched()


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize("option", ["--json", "--resume"])
@pytest.mark.parametrize("damage", ["one bit flipped", "a letter behind it"])
def test_damaged_results_are_left_as_they_are(option: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    (chosen,) = (each for each in damages_of(whole_results(tmp_path / "whole")) if each.name == damage)
    chosen.make(path)
    refused(conformance(option, str(path)), str(path), "not a line of conformance results")
    assert chosen.is_untouched()


@pytest.mark.parametrize("size", [1, 5])
def test_a_first_line_that_was_cut_is_ours_only_if_it_says_so(size: int, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    whole = whole_results(path)
    path.write_bytes(whole[:size])
    with pytest.raises(OSError, match="is left as it is"):
        ResultsWriter(path)
    assert path.read_bytes() == whole[:size]
    path.write_bytes(whole[:100])
    assert whole_results(path) == whole


def test_a_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    """Some editors leave out the final newline."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(whole_results(path).rstrip(b"\n"))
    with ResultsWriter(path) as writer:
        writer.write(ConformanceResult("another", "device", Status.PASS))
    assert [name for _, name in read_results(path).results] == [PASSED.name, "another"]


@pytest.mark.skipif(os.name == "nt", reason="of files that Windows has not")
@pytest.mark.half_by_day
@pytest.mark.parametrize("name", ["FIFO", "/dev/full"])
@pytest.mark.parametrize("option", ["--json", "--junit", "--html", "--record-digests"])
def test_a_file_that_takes_nothing_is_one_line_and_no_hang(name: str, option: str, tmp_path: Path) -> None:
    path = tmp_path / "results"
    (damage,) = (each for each in damages() if each.name == name)
    damage.make(path)
    finished = conformance(option, str(path))
    assert finished.exit_code == 1
    assert [line for line in finished.output.splitlines() if line.startswith("Error: ") and is_named(path, line)]
    assert "Traceback" not in finished.output
    assert damage.is_untouched()


WRONG_VALUES: tuple[Any, ...] = (1, None, [], {}, [[]])
WRONG_MEMBERS = [
    *(PASSED.to_json() | {"name": value} for value in WRONG_VALUES),
    *(PASSED.to_json() | {"seconds": value} for value in ("1", 10**400, *WRONG_VALUES[1:])),
    *(PASSED.to_json() | {name: 1} for name in ("status", "message", "reason", "operator", "types", "path", "digest")),
    PASSED.to_json() | {"status": []},
    PASSED.to_json() | {"kind": "letter"},
    PASSED.to_json() | {"kind": []},
    *(ENVIRONMENT.to_json() | {name: 1} for name in ("device", "record", "features", "kernels", "validated", "date")),
    ENVIRONMENT.to_json() | {"kernels": {"a": 1}},
    ENVIRONMENT.to_json() | {"features": [1]},
    {"kind": "environment"},
]


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize("record", WRONG_MEMBERS, ids=range(len(WRONG_MEMBERS)))
def test_result_lines_of_wrong_types_are_one_line(record: object, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(f"\n{json.dumps(record)}\n")
    for option in ("--json", "--resume"):
        refused(conformance(option, str(path)), f"{path}, line 2: not a line of conformance results")


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize("content", ['{"a": 1}', '{"a": ["0"]}', '["a"]', '"a"', "3"])
def test_digests_of_wrong_types_are_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "digests.json"
    path.write_text(content)
    refused(conformance("--compare", str(path)), f"{path}: not a file of digests")


@pytest.mark.parametrize("damage", [each for each in damages() if not each.is_empty], ids=str)
def test_a_case_is_not_exported_over_what_is_none(damage: Damage, tmp_path: Path) -> None:
    """Neither into a folder whose `case.json` is something else, nor over something else that has the folder's name."""
    export = REPORTS.export_case
    case = next(all_cases())
    run = read_results(_run_once(tmp_path))
    assert run.environment is not None
    (result,) = run.results.values()
    for path in (tmp_path / "a" / folder_name(result) / "case.json", tmp_path / "b" / folder_name(result)):
        path.parent.mkdir(parents=True)
        damage.make(path)
        with pytest.raises(OSError, match="good"):
            export(case, result, run.environment, tmp_path / path.relative_to(tmp_path).parts[0])
        assert damage.is_untouched()


def test_a_case_is_exported_again_into_its_folder(tmp_path: Path) -> None:
    run = read_results(_run_once(tmp_path))
    assert run.environment is not None
    (result,) = run.results.values()
    folders = {REPORTS.export_case(next(all_cases()), result, run.environment, tmp_path / "out") for _ in range(2)}
    (folder,) = folders
    assert (folder / "replay.py").is_file()


_once: list[bytes] = []


def _run_once(folder: Path) -> Path:
    """The results of the first case."""
    path = folder / "run.jsonl"
    if not _once:
        arguments = ["conformance", "--device", DEVICE_NAMES[0], "--cases", DRILLS, "--json", str(path)]
        assert CliRunner().invoke(main, [*arguments, next(all_cases()).name]).exit_code == 0
        _once.append(path.read_bytes())
    path.write_bytes(_once[0])
    return path


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize(
    "name",
    [
        "os:getcwd",
        "os:nothing",
        "os:sep",
        "builtins:range",
        "builtins:str",
        "builtins:None",
        "math:pi",
        ".x:y",
        "json:loads",
        ":",
    ],
)
@pytest.mark.parametrize("options", [[], ["--list"], ["--plans"]])
def test_what_lists_no_cases_is_one_line(name: str, options: list[str]) -> None:
    finished = CliRunner().invoke(main, ["conformance", "--cases", name, *options])
    refused(finished, repr(name), "MODULE:FUNCTION")


def test_cases_whose_module_or_function_fails_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cases_that_fail.py").write_text("def cases(default_only):\n    yield {}['missing']\n")
    (tmp_path / "cases_that_do_not_parse.py").write_text("def cases(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finished = CliRunner().invoke(main, ["conformance", "--cases", "cases_that_fail:cases"])
    refused(finished, "KeyError: 'missing'", "cases_that_fail.py, line 2")
    refused(CliRunner().invoke(main, ["conformance", "--cases", "cases_that_do_not_parse:cases"]), "cases_that_do")
