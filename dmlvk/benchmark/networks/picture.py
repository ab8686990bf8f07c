"""A network's record as a picture: for each batch its chain, and below each layer, beside the peers and the floor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dmlvk.benchmark import drawing
from dmlvk.benchmark.drawing import OURS, Look
from dmlvk.benchmark.networks.tables import row_seconds, trial_seconds
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import title_of

# cuDNN's network is not the same: it multiplies in float16.
CUDNN = "cuDNN graphs, {}: other operators, in float16"
PEERS = {
    "cudnn-fp16-graph": {
        "nhwc": Look(CUDNN.format("NHWC"), "#D55E00", "o"),
        "nchw": Look(CUDNN.format("NCHW"), "#E69F00", "s"),
    },
    "onnxruntime": dict.fromkeys(("nhwc", "nchw"), Look("ONNX Runtime", "#CC79A7", "D")),
    "ncnn": dict.fromkeys(("nhwc", "nchw"), Look("ncnn", "#009E73", "P")),
}
PREDICTED, FLOOR = "black", "gray"


def figure_of(record: Record) -> Any:
    """The figure of a record."""
    batches = list(dict.fromkeys(run["batch"] for run in record["runs"]))
    names = list(dict.fromkeys(layer["name"] for run in record["runs"] for layer in run["layers"]))
    bars = max(sum(1 for _ in _bars(record, batch)) for batch in batches)
    heights = (0.9 + 0.3 * bars, 1.3 + 0.24 * len(names))
    title = f"dmlvk: {title_of(record, record['network']['name'])}"
    figure = drawing.figure_with(2.4 + len(batches) * sum(heights), title)
    panels = figure.subplots(2 * len(batches), 1, squeeze=False, height_ratios=heights * len(batches))[:, 0]
    for number, batch in enumerate(batches):
        _chains(panels[2 * number], record, batch)
        _layers(panels[2 * number + 1], record, batch, names)
    figure.legend(handles=_handles(record), loc="outside lower center", fontsize=drawing.LETTERS)
    return figure


def _bars(record: Record, batch: int) -> Iterator[tuple[str, float, str, Record]]:
    """Label, seconds, colour and run of each bar of a batch's chains."""
    for run in record["runs"]:
        chain = run.get("chain")
        if run["batch"] != batch or chain is None:
            continue
        layout, seconds = run["layout"], row_seconds(chain)
        if seconds is not None:
            yield OURS[layout].text, seconds, OURS[layout].colour, run
        for peer, theirs in trial_seconds(chain).items():
            look = PEERS[peer][layout]
            yield f"{peer}, {layout.upper()}", theirs, look.colour, {}


def _chains(axes: Any, record: Record, batch: int) -> None:
    """Bars. On those of dmlvk: the floor of their dispatches, and what the planner predicted."""
    from matplotlib.ticker import StrMethodFormatter

    labels = []
    for height, (label, seconds, colour, run) in enumerate(_bars(record, batch)):
        labels.append(label)
        axes.barh(height, seconds * 1e6, 0.6, color=colour)
        axes.annotate(f" {seconds * 1e6:,.0f}", (seconds * 1e6, height), va="center", fontsize=drawing.LETTERS - 1)
        if run:
            floor = run["chain"]["dispatches"] * _floor(record) * 1e6
            axes.plot([floor] * 2, [height - 0.4, height + 0.4], color=FLOOR, lw=2)
            axes.plot(run["chain"]["predicted_seconds"] * 1e6, height, "|", color=PREDICTED, ms=14, mew=2)
    drawing.label_rows(axes, labels)
    axes.margins(x=0.15)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    layers = record["network"]["layers"]
    axes.set_title(f"batch {batch}: all {layers} layers in their order, us", fontsize=drawing.LETTERS)


def _layers(axes: Any, record: Record, batch: int, names: list[str]) -> None:
    """Points: a row for each layer."""
    for run in record["runs"]:
        if run["batch"] != batch:
            continue
        layout = run["layout"]
        for row in run["layers"]:
            height, seconds = names.index(row["name"]), row_seconds(row)
            for peer, theirs in trial_seconds(row).items():
                axes.plot(theirs * 1e6, height, ms=7, zorder=3, **PEERS[peer][layout].style())
            if seconds is not None:
                axes.plot(seconds * 1e6, height, ms=8, zorder=4, **OURS[layout].style())
                axes.plot(row["predicted_seconds"] * 1e6, height, "|", color=PREDICTED, ms=9, zorder=2)
    axes.axvline(_floor(record) * 1e6, color=FLOOR, lw=2, zorder=1)
    counts = {row["name"]: row["count"] for run in record["runs"] for row in run["layers"]}
    labels = [f"{name.replace('_', ' ')}  x {counts[name]}" for name in names]
    drawing.label_rows(axes, labels, are_points=True)
    drawing.use_logarithms(axes)
    axes.set_xlabel("us; further left is faster")
    axes.set_title(f"batch {batch}: each layer", fontsize=drawing.LETTERS)


def _floor(record: Record) -> float:
    floor = record["floor"]
    return float((floor["device"] or floor["wall"])["median"])


def _handles(record: Record) -> list[Any]:
    from matplotlib.lines import Line2D

    layouts = list(dict.fromkeys(run["layout"] for run in record["runs"]))

    looks = [OURS[layout] for layout in layouts]
    looks += [PEERS[peer][layout] for peer in record["peers"] for layout in layouts]
    handles = [look.handle() for look in dict.fromkeys(looks)]
    handles.append(Line2D([], [], ls="", marker="|", color=PREDICTED, ms=9, label="the planner's estimate"))
    handles.append(Line2D([], [], color=FLOOR, lw=2, label="floor: dispatches of nothing, one after another"))
    return handles
