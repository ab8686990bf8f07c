"""A network's record as a picture: for each batch its chain, and below each layer, beside the peers and the floor."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from dmlvk.benchmark.networks.tables import row_seconds, trial_seconds
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import title_of

# dmlvk's points are filled, a peer's are hollow. Colour-blind readers can tell these colours apart.
OURS = {"nhwc": "#0072B2", "nchw": "#56B4E9"}
PEERS = {
    "cudnn-fp16-graph": {"nhwc": "#D55E00", "nchw": "#E69F00"},
    "onnxruntime": {"nhwc": "#CC79A7", "nchw": "#CC79A7"},
    "ncnn": {"nhwc": "#009E73", "nchw": "#009E73"},
}
PREDICTED, FLOOR = "black", "gray"


def draw(record: Record, kind: str) -> bytes:
    """Draw a record.

    Parameters
    ----------
    record : dict
        A result of `dmlvk.benchmark.networks.measurement.run`.
    kind : str
        The format, such as "png".
    """
    from matplotlib.figure import Figure

    batches = list(dict.fromkeys(run["batch"] for run in record["runs"]))
    names = list(dict.fromkeys(layer["name"] for run in record["runs"] for layer in run["layers"]))
    bars = max(sum(1 for _ in _bars(record, batch)) for batch in batches)
    heights = (0.8 + 0.3 * bars, 1.2 + 0.24 * len(names))
    figure = Figure(figsize=(max(12, 4 + 5.5 * len(batches)), 1.5 + sum(heights)), dpi=100, layout="constrained")
    network = record["network"]
    figure.suptitle(f"dmlvk: {title_of(record, network['name'])}", fontsize=13)
    panels = figure.subplots(2, len(batches), squeeze=False, height_ratios=heights)
    for column, batch in enumerate(batches):
        _chains(panels[0, column], record, batch)
        _layers(panels[1, column], record, batch, names, has_names=column == 0)
    figure.legend(handles=_handles(record), loc="outside lower center", ncols=4, fontsize=9)
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    return content.getvalue()


def _bars(record: Record, batch: int) -> Iterator[tuple[str, float, str, Record]]:
    """Label, seconds, colour and run of each bar of a batch's chains."""
    for run in record["runs"]:
        chain = run.get("chain")
        if run["batch"] != batch or chain is None:
            continue
        layout, seconds = run["layout"], row_seconds(chain)
        if seconds is not None:
            yield f"dmlvk, {layout.upper()}", seconds, OURS[layout], run
        for peer, theirs in trial_seconds(chain).items():
            yield f"{peer}, {layout.upper()}", theirs, PEERS[peer][layout], {}


def _chains(axes: Any, record: Record, batch: int) -> None:
    """Bars. On those of dmlvk: the floor of their dispatches, and what the planner predicted."""
    from matplotlib.ticker import StrMethodFormatter

    labels = []
    for height, (label, seconds, colour, run) in enumerate(_bars(record, batch)):
        labels.append(label)
        axes.barh(height, seconds * 1e6, 0.6, color=colour)
        axes.annotate(f" {seconds * 1e6:,.0f}", (seconds * 1e6, height), va="center", fontsize=8)
        if run:
            floor = run["chain"]["dispatches"] * _floor(record) * 1e6
            axes.plot([floor] * 2, [height - 0.4, height + 0.4], color=FLOOR, lw=2)
            axes.plot(run["chain"]["predicted_seconds"] * 1e6, height, "|", color=PREDICTED, ms=14, mew=2)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.margins(x=0.15)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_title(f"batch {batch}: all {record['network']['layers']} layers in their order, us", fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _layers(axes: Any, record: Record, batch: int, names: list[str], *, has_names: bool) -> None:
    """Points: a row for each layer."""
    for height in range(len(names)):
        axes.axhline(height, color="black", alpha=0.08, lw=0.8, zorder=0)
    for run in record["runs"]:
        if run["batch"] != batch:
            continue
        layout = run["layout"]
        for row in run["layers"]:
            height, seconds = names.index(row["name"]), row_seconds(row)
            for peer, theirs in trial_seconds(row).items():
                colour = PEERS[peer][layout]
                axes.plot(theirs * 1e6, height, "o", mfc="none", mec=colour, mew=1.4, ms=7, zorder=3)
            if seconds is not None:
                axes.plot(seconds * 1e6, height, "o", color=OURS[layout], mec="white", mew=0.6, ms=8, zorder=4)
                axes.plot(row["predicted_seconds"] * 1e6, height, "|", color=PREDICTED, ms=9, zorder=2)
    axes.axvline(_floor(record) * 1e6, color=FLOOR, lw=2, zorder=1)
    counts = {row["name"]: row["count"] for run in record["runs"] for row in run["layers"]}
    labels = [f"{name.replace('_', ' ')}  x {counts[name]}" for name in names] if has_names else []
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set(xscale="log", xlabel="us")
    axes.set_title(f"batch {batch}: each layer", fontsize=10)
    axes.grid(axis="x", which="both", alpha=0.25)


def _floor(record: Record) -> float:
    floor = record["floor"]
    return float((floor["device"] or floor["wall"])["median"])


def _handles(record: Record) -> list[Any]:
    from matplotlib.lines import Line2D

    layouts = list(dict.fromkeys(run["layout"] for run in record["runs"]))

    def point(label: str, colour: str, *, hollow: bool) -> Any:
        face, edge = ("none", colour) if hollow else (colour, "white")
        return Line2D([], [], ls="", marker="o", mfc=face, mec=edge, ms=8, label=label)

    handles = [point(f"dmlvk, {layout.upper()}", OURS[layout], hollow=False) for layout in layouts]
    for peer in record["peers"]:
        colours = dict.fromkeys(PEERS[peer][layout] for layout in layouts)
        for layout, colour in zip(layouts, colours, strict=False):
            text = f"{peer}, {layout.upper()}" if len(colours) > 1 else peer
            handles.append(point(text, colour, hollow=True))
    handles.append(Line2D([], [], ls="", marker="|", color=PREDICTED, ms=9, label="the planner's estimate"))
    handles.append(Line2D([], [], color=FLOOR, lw=2, label="floor: dispatches of nothing, one after another"))
    return handles
