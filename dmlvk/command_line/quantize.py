"""`dmlvk quantize`: a model of 8-bit integers of one in floats, and what that costs."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from dmlvk._common import files
from dmlvk._common.unbroken import unbroken
from dmlvk.command_line.terminal import clear_errors, console, echo, ended_early, one_line, shown_progress

if TYPE_CHECKING:
    from dmlvk.onnx import QuantizationReport
    from dmlvk.onnx.arguments import NodeArgument

# The most rows of an archive that the model gets at a time.
BATCH = 16
# The report names this many layers.
LAYERS = 5
PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
AS_ARRAYS = (
    "have to be arrays of the size and range that the model takes: docs/quantizing.md, Samples from photographs, "
    "makes an .npz of them"
)


@click.command(short_help="Make a model of 8-bit integers of floats.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    help="Inputs as in use: an .npz with an array for each input, whose first dimension counts them; or a folder of "
    ".npy files (a model with one input) or .npz files, one for each run. Of photographs docs/quantizing.md makes one.",
)
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The new model.")
@click.option(
    "--format",
    type=click.Choice(["QOperator", "QDQ"]),
    default="QOperator",
    show_default=True,
    help="QLinearConv and the like, with the same bits everywhere; or floats between QuantizeLinear and "
    "DequantizeLinear.",
)
@click.option(
    "--weight-bits",
    type=click.Choice(["7", "8"]),
    default="8",
    show_default=True,
    help="8 is more accurate; with 7, ONNX Runtime gives the same bits on x86 processors without VNNI too, where its "
    "sums of two products saturate.",
)
@click.option(
    "--per-channel/--per-tensor", default=True, show_default=True, help="A scale for each output channel of weights."
)
@click.option(
    "--calibration",
    type=click.Choice(["minmax", "entropy", "percentile"]),
    default="minmax",
    show_default=True,
    help="How the range of a value follows from the data.",
)
@click.option("--report/--no-report", default=True, show_default=True, help="Run both models on the data.")
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@clear_errors
def quantize(
    model: Path,
    data: Path,
    output: Path,
    format: str,
    weight_bits: str,
    per_channel: bool,
    calibration: str,
    report: bool,
    selector: str | None,
) -> None:
    """Quantize a MODEL in floats to 8-bit integers, whose convolutions run on a device.

    ONNX Runtime's quantizer does it, from inputs that show the range of each value. The report says how far the
    outputs are from those in floats, which layers lose most, where each node runs, and how long a run takes. Ctrl-C
    ends the calibration early: the model is made of what was seen until then.
    """
    files.require_place(output)
    try:
        from dmlvk.onnx import ModelError, quantization_report
        from dmlvk.onnx import quantize as quantized_of
        from dmlvk.onnx.arguments import NodeArgument
        from dmlvk.onnx.graph import Graph
        from dmlvk.onnx.model_file import load
        from dmlvk.onnx.quantizer import SampleError
    except ImportError as error:
        raise click.ClickException(one_line(error)) from error
    terminal = console()
    try:
        loaded = load(model)
        arguments = [NodeArgument.of(value) for value in Graph(loaded).inputs.values()]
        samples = Samples(data, arguments)
        with shown_progress(terminal, samples.count + 3) as step, ended_early() as is_ended:
            made = quantized_of(
                model,
                samples.until(is_ended),
                format=format,  # type: ignore[arg-type]
                weight_bits=int(weight_bits),  # type: ignore[arg-type]
                per_channel=per_channel,
                calibration=calibration,  # type: ignore[arg-type]
                progress=step,
            )
        files.write_bytes(output, made.SerializeToString())
        if samples.given < samples.count:
            echo(f"Interrupted: calibrated with {samples.given} of {samples.count} inputs", is_error=True)
        echo(f"Quantized: {output}, {output.stat().st_size:,} bytes; in floats {loaded.nbytes:,}")
        if report:
            with shown_progress(terminal, samples.count + 3) as step:
                found = quantization_report(model, output, samples, device=selector, progress=step)
            _print(terminal, found)
    except SampleError as error:
        raise click.ClickException(f"{samples.place_of(error.number)}: {one_line(error)}") from error
    except ModelError as error:
        raise click.ClickException(one_line(error)) from error


class Samples:
    """The inputs in a file or a folder. Each is read anew whenever it is asked for.

    arguments: the model's inputs.
    Raises click.ClickException: there are none, or they are no arrays.
    count: how many runs they are.
    given: how many the last iteration gave.
    """

    def __init__(self, place: Path, arguments: list[NodeArgument]) -> None:
        self._place = place
        self._names = [argument.name for argument in arguments]
        self._ranks = {argument.name: len(argument.shape) for argument in arguments}
        self.given = 0
        self._arrays: dict[str, np.ndarray] = {}
        self._files: list[Path] = []
        if not place.exists():
            raise click.BadParameter(f"{place} does not exist", param_hint="--data")
        if place.is_dir():
            self._files = sorted(path for path in place.iterdir() if path.suffix.lower() in (".npy", ".npz"))
            if not self._files:
                pictures = any(path.suffix.lower() in PICTURES for path in place.iterdir())
                advice = f"; pictures {AS_ARRAYS}" if pictures else ""
                raise click.BadParameter(f"{place} holds no .npy or .npz files{advice}", param_hint="--data")
            single = next((path for path in self._files if path.suffix.lower() == ".npy"), None)
            if single and len(self._names) > 1:
                rule = (
                    f"has one array, and the model's inputs are {', '.join(self._names)}; save an .npz with all of them"
                )
                raise click.BadParameter(f"{single} {rule}", param_hint="--data")
            self.count = len(self._files)
            return
        if place.suffix.lower() in PICTURES:
            raise click.BadParameter(f"{place}: pictures {AS_ARRAYS}", param_hint="--data")
        self._arrays = self._named(_read(place))
        sizes = {name: len(array) if array.ndim else 0 for name, array in self._arrays.items()}
        if len(set(sizes.values())) != 1 or not min(sizes.values()):
            rule = "the first dimension of each array counts the inputs, so it has to be the same, and at least 1"
            raise click.BadParameter(f"{place}: {rule}; there are {sizes}", param_hint="--data")
        fixed = {argument.shape[0] for argument in arguments if argument.shape and isinstance(argument.shape[0], int)}
        self._step = min(fixed) if fixed else BATCH  # type: ignore[type-var,assignment]
        rows = next(iter(sizes.values()))
        self.count = rows // self._step if fixed else math.ceil(rows / self._step)
        if not self.count:
            rule = f"the model takes {self._step} at a time"
            raise click.BadParameter(f"{place} has {rows} inputs; {rule}", param_hint="--data")

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        self.given = 0
        for number in range(self.count):
            if self._files:
                feeds = self._named(_read(self._files[number]))
                # One picture, say, without the dimension of the batch.
                feeds = {
                    name: array[None] if array.ndim + 1 == self._ranks.get(name) else array
                    for name, array in feeds.items()
                }
            else:
                rows = slice(number * self._step, (number + 1) * self._step)
                feeds = {name: array[rows] for name, array in self._arrays.items()}
            self.given += 1
            yield feeds

    def until(self, is_ended: threading.Event) -> Iterator[dict[str, np.ndarray]]:
        """The inputs, as long as an event is not set; the first one in any case."""
        for feeds in self:
            yield feeds
            if is_ended.is_set():
                return

    def place_of(self, number: int) -> Path:
        """The file that has an input, counted from 1."""
        return self._files[number - 1] if self._files else self._place

    def _named(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays by the model's inputs. A single one is that of a single input, whatever it is called."""
        if len(arrays) == len(self._names) == 1:
            return {self._names[0]: next(iter(arrays.values()))}
        return {name: arrays[name] for name in arrays if name in self._names} or dict(arrays)


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    if path.suffix.lower() == ".npy":
        return {"": files.read_npy(path, None)}
    try:
        return files.read_arrays(path)
    except OSError:
        raise
    except Exception as error:  # what NumPy raises depends on where it stops
        text = " ".join(str(error).split()) or type(error).__name__
        raise files.FileError(f"{str(path)!r} cannot be read as .npz: {text}") from error


def _print(terminal: Console, report: QuantizationReport) -> None:
    table = Table(title=f"Outputs beside those in floats, {report.inputs} runs", title_justify="left")
    for heading in ("output", "signal to noise", "same greatest element"):
        table.add_column(heading, overflow="fold")
    for output in report.outputs:
        agreement = "" if output.agreement is None else f"{output.agreement:.1%} of {output.rows:,} rows"
        table.add_row(output.name, _decibels(output.decibels), agreement)
    terminal.print(unbroken(table, terminal))
    lossy = [layer for layer in report.layers[:LAYERS] if layer.lost > 0]
    if lossy:
        table = Table(title="Layers that lose most", title_justify="left")
        for heading in ("layer", "operator", "signal to noise", "lost to its input"):
            table.add_column(heading, overflow="fold")
        for layer in lossy:
            table.add_row(layer.name, layer.op_type, _decibels(layer.decibels), _decibels(layer.lost))
        terminal.print(unbroken(table, terminal))
    places: dict[str, int] = {}
    for row in report.placement:
        places[row.where] = places.get(row.where, 0) + 1
    echo("Nodes: " + ", ".join(f"{count} {where}" for where, count in places.items()))
    for row in report.placement:
        if row.where == "host":
            echo(f"  on the host: {row.name} ({row.op_type}): {row.reason}")
    factor = report.float_seconds / report.seconds
    echo(
        f"A run: {report.seconds * 1e3:,.3f} ms on the device; in floats, by ONNX Runtime on the CPU, "
        f"{report.float_seconds * 1e3:,.3f} ms: {factor:.2f} times as fast"
    )


def _decibels(value: float) -> str:
    return "no difference" if value == math.inf else f"{value:.1f} dB"
