"""`dmlvk conformance`: does a device give, for every case, the bits that the reference gives?"""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

from dmlvk.command_line.terminal import clear_errors, console
from dmlvk.conformance import recorded
from dmlvk.conformance.case import Case
from dmlvk.conformance.digests import compared, recorded_digests, write_digests
from dmlvk.conformance.export import export_case
from dmlvk.conformance.names import OUR_CASES, CaseFinder, CaseSource, SelectionError, case_source, parse_shard, select
from dmlvk.conformance.plans import check_plans
from dmlvk.conformance.profiles import DEVICE, PROFILES
from dmlvk.conformance.reports.html import write_html
from dmlvk.conformance.reports.junit import write_junit
from dmlvk.conformance.reports.terminal import plan_table, print_summary, with_plan_progress, with_progress
from dmlvk.conformance.results import (
    Environment,
    ResultsError,
    ResultsWriter,
    Run,
    Status,
    naming,
    read_results,
)
from dmlvk.conformance.runner import Item, Runner
from dmlvk.conformance.waivers import Waiver, WaiverReport, apply_waivers, read_waivers
from dmlvk.conformance.worker import Configuration
from dmlvk.planning import KERNEL_PATHS

INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended

OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)
OUTPUT_FOLDER = click.Path(file_okay=False, path_type=Path)
INPUT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PATHS = sorted({path for paths in KERNEL_PATHS.values() for path in paths})


@dataclass
class Request:
    """What was asked for on the command line: see the options' help."""

    patterns: tuple[str, ...]
    list_names: bool
    plans: bool
    full: bool
    sample: int | None
    seed: int
    shard: str | None
    path: str | None
    profiles: tuple[str, ...]
    device: str | None
    resume: Path | None
    timeout: float
    repeat: int
    jobs: int | None
    validate: bool
    waivers: Path | None
    compare: Path | None
    json: Path | None
    junit: Path | None
    html: Path | None
    export: Path | None
    export_all: bool
    record_digests: Path | None
    cases: str

    def source(self) -> CaseSource:
        """The cases there are; with a path that is forced, not those that force another."""
        source = case_source(self.cases)
        if self.path is None:
            return source
        return lambda default_only: (case for case in source(default_only) if case.path in (None, self.path))

    def chosen(self) -> list[Case]:
        """The cases that are chosen."""
        chosen = select(
            self.source(),
            self.patterns,
            full=self.full,
            sample=self.sample,
            seed=self.seed,
            shard=None if self.shard is None else parse_shard(self.shard),
        )
        if not chosen:
            raise SelectionError("no case is chosen")
        return chosen

    def items(self) -> list[Item]:
        """The cases that are chosen, on each profile."""
        profiles = list(PROFILES) if "all" in self.profiles else list(dict.fromkeys(self.profiles)) or [DEVICE]
        chosen = self.chosen()
        return [(profile, case.name) for profile in profiles for case in chosen]


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("--list", "list_names", is_flag=True, help="Print the names of the cases and run nothing.")
@click.option("--plans", is_flag=True, help="Run nothing: check the cases' plans on all recorded devices.")
@click.option("--full", is_flag=True, help="All cases: hours. Without it, some thousand well-chosen ones.")
@click.option("--sample", type=click.IntRange(1), help="So many of the cases, drawn at random.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of --sample: the same seed, the same cases.")
@click.option("--shard", metavar="I/N", help="The I-th of N parts, which together are all of the cases.")
@click.option(
    "--path", type=click.Choice(PATHS), metavar="NAME", help="The kernel path of cases that leave it to the planner."
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME",
    type=click.Choice([*PROFILES, "all"]),
    help=f"Narrow the device to a lesser one; may be given several times. One of {', '.join(PROFILES)}; or all.",
)
@click.option("--device", help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option("--resume", type=INPUT_FILE, help="Go on with these JSON lines: what passed is not run again.")
@click.option("--timeout", type=click.FloatRange(0.1), default=240.0, show_default=True, help="Seconds a case.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Times that a case is run.")
@click.option("--jobs", type=click.IntRange(1), help="Processes at a time; else one, on a CPU driver one a core.")
@click.option("--validate", is_flag=True, help="Under the Khronos validation layer, synchronization included.")
@click.option("--waivers", type=INPUT_FILE, help="Known failures: a TOML file.")
@click.option("--compare", type=INPUT_FILE, help="Recorded digests to hold against; else those that come with dmlvk.")
@click.option("--json", type=OUTPUT_FILE, help="Append results here as JSON lines, case by case.")
@click.option("--junit", type=OUTPUT_FILE, help="Write JUnit XML here.")
@click.option("--html", type=OUTPUT_FILE, help="Write a page here that needs nothing beside itself.")
@click.option("--export", type=OUTPUT_FOLDER, help="Write each failing case here as a folder that runs by itself.")
@click.option("--export-all", is_flag=True, help="With --export: every case that ran.")
@click.option("--record-digests", type=OUTPUT_FILE, help="Write the digests of what passed here.")
@click.option("--cases", default=OUR_CASES, metavar="MODULE:FUNCTION", help="Cases of your own in place of dmlvk's.")
@clear_errors
def conformance(**options: object) -> None:
    """Run the conformance suite on a device.

    PATTERNS choose cases by name: "slice1", "slice1:*:type=u8;path=tiles;*", "qlinearconv:zero_point:*"; several are
    added up. Ends with status 0 when nothing came out but Pass, NotSupported and what is waived.
    """
    request = Request(**options)  # type: ignore[arg-type]
    if request.list_names:
        for case in request.chosen():
            click.echo(case.name)
        return
    status = check_recorded_devices(request) if request.plans else run_request(request)
    if status:
        sys.exit(status)


def run_request(request: Request) -> int:
    """Run what was asked for, report, and give the exit status."""
    items = request.items()
    waivers = read_waivers(request.waivers) if request.waivers is not None else []
    digests = recorded_digests(request.compare)
    run = Run() if request.resume is None else read_results(request.resume)
    resumed = run.environment
    json = request.json or request.resume
    passed = {key for key, result in run.results.items() if result.status is Status.PASS}
    items = [item for item in items if item not in passed]
    configuration = Configuration(request.device, request.cases, request.path, request.repeat)
    _check_folders(json, request.junit, request.html, request.record_digests)
    terminal = console()
    interrupted = False
    disk_error: OSError | None = None
    with (
        Runner(configuration, timeout=request.timeout, jobs=request.jobs, validate=request.validate) as runner,
        ResultsWriter(json) as writer,
    ):
        run.environment = _environment(runner, request, resumed)
        writer.write(run.environment)
        try:
            results = (compared(result, digests) for result in runner.run(items))
            for result in with_progress(terminal, results, len(items)):
                run.add(result)
                writer.write(result)
        except KeyboardInterrupt:
            interrupted = True
        except OSError as error:  # a full disk: what there is until now is reported all the same
            disk_error = error
    waiver_report = _waive(run, waivers)
    print_summary(terminal, run, waiver_report)
    if disk_error is not None:
        raise disk_error
    if request.junit is not None:
        with naming(request.junit):
            write_junit(request.junit, run)
    if request.html is not None:
        with naming(request.html):
            write_html(request.html, run, waiver_report)
    if request.record_digests is not None:
        with naming(request.record_digests):
            write_digests(request.record_digests, run.results.values())
    if request.export is not None:
        for line in _export(run, request, request.export):
            terminal.print(line, markup=False, emoji=False, soft_wrap=True)
    if interrupted:
        hint = f"; go on with --resume {json}" if json is not None else ""
        terminal.print(f"Interrupted{hint}", markup=False)
        return INTERRUPTED
    return 0 if run.succeeded else 1


def _check_folders(*paths: Path | None) -> None:
    """Before anything runs: whether there is a folder for each report."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise SelectionError(f"{path} cannot be written: there is no folder {path.parent}")


def check_recorded_devices(request: Request) -> int:
    """Check plans without running them, report, and give the exit status."""
    cases = request.chosen()
    terminal = console()
    checks = list(with_plan_progress(terminal, check_plans(cases, recorded.NAMES, request.path), len(cases)))
    terminal.print(plan_table(checks))
    return 1 if any(check.problems for check in checks) else 0


def _environment(runner: Runner, request: Request, resumed: Environment | None) -> Environment:
    environment = runner.open()
    if resumed is not None and resumed.identity != environment.identity:
        raise ResultsError(
            f"{request.resume} is of {resumed.device} with {resumed.driver}, or of other kernels: it cannot be resumed "
            f"on {environment.device} with {environment.driver}"
        )
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return replace(environment, date=date, command=shlex.join(["dmlvk", *sys.argv[1:]]))


def _waive(run: Run, waivers: list[Waiver]) -> WaiverReport:
    assert run.environment is not None
    today = datetime.datetime.now(datetime.timezone.utc).date()
    report = apply_waivers(waivers, run.environment, run.results.values(), today)
    for result in report.waived:
        run.add(result)
    return report


def _export(run: Run, request: Request, folder: Path) -> Iterator[str]:
    """Write the failing cases, or all that ran; says what was written and what could not be."""
    assert run.environment is not None
    results = [result for result in run.results.values() if result.status is not Status.NOT_SUPPORTED]
    finder = CaseFinder(case_source(request.cases))
    for result in results if request.export_all else run.failures:
        try:
            case = finder.find(result.name)
            forced = replace(case, path=case.path or request.path)
            yield f"Exported {export_case(forced, result, run.environment, folder)}"
        except OSError:
            raise
        except Exception as error:  # a case that cannot be built or planned has failed for that very reason
            yield f"Not exported: {result.name}: {type(error).__name__}: {error}"
