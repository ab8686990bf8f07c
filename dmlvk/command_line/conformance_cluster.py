"""`dmlvk conformance --scheduler`: every distinct device of a cluster runs the suite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from dmlvk._common import files
from dmlvk.command_line.clusters import connected
from dmlvk.command_line.standard_streams import is_readers_end
from dmlvk.command_line.terminal import INTERRUPTED, console, echo, one_line, shown_progress
from dmlvk.conformance.comparison.findings import Findings, findings_of
from dmlvk.conformance.comparison.page import write_html as write_comparison
from dmlvk.conformance.comparison.runs import runs_of
from dmlvk.conformance.comparison.terminal import print_findings
from dmlvk.conformance.digests import compared, recorded_digests, write_digests
from dmlvk.conformance.reports.html import write_html
from dmlvk.conformance.reports.junit import write_junit
from dmlvk.conformance.reports.terminal import failure_text, print_summary, with_failures
from dmlvk.conformance.results import PASSED, Environment, Result, ResultsError, Run
from dmlvk.conformance.results_file import ResultsWriter, naming, read_device_runs
from dmlvk.conformance.running.again import run_again
from dmlvk.conformance.running.runner import CLOSING, Item
from dmlvk.conformance.running.worker import WorkerConfiguration
from dmlvk.conformance.waivers import WaiverReport
from dmlvk.errors import DeviceError

if TYPE_CHECKING:
    from dmlvk.command_line.conformance_request import Request
    from dmlvk.conformance.running.cluster import ClusterRunner, DeviceAndDriver


class ClusterRequest:
    """A request on the devices of a cluster.

    Parameters
    ----------
    completed : callable
        Adds to an environment what this run knows of itself.
    waive : callable
        Applies waivers to a run, and reports what they did.
    further_runs : callable
        How often a failed case of an environment is run again.
    export : callable
        Exports the failing cases of a run to a folder, and yields lines about it.
    """

    def __init__(
        self,
        request: Request,
        items: list[Item],
        completed: Callable[[Environment, Request], Environment],
        waive: Callable[[Run], WaiverReport],
        further_runs: Callable[[Environment, Result], int],
        export: Callable[[Run, Request, Path], Iterator[str]],
    ) -> None:
        self._request = request
        self._items = items
        self._completed = completed
        self._waive = waive
        self._further_runs = further_runs
        self._export = export
        # The runs of the results file, in its order.
        self._runs: list[Run] = []

    def run(self) -> int:
        """Run the request, report, and return the exit status."""
        request = self._request
        digests = recorded_digests(request.compare)
        if request.resume is not None:
            self._runs = [run for run in read_device_runs(request.resume) if run.environment is not None]
        terminal = console()
        interrupted = False
        errors: list[Exception] = []
        active: list[Run] = []
        try:
            self._run_items(active, digests, terminal)
        except KeyboardInterrupt:
            interrupted = True
        except (OSError, DeviceError) as stopped:
            errors.append(stopped)
        if active:
            errors += self._report(active, terminal)
        if interrupted:
            json = request.json or request.resume
            echo(f"Interrupted{f'; go on with --resume {json}' if json is not None and active else ''}")
        for error in errors:
            if not is_readers_end(error):
                echo(f"Error: {one_line(error)}", is_error=True)
        good = not errors and all(run.succeeded for run in active) and not self._compared(active).disagreements
        return INTERRUPTED if interrupted else 0 if good else 1

    def _run_items(self, active: list[Run], digests: Mapping[str, str], terminal: Console) -> None:
        """Run cases and add each result to its device's run, and to the file of results."""
        request = self._request
        assert request.scheduler is not None
        with connected(request.scheduler) as client:
            from dmlvk.conformance.running.cluster import ClusterOptions, ClusterRunner

            configuration = WorkerConfiguration(request.device, request.cases, request.path, request.repeat)
            options = ClusterOptions(configuration, request.timeout, request.jobs, request.validate)
            runner = ClusterRunner(client, options)
            numbers = self._numbers(runner)
            with ResultsWriter(request.json or request.resume) as writer:
                self._begin_file(writer, numbers)
                active += [self._runs[number] for number in numbers.values()]
                left = {kind: self._left(self._items, self._runs[number]) for kind, number in numbers.items()}

                def add(kind: DeviceAndDriver, result: Result) -> Result:
                    self._runs[numbers[kind]].add(result)
                    writer.write(result, numbers[kind])
                    return replace(result, message=f"on {kind[0]}: {result.message}")

                results = (add(kind, compared(result, digests)) for kind, result in runner.run(left))
                with shown_progress(terminal, sum(map(len, left.values()))) as step:
                    for _ in with_failures(terminal, results, step):
                        pass
                for kind in numbers:
                    for result in self._again(runner, kind, self._runs[numbers[kind]], left[kind], digests):
                        terminal.print(failure_text(add(kind, result)), soft_wrap=True)

    def _again(
        self, runner: ClusterRunner, kind: DeviceAndDriver, run: Run, items: list[Item], digests: Mapping[str, str]
    ) -> Iterator[Result]:
        """Run the failed ones of some cases again, on their device."""
        assert run.environment is not None
        failed = {item: run.results[item] for item in items if item in run.results and not run.results[item].is_good}
        most_runs = {item: self._further_runs(run.environment, result) for item, result in failed.items()}

        def again(chosen: Sequence[Item]) -> Iterator[Result]:
            return (compared(result, digests) for _, result in runner.run({kind: chosen}))

        return run_again(again, failed, most_runs)

    def _numbers(self, runner: ClusterRunner) -> dict[DeviceAndDriver, int]:
        """The number of each device's run in the file of results; a device that is not there gets a new one."""
        found: dict[DeviceAndDriver, int] = {}
        for kind, environment in runner.environments().items():
            environment = self._completed(environment, self._request)
            number = next(
                (
                    number
                    for number, run in enumerate(self._runs)
                    if run.environment is not None and run.environment.identity == environment.identity
                ),
                len(self._runs),
            )
            if number == len(self._runs):
                self._runs.append(Run())
            self._runs[number].environment = environment
            found[kind] = number
        return found

    def _begin_file(self, writer: ResultsWriter, numbers: Mapping[DeviceAndDriver, int]) -> None:
        """Write the environments; and what is resumed, unless the file has it already."""
        json, resume = self._request.json, self._request.resume
        same = json is None or files.is_same(json, resume)
        if not same and json is not None and json.is_file() and json.stat().st_size:
            raise ResultsError(f"{json} holds results already: name another file, or go on with --resume {json}")
        for number, run in enumerate(self._runs):
            if run.environment is not None and (not same or number in numbers.values()):
                writer.write(run.environment, number)
            if not same:
                for result in run.results.values():
                    writer.write(result, number)

    @staticmethod
    def _left(items: list[Item], run: Run) -> list[Item]:
        """The items that have not passed. That a device could not be closed may go better this time."""
        run.results = {key: result for key, result in run.results.items() if result.name != CLOSING}
        passed = {key for key, result in run.results.items() if result.status in PASSED}
        return [item for item in items if item not in passed]

    def _compared(self, runs: list[Run]) -> Findings:
        """The devices beside each other. Recorded digests have been compared with each result."""
        place = self._request.json or self._request.resume
        return findings_of(runs_of(runs, place or Path("results.jsonl")), [], [], {})

    def _report(self, runs: list[Run], terminal: Console) -> list[OSError]:
        """Write all reports that can be written; returns the errors of the others."""
        request = self._request
        reports = [self._waive(run) for run in runs]
        errors = []

        def attempt(path: Path | None, write: Callable[[], None]) -> None:
            try:
                with naming(path):
                    write()
            except OSError as error:
                errors.append(error)

        def html(path: Path) -> None:
            if len(runs) == 1:
                write_html(path, runs[0], reports[0])
            else:
                write_comparison(path, self._compared(runs))

        def summaries() -> None:
            for run, report in zip(runs, reports, strict=True):
                print_summary(terminal, run, report)
            if len(runs) > 1:
                print_findings(terminal, self._compared(runs))

        def export(folder: Path) -> None:
            for run in runs:
                own = folder if len(runs) == 1 else folder / _folder_name(run)
                for line in self._export(run, request, own):
                    terminal.print(line, soft_wrap=True)

        attempt(None, summaries)
        writers: list[tuple[Path | None, Callable[[Path], None]]] = [
            (request.junit, lambda path: write_junit(path, *runs)),
            (request.html, html),
            (
                request.record_digests,
                lambda path: write_digests(path, [r for run in runs for r in run.results.values()]),
            ),
            (request.export, export),
        ]
        for path, write in writers:
            if path is not None:
                attempt(path, lambda path=path, write=write: write(path))  # type: ignore[misc]
        return errors


def _folder_name(run: Run) -> str:
    assert run.environment is not None
    return re.sub(r"[^A-Za-z0-9.-]+", "_", f"{run.environment.device} {run.environment.driver}").strip("_")
