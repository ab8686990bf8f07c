"""What a network waits for the driver's compiler, in fresh processes, with no cache and one.

    python -m bench.cold resnet50 [--device NAME] [--batch N]... [--layout NAME]... [--size NAME] [--json FILE] ...

The times are those for which the layers wait: all compiled in one thread and in as many as there are cores, and each
called at once, with the driver's own caches off. Ends with status 1 if a result is not the reference's.
"""

from __future__ import annotations

import click

import dmlvk
from bench.cold import measurement, tables
from dmlvk.benchmark.kinds import Kind
from dmlvk.benchmark.networks.measurement import NetworkSettings
from dmlvk.benchmark.records import Keep, Record
from dmlvk.command_line.bench_record import Outputs, measured_and_shown, record_options
from dmlvk.command_line.bench_subject import batches_or, network_layouts, required_network
from dmlvk.command_line.terminal import clear_errors, console, one_line, shown_progress

KINDS = {"cold": Kind(tables, "python -m bench.cold {name}", "runs")}


@click.command()
@click.argument("network", default="resnet50")
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option("--batch", "batches", type=click.IntRange(1), multiple=True, help="Images; repeatable. Default: 1.")
@click.option("--layout", "layouts", multiple=True, help="nhwc or nchw. Default: both.")
@click.option("--size", type=click.Choice(["full", "small", "tiny"]), default="full", show_default=True)
@record_options
@clear_errors
@click.pass_context
def main(
    context: click.Context,
    /,
    network: str,
    selector: str | None,
    batches: tuple[int, ...],
    layouts: tuple[str, ...],
    size: str,
    outputs: Outputs,
) -> None:
    """Measure the first calls of a network's convolutions."""

    def measure(keep: Keep) -> Record:
        chosen = required_network(network, size)
        settings = NetworkSettings(batches_or(batches, [1]), network_layouts(layouts))
        steps = measurement.step_count(settings)
        with dmlvk.Device(selector) as device, shown_progress(console(), steps) as progress:
            try:
                return measurement.run(device, selector, chosen, settings, progress, keep)
            except measurement.ProcessError as error:
                raise click.ClickException(one_line(error)) from error

    measured_and_shown(context, outputs, measure, KINDS)


if __name__ == "__main__":
    main()
