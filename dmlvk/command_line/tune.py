"""`dmlvk tune`: finds the fastest kernel path on this device, and remembers it for later programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from dmlvk._common import files
from dmlvk._common.rates import Rates
from dmlvk._common.unbroken import unbroken
from dmlvk.command_line.terminal import INTERRUPTED, clear_errors, console, echo, one_line
from dmlvk.runtime import device_files, measured_rates, tuned_paths

if TYPE_CHECKING:
    import dmlvk
    from dmlvk.conformance.case import Workload
    from dmlvk.runtime.tuning import Tuning


@click.command(short_help="Find the fastest kernel paths, and keep them.")
@click.argument("model", required=False, type=click.Path(path_type=Path))
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option(
    "--case",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Cases of dmlvk bench: part of a name, with *, ? and []; may be repeated. Default: convolutions.",
)
@click.option(
    "--descriptors",
    type=click.Path(path_type=Path),  # the reader reports an unreadable file, in one line
    default=None,
    help="Descriptors to tune for in place of cases, a JSON object a line: what $DMLVK_RECORD has written.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=None,
    help="Images of a case or a model. Default: 64, on a CPU driver and of MODEL 1.",
)
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True, help="Fewer where they take long.")
@click.option(
    "--rates",
    "measures_rates",
    is_flag=True,
    help="Measure what the device does in a second, and let the planner choose paths by it.",
)
@click.option("--list", "lists", is_flag=True, help="Measure nothing: say what is remembered, for all devices.")
@click.option("--clear", "clears", is_flag=True, help="Measure nothing: forget what is remembered, for all devices.")
@clear_errors
def tune(
    model: Path | None,
    selector: str | None,
    patterns: tuple[str, ...],
    descriptors: Path | None,
    batch: int | None,
    rounds: int,
    measures_rates: bool,
    lists: bool,
    clears: bool,
) -> None:
    """Measure each kernel path that an operator can take, and remember the fastest for exactly this descriptor.

    With MODEL, an ONNX file: for each different layer of the model, the paths and tiles that are estimated to be close,
    as `InferenceSession.tune` does. What was measured before is not measured again, and an interrupted run keeps what
    it has. A first dimension of any size is --batch, another one 1; `session.tune(feeds)` takes others.

    Device.compile takes a remembered path from then on, unless one is forced, as long as device, driver and kernels are
    the same. Every result is checked; ends with status 1 if any is not the reference's, bit for bit.

    With --rates, the planner chooses the path of every other convolution by what this device does, in place of what is
    typical of its class. It takes some seconds, and holds as long as device and driver are the same.
    """

    if clears:
        for kind, prefix in (("forgotten", tuned_paths.PREFIX), ("rates forgotten", measured_rates.PREFIX)):
            for file in device_files.remembered_files(prefix):
                echo(f"{kind}: {device_files.device_of(file)}")
                device_files.clear(file)
        return
    if lists:
        _list()
        return
    if model is not None:
        if patterns or descriptors is not None or measures_rates:
            raise click.UsageError("a model is tuned whole: leave out --case, --descriptors and --rates")
        _tune_model(model, selector, batch)
        return
    if measures_rates:
        if patterns or descriptors is not None or batch is not None:
            raise click.UsageError("--rates measures no cases; leave out --case, --descriptors and --batch")
        _measure_rates(selector)
        return

    import dmlvk
    from dmlvk.command_line.terminal import shown_progress
    from dmlvk.runtime.tuning import OTHER_BITS, tune_one

    terminal = console()
    with dmlvk.Device(selector) as device:
        store = tuned_paths.TunedPaths(device.profile)
        file = device_files.require_place(store.file)
        work = _work(device, patterns, descriptors, batch)
        tunings = {}
        is_interrupted = False
        try:
            with shown_progress(terminal, len(work)) as progress:
                for name, build in work.items():
                    progress(name)
                    steps = progress.parts("paths compiled or measured")
                    workload = build()
                    given = workload.desc, workload.inputs, workload.result()
                    tunings[name] = tune_one(device.engine, device.compile, *given, rounds, steps)
                    tunings[name].remember(store)
        except KeyboardInterrupt:
            is_interrupted = True
        title = f"{device.name}, {device.profile.driver_name} {device.profile.driver_info}"
    if tunings:
        _show(tunings, title)
        terminal.print(f"remembered in {file}")
    if is_interrupted:
        echo(f"Interrupted: {len(tunings)} of {len(work)} cases are measured", is_error=True)
        click.get_current_context().exit(INTERRUPTED)
    wrong = [name for name, found in tunings.items() if OTHER_BITS in found.faults.values()]
    if wrong:
        raise click.ClickException(f"a path's result is DIFFERENT from the reference: {', '.join(wrong)}")


def _tune_model(model: Path, selector: str | None, batch: int | None) -> None:
    """Tune the layers of an ONNX file."""
    from dmlvk.command_line.run_onnx import random_feeds
    from dmlvk.command_line.terminal import shown_progress

    try:
        import numpy as np

        from dmlvk.onnx import InferenceSession, ModelError
        from dmlvk.onnx.random_feeds import random_batch
    except ImportError as error:
        raise click.ClickException(one_line(error)) from error
    terminal = console()
    has_begun = False
    try:
        with shown_progress(terminal, 1) as progress:
            progress(model.name)
            show = progress.parts("paths compiled or measured")

            def count(done: int, of: int) -> None:
                nonlocal has_begun
                has_begun = True
                show(done, of)

            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*runs on this machine's processor")
                session = InferenceSession(model, device=selector)
            file = device_files.require_place(tuned_paths.TunedPaths(session.device.profile).file)
            session.device.compile_progress = count
            if batch is None:
                feeds = random_feeds(session)
            else:
                feeds = random_batch(np.random.default_rng(0), session.get_inputs(), batch)
            session.tune(feeds)
    except ModelError as error:
        raise click.ClickException(one_line(error)) from error
    except KeyboardInterrupt:
        if not has_begun:
            raise
        echo(f"Interrupted: what was measured until then is remembered in {file}", is_error=True)
        click.get_current_context().exit(INTERRUPTED)
    terminal.print(f"The fastest path of each layer is remembered in {file}", soft_wrap=True)


def _work(
    device: dmlvk.Device, patterns: tuple[str, ...], descriptors: Path | None, batch: int | None
) -> dict[str, Callable[[], Workload]]:
    """The workloads to tune, by name."""
    from dataclasses import replace

    from dmlvk.benchmark.cases import SCALES, cases, select
    from dmlvk.benchmark.work import random_workload
    from dmlvk.device_profile import DeviceType
    from dmlvk.operators.serialization import deserialize

    if descriptors is not None:
        work: dict[str, partial[Workload]] = {}
        for number, line in enumerate(files.read_text(descriptors).splitlines(), 1):
            place = f"{descriptors}, line {number}"
            record = files.parse_json(line, place)
            try:
                desc = deserialize(record)
            except ValueError as error:
                raise files.FileError(f"{place}: {error}") from error
            output = "x".join(map(str, desc.tensors["output_tensor"].sizes))
            known = {build.args[0] for build in work.values()}
            if desc not in known:
                work[f"line {number}: {desc.operator_name} to {output}"] = partial(random_workload, desc)
        return {**work}
    is_cpu = device.profile.device_type is DeviceType.CPU
    scale = SCALES["small" if is_cpu else "full"]
    if batch is not None:
        scale = replace(scale, batch=batch)
    chosen = select(cases(scale), patterns=patterns or ("quantized_linear_convolution",))
    if not chosen:
        raise click.ClickException("no case matches --case; `dmlvk bench --list` prints the names")
    return {case.name: case.build for case in chosen}


def _measure_rates(selector: str | None) -> None:
    import dmlvk
    from dmlvk.benchmark.device_rates import measure_rates
    from dmlvk.runtime.measured_rates import WITHOUT_RATES, MeasuredRates

    with dmlvk.Device(selector, timestamps=True) as device:
        if device.profile.device_type in WITHOUT_RATES:
            raise click.ClickException(f"{device.name} is no GPU; on CPU drivers rates decide nothing")
        store = MeasuredRates(device.profile)
        file = device_files.require_place(store.file)
        measured = measure_rates(device)
        if measured.wrong:
            raise click.ClickException(f"nothing is remembered: wrong results of the marks {', '.join(measured.wrong)}")
        store.remember(measured.rates)
        title = f"{device.name}, {device.profile.driver_name} {device.profile.driver_info}"
    terminal = console()
    terminal.print(unbroken(_rates_table({title: measured.rates}), terminal))
    terminal.print(f"remembered in {file}")


def _rates_table(rates: Mapping[str, Rates]) -> Table:
    """Rates by device: operations, bytes and steps a second, and microseconds."""
    table = Table()
    table.add_column("device", overflow="fold")
    units = {"copy": "GB/s", "processors": "", "dispatch": "us", "wait": "us"}
    names = [field.name for field in fields(Rates)]
    for name in names:
        unit = units.get(name, "10^12/s")
        table.add_column(f"{name}, {unit}" if unit else name, justify="right")
    scales = {"GB/s": 1e-9, "": 1.0, "us": 1e6, "10^12/s": 1e-12}
    for device, found in rates.items():
        values = (getattr(found, name) * scales[units.get(name, "10^12/s")] for name in names)
        table.add_row(device, *(f"{value:.4g}" for value in values))
    return table


def _show(tunings: dict[str, Tuning], title: str) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("work", overflow="fold")
    for heading in ("fastest path", "ms", "planner, ms"):
        table.add_column(heading, justify="right" if "ms" in heading else "left")
    table.add_column("paths measured", justify="right")
    for name, tuning in tunings.items():
        planned = tuning.seconds.get(tuning.planned)
        best = tuning.seconds.get(tuning.path or tuning.planned)
        table.add_row(
            name,
            tuning.path or "the planner's",
            "" if best is None else f"{best * 1e3:.4g}",
            "" if planned is None else f"{planned * 1e3:.4g}",
            str(len(tuning.seconds) + len(tuning.faults)),
        )
    terminal = console()
    terminal.print(unbroken(table, terminal))
    for name, tuning in tunings.items():
        for path, fault in tuning.faults.items():
            shown = "planner" if path == tuning.planned else path
            terminal.print(f"{name}: {shown}: {fault}")


def _list() -> None:
    terminal, table = console(), Table()
    for heading in ("device", "driver", "operator", "output", "path"):
        table.add_column(heading, overflow="fold")
    for heading in ("ms", "planner, ms"):
        table.add_column(heading, justify="right")
    table.add_column("kernels")
    for file in device_files.remembered_files(tuned_paths.PREFIX):
        for choice in tuned_paths.read(file):
            output = choice.descriptor.get("output_tensor", {}).get("sizes", ())
            planned, best = (choice.seconds.get(name) for name in ("planner", choice.path or "planner"))
            table.add_row(
                device_files.device_of(file),
                choice.driver,
                str(choice.descriptor.get("operator", "")),
                "x".join(map(str, output)),
                choice.path or "the planner's",
                "" if best is None else f"{best * 1e3:.4g}",
                "" if planned is None else f"{planned * 1e3:.4g}",
                "these" if choice.kernels == tuned_paths.kernels_hash() else "others: not used",
            )
    found = [measured_rates.read(file) for file in device_files.remembered_files(measured_rates.PREFIX)]
    rates = {f"{device}, {driver}": each for device, driver, each in filter(None, found)}
    if table.row_count:
        terminal.print(unbroken(table, terminal))
    if rates:
        terminal.print(unbroken(_rates_table(rates), terminal))
    if not table.row_count and not rates:
        echo("nothing is remembered; `dmlvk tune` measures")
