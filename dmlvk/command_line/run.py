"""`dmlvk run`: a user's model."""

from __future__ import annotations

from pathlib import Path

import click

from dmlvk import dxdispatch, files
from dmlvk.command_line.terminal import clear_errors


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The folder for the files that the model writes. Default: the model's own.",
)
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@clear_errors
def run(model: Path, output: Path | None, selector: str | None) -> None:
    """Run a MODEL: a JSON file of DxDispatch.

    Prints what the model's commands print. The whole model is checked before anything runs.
    """
    if output is not None:
        files.require_folder_place(output)
    if model.suffix.lower() != ".json":
        raise files.FileError(f"{model} is no model that dmlvk runs: expected a .json file of DxDispatch")
    dxdispatch.load(model).run(selector, output_folder=output, log=click.echo)
