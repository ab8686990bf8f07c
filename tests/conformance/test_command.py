"""`dmlvk conformance`: all its reports together, and its exit status and error for wrong requests."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dmlvk.command_line import main
from dmlvk.command_line.terminal import INTERRUPTED
from dmlvk.conformance.cases import all_cases as our_cases
from dmlvk.conformance.names import select
from dmlvk.conformance.results import Environment, Status
from dmlvk.conformance.results import Result as ConformanceResult
from dmlvk.conformance.results_file import ResultsWriter, read_results
from dmlvk.conformance.running.runner import CLOSING, Runner
from dmlvk.errors import DeviceError
from tests.conformance.drill_cases import all_cases
from tests.conftest import DEVICE_NAMES
from tests.programs import python

DRILLS = "tests.conformance.drill_cases:all_cases"
WRONG = "drill:build:it=wrong"
# import_module, because the package has a command of the same name.
REPORTS = importlib.import_module("dmlvk.command_line.conformance_reports")


def conformance(*arguments: str, cases: str = DRILLS) -> Result:
    command = ["conformance", "--device", DEVICE_NAMES[0], "--cases", cases, "--jobs", "1", *arguments]
    return CliRunner().invoke(main, command)


@pytest.fixture(scope="module")
def three_results(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """The results of three cases that pass, of a run with further arguments: one run for all tests that begin so."""

    @cache
    def results(*arguments: str) -> bytes:
        path = tmp_path_factory.mktemp("results") / "results.jsonl"
        assert conformance("slice1:good:number=0;*", "--json", str(path), *arguments).exit_code == 0
        return path.read_bytes()

    return results


def test_list_prints_what_would_run() -> None:
    finished = conformance("--list", "--full", "--sample", "5", "--seed", "3", "--shard", "2/2")
    expected = select(all_cases, full=True, sample=5, seed=3, shard=(2, 2))
    lines = finished.output.splitlines()
    assert [line for line in lines if not line.startswith("#")] == [case.name for case in expected]


def test_list_says_what_each_group_tests() -> None:
    finished = CliRunner().invoke(main, ["conformance", "--list", "slice1:page", "one_hot:long"])
    assert finished.output.splitlines() == [
        "# slice1:page (2 cases): The two examples of the operator's page.",
        "slice1:page:example=1",
        "slice1:page:example=2",
        "# one_hot:long (1 case): More than 65,535 workgroups, along an axis of more than 2^16 elements.",
        *[case.name for case in select(our_cases, ["one_hot:long"])],
    ]


def test_a_run_with_everything(tmp_path: Path) -> None:
    """A failure that is waived, a waiver that is not needed, every report, digests, an export, two profiles."""
    waivers = tmp_path / "waivers.toml"
    waivers.write_text(
        f'[[waiver]]\ndriver = "{DEVICE_NAMES[0]}"\ncases = ["{WRONG}", "slice1:good:type=u8;number=0"]\n'
        'reason = "on purpose"\nexpires = 9999-12-31\n'
        f'[[waiver]]\ndriver = "{DEVICE_NAMES[0]}"\ncases = ["slice1:good:type=f16;*"]\n'
        'reason = "long mended"\nexpires = 9999-12-31\n'
        f'[[waiver]]\ndriver = "{DEVICE_NAMES[0]}"\ncases = ["drill:build:it=confused"]\n'
        'reason = "not so"\nexpires = 9999-12-31\n'
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
    assert "Passes although it is waived: slice1:good:type=u8;number=0 (on purpose)" in finished.output
    assert "it can go: drill:build:it=confused (not so)" not in finished.output, "none of its cases ran"
    assert "it can go: slice1:good:type=f16;* (long mended)" in finished.output
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
    lines = conformance("--list", "--path", "tiles").output.splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        case.name for case in select(all_cases) if case.path is None
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slice2"], "no case is named 'slice2'"),
        (["--shard", "3/2"], "a shard must be I/N"),
        (["--fraction", "3/2"], "a fraction must be I/N"),
        (["--fraction", "1/2", "--shard", "1/2"], "--shard and --fraction both choose a part"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bogus"], "No such option"),
        (["--sample", "0"], "'--sample'"),
        (["--path", "nothing"], "'blocks'"),
        (["--profile", "nothing"], "'minimum'"),
        (["--waivers", "absent.toml"], "absent.toml"),
        (["--waivers", "."], "'.'"),
        (["--resume", "absent.jsonl"], "absent.jsonl"),
        (["--compare", "absent.json"], "absent.json"),
        (["--json", "."], "directory"),
        (["--export", "file"], "is a file"),
        (["--export", "file/below"], "file is not a folder"),
        (["--export-all"], "--export FOLDER"),
    ],
)
def test_a_wrong_option_is_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setattr(Runner, "open", None)  # no device may be opened
    finished = conformance("slice1:good:number=0;*", *arguments)
    assert finished.exit_code in (1, 2)
    assert finished.output.startswith("Error: ")
    assert message in finished.output
    assert len(finished.output.strip().splitlines()) == 1


def test_no_such_command_is_one_clear_line() -> None:
    finished = CliRunner().invoke(main, ["conform"])
    assert finished.exit_code == 2
    assert finished.output.startswith("Error: No such command 'conform'")
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
    """The error comes before the first case runs."""
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


def full_disk(*arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_report_for_which_there_is_no_room_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / f"out.{name}" for name in ("junit", "html", "record-digests", "export")}
    for function in ("write_junit", "export_case"):
        monkeypatch.setattr(REPORTS, function, full_disk)
    arguments = [argument for name, path in files.items() for argument in (f"--{name}", str(path))]
    finished = conformance("slice1:good:type=u8;*", WRONG, *arguments)
    assert finished.exit_code == 1
    errors = [line for line in finished.output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 2
    for name, error in zip(("junit", "export"), errors, strict=True):
        assert files[name].name in error  # not the whole path: the message doubles its backslashes
    assert "Traceback" not in finished.output
    assert files["html"].read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert len(json.loads(files["record-digests"].read_text())) == 6


def test_a_terminal_that_takes_no_more_leaves_the_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output may be a file on a full disk."""
    monkeypatch.setattr(REPORTS, "print_summary", full_disk)
    finished = conformance("slice1:good:type=u8;*", "--junit", str(tmp_path / "junit"))
    assert finished.exit_code == 1
    assert finished.output.strip() == "Error: [Errno 28] No space left on device"
    assert ElementTree.parse(tmp_path / "junit").getroot().get("tests") == "6"


def test_a_device_that_is_gone_for_good_leaves_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash of the driver no worker can open the device again; reports hold the results until then."""
    original = Runner._start

    def start(self: Runner) -> None:
        if self.environment is not None:
            raise DeviceError("the device could not be opened: it fell off the bus")
        original(self)

    monkeypatch.setattr(Runner, "_start", start)
    path = tmp_path / "junit"
    finished = conformance(
        "slice1:good:number=0;*", "drill:support:it=die", "slice1:good:number=1;*", "--junit", str(path)
    )
    assert finished.exit_code == 1
    assert finished.output.splitlines()[-1] == "Error: the device could not be opened: it fell off the bus"
    suites = ElementTree.parse(path).getroot()
    assert suites.get("errors") == "1"
    assert suites.get("tests") == "3"


@pytest.mark.parametrize("moment", ["select", "Runner"])
def test_ctrl_c_before_the_first_case(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while cases are listed, and while the device is opened."""

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    module = "conformance_request" if moment == "select" else "conformance"
    monkeypatch.setattr(importlib.import_module(f"dmlvk.command_line.{module}"), moment, interrupted)
    finished = conformance("slice1:good:number=0;*")
    assert finished.exit_code == INTERRUPTED
    assert finished.output == "Interrupted\n"


def test_a_resumed_run_in_a_new_file_is_whole(three_results: Callable[..., bytes], tmp_path: Path) -> None:
    """The new file can be resumed in turn."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    before = three_results()
    first.write_bytes(before)
    assert conformance("slice1:good:type=u8;*", "--resume", str(first), "--json", str(second)).exit_code == 0
    assert first.read_bytes() == before
    assert len(read_results(second).results) == 3 + 5


def test_a_device_that_did_not_close_is_not_held_against_the_resumed_run(
    three_results: Callable[..., bytes], tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(three_results())
    with ResultsWriter(path) as writer:
        writer.write(ConformanceResult(CLOSING, "device", Status.DEVICE_LOST, "crash:close", "it hung"))
    assert not read_results(path).succeeded
    finished = conformance("slice1:good:number=0;*", "--resume", str(path))
    assert finished.exit_code == 0, finished.output


@pytest.mark.half_by_day
@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        (["--path", "blocks"], ["--path", "tiles"], "they come from path blocks, but this run takes path tiles"),
        ([], ["--path", "tiles"], "they come from the planner's paths, but this run takes path tiles"),
    ],
)
@pytest.mark.parametrize("option", ["--resume", "--json"])
def test_results_of_other_paths_are_neither_resumed_nor_added_to(
    three_results: Callable[..., bytes], first: list[str], then: list[str], message: str, option: str, tmp_path: Path
) -> None:
    path, before = tmp_path / "results.jsonl", three_results(*first)
    path.write_bytes(before)
    finished = conformance("slice1:good:number=0;*", option, str(path), *then)
    assert finished.exit_code == 1
    assert finished.output.startswith(f"Error: {path} ")
    assert message in finished.output
    assert len(finished.output.strip().splitlines()) == 1
    assert path.read_bytes() == before


def test_results_without_validation_do_not_stand_for_those_with_it(
    three_results: Callable[..., bytes], tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(three_results())
    environment = read_results(path).environment
    assert environment is not None
    watched = replace(environment, validated=True)
    assert environment.identity != watched.identity
    assert "without --validate" in environment.difference(watched)
    assert Environment.from_json(watched.to_json()) == watched


def test_python_m_dmlvk_is_the_same_command() -> None:
    finished = python("-m", "dmlvk", "conformance", "--list", "--cases", DRILLS, "drill:build:*")
    assert finished.stdout.splitlines() == ["# drill:build (2 cases)", WRONG, "drill:build:it=confused"]
