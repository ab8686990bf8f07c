"""`dmlvk conformance`: does a device give the reference's bits for every case?"""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from dmlvk import files
from dmlvk.command_line.conformance_cluster import ClusterRequest
from dmlvk.command_line.terminal import INTERRUPTED, clear_errors, console, is_readers_end, one_line, shown_progress
from dmlvk.conformance import recorded
from dmlvk.conformance.case import Case
from dmlvk.conformance.digests import compared, recorded_digests, write_digests
from dmlvk.conformance.dxdispatch import export_models
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
    read_device_runs,
    read_results,
)
from dmlvk.conformance.running.runner import CLOSING, Item, Runner
from dmlvk.conformance.running.worker import Configuration
from dmlvk.conformance.waivers import Waiver, WaiverReport, apply_waivers, read_waivers
from dmlvk.errors import DeviceError
from dmlvk.planning import KERNEL_PATHS

OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)
OUTPUT_FOLDER = click.Path(file_okay=False, path_type=Path)
INPUT_FILE = click.Path(path_type=Path)  # the reader reports an unreadable file, in one line
PATHS = sorted({path for paths in KERNEL_PATHS.values() for path in paths})


@dataclass
class Request:
    """The request on the command line: see the options' help."""

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
    scheduler: str | None
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
    export_dxdispatch: Path | None
    record_digests: Path | None
    cases: str

    def source(self) -> CaseSource:
        """All cases; if a path is forced, excluding the cases that force another."""
        source = case_source(self.cases)
        if self.path is None:
            return source
        return lambda default_only: (case for case in source(default_only) if case.path in (None, self.path))

    def chosen(self) -> list[Case]:
        """The chosen cases."""
        chosen = select(
            self.source(),
            self.patterns,
            full=self.full,
            sample=self.sample,
            seed=self.seed,
            shard=None if self.shard is None else parse_shard(self.shard),
        )
        if not chosen:
            raise SelectionError("no case is chosen: --cases lists none, or --path or --shard leaves none")
        return chosen

    def items(self) -> list[Item]:
        """The chosen cases on each profile."""
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
@click.option(
    "--scheduler", metavar="ADDRESS", help="Run on every distinct device of a Dask cluster, as tcp://host:8786."
)
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
@click.option(
    "--export-dxdispatch",
    type=OUTPUT_FOLDER,
    help="Run nothing: write the cases here as models of DxDispatch, to ask DirectML the same.",
)
@click.option("--record-digests", type=OUTPUT_FILE, help="Write the digests of what passed here.")
@click.option("--cases", default=OUR_CASES, metavar="MODULE:FUNCTION", help="Cases of your own in place of dmlvk's.")
@clear_errors
def conformance(**options: object) -> None:
    """Run the conformance suite on a device.

    PATTERNS choose cases by name: "slice1", "slice1:*:type=uint8;path=tiles;*",
    "quantized_linear_convolution:zero_point:*"; several are added up. Ends with status 0 when nothing came out but
    Pass, NotSupported and what is waived.
    """
    request = Request(**options)  # type: ignore[arg-type]
    if request.list_names:
        for case in request.chosen():
            click.echo(case.name)
        return
    if request.export_dxdispatch is not None:
        status = export_for_dxdispatch(request, request.export_dxdispatch)
    else:
        status = check_recorded_devices(request) if request.plans else run_request(request)
    if status:
        sys.exit(status)


def run_request(request: Request) -> int:
    """Run the request, report, and return the exit status."""
    _check_outputs(request)
    items = request.items()
    waivers = read_waivers(request.waivers) if request.waivers is not None else []
    if request.scheduler is not None:
        return ClusterRequest(request, items, _completed, lambda run: _waive(run, waivers), _export).run()
    digests = recorded_digests(request.compare)
    run = _resumed(request)
    resumed, run.environment = run.environment, None
    passed = {key for key, result in run.results.items() if result.status is Status.PASS}
    items = [item for item in items if item not in passed]
    terminal = console()
    interrupted = False
    errors: list[Exception] = []
    try:
        _run_items(run, resumed, items, request, digests, terminal)
    except KeyboardInterrupt:
        interrupted = True
    except (OSError, DeviceError) as stopped:  # such as a full disk: the results so far are reported all the same
        errors.append(stopped)
    if run.environment is not None:
        errors += _report(run, waivers, request, terminal)
    if interrupted:
        json = request.json or request.resume
        hint = f"; go on with --resume {json}" if json is not None and run.environment is not None else ""
        click.echo(f"Interrupted{hint}")
    for error in errors:
        if not is_readers_end(error):
            click.echo(f"Error: {one_line(error)}", err=True)
        elif len(errors) == 1 and not interrupted and run.succeeded:
            raise error
    return INTERRUPTED if interrupted else 1 if errors or not run.succeeded else 0


def _resumed(request: Request) -> Run:
    """The results of an earlier run, excluding that its device could not be closed: that may go better this time."""
    if request.resume is None:
        return Run()
    run = read_results(request.resume)
    run.results = {key: result for key, result in run.results.items() if result.name != CLOSING}
    return run


def _run_items(
    run: Run,
    resumed: Environment | None,
    items: list[Item],
    request: Request,
    digests: Mapping[str, str],
    terminal: Console,
) -> None:
    """Run cases and add each result, to the file of results too."""
    configuration = Configuration(request.device, request.cases, request.path, request.repeat)
    with Runner(configuration, timeout=request.timeout, jobs=request.jobs, validate=request.validate) as runner:
        environment = _completed(runner.open(), request)
        _check_identity(request, resumed, environment)
        with ResultsWriter(request.json or request.resume) as writer:
            writer.write(environment)
            run.environment = environment
            if not _is_same_file(request.json or request.resume, request.resume):
                # Then the new file can be resumed in turn without the old one.
                for result in run.results.values():
                    writer.write(result)
            results = (compared(result, digests) for result in runner.run(items))
            for result in with_progress(terminal, results, len(items)):
                run.add(result)
                writer.write(result)


def _report(run: Run, waivers: list[Waiver], request: Request, terminal: Console) -> list[OSError]:
    """Write all reports that can be written; returns the errors of the others."""
    waiver_report = _waive(run, waivers)
    errors = []

    def attempt(path: Path | None, write: Callable[[], None]) -> None:
        try:
            with naming(path):
                write()
        except OSError as error:
            errors.append(error)

    attempt(None, lambda: print_summary(terminal, run, waiver_report))
    if (junit := request.junit) is not None:
        attempt(junit, lambda: write_junit(junit, run))
    if (html := request.html) is not None:
        attempt(html, lambda: write_html(html, run, waiver_report))
    if (record := request.record_digests) is not None:
        attempt(record, lambda: write_digests(record, run.results.values()))
    if (export := request.export) is not None:
        attempt(export, lambda: _print_lines(terminal, _export(run, request, export)))
    return errors


def _print_lines(terminal: Console, lines: Iterator[str]) -> None:
    for line in lines:
        terminal.print(line, soft_wrap=True)


def _check_outputs(request: Request) -> None:
    """Check, before any run, that each report can be written and that the file of results holds results."""
    if request.json is not None:
        files.require_own(request.json, read_results if request.scheduler is None else read_device_runs)
    for path in (request.junit, request.html, request.record_digests):
        if path is not None:
            files.require_place(path)
    if request.export is None:
        if request.export_all:
            raise SelectionError("--export-all needs --export FOLDER, the folder to export to")
        return
    files.require_folder_place(request.export)


def check_recorded_devices(request: Request) -> int:
    """Check plans without running them, report, and return the exit status."""
    cases = request.chosen()
    terminal = console()
    checks = list(with_plan_progress(terminal, check_plans(cases, recorded.NAMES, request.path), len(cases)))
    terminal.print(plan_table(checks))
    return 1 if any(check.problems for check in checks) else 0


def export_for_dxdispatch(request: Request, folder: Path) -> int:
    """Write the chosen cases as models, and return the exit status: 1 if there are none that could be written."""
    files.require_folder_place(folder)
    cases = request.chosen()
    terminal = console()
    written = 0
    with shown_progress(terminal, len(cases)) as progress:
        for case, result in export_models(cases, folder):
            progress(case.name)
            if isinstance(result, Exception):
                terminal.print(f"Not exported: {case.name}: {one_line(result)}", soft_wrap=True)
            else:
                written += 1
    terminal.print(
        f"{written} of {len(cases)} cases are in {folder}; run model.json in each, then check.py", soft_wrap=True
    )
    return 0 if written else 1


def _completed(environment: Environment, request: Request) -> Environment:
    """The environment of a device, with what is known of this run."""
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return replace(
        environment,
        path=request.path or "",
        validated=request.validate,
        date=date,
        command=shlex.join(["dmlvk", *sys.argv[1:]]),
    )


def _check_identity(request: Request, resumed: Environment | None, environment: Environment) -> None:
    """Check that existing results may be combined with those of this run."""
    if resumed is not None and resumed.identity != environment.identity:
        raise ResultsError(
            f"{request.resume} cannot be resumed here: {resumed.difference(environment)}; "
            "without --resume all cases run"
        )
    if request.json is None or not request.json.is_file() or _is_same_file(request.json, request.resume):
        return
    earlier = read_results(request.json).environment
    if earlier is not None and earlier.identity != environment.identity:
        raise ResultsError(
            f"{request.json} holds another run's results: {earlier.difference(environment)}; name another file"
        )


def _is_same_file(one: Path | None, other: Path | None) -> bool:
    return one == other or (
        one is not None and other is not None and one.exists() and other.exists() and one.samefile(other)
    )


def _waive(run: Run, waivers: list[Waiver]) -> WaiverReport:
    assert run.environment is not None
    today = datetime.datetime.now(datetime.timezone.utc).date()
    report = apply_waivers(waivers, run.environment, run.results.values(), today)
    for result in report.waived:
        run.add(result)
    return report


def _export(run: Run, request: Request, folder: Path) -> Iterator[str]:
    """Export the failing cases, or all that ran. Yields text on what was written and what could not be written."""
    assert run.environment is not None
    results = [result for result in run.results.values() if result.status is not Status.NOT_SUPPORTED]
    finder = CaseFinder(case_source(request.cases))
    for result in results if request.export_all else run.failures:
        if result.name == CLOSING:
            continue
        try:
            case = finder.find(result.name)
            forced = replace(case, path=case.path or request.path)
            yield f"Exported {export_case(forced, result, run.environment, folder)}"
        except OSError:
            raise
        except Exception as error:  # a case that cannot be built or planned failed for this reason
            yield f"Not exported: {result.name}: {type(error).__name__}: {error}"
