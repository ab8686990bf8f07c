"""`dmlvk conformance --scheduler`: every distinct device of a cluster runs the suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dmlvk._common import files
from dmlvk.command_line.clusters import connected
from dmlvk.command_line.terminal import shown_progress
from dmlvk.conformance.digests import compared
from dmlvk.conformance.reports.terminal import failure_text, with_failures
from dmlvk.conformance.results import PASSED, Result, ResultsError, Run
from dmlvk.conformance.results_file import ResultsWriter, read_device_runs
from dmlvk.conformance.running.runner import CLOSING, Item, run_again
from dmlvk.conformance.running.worker import WorkerConfiguration

if TYPE_CHECKING:
    from dmlvk.command_line.conformance_reports import Session
    from dmlvk.command_line.conformance_request import Request
    from dmlvk.conformance.running.cluster import ClusterRunner
    from dmlvk.dask.cluster import DeviceAndDriver


class ClusterRun:
    """The cases of a request, on every distinct device of a cluster."""

    def __init__(self, request: Request, items: list[Item]) -> None:
        self._request = request
        self._items = items
        # The runs of the results file, in its order.
        self._runs: list[Run] = []
        if request.resume is not None:
            self._runs = [run for run in read_device_runs(request.resume) if run.environment is not None]

    def run(self, session: Session) -> None:
        """Run cases and add each result to its device's run, and to the file of results."""
        request, terminal = self._request, session.terminal
        assert request.scheduler is not None
        with connected(request.scheduler) as client:
            from dmlvk.conformance.running.cluster import ClusterOptions, ClusterRunner

            configuration = WorkerConfiguration(request.device, request.cases, request.path, request.repeat)
            options = ClusterOptions(configuration, request.timeout, request.jobs, request.validate)
            runner = ClusterRunner(client, options)
            numbers = self._numbers(runner, session)
            with ResultsWriter(request.json or request.resume) as writer:
                self._begin_file(writer, numbers)
                session.runs += [self._runs[number] for number in numbers.values()]
                left = {kind: self._left(self._items, self._runs[number]) for kind, number in numbers.items()}

                def add(kind: DeviceAndDriver, result: Result) -> Result:
                    self._runs[numbers[kind]].add(result)
                    writer.write(result, numbers[kind])
                    return replace(result, message=f"on {kind[0]}: {result.message}")

                results = (add(kind, compared(result, session.digests)) for kind, result in runner.run(left))
                with shown_progress(terminal, sum(map(len, left.values()))) as step:
                    for _ in with_failures(terminal, results, step):
                        pass
                for kind in numbers:
                    for result in self._again(runner, kind, session, self._runs[numbers[kind]], left[kind]):
                        terminal.print(failure_text(add(kind, result)), soft_wrap=True)

    def _again(
        self,
        runner: ClusterRunner,
        kind: DeviceAndDriver,
        session: Session,
        run: Run,
        items: list[Item],
    ) -> Iterator[Result]:
        """Run the failed ones of some cases again, on their device."""
        assert run.environment is not None
        failed = {item: run.results[item] for item in items if item in run.results and not run.results[item].is_good}
        most_runs = {item: session.most_runs(run.environment, result) for item, result in failed.items()}

        def again(chosen: Sequence[Item]) -> Iterator[Result]:
            return (compared(result, session.digests) for _, result in runner.run({kind: chosen}))

        return run_again(again, failed, most_runs)

    def _numbers(self, runner: ClusterRunner, session: Session) -> dict[DeviceAndDriver, int]:
        """The number of each device's run in the file of results; a device that is not there gets a new one."""
        found: dict[DeviceAndDriver, int] = {}
        for kind, environment in runner.environments().items():
            environment = session.completed(environment)
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
