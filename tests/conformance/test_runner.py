"""A case that hangs or crashes costs only its own result; an interrupted run can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dmlvk.command_line import main
from dmlvk.command_line.terminal import INTERRUPTED
from dmlvk.conformance.results import Run, Status
from dmlvk.conformance.results_file import ResultsWriter, read_results
from dmlvk.conformance.running.runner import Runner
from dmlvk.conformance.running.worker import WorkerConfiguration
from dmlvk.errors import DeviceError
from tests.conftest import DEVICE_NAMES

DRILLS = "tests.conformance.drill_cases:all_cases"
GOOD = "tests.conformance.drill_cases:good_cases"
# Processes are the same on every device.
DEVICE = DEVICE_NAMES[0]


def conformance(*arguments: str, cases: str = GOOD) -> Result:
    return CliRunner().invoke(main, ["conformance", "--device", DEVICE, "--cases", cases, *arguments])


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Result]]:
    """All drills in one run."""
    path = tmp_path_factory.mktemp("drills") / "results.jsonl"
    finished = conformance("--timeout", "8", "--json", str(path), "--jobs", "2", cases=DRILLS)
    yield read_results(path), finished


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("drill:support:it=hang", Status.TIMEOUT, "timeout:8"),
        ("drill:support:it=die", Status.DEVICE_LOST, "crash:"),
        ("drill:support:it=leave", Status.DEVICE_LOST, "crash:exit status 3"),
        ("drill:support:it=lose", Status.DEVICE_LOST, "VK_ERROR_DEVICE_LOST"),
        ("drill:support:it=lacks_everything", Status.NOT_SUPPORTED, "feature:telepathy"),
        ("drill:path:path=nonsense", Status.NOT_SUPPORTED, "path:nonsense"),
        ("drill:build:it=wrong", Status.FAIL, "difference"),
        ("drill:build:it=confused", Status.FAIL, "exception:RuntimeError"),
    ],
)
def test_each_drill_has_its_status(drilled: tuple[Run, Result], name: str, status: Status, reason: str) -> None:
    result = drilled[0].results["device", name]
    assert result.status is status
    assert result.reason.startswith(reason)


def test_all_other_cases_ran(drilled: tuple[Run, Result]) -> None:
    run, finished = drilled
    good = [result for result in run.results.values() if result.name.startswith("slice1:good")]
    assert len(good) == 18
    assert all(result.status is Status.PASS for result in good)
    assert len(run.results) == 18 + 8
    assert finished.exit_code == 1
    assert not run.succeeded


def test_the_terminal_shows_failures_and_counts(drilled: tuple[Run, Result]) -> None:
    output = drilled[1].output
    for line in (
        "Timeout drill:support:it=hang: not done within 8 s",
        "Fail drill:build:it=confused: this case cannot be built",
        "NotSupported feature:telepathy: 1",
    ):
        assert line in output


def test_pass_and_not_supported_end_with_status_0() -> None:
    finished = conformance(
        "--jobs", "1", "slice1:good:number=1;*", "drill:support:it=lacks_everything", "drill:path:*", cases=DRILLS
    )
    assert finished.exit_code == 0, finished.output


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    written = ResultsWriter.write
    count = 0

    def interrupted(self: ResultsWriter, entry: object) -> None:
        nonlocal count
        written(self, entry)  # type: ignore[arg-type]
        count += 1
        if count == 8:  # the environment and seven results
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ResultsWriter, "write", interrupted)
        finished = conformance("--json", str(path))
    assert finished.exit_code == INTERRUPTED
    assert f"--resume {path}" in finished.output.replace("\n", "")
    first = read_results(path)
    assert len(first.results) == 7

    with path.open("a") as file:
        file.write('{"kind": "result", "name": "slice1:go')  # as if the disk had become full in the middle of a line
    finished = conformance("--resume", str(path))
    assert finished.exit_code == 0, finished.output
    names = [json.loads(line).get("name") for line in path.read_text().splitlines()]
    assert len(names) == 2 + 18
    assert len(set(names)) == 1 + 18, "what passed did not run again"
    assert len(read_results(path).results) == 18


def test_what_failed_runs_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for option in ("--json", "--resume"):
        assert (
            conformance(
                "drill:build:*", "slice1:good:number=0;*", "--jobs", "1", option, str(path), cases=DRILLS
            ).exit_code
            == 1
        )
    names = [json.loads(line).get("name") for line in path.read_text().splitlines()]
    assert names.count("drill:build:it=wrong") == 2
    assert names.count("slice1:good:type=u8;number=0") == 1


def test_a_case_that_passes_on_a_further_run_is_flaky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that fails every other time: unknown, it fails the run; a known flake is excused, and reported."""
    monkeypatch.setenv("DMLVK_DRILL", str(tmp_path / "drill"))
    path, waivers = tmp_path / "results.jsonl", tmp_path / "waivers.toml"
    cases = "tests.conformance.drill_cases:cases_that_fail_now_and_then"
    name = "drill:flaky:it=first_run"
    finished = conformance("--reruns", "1", "--json", str(path), cases=cases)
    assert finished.exit_code == 1
    assert f"Flaky {name}: it passed on run 2" in " ".join(finished.output.split())
    result = read_results(path).results["device", name]
    assert (result.status, result.reason) == (Status.FLAKY, "again:2")
    waivers.write_text(
        f'[[flake]]\ndriver = "{DEVICE}"\ncases = ["drill:flaky"]\nreason = "as known"\n'
        "expires = 9999-12-31\nruns = 1\n"
    )
    (tmp_path / "drill").unlink()
    finished = conformance("--waivers", str(waivers), cases=cases)
    assert finished.exit_code == 0, finished.output
    assert f"Waived {name}: as known" in finished.output
    (tmp_path / "drill").unlink()
    assert conformance(cases=cases).exit_code == 1


def test_results_of_another_device_are_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert conformance("slice1:good:number=0;*", "--jobs", "1", "--json", str(path)).exit_code == 0
    path.write_text(path.read_text().replace('"driver": "', '"driver": "another '))
    finished = conformance("--resume", str(path))
    assert finished.exit_code == 1
    assert finished.output.startswith("Error: ")
    assert "cannot be resumed" in finished.output
    assert len(finished.output.strip().splitlines()) == 1


def test_cases_lost_together_run_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost device is lost to all its processes. The case that loses it again when it runs alone is to blame."""
    items = [("device", f"drill:support:it={name}") for name in ("lose", "lacks_everything")]
    items += [("device", f"slice1:good:type=u8;number={number}") for number in range(4)]
    with Runner(WorkerConfiguration(DEVICE, DRILLS), timeout=60, jobs=2) as runner:
        original = runner._run
        blamed: list[str] = []

        def run(chosen: list[tuple[str, str]]) -> Iterator[object]:
            for result in original(chosen):
                if len(chosen) == len(items) and result.name == "slice1:good:type=u8;number=2":
                    result = type(result)(result.name, "device", Status.DEVICE_LOST, "VK_ERROR_DEVICE_LOST")
                    blamed.append(result.name)
                yield result

        monkeypatch.setattr(runner, "_run", run)
        results = {result.name: result.status for result in runner.run(items)}
    assert blamed
    assert results["drill:support:it=lose"] is Status.DEVICE_LOST
    assert results["slice1:good:type=u8;number=2"] is Status.PASS
    assert len(results) == len(items)


def test_a_device_that_does_not_open_is_one_clear_line() -> None:
    with (
        Runner(WorkerConfiguration("no such device", GOOD), timeout=60) as runner,
        pytest.raises(DeviceError, match="matches no device"),
    ):
        runner.open()
    finished = CliRunner().invoke(main, ["conformance", "--cases", GOOD, "--device", "no such device"])
    assert finished.exit_code == 1
    assert finished.output.startswith("Error: ")
    assert len(finished.output.strip().splitlines()) == 1


def test_validate_finds_a_missing_barrier(tmp_path: Path) -> None:
    """Without synchronization validation the layer does not find it, and a driver may still give the right result."""
    path = tmp_path / "results.jsonl"
    cases = "tests.conformance.drill_cases:cases_without_barriers"
    assert conformance("--validate", "--jobs", "1", "--json", str(path), cases=cases).exit_code == 1
    results = {name: result for (_, name), result in read_results(path).results.items()}
    assert results["drill:barriers:it=with"].status is Status.PASS
    racing = results["drill:barriers:it=without"]
    assert (racing.status, racing.reason) == (Status.FAIL, "validation")
    assert "SYNC-HAZARD" in racing.message
