"""`dmlvk conformance`: its reports together, and how it ends when something is wrong with the request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dmlvk.command_line import main
from dmlvk.conformance.names import select
from dmlvk.conformance.results import ResultsWriter, read_results
from tests.conformance.drill_cases import all_cases
from tests.conftest import DEVICE_NAMES

DRILLS = "tests.conformance.drill_cases:all_cases"
WRONG = "drill:build:it=wrong"


def conformance(*arguments: str, cases: str = DRILLS) -> Result:
    command = ["conformance", "--device", DEVICE_NAMES[0], "--cases", cases, "--jobs", "1", *arguments]
    return CliRunner().invoke(main, command)


def test_list_prints_what_would_run() -> None:
    finished = conformance("--list", "--full", "--sample", "5", "--seed", "3", "--shard", "2/2")
    expected = select(all_cases, full=True, sample=5, seed=3, shard=(2, 2))
    assert finished.output.splitlines() == [case.name for case in expected]


def test_a_run_with_everything(tmp_path: Path) -> None:
    """A failure that is waived, a waiver that is not needed, every report, digests, an export, two profiles."""
    waivers = tmp_path / "waivers.toml"
    waivers.write_text(
        f'[[waiver]]\ndriver = "{DEVICE_NAMES[0]}"\ncases = ["{WRONG}", "slice1:good:type=u8;number=0"]\n'
        'reason = "on purpose"\nexpires = 9999-12-31\n'
    )
    files = {name: tmp_path / f"out.{name}" for name in ("json", "junit", "html", "record-digests", "export")}
    finished = conformance(
        WRONG,
        "slice1:good:number=0;*",
        *("--profile", "device", "--profile", "minimum", "--waivers", str(waivers)),
        *(argument for name, path in files.items() for argument in (f"--{name}", str(path))),
    )
    assert finished.exit_code == 0, finished.output
    assert f"Waived {WRONG}: on purpose" in finished.output
    assert "the waiver can go: slice1:good:type=u8;number=0" in finished.output
    results = read_results(files["json"]).results
    assert {profile for profile, _ in results} == {"device", "minimum"}
    assert len(results) == 8
    assert ElementTree.parse(files["junit"]).getroot().get("skipped") == "2"
    assert "on purpose" in files["html"].read_text(encoding="utf-8")
    digests = json.loads(files["record-digests"].read_text())
    assert sorted(digests) == [f"slice1:good:type={label};number=0" for label in ("f16", "s64", "u8")]
    assert sorted(path.name for path in files["export"].iterdir()) == [
        "drill_build_it=wrong",
        "minimum.drill_build_it=wrong",
    ]

    changed = {**digests, "slice1:good:type=f16;number=0": "0" * 16}
    files["record-digests"].write_text(json.dumps(changed))
    finished = conformance("slice1:good:number=0;*", "--compare", str(files["record-digests"]))
    assert finished.exit_code == 1
    assert "is not the recorded 0000000000000000" in finished.output


def test_a_forced_path_is_that_of_the_cases_that_leave_it_open() -> None:
    assert conformance("--list", "--path", "tiles").output.splitlines() == [
        case.name for case in select(all_cases) if case.path is None
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slice2"], "no case is named 'slice2'"),
        (["--shard", "3/2"], "a shard is I/N"),
        (["--cases", "nowhere:cases"], "MODULE:FUNCTION"),
        (["slice1", "--path", "tiles", WRONG.replace("wrong", "nothing")], "no case is named"),
    ],
)
def test_a_request_that_makes_no_sense_is_one_clear_line(arguments: list[str], message: str) -> None:
    finished = conformance(*arguments)
    assert finished.exit_code == 1
    assert finished.output.startswith("Error: ")
    assert message in finished.output
    assert len(finished.output.strip().splitlines()) == 1


@pytest.mark.parametrize("option", ["--waivers", "--resume", "--compare"])
def test_a_file_that_cannot_be_understood_is_one_clear_line(option: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("neither TOML nor JSON\n")
    finished = conformance("slice1", option, str(path))
    assert finished.exit_code == 1
    assert finished.output.startswith(f"Error: {path}")
    assert len(finished.output.strip().splitlines()) == 1


@pytest.mark.parametrize("option", ["--json", "--junit", "--html", "--record-digests"])
def test_a_report_that_cannot_be_written_is_one_clear_line(option: str, tmp_path: Path) -> None:
    """Known before the first case runs."""
    finished = conformance("slice1", option, str(tmp_path / "absent" / "file"))
    assert finished.exit_code == 1
    assert finished.output.startswith("Error: ")
    assert "absent" in finished.output
    assert len(finished.output.strip().splitlines()) == 1


def test_a_full_disk_ends_the_run_and_keeps_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    written = ResultsWriter.write
    count = 0

    def write(self: ResultsWriter, entry: object) -> None:
        nonlocal count
        count += 1
        if count > 3:
            raise OSError(28, "No space left on device", str(path))
        written(self, entry)  # type: ignore[arg-type]

    monkeypatch.setattr(ResultsWriter, "write", write)
    finished = conformance("slice1:good:type=u8;*", "--json", str(path))
    assert finished.exit_code == 1
    assert "Error: " in finished.output.splitlines()[-1]
    assert "No space left on device" in finished.output.splitlines()[-1]
    assert "Traceback" not in finished.output
    assert len(read_results(path).results) == 2


def test_python_m_dmlvk_is_the_same_command() -> None:
    command = [sys.executable, "-m", "dmlvk", "conformance", "--list", "--cases", DRILLS, "drill:build:*"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert finished.stdout.splitlines() == [WRONG, "drill:build:it=confused"]
