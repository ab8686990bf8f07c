"""How `dmlvk conformance` runs a request and reports it, on one device and on those of a cluster."""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from dmlvk._common import files
from dmlvk.command_line.conformance_request import Request
from dmlvk.command_line.standard_streams import is_readers_end
from dmlvk.command_line.terminal import INTERRUPTED, console, echo, one_line
from dmlvk.conformance.comparison.findings import Findings, findings_of
from dmlvk.conformance.comparison.page import page
from dmlvk.conformance.comparison.runs import runs_of
from dmlvk.conformance.comparison.terminal import print_findings
from dmlvk.conformance.digests import write_digests
from dmlvk.conformance.export import export_case
from dmlvk.conformance.names import CaseFinder, case_source
from dmlvk.conformance.privacy import public_command
from dmlvk.conformance.reports.html import write_html
from dmlvk.conformance.reports.junit import write_junit
from dmlvk.conformance.reports.terminal import print_summary
from dmlvk.conformance.results import Environment, Result, Run, Status
from dmlvk.conformance.results_file import naming
from dmlvk.conformance.running.runner import CLOSING
from dmlvk.conformance.waivers import Flake, Waiver, WaiverReport, apply_waivers, further_runs
from dmlvk.errors import DeviceError


@dataclass
class Session:
    """A request that is run.

    groups: what each group of the cases tests.
    digests: the digests with which the results are compared, by case.
    runs: the runs of the devices that have begun.
    """

    request: Request
    waivers: list[Waiver]
    flakes: list[Flake]
    groups: Mapping[str, str]
    digests: Mapping[str, str]
    runs: list[Run] = field(default_factory=list)
    terminal: Console = field(default_factory=console)

    def carry_out(self, run_items: Callable[[Session], None]) -> int:
        """Run cases, report, and return the exit status."""
        interrupted = False
        errors: list[Exception] = []
        try:
            run_items(self)
        except KeyboardInterrupt:
            interrupted = True
        except (OSError, DeviceError) as stopped:  # such as a full disk: the results so far are reported all the same
            errors.append(stopped)
        if self.runs:
            errors += self._report()
        if interrupted:
            json = self.request.json or self.request.resume
            echo(f"Interrupted{f'; go on with --resume {json}' if json is not None and self.runs else ''}")
        good = all(run.succeeded for run in self.runs)
        if self.request.scheduler is not None:
            good = good and not self._compared().disagreements
        for error in errors:
            if not is_readers_end(error):
                echo(f"Error: {one_line(error)}", is_error=True)
            elif len(errors) == 1 and not interrupted and good:
                raise error
        return INTERRUPTED if interrupted else 1 if errors or not good else 0

    def completed(self, environment: Environment) -> Environment:
        """The environment of a device, with what is known of this run."""
        date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        return replace(
            environment,
            path=self.request.path or "",
            validated=self.request.validate,
            date=date,
            command=public_command(["dmlvk", *sys.argv[1:]]),
        )

    def most_runs(self, environment: Environment, result: Result) -> int:
        """How often a failed case is run again."""
        return further_runs(self.flakes, environment, result, _today(), self.request.reruns)

    def _report(self) -> list[OSError]:
        """Write all reports that can be written; returns the errors of the others."""
        request, runs = self.request, self.runs
        reports = [self._waive(run) for run in runs]
        errors = []

        def summaries(path: None) -> None:
            for run, report in zip(runs, reports, strict=True):
                print_summary(self.terminal, run, report)
            if len(runs) > 1:
                print_findings(self.terminal, self._compared())

        def html(path: Path) -> None:
            if len(runs) == 1:
                write_html(path, runs[0], reports[0], self.groups)
            else:
                files.write_text(path, page(self._compared()))

        def digests(path: Path) -> None:
            write_digests(path, [result for run in runs for result in run.results.values()])

        def export(folder: Path) -> None:
            for run in runs:
                for line in self._export(run, folder if len(runs) == 1 else folder / _folder_name(run)):
                    self.terminal.print(line, soft_wrap=True)

        def attempt(write: Callable[..., None], path: Path | None) -> None:
            try:
                with naming(path):
                    write(path)
            except OSError as error:
                errors.append(error)

        attempt(summaries, None)
        for write, path in (
            (lambda path: write_junit(path, *runs), request.junit),
            (html, request.html),
            (digests, request.record_digests),
            (export, request.export),
        ):
            if path is not None:
                attempt(write, path)
        return errors

    def _compared(self) -> Findings:
        """The devices beside each other. Recorded digests have been compared with each result."""
        place = self.request.json or self.request.resume
        return findings_of(runs_of(self.runs, place or Path("results.jsonl")), [], [], {})

    def _waive(self, run: Run) -> WaiverReport:
        assert run.environment is not None
        report = apply_waivers(self.waivers, run.environment, run.results.values(), _today(), self.flakes)
        for result in report.waived:
            run.add(result)
        return report

    def _export(self, run: Run, folder: Path) -> Iterator[str]:
        """Export the failing cases, or all that ran. Yields text on what was written and what could not be written."""
        assert run.environment is not None
        request = self.request
        results = [result for result in run.results.values() if result.status is not Status.NOT_SUPPORTED]
        finder = CaseFinder(case_source(request.cases))
        for result in results if request.export_all else run.failures:
            if result.name == CLOSING:
                continue
            try:
                case = finder.find(result.name)
                if case.refusal is not None and result.is_good:
                    continue  # nothing was run
                forced = replace(case, path=case.path or request.path)
                yield f"Exported {export_case(forced, result, run.environment, folder)}"
            except OSError:
                raise
            except Exception as error:  # a case that cannot be built or planned failed for this reason
                yield f"Not exported: {result.name}: {type(error).__name__}: {error}"


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.timezone.utc).date()


def _folder_name(run: Run) -> str:
    assert run.environment is not None
    return re.sub(r"[^A-Za-z0-9.-]+", "_", f"{run.environment.device} {run.environment.driver}").strip("_")
