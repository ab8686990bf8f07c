"""What the pictures of all kinds of record share: their formats, and the look of dmlvk's points and the peers'."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dmlvk._common import files
from dmlvk.benchmark.peers.peer import missing_package


@dataclass(frozen=True)
class Look:
    """How a point is drawn.

    text: in the legend.
    marker: one of Matplotlib's.
    hollow: a peer's points are hollow, dmlvk's are filled.
    """

    text: str
    colour: str
    marker: str = "o"
    hollow: bool = True

    def style(self) -> dict[str, Any]:
        """The keyword arguments of Matplotlib's lines."""
        face, edge = ("none", self.colour) if self.hollow else (self.colour, "white")
        return {"ls": "", "marker": self.marker, "mfc": face, "mec": edge, "mew": 1.4 if self.hollow else 0.6}

    def handle(self) -> Any:
        """The entry of a legend."""
        from matplotlib.lines import Line2D

        return Line2D([], [], ms=8, label=self.text, **self.style())


# A layout has a shape: a circle for NHWC, a square for NCHW. Colour-blind readers can tell these colours apart.
OURS: Mapping[str, Look] = {
    "": Look("dmlvk", "#0072B2", hollow=False),
    "nhwc": Look("dmlvk, NHWC", "#0072B2", "o", hollow=False),
    "nchw": Look("dmlvk, NCHW", "#56B4E9", "s", hollow=False),
}
# By the names for --peer. cuDNN's are not the same operator, which a picture has to say.
PEERS: Mapping[str, Look] = {
    "torch": Look("torch", "#D55E00", "<"),
    "torch-compile": Look("torch, compiled", "#E69F00", ">"),
    "cupy": Look("CuPy", "#009E73", "^"),
    "numpy": Look("NumPy", "#882255", "v"),
    "onnxruntime": Look("ONNX Runtime", "#CC79A7", "D"),
    "cudnn-fp16-nhwc": Look("cuDNN, NHWC: another operator, in float16", "#D55E00", "o"),
    "cudnn-fp16-nchw": Look("cuDNN, NCHW: another operator, in float16", "#E69F00", "s"),
    "cudnn-int8": Look("cuDNN: another operator, int8 without zero points", "#009E73", "D"),
    "ncnn": Look("ncnn", "#CC79A7", "P"),
    "iree": Look("IREE", "#882255", "X"),
}


def require_matplotlib() -> None:
    """End with a message that says what to install, if Matplotlib is missing."""
    missing = missing_package("matplotlib")
    if missing:
        raise click.ClickException(f"{missing}, which --plot needs: pip install 'dmlvk[bench]'")


def picture_format(path: Path) -> str:
    """The format of a picture of this name: "png" of "record.png".

    Raises FileError: no picture can be written under this name.
    """
    from matplotlib.figure import Figure

    name = path.suffix[1:].lower()
    known = sorted(Figure().canvas.get_supported_filetypes())
    if name not in known:
        raise files.FileError(f"{path}: no picture can be drawn under this name; it must end in .{', .'.join(known)}")
    return name


# Of a picture, in inches, and of its letters, in points: on a screen of 400 pixels these are 9 pixels high.
WIDTH, LETTERS = 6.0, 10
# Turns light and dark round and leaves the hues as they are. SVG is the one format that can ask the reader's browser.
DARK_FORM = (
    b"<style>@media (prefers-color-scheme: dark) { svg > g { filter: invert(0.93) hue-rotate(180deg) } }</style>"
)


def figure_with(height: float, title: str) -> Any:
    """A figure of some inches in height, whose letters can be read on a telephone: panels stand one below another."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=100, layout="constrained")
    figure.suptitle(title, fontsize=LETTERS + 2)
    return figure


def label_rows(axes: Any, labels: Sequence[str], *, are_points: bool = False) -> None:
    """Name the rows of a panel, the first at the top. Behind points, which may lie far apart, each row has a line."""
    for height in range(len(labels) if are_points else 0):
        axes.axhline(height, color="black", alpha=0.08, lw=0.8, zorder=0)
    axes.set_yticks(range(len(labels)), labels, fontsize=LETTERS - 1)
    axes.set_ylim(max(1, len(labels)) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def use_logarithms(axes: Any, *, is_wide: bool = False) -> None:
    """Make a panel's x axis logarithmic, with numbers a reader can read: at 1, 2, 5, 10, or of a wide one at 1, 10."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(xscale="log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", which="both", alpha=0.25)


def fit(figure: Any) -> None:
    """Break titles and labels into lines that fit: the figure's own into its width, a panel's into the panel's."""
    figure.draw_without_rendering()
    texts = [(each, each._suptitle) for each in (figure, *figure.subfigs)]
    texts += [(axes, text) for axes in figure.axes for text in (axes.title, axes._left_title, axes.xaxis.label)]
    for holder, text in texts:
        if text is None or not text.get_text():
            continue
        share = 0.97 * holder.bbox.width / text.get_window_extent().width
        if share < 1:
            whole = text.get_text()
            text.set_text(textwrap.fill(whole, max(12, int(share * len(whole))), break_long_words=False))


def content(figure: Any, kind: str) -> bytes:
    """A figure as a file's bytes. They depend on nothing but the figure: they hold no date and no version."""
    from matplotlib import rc_context

    fit(figure)
    stream = io.BytesIO()
    without = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "dmlvk"}):
        figure.savefig(stream, format=kind, metadata=without.get(kind))
    return stream.getvalue().replace(b"<defs>", DARK_FORM + b"<defs>", 1) if kind == "svg" else stream.getvalue()
