"""`dmlvk conformance`: does a device give the reference's bits for every case?"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from dmlvk._common import files
from dmlvk.command_line.conformance_cluster import ClusterRequest
from dmlvk.command_line.conformance_request import Request
from dmlvk.command_line.standard_streams import is_readers_end
from dmlvk.command_line.terminal import INTERRUPTED, clear_errors, console, echo, one_line, shown_progress
from dmlvk.command_line.without_device import check_recorded_devices, export_for_dxdispatch, listed
from dmlvk.conformance.digests import compared, recorded_digests, write_digests
from dmlvk.conformance.export import export_case
from dmlvk.conformance.names import OUR_CASES, CaseFinder, SelectionError, case_source
from dmlvk.conformance.privacy import public_command
from dmlvk.conformance.profiles import PROFILES
from dmlvk.conformance.reports.html import write_html
from dmlvk.conformance.reports.junit import write_junit
from dmlvk.conformance.reports.terminal import (
    failure_text,
    print_summary,
    with_failures,
)
from dmlvk.conformance.results import PASSED, Environment, Result, ResultsError, Run, Status
from dmlvk.conformance.results_file import ResultsWriter, naming, read_device_runs, read_results
from dmlvk.conformance.running.again import run_again
from dmlvk.conformance.running.runner import CLOSING, Item, Runner
from dmlvk.conformance.running.worker import WorkerConfiguration
from dmlvk.conformance.waivers import Flake, Waiver, WaiverReport, apply_waivers, further_runs, read_waivers
from dmlvk.errors import DeviceError
from dmlvk.planning import KERNEL_PATHS

OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)
OUTPUT_FOLDER = click.Path(file_okay=False, path_type=Path)
INPUT_FILE = click.Path(path_type=Path)  # the reader reports an unreadable file, in one line
PATHS = sorted({path for paths in KERNEL_PATHS.values() for path in paths})


@click.command()
@click.argument("patterns", nargs=-1)
@click.option(
    "--list",
    "list_names",
    is_flag=True,
    help="Run nothing: print the cases' names and what each group tests.",
)
@click.option("--plans", is_flag=True, help="Run nothing: check the cases' plans on all recorded devices.")
@click.option(
    "--full",
    is_flag=True,
    help="All 1.3 million cases: days on a CPU driver. Without it, some thousand well-chosen ones.",
)
@click.option("--sample", type=click.IntRange(1), help="So many of the cases, drawn at random.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of --sample: the same seed, the same cases.")
@click.option("--shard", metavar="I/N", help="The I-th of N parts, which together are all of the cases.")
@click.option("--fraction", metavar="I/N", help="Likewise, but parts that take about the same time.")
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
@click.option(
    "--soak",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Replay one recorded run of each case, for so long in all: the same bits have to come each time.",
)
@click.option("--jobs", type=click.IntRange(1), help="Processes at a time; else one, on a CPU driver one a core.")
@click.option(
    "--reruns",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Run a case that failed so many times again. If it passes then, it is Flaky.",
)
@click.option("--validate", is_flag=True, help="Under the Khronos validation layer, synchronization included.")
@click.option("--waivers", type=INPUT_FILE, help="Known failures and known flakes: a TOML file.")
@click.option("--compare", type=INPUT_FILE, help="Recorded digests to hold against; else those that come with dmlvk.")
@click.option("--json", type=OUTPUT_FILE, help="Append results here as JSON lines, case by case.")
@click.option(
    "--keep-outputs",
    is_flag=True,
    help="With --json NAME.jsonl: also write each output as .npy into NAME.outputs, for `dmlvk compare`.",
)
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
    Pass, Unpredictable, NotSupported and what is waived.
    """
    request = Request(**options)  # type: ignore[arg-type]
    if request.list_names:
        for line in listed(request.chosen()):
            echo(line)
        return
    if request.export_dxdispatch is not None:
        files.require_folder_place(request.export_dxdispatch)
        status = export_for_dxdispatch(request.chosen(), request.export_dxdispatch)
    elif request.plans:
        status = check_recorded_devices(request.chosen(), request.path)
    else:
        status = run_request(request)
    if status:
        sys.exit(status)


def run_request(request: Request) -> int:
    """Run the request, report, and return the exit status."""
    _check_outputs(request)
    chosen = request.chosen()
    items = request.items(chosen)
    waivers, flakes = read_waivers(request.waivers) if request.waivers is not None else ([], [])
    if request.scheduler is not None:
        if request.soak is not None:
            raise SelectionError("--soak belongs to one device: leave --scheduler out")
        if request.keep_outputs:
            raise SelectionError(
                "--keep-outputs writes beside the process that runs the cases, which is on another host with "
                "--scheduler: leave it out, and run the cases that differ on each device by itself"
            )

        def most_runs(environment: Environment, result: Result) -> int:
            return further_runs(flakes, environment, result, _today(), request.reruns)

        return ClusterRequest(
            request, items, _completed, lambda run: _waive(run, waivers, flakes), most_runs, _export
        ).run()
    digests = recorded_digests(request.compare)
    run = _resumed(request)
    resumed, run.environment = run.environment, None
    passed = {key for key, result in run.results.items() if result.status in PASSED}
    items = [item for item in items if item not in passed]
    terminal = console()
    interrupted = False
    errors: list[Exception] = []
    try:
        _run_items(run, resumed, items, request, digests, flakes, terminal)
    except KeyboardInterrupt:
        interrupted = True
    except (OSError, DeviceError) as stopped:  # such as a full disk: the results so far are reported all the same
        errors.append(stopped)
    if run.environment is not None:
        errors += _report(run, waivers, flakes, request, terminal, {case.group: case.about for case in chosen})
    if interrupted:
        json = request.json or request.resume
        hint = f"; go on with --resume {json}" if json is not None and run.environment is not None else ""
        echo(f"Interrupted{hint}")
    for error in errors:
        if not is_readers_end(error):
            echo(f"Error: {one_line(error)}", is_error=True)
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
    flakes: list[Flake],
    terminal: Console,
) -> None:
    """Run cases, and again those that fail now and then. Add each result, to the file of results too."""
    folder = request.outputs
    outputs = None if folder is None else str(folder.absolute())
    soak = (request.soak or 0.0) / max(1, len(items))
    configuration = WorkerConfiguration(request.device, request.cases, request.path, request.repeat, soak, outputs)
    with Runner(configuration, timeout=request.timeout + soak, jobs=request.jobs, validate=request.validate) as runner:
        environment = _completed(runner.open(), request)
        _check_identity(request, resumed, environment)
        with ResultsWriter(request.json or request.resume) as writer:
            writer.write(environment)
            run.environment = environment
            if not files.is_same(request.json or request.resume, request.resume):
                # Then the new file can be resumed in turn without the old one.
                for result in run.results.values():
                    writer.write(result)

            def results(chosen: Sequence[Item]) -> Iterator[Result]:
                return (compared(result, digests) for result in runner.run(chosen))

            with shown_progress(terminal, len(items)) as step:
                for result in with_failures(terminal, results(items), step):
                    run.add(result)
                    writer.write(result)
            failed = {key: result for key, result in run.results.items() if key in set(items) and not result.is_good}
            most_runs = {
                key: further_runs(flakes, environment, result, _today(), request.reruns)
                for key, result in failed.items()
            }
            for result in run_again(results, failed, most_runs):
                terminal.print(failure_text(result), soft_wrap=True)
                run.add(result)
                writer.write(result)


def _report(
    run: Run,
    waivers: list[Waiver],
    flakes: list[Flake],
    request: Request,
    terminal: Console,
    groups: Mapping[str, str],
) -> list[OSError]:
    """Write all reports that can be written; returns the errors of the others."""
    waiver_report = _waive(run, waivers, flakes)
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
        attempt(html, lambda: write_html(html, run, waiver_report, groups))
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
    if request.keep_outputs:
        if request.outputs is None:
            raise SelectionError("--keep-outputs needs --json FILE: outputs are kept beside the results")
        files.require_folder_place(request.outputs)
    for path in (request.junit, request.html, request.record_digests):
        if path is not None:
            files.require_place(path)
    if request.export is None:
        if request.export_all:
            raise SelectionError("--export-all needs --export FOLDER, the folder to export to")
        return
    files.require_folder_place(request.export)


def _completed(environment: Environment, request: Request) -> Environment:
    """The environment of a device, with what is known of this run."""
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return replace(
        environment,
        path=request.path or "",
        validated=request.validate,
        date=date,
        command=public_command(["dmlvk", *sys.argv[1:]]),
    )


def _check_identity(request: Request, resumed: Environment | None, environment: Environment) -> None:
    """Check that existing results may be combined with those of this run."""
    if resumed is not None and resumed.identity != environment.identity:
        raise ResultsError(
            f"{request.resume} cannot be resumed here: {resumed.difference(environment)}; "
            "without --resume all cases run"
        )
    if request.json is None or not request.json.is_file() or files.is_same(request.json, request.resume):
        return
    earlier = read_results(request.json).environment
    if earlier is not None and earlier.identity != environment.identity:
        raise ResultsError(
            f"{request.json} holds another run's results: {earlier.difference(environment)}; name another file"
        )


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.timezone.utc).date()


def _waive(run: Run, waivers: list[Waiver], flakes: list[Flake]) -> WaiverReport:
    assert run.environment is not None
    report = apply_waivers(waivers, run.environment, run.results.values(), _today(), flakes)
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
            if case.refusal is not None and result.is_good:
                continue  # nothing was run
            forced = replace(case, path=case.path or request.path)
            yield f"Exported {export_case(forced, result, run.environment, folder)}"
        except OSError:
            raise
        except Exception as error:  # a case that cannot be built or planned failed for this reason
            yield f"Not exported: {result.name}: {type(error).__name__}: {error}"
