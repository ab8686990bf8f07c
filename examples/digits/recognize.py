"""Runs the network on a device: python -m examples.digits.recognize --device NAME

Prints how many digits are read right and where each node runs, compares every value of the run with ONNX Runtime's, and
draws the digits with their answers.
"""

from __future__ import annotations

import io
from pathlib import Path

import click
import onnx
from rich.table import Table
from rich.text import Text

import dmlvk
from dmlvk._common import files
from dmlvk.command_line.terminal import clear_errors, console
from dmlvk.demo import Reading, draw_digits, missing_package, picture_format, read_digits
from dmlvk.demo.digits import network
from dmlvk.demo.palette import LIGHT

WIDTH, MARGIN = 1204, 48  # of the picture, in pixels


def table(reading: Reading, device: str) -> Table:
    """The nodes with their places, and the check of what they write."""
    found = {finding.name: finding for finding in reading.values}
    written = {node.name: node.output for node in onnx.load_from_string(network()).graph.node}
    made = Table(title=f"digits.onnx on {device}", title_justify="left")
    for heading in ("node", "operator", "where", "value", "check"):
        made.add_column(heading)
    for row in reading.placement:
        for value in written[row.name]:
            verdict = Text("equal", "green") if found[value].is_equal else Text("DIFFERS", "red")
            made.add_row(row.name, row.op_type, row.where, value, verdict)
    return made


@click.command()
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("digits.png"),
    show_default=True,
    help="The picture to write, a PNG.",
)
@clear_errors
def main(selector: str | None, output: Path) -> None:
    """Read digits with the network on a device, check each value, write a picture.

    Ends with status 1 if a value differs from ONNX Runtime's.
    """
    files.require_place(output)
    missing = missing_package()
    if missing:
        raise click.ClickException(f"the network cannot run: {missing}")
    from PIL import ImageOps

    kind = picture_format(output)
    device = dmlvk.Device(selector)
    reading = read_digits(device)
    terminal = console()
    terminal.print(table(reading, device.name))
    terminal.print(f"{reading.accuracy} of the digits are read right")
    content = io.BytesIO()
    ImageOps.expand(draw_digits(reading, WIDTH - 2 * MARGIN), MARGIN, LIGHT.paper).save(content, kind)
    files.write_bytes(output, content.getvalue())
    terminal.print(f"Picture: {output}", soft_wrap=True)
    if reading.different:
        texts = "; ".join(finding.text for finding in reading.different[:3])
        raise click.ClickException(f"{len(reading.different)} values differ from ONNX Runtime's: {texts}")


if __name__ == "__main__":
    main()
