"""`dmlvk run`: a model, as its users have it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

import dmlvk
from dmlvk import dxdispatch
from dmlvk._common import files
from dmlvk.command_line.run_onnx import run_onnx
from dmlvk.command_line.terminal import COMPILED, clear_errors, console, echo, shown_parts


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    help="Of an ONNX model: NAME=FILE.npy. A second file of a name belongs to a second run. Default: random elements.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The folder for the outputs of an ONNX model, NAME.npy, or for the files that a model of DxDispatch writes.",
)
@click.option(
    "--allow-path",
    "allow_paths",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Of DxDispatch: a further folder in which the model may read and write.",
)
@click.option(
    "--check", is_flag=True, help="Of an ONNX model: compare each node on the device with ONNX Runtime on its inputs."
)
@click.option(
    "--repeat",
    type=click.IntRange(2),
    metavar="N",
    help="Of an ONNX model: replay the recorded run N times, and compare the bits of every output with the first.",
)
@click.option(
    "--fuse-qdq/--no-fuse-qdq",
    default=True,
    show_default=True,
    help="Fuse dequantize, convolve, quantize to one integer convolution, as ONNX Runtime does.",
)
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@clear_errors
def run(
    model: Path,
    inputs: tuple[str, ...],
    output: Path | None,
    allow_paths: tuple[Path, ...],
    check: bool,
    repeat: int | None,
    fuse_qdq: bool,
    selector: str | None,
) -> None:
    """Run a MODEL: an ONNX file, or a JSON file of DxDispatch.

    Of an ONNX model, prints where each node runs, and the reason; then where the time went. Ends with status 1 if
    --check finds a node on the device that differs from ONNX Runtime, or --repeat a run with other bits than the first.
    Of a model of DxDispatch, prints what its commands print; the whole model is checked before anything runs. It reads
    files in its own folder and the working directory, and writes files in its own folder or that of --output.
    """
    if output is not None:
        files.require_folder_place(output)
    suffix = model.suffix.lower()
    if suffix == ".onnx":
        if allow_paths:
            raise click.UsageError("--allow-path belongs to models of DxDispatch; an ONNX model writes no files")
        run_onnx(model, selector, inputs, output, check, fuse_qdq, repeat)
    elif suffix == ".json":
        if inputs or check or repeat:
            raise click.UsageError(
                "--input, --check and --repeat belong to ONNX models; a model of DxDispatch names its own files"
            )
        loaded = dxdispatch.load(model, allow_paths=allow_paths)
        with dmlvk.Device(selector) as device, shown_parts(console(), COMPILED) as show:
            device.compile_progress = show
            loaded.run(device, output_folder=output, log=partial(echo, is_multiline=True))
    else:
        raise files.FileError(f"{model} is no model that dmlvk runs: expected an .onnx file, or a .json of DxDispatch")
