"""`dmlvk conformance`: does a device give the reference's bits for every case?"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from dmlvk._common import files
from dmlvk.command_line.conformance_cluster import ClusterRun
from dmlvk.command_line.conformance_reports import Session
from dmlvk.command_line.conformance_request import Request
from dmlvk.command_line.terminal import clear_errors, console, echo, one_line, shown_progress
from dmlvk.conformance import recorded
from dmlvk.conformance.case import Case
from dmlvk.conformance.digests import compared, recorded_digests
from dmlvk.conformance.dxdispatch import export_models
from dmlvk.conformance.names import OUR_CASES, SelectionError
from dmlvk.conformance.plans import check_plans
from dmlvk.conformance.profiles import PROFILES
from dmlvk.conformance.reports.terminal import failure_text, plan_table, with_failures, with_problems
from dmlvk.conformance.results import PASSED, Environment, Result, ResultsError, Run
from dmlvk.conformance.results_file import ResultsWriter, read_device_runs, read_results
from dmlvk.conformance.running.runner import CLOSING, Item, Runner, run_again
from dmlvk.conformance.running.worker import WorkerConfiguration
from dmlvk.conformance.waivers import read_waivers
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
    help="Run a case that failed again, at most this many times. If it passes then, it is Flaky.",
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
@click.option("--export", type=OUTPUT_FOLDER, help="Write each failing case here as a folder that runs alone.")
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


def listed(cases: list[Case]) -> Iterator[str]:
    """The names, one a line. Before each group a line, which begins with "#", says what the group tests."""
    for group, members in itertools.groupby(cases, lambda case: case.group):
        names = list(members)
        about = f": {names[0].about}" if names[0].about else ""
        count = f"{len(names):,} case{'s' if len(names) > 1 else ''}"
        yield f"# {group} ({count}){about}"
        yield from (case.name for case in names)


def check_recorded_devices(cases: list[Case], path: str | None) -> int:
    """Check plans without running them, report, and return the exit status.

    path: the kernel path for cases that leave the choice to the planner.
    """
    terminal = console()
    with shown_progress(terminal, len(cases)) as step:
        checks = list(with_problems(terminal, check_plans(cases, recorded.NAMES, path), step))
    terminal.print(plan_table(checks))
    return 1 if any(check.problems for check in checks) else 0


def export_for_dxdispatch(cases: list[Case], folder: Path) -> int:
    """Write cases as models, and return the exit status: 1 if there are none that could be written.

    A descriptor that has to be refused is no model.
    """
    cases = [case for case in cases if case.refusal is None]
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


def run_request(request: Request) -> int:
    """Run the request, report, and return the exit status."""
    _check_outputs(request)
    chosen = request.chosen()
    items = request.items(chosen)
    waivers, flakes = read_waivers(request.waivers) if request.waivers is not None else ([], [])
    groups = {case.group: case.about for case in chosen}
    session = Session(request, waivers, flakes, groups, recorded_digests(request.compare))
    if request.scheduler is None:
        run = _resumed(request)
        return session.carry_out(lambda session: _run_items(session, run, items))
    if request.soak is not None:
        raise SelectionError("--soak belongs to one device: leave --scheduler out")
    if request.keep_outputs:
        raise SelectionError(
            "--keep-outputs writes beside the process that runs the cases, which is on another host with "
            "--scheduler: leave it out, and run the cases that differ on each device by itself"
        )
    return session.carry_out(ClusterRun(request, items).run)


def _resumed(request: Request) -> Run:
    """The results of an earlier run, excluding that its device could not be closed: that may go better this time."""
    if request.resume is None:
        return Run()
    run = read_results(request.resume)
    run.results = {key: result for key, result in run.results.items() if result.name != CLOSING}
    return run


def _run_items(session: Session, run: Run, items: list[Item]) -> None:
    """Run cases, and again those that fail now and then. Add each result, to the file of results too."""
    request, terminal = session.request, session.terminal
    resumed, run.environment = run.environment, None
    passed = {key for key, result in run.results.items() if result.status in PASSED}
    items = [item for item in items if item not in passed]
    folder = request.outputs
    outputs = None if folder is None else str(folder.absolute())
    soak = (request.soak or 0.0) / max(1, len(items))
    configuration = WorkerConfiguration(request.device, request.cases, request.path, request.repeat, soak, outputs)
    with Runner(configuration, timeout=request.timeout + soak, jobs=request.jobs, validate=request.validate) as runner:
        environment = session.completed(runner.open())
        _check_identity(request, resumed, environment)
        with ResultsWriter(request.json or request.resume) as writer:
            writer.write(environment)
            run.environment = environment
            session.runs.append(run)
            if not files.is_same(request.json or request.resume, request.resume):
                # Then the new file can be resumed in turn without the old one.
                for result in run.results.values():
                    writer.write(result)

            def results(chosen: Sequence[Item]) -> Iterator[Result]:
                return (compared(result, session.digests) for result in runner.run(chosen))

            with shown_progress(terminal, len(items)) as step:
                for result in with_failures(terminal, results(items), step):
                    run.add(result)
                    writer.write(result)
            failed = {key: result for key, result in run.results.items() if key in set(items) and not result.is_good}
            most_runs = {key: session.most_runs(environment, result) for key, result in failed.items()}
            for result in run_again(results, failed, most_runs):
                terminal.print(failure_text(result), soft_wrap=True)
                run.add(result)
                writer.write(result)


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
