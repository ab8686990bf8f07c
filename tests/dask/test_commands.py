"""The commands with --scheduler: every device of the cluster, one file of results, interrupted and resumed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from distributed import Client, LocalCluster, wait

from dmlvk.benchmark import cluster as bench_cluster
from dmlvk.command_line import main
from dmlvk.command_line.terminal import INTERRUPTED
from dmlvk.conformance.comparison.findings import Findings, compare
from dmlvk.conformance.results import ResultsError, Status
from dmlvk.conformance.results_file import read_device_runs, read_results
from dmlvk.conformance.running import cluster as conformance_cluster
from dmlvk.conformance.running.cluster import ClusterRunner
from dmlvk.dask import prepare
from tests.amount import THOROUGH

DRILLS = ("--cases", "tests.conformance.drill_cases:good_cases")


def command(cluster: LocalCluster, name: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [name, "--scheduler", cluster.scheduler_address, *arguments])


def compared(results: Path) -> Findings:
    """The devices of a file of results, as `dmlvk compare` holds them beside each other."""
    return compare([results], [], {})


def test_a_sample_of_the_suite_on_both_devices(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    """Interrupted after some cases, and resumed: what passed does not run again, and all digests are equal."""
    files = {name: tmp_path / f"out.{name}" for name in ("html", "junit", "record-digests")}
    results = tmp_path / "out.json"
    reports = [argument for name, path in files.items() for argument in (f"--{name}", str(path))]
    choice = ("--sample", "9", "--seed", "3", "--jobs", "1", "--repeat", "1", *(() if THOROUGH else DRILLS))
    done = command(cluster, "conformance", *choice, "--json", str(results), *reports)
    assert done.exit_code == 0, done.output
    runs = read_device_runs(results)
    devices = {worker.device for worker in prepare(client)}
    assert {run.environment.device for run in runs if run.environment is not None} == devices
    assert [len(run.results) for run in runs] == [9, 9]
    passed = [{key for key, result in run.results.items() if result.status is Status.PASS} for run in runs]
    assert all(len(keys) > 4 for keys in passed)
    found = compared(results)
    # A refusal has no output, and some outputs are open.
    outputs = [key for key in passed[0] & passed[1] if runs[0].results[key].digest]
    assert len(found.runs) == 2 and found.agreement.compared >= len(outputs) - 2 > 2
    assert not found.disagreements and found.verdict in done.output
    page = files["html"].read_text(encoding="utf-8")
    assert all(device in page for device in devices) and found.verdict in page
    suites = ElementTree.parse(files["junit"]).getroot()
    assert suites.get("tests") == "18"
    assert {str(suite.get("name")).partition(".")[0] for suite in suites} == {
        name.partition(".")[0] for name in devices
    }
    digests = json.loads(files["record-digests"].read_text())
    assert len(digests) >= found.agreement.compared
    with pytest.raises(ResultsError, match="holds the results of several devices, which ran on a cluster: "):
        read_results(results)

    # As an interruption leaves it: the second device's results but one are missing, and the last line is cut.
    lines = results.read_bytes().splitlines(keepends=True)
    ours = [line for line in lines if b'"run": 1' not in line or b'"environment"' in line]
    theirs = [line for line in lines if line not in ours]
    results.write_bytes(b"".join([*ours, theirs[0], theirs[1][:40]]))
    done = command(cluster, "conformance", *choice, "--resume", str(results))
    assert done.exit_code == 0, done.output
    again = read_device_runs(results)
    assert [run.results.keys() for run in again] == [run.results.keys() for run in runs]
    keys = [(record.get("run", 0), record["name"]) for record in records(results)]
    assert all(keys.count((0, name)) == 1 for _, name in passed[0])
    assert not compared(results).disagreements


def records(path: Path) -> list[dict[str, Any]]:
    """The results of a file, line by line."""
    return [record for record in map(json.loads, path.read_text().splitlines()) if record["kind"] == "result"]


@pytest.mark.nightly
def test_lost_workers_and_an_interruption(
    client: Client, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers die in the middle: their successors run their cases. Ctrl-C keeps what came before."""
    results = tmp_path / "out.jsonl"
    monkeypatch.setattr(conformance_cluster, "FEWEST", 3)
    choice = ("slice1:good:type=u8;*", *DRILLS, "--repeat", "1", "--jobs", "1")
    run = ClusterRunner.run
    is_first = True

    def killing(self: ClusterRunner, items: Any) -> Iterator[Any]:
        nonlocal is_first
        for number, found in enumerate(run(self, items)):
            if is_first and number == 0:
                for pid in client.run(os.getpid).values():
                    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            if is_first and number == 3:
                is_first = False
                raise KeyboardInterrupt
            yield found

    monkeypatch.setattr(ClusterRunner, "run", killing)
    done = command(cluster, "conformance", *choice, "--json", str(results))
    assert done.exit_code == INTERRUPTED, done.output
    assert f"Interrupted; go on with --resume {results}" in done.output
    assert sum(len(found.results) for found in read_device_runs(results)) == 3
    done = command(cluster, "conformance", *choice, "--resume", str(results))
    assert done.exit_code == 0, done.output
    runs = read_device_runs(results)
    assert [len(found.results) for found in runs] == [6, 6]
    assert {result.status for found in runs for result in found.results.values()} == {Status.PASS}
    assert len(records(results)) == 12, "nothing ran twice"
    assert not compared(results).disagreements


def test_results_that_are_lost_before_they_are_fetched(
    client: Client, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker dies after its task has finished: the task is done again, and its results are waited for."""
    results = tmp_path / "out.jsonl"
    lost: list[Any] = []

    def waited(futures: list[Any], **options: Any) -> Any:
        answer = wait(futures, **options)
        future = next(iter(answer.done))
        if len(lost) < 4 and future not in lost:
            lost.append(future)
            future._state.lose()
            future.client.loop.add_callback(future.client.loop.call_later, 0.5, future._state.finish)
        return answer

    monkeypatch.setattr(conformance_cluster, "wait", waited)
    done = command(cluster, "conformance", "slice1:good:number=0;*", *DRILLS, "--jobs", "1", "--json", str(results))
    assert done.exit_code == 0, done.output
    assert lost and [len(run.results) for run in read_device_runs(results)] == [3, 3]


def test_devices_that_disagree(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    """It is an error, and the reports name the case and both sides."""
    results = tmp_path / "out.jsonl"
    name = "slice1:good:type=u8;number=0"
    choice = ("slice1:good:number=0;*", *DRILLS, "--jobs", "1")
    assert command(cluster, "conformance", *choice, "--json", str(results)).exit_code == 0
    lines = results.read_text().splitlines()
    (line,) = [line for line in lines if name in line and '"run": 1' in line]
    record = json.loads(line)
    changed = line.replace(record["digest"], "0123456789abcdef")
    results.write_text("\n".join([changed if each == line else each for each in lines]) + "\n")
    page = tmp_path / "out.html"
    done = command(cluster, "conformance", *choice, "--resume", str(results), "--html", str(page))
    assert done.exit_code == 1
    device = [run.environment.device for run in read_device_runs(results) if run.environment is not None][1]
    assert f"Disagreement {name.partition(';path')[0]}" in done.output
    assert f"  {record['digest']}: " in done.output
    assert f"  0123456789abcdef: {device.partition(' (')[0]}" in done.output
    assert compared(results).verdict in page.read_text(encoding="utf-8")
    other = tmp_path / "other.jsonl"
    other.write_text(results.read_text())
    done = command(cluster, "conformance", *choice, "--json", str(other))
    assert done.exit_code == 1 and f"{other} holds results already" in done.output


def test_one_device_of_the_cluster(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    """Its file is that of a run without a cluster."""
    results, device = tmp_path / "out.jsonl", prepare(client)[0].device
    choice = ("slice1:good:number=0;*", *DRILLS, "--jobs", "1", "--device", device[:6].lower())
    done = command(cluster, "conformance", *choice, "--json", str(results), "--html", str(tmp_path / "out.html"))
    assert done.exit_code == 0, done.output
    run = read_results(results)
    assert run.environment is not None and run.environment.device == device and len(run.results) == 3
    done = command(cluster, "conformance", *choice[:-1], "GeForce")
    assert done.exit_code == 1
    assert "Error: no device of the cluster has 'GeForce' in its name; there are " in done.output


def test_the_benchmark_on_both_devices(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    path, page = tmp_path / "out.json", tmp_path / "out.md"
    choice = ("--size", "tiny", "--case", "slice1:copy:type=UINT8", "--rounds", "1", "--peer", "none")
    done = command(cluster, "bench", *choice, "--json", str(path), "--markdown", str(page))
    assert done.exit_code == 0, done.output
    devices = {worker.device for worker in prepare(client)}
    found = bench_cluster.read(path)
    assert {record["device"]["name"] for record in found} == devices
    assert all([row["name"] for row in record["cases"]] == ["slice1:copy:type=UINT8"] for record in found)
    assert all(row["correct"] for record in found for row in record["cases"])
    assert all(f"# {device}" in page.read_text(encoding="utf-8") and device in done.output for device in devices)
    for wrong, message in (
        (("--case", "nonsense"), "no case matches the options"),
        (("--operator", "nonsense"), "there is no 'nonsense'"),
        (("--device", "GeForce"), "no device of the cluster has 'GeForce' in its name"),
        (("--megabytes", "3"), "3 is not a power of two"),
        (("--plot", "x.png"), "leave out --plot"),
    ):
        done = command(cluster, "bench", *wrong)
        assert done.exit_code != 0 and message in done.output, (wrong, done.output)


def test_parts_of_one_device_are_put_together() -> None:
    parts = [{"marks": part, "cases": [{"name": name} for name in "abcdefg"[part::3]]} for part in range(3)]
    merged = bench_cluster.merged(parts)
    assert merged["marks"] == 0 and [row["name"] for row in merged["cases"]] == list("abcdefg")


def set_drill(path: str) -> None:
    """What the drill needs, in a worker."""
    os.environ["DMLVK_DRILL"] = path


def test_a_case_that_passes_on_a_further_run(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    """It fails once, on whichever device comes first, and is run again there."""
    results, mark = tmp_path / "results.jsonl", tmp_path / "mark"
    cases = ("--cases", "tests.conformance.drill_cases:cases_that_fail_now_and_then", "--jobs", "1", "--repeat", "1")
    client.run(set_drill, str(mark))
    done = command(cluster, "conformance", *cases, "--reruns", "2", "--json", str(results))
    assert done.exit_code == 1 and "it passed on run 2" in done.output, done.output
    found = {result.status for run in read_device_runs(results) for result in run.results.values()}
    # With a process for each device, both may have failed before the mark was there.
    assert Status.FLAKY in found and found <= {Status.FLAKY, Status.PASS}
    mark.unlink()
    done = command(cluster, "conformance", *cases)
    assert done.exit_code == 1 and "Flaky drill" not in done.output, done.output
    done = command(cluster, "conformance", *cases, "--keep-outputs", "--json", str(results))
    assert "--keep-outputs writes beside the process that runs the cases" in done.output


@pytest.mark.parametrize("name", ["conformance", "bench"])
def test_a_scheduler_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlvk.dask.cluster.CONNECT_SECONDS", 0.3)
    done = CliRunner().invoke(main, [name, "--scheduler", "tcp://127.0.0.1:1"])
    assert done.exit_code == 1
    (line,) = done.output.splitlines()
    assert line.startswith("Error: no Dask scheduler answers at tcp://127.0.0.1:1: ")
