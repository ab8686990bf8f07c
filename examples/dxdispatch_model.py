"""A model of DxDispatch, the program by which DirectML is debugged, on any Vulkan device.

    python -m examples.dxdispatch_model
    dmlvk run examples/dxdispatch_model.json      # the same model, from the command line

The model beside this file has three operators: ONE_HOT encodes classes, SLICE1 reverses the rows, DIAGONAL_MATRIX1
fills two diagonals. On Windows, `dxdispatch.exe examples\\dxdispatch_model.json` asks DirectML the same. Every
resource is compared with NumPy's at the end.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

import dmlvk.dxdispatch
from dmlvk.command_line.terminal import clear_errors

MODEL = Path(__file__).with_suffix(".json")


def expected(classes: np.ndarray) -> dict[str, np.ndarray]:
    """The model's three results in NumPy."""
    encoded = (classes[:, None] == np.arange(4)).astype(np.float32)
    reverse = encoded[::-1]
    row, column = np.indices(encoded.shape)
    banded = np.where((column - row >= -1) & (column - row < 1), np.float32(5), reverse)
    return {"encoded": encoded, "reversed": reverse, "banded": banded}


@click.command()
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@clear_errors
def main(selector: str | None) -> None:
    """Run a model of DxDispatch. Ends with status 1 if a resource is not what NumPy gives."""
    memory = dmlvk.dxdispatch.load(MODEL).run(selector, log=click.echo)
    found = expected(memory["classes"])
    wrong = [name for name, array in found.items() if not np.array_equal(memory[name].reshape(array.shape), array)]
    if wrong:
        raise click.ClickException(f"differs from NumPy's: {', '.join(wrong)}")
    click.echo(f"{', '.join(found)}: equal to NumPy's")


if __name__ == "__main__":
    main()
