"""A record of the harness as a picture: a roofline of the convolutions, and data movement beside its marks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dmlvk import files
from dmlvk.benchmark.peers.peer import missing_package
from dmlvk.benchmark.tables import parameters

Record = dict[str, Any]

# dmlvk's points are filled; a peer's points are hollow and in its colour. Colour-blind readers can tell these colours
# apart.
OURS = {"nhwc": "#0072B2", "nchw": "#56B4E9"}
OUR_COLOUR = "#0072B2"
PEER_COLOURS = {
    "torch": "#D55E00",
    "torch-compile": "#E69F00",
    "cupy": "#009E73",
    "numpy": "#882255",
    "onnxruntime": "#CC79A7",
    "cudnn-fp16-nhwc": "#D55E00",
    "cudnn-fp16-nchw": "#E69F00",
    "cudnn-int8": "#009E73",
    "ncnn": "#CC79A7",
    "iree": "#882255",
}
MARK_NAMES = {
    "matrix": "matrix units, from registers",
    "dot_product": "packed dot products, from registers",
    "float_multiply_add": "float32 multiply-adds",
    "integer_multiply_add": "int32 multiply-adds",
}
LAYER_MARKERS = "os^vD<>Pp*Xh"


def require_matplotlib() -> None:
    """End with a message that says what to install, if Matplotlib is missing."""
    missing = missing_package("matplotlib")
    if missing:
        raise click.ClickException(f"{missing}, which --plot needs: pip install 'dmlvk[bench]'")


def picture_format(path: Path) -> str:
    """The format of a picture of this name: "png" of "roofline.png".

    Raises
    ------
    FileError
        No picture can be written under this name.
    """
    from matplotlib.figure import Figure

    name = path.suffix[1:].lower()
    known = sorted(Figure().canvas.get_supported_filetypes())
    if name not in known:
        raise files.FileError(f"{path}: no picture can be drawn under this name; it must end in .{', .'.join(known)}")
    return name


def draw(record: Record, kind: str) -> bytes:
    """Draw a record.

    Parameters
    ----------
    record : dict
        A result of `dmlvk.benchmark.harness.run`.
    kind : str
        The format, as `picture_format` returns it.
    """
    from matplotlib.figure import Figure

    computing = [row for row in record["cases"] if row.get("operations")]
    moving = [row for row in record["cases"] if "seconds" in row and not row["operations"]]
    device = record["device"]
    figure = Figure(figsize=(15, 9), dpi=100, layout="constrained")
    figure.suptitle(f"dmlvk on {device['name']}, {device['driver']}, {record['date']}", fontsize=14)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _roofline(left, record, computing)
    _movement(right, record, moving)
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    return content.getvalue()


def _roofline(axes: Any, record: Record, rows: list[Record]) -> None:
    marks = record["marks"]
    axes.set(xscale="log", yscale="log", xlabel="operations a byte that has to be moved", ylabel="TOPS")
    axes.set_title("QUANTIZED_LINEAR_CONVOLUTION")
    axes.grid(which="major", alpha=0.3)
    roofs = {name: mark["rate"] / 1e12 for name, mark in marks.items() if mark["unit"] == "operations/s"}
    slope = marks["copy"]["rate"] / 1e12
    intensities = [row["operations"] / row["bytes"] for row in rows] or [1.0, 1000.0]
    low, high = min(intensities) / 2.5, max(max(intensities) * 2.5, 1.5 * max(roofs.values()) / slope)
    top = max(roofs.values())
    axes.plot([low, top / slope, high], [low * slope, top, top], color="black", lw=1.8, zorder=1)
    text = f"copy, {marks['copy']['rate'] / 1e9:,.0f} GB/s"
    axes.annotate(text, (2 * low, 2 * low * slope), xytext=(8, -6), textcoords="offset points", fontsize=9)
    for name, roof in roofs.items():
        axes.plot([roof / slope, high], [roof, roof], color="black", lw=1.8 if roof == top else 0.9, ls="-", zorder=1)
        text = f"{MARK_NAMES.get(name, name)}, {_digits(roof)} TOPS"
        axes.annotate(text, (high, roof), xytext=(-3, 3), textcoords="offset points", ha="right", fontsize=9, zorder=5)
    layers = list(dict.fromkeys(_layer(row) for row in rows))
    markers = dict(zip(layers, LAYER_MARKERS * 2, strict=False))
    rates = []
    for row in rows:
        intensity, marker = row["operations"] / row["bytes"], markers[_layer(row)]
        for trial in _trials(record, row):
            rates.append(row["operations"] / trial["seconds"]["median"] / 1e12)
            colour = PEER_COLOURS[trial["peer"]]
            axes.plot(intensity, rates[-1], marker, mfc="none", mec=colour, mew=1.4, ms=8, zorder=3)
        if _parameter(row, "filter_zero_point") in ("0", ""):
            rates.append(row["operations_per_second"] / 1e12)
            colour = OURS.get(_parameter(row, "layout"), OUR_COLOUR)
            axes.plot(intensity, rates[-1], marker, color=colour, mec="white", mew=0.6, ms=10, zorder=4)
    # Roofs far above or below all points would squeeze the rest.
    if rates:
        axes.set_ylim(min(min(rates) / 1.6, max(rates) / 300), max(top, max(rates)) * 1.7)
    axes.set_xlim(low, high)
    handles = [_handle("o", OURS[layout], f"dmlvk, {layout.upper()}") for layout in OURS if _has(rows, layout)]
    handles += [_handle("o", PEER_COLOURS[name], name, hollow=True) for name in _peers_of(record, rows)]
    axes.add_artist(axes.legend(handles=handles, loc="upper left", fontsize=9))
    handles = [_handle(markers[layer], "gray", layer.replace("_", " ")) for layer in layers]
    axes.legend(handles=handles, loc="lower right", fontsize=8, ncols=2)


def _movement(axes: Any, record: Record, rows: list[Record]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(xscale="log", xlabel="GB/s, of the bytes that have to be moved")
    axes.set_title("SLICE1, DIAGONAL_MATRIX1, ONE_HOT")
    axes.grid(axis="x", which="both", alpha=0.25)
    for height, row in enumerate(reversed(rows)):
        axes.axhline(height, color="black", alpha=0.08, lw=0.8, zorder=0)
        for trial in _trials(record, row):
            rate = row["bytes"] / trial["seconds"]["median"] / 1e9
            axes.plot(rate, height, "o", mfc="none", mec=PEER_COLOURS[trial["peer"]], mew=1.4, ms=7, zorder=3)
        axes.plot(row["bytes_per_second"] / 1e9, height, "o", color=OUR_COLOUR, mec="white", mew=0.6, ms=8, zorder=4)
    axes.set_yticks(range(len(rows)), [_label(row) for row in reversed(rows)], fontsize=8)
    axes.set_ylim(-0.8, len(rows) - 0.2)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    for name, style in (("copy", "-"), ("fill", "--")):
        rate = record["marks"][name]["rate"] / 1e9
        axes.axvline(rate, color="black", lw=1.5, ls=style, zorder=1)
    handles = [_handle("o", OUR_COLOUR, "dmlvk")]
    handles += [_handle("o", PEER_COLOURS[name], name, hollow=True) for name in _peers_of(record, rows)]
    for name, style in (("copy", "-"), ("fill", "--")):
        rate = record["marks"][name]["rate"] / 1e9
        handles.append(Line2D([], [], color="black", lw=1.5, ls=style, label=f"plain {name}, {_digits(rate)} GB/s"))
    axes.legend(handles=handles, loc="upper center", fontsize=9, ncols=4, bbox_to_anchor=(0.3, -0.06))


def _handle(marker: str, colour: str, label: str, *, hollow: bool = False) -> Any:
    from matplotlib.lines import Line2D

    face = "none" if hollow else colour
    return Line2D([], [], ls="", marker=marker, mfc=face, mec=colour if hollow else "white", ms=8, label=label)


def _trials(record: Record, row: Record) -> Iterator[Record]:
    """The trials to draw. On a GPU, those of a CPU are left out: they would lie far away at the edge."""
    for trial in row.get("peers", ()):
        on_cpu = record["peers"][trial["peer"]]["runs_on"] == "CPU"
        if "seconds" in trial and (not on_cpu or record["device"]["type"] == "CPU"):
            yield trial


def _peers_of(record: Record, rows: list[Record]) -> list[str]:
    """The peers that have a point among the rows."""
    drawn = {trial["peer"] for row in rows for trial in _trials(record, row)}
    return [name for name in PEER_COLOURS if name in drawn]


def _has(rows: list[Record], layout: str) -> bool:
    return any(_parameter(row, "layout") == layout for row in rows)


def _layer(row: Record) -> str:
    return str(row["name"].split(":")[1])


def _label(row: Record) -> str:
    group = row["name"].split(":")[1]
    values = " ".join(reversed(parameters(row).values()))
    prefix = "one-hot, " if row["operator"] == "one_hot" else ""
    return f"{prefix}{group.replace('_', ' ')}, {values}"


def _parameter(row: Record, key: str) -> str:
    return parameters(row).get(key, "")


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
