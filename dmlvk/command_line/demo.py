"""`dmlvk demo`: the operators on a photograph, and a network on digits."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

import dmlvk
from dmlvk._common import files
from dmlvk._common.unbroken import unbroken
from dmlvk.command_line.terminal import clear_errors, console, shown_progress


def _rate(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"


@click.command(short_help="Run all on a photograph and on digits.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("dmlvk-demo.png"),
    show_default=True,
    help="The picture to write, a PNG.",
)
@click.option("--dark", is_flag=True, help="Draw light letters on a dark ground, for dark pages.")
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@clear_errors
def demo(output: Path, dark: bool, selector: str | None) -> None:
    """Run the operators on a photograph and a network on digits, check each result, write a picture.

    Ends with status 1 if any result differs from the NumPy reference, or from ONNX Runtime's. Without the extra onnx
    the network is left out.
    """
    from dmlvk.demo import (
        DARK,
        LIGHT,
        all_panels,
        draw_sheet,
        measure,
        missing_package,
        photograph,
        picture_format,
        read_digits,
    )

    files.require_place(output)
    picture_format(output)
    photo = photograph()
    device = dmlvk.Device(selector, timestamps=True)
    terminal = console()
    panels = [panel for several in all_panels(photo).values() for panel in several]
    measurements = []
    with shown_progress(terminal, len(panels) + 1) as step:
        for panel in panels:
            step(panel.title)
            measurements.append(measure(device, panel))
        step("a network")
        reading = missing_package() or read_digits(device)

    driver = next((info.driver for info in dmlvk.devices() if info.profile == device.profile), "")
    name = f"{device.name}, driver {driver}"
    table = Table(title=f"Device: {name}", title_justify="left")
    for heading in ("operator", "result", "kernel"):
        table.add_column(heading)
    for heading in ("time", "GB/s"):
        table.add_column(heading, justify="right")
    table.add_column("check")
    for entry in measurements:
        table.add_row(
            entry.operator,
            entry.panel.title,
            Text("\n".join(entry.kernels)),
            f"{entry.seconds * 1e6:,.0f} us",
            _rate(entry.gigabytes_per_second),
            Text("equal", "green") if entry.correct else Text("DIFFERS", "red"),
        )
    clocks = " and ".join(sorted({entry.timed_by for entry in measurements}))
    terminal.print(unbroken(table, terminal))
    terminal.print(f"Median of several runs by the {clocks}'s clock. These tensors are small: no measure of speed.")
    if isinstance(reading, str):
        terminal.print(f"Network: not run: {reading}")
        different = []
    else:
        different = [f"{finding.name} differs from ONNX Runtime's: {finding.text}" for finding in reading.different]
        equal = len(reading.values) - len(different)
        terminal.print(
            f"Network: {reading.accuracy} of the digits read right; "
            f"{equal} of {len(reading.values)} values equal ONNX Runtime's"
        )
    draw_sheet(photo, measurements, reading, name, output, DARK if dark else LIGHT)
    terminal.print(f"Picture: {output}")
    wrong = [entry.panel.title for entry in measurements if not entry.correct]
    if wrong:
        different.insert(0, f"differs from the NumPy reference: {', '.join(wrong)}")
    if different:
        raise click.ClickException("; ".join(different))
