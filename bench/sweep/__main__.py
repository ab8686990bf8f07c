"""Random shapes, and those of them that are furthest from what bounds them.

    python -m bench.sweep [--seconds 60] [--seed 1] [--device NAME] [--operator NAME]... [--peer NAME]... [--json FILE]

Random convolutions and SLICE1s are measured for some time. Those come first that are furthest from their bound: the
copy of their bytes, or their operations on the fastest unit. Ends with status 1 if a result is not the reference's.
"""

from __future__ import annotations

import click

import dmlvk
from bench.sweep import OPERATORS, measurement, tables
from dmlvk.benchmark.kinds import Kind
from dmlvk.benchmark.records import Keep, Record
from dmlvk.command_line.bench_record import Outputs, measured_and_shown, record_options
from dmlvk.command_line.bench_subject import bytes_of, is_cpu
from dmlvk.command_line.terminal import clear_errors, console, require_names, shown_progress

KINDS = {"sweep": Kind(tables, "python -m bench.sweep", "shapes")}
# Bytes of the inputs, unless --megabytes is given: on a GPU, more than any cache holds.
ON_CPU, ON_GPU = 1 << 20, 1 << 26


@click.command()
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed, the same shapes.")
@click.option("--operator", "operators", multiple=True, help=f"{' or '.join(OPERATORS)}. Default: both.")
@click.option("--megabytes", type=click.IntRange(1), default=None, help="Of the inputs; a power of two.")
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Fewer where they take long.")
@click.option("--peer", "peers", multiple=True, help="torch, ...; none for none. Repeatable. Default: all.")
@record_options
@clear_errors
@click.pass_context
def main(
    context: click.Context,
    /,
    selector: str | None,
    seconds: float,
    seed: int,
    operators: tuple[str, ...],
    megabytes: int | None,
    rounds: int,
    peers: tuple[str, ...],
    outputs: Outputs,
) -> None:
    """Measure random shapes, the slowest ones first."""
    chosen = [name.lower() for name in operators]
    require_names("--operator", chosen, OPERATORS)
    data_bytes = bytes_of(megabytes)
    require_names("--peer", peers, [*measurement.PEER_NAMES, "none"])

    def measure(keep: Keep) -> Record:
        with dmlvk.Device(selector, timestamps=True) as device, shown_progress(console(), round(seconds)) as progress:
            settings = measurement.SweepSettings(
                [name for name in OPERATORS if not chosen or name in chosen],
                seconds,
                seed,
                data_bytes or (ON_CPU if is_cpu(device) else ON_GPU),
                rounds,
                [name for name in measurement.PEER_NAMES if not peers or name in peers],
            )
            shown = 0

            def step(name: str, passed: float) -> None:
                nonlocal shown
                while shown <= passed:
                    progress(name)
                    shown += 1

            return measurement.run(device, settings, step, keep)

    measured_and_shown(context, outputs, measure, KINDS)


if __name__ == "__main__":
    main()
