"""A record of first calls as a picture: what each process waits for, and below it each layer's first result."""

from __future__ import annotations

from typing import Any

from dmlvk.benchmark import drawing
from dmlvk.benchmark.cold import CACHES, EMPTY, FIRST_RESULT
from dmlvk.benchmark.cold.tables import first_result_seconds
from dmlvk.benchmark.drawing import Look
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import title_of

# Colour-blind readers can tell these colours apart.
PARTS = {
    "the device is opened": "#BBBBBB",
    "all layers are compiled": "#E69F00",
    "each layer's first call, with its result": "#0072B2",
}
LOOKS = {cache: Look(f"{cache} cache", "#0072B2", hollow=cache != EMPTY) for cache in CACHES}
BAR, LAYER, FRAME = 0.33, 0.24, 2.2


def figure_of(record: Record) -> Any:
    """The figure of a record: two panels for each batch and layout."""
    from matplotlib.patches import Patch

    groups: dict[tuple[int, str], list[Record]] = {}
    for run in record["runs"]:
        groups.setdefault((run["batch"], run["layout"]), []).append(run)
    layers = max((len(run.get("layers", ())) for run in record["runs"]), default=0)
    bars = max(map(len, groups.values()), default=1)
    heights = (0.9 + BAR * bars, 0.9 + LAYER * max(1, layers))
    pairs = max(1, len(groups))
    title = title_of(record, f"the first calls of {record['network']['name']}")
    figure = drawing.figure_with(FRAME + pairs * sum(heights), f"dmlvk: {title}")
    panels = figure.subplots(2 * pairs, 1, squeeze=False, height_ratios=heights * pairs)[:, 0]
    for number, ((batch, layout), runs) in enumerate(groups.items()):
        place = f"batch {batch}, {layout.upper()}"
        _processes(panels[2 * number], place, runs)
        _layers(panels[2 * number + 1], place, runs)
    handles: list[Any] = [Patch(color=colour, label=text) for text, colour in PARTS.items()]
    handles += [look.handle() for look in LOOKS.values()]
    figure.legend(handles=handles, loc="outside lower center", fontsize=drawing.LETTERS)
    return figure


def _processes(axes: Any, place: str, runs: list[Record]) -> None:
    """A bar for each process: the times one after another."""
    labels = []
    for height, run in enumerate(runs):
        labels.append(f"{run['way']}, {run['cache']} cache")
        if "failure" in run:
            axes.annotate(" failed", (0, height), va="center", fontsize=drawing.LETTERS - 1)
            continue
        called = sum(row["call_seconds"] for row in run["layers"])
        start = 0.0
        for seconds, colour in zip((run["open_seconds"], run["compile_seconds"], called), PARTS.values(), strict=True):
            axes.barh(height, seconds * 1e3, 0.6, left=start, color=colour)
            start += seconds * 1e3
        axes.annotate(f" {start:,.0f}", (start, height), va="center", fontsize=drawing.LETTERS - 1)
    drawing.label_rows(axes, labels)
    axes.margins(x=0.12)
    axes.set_title(f"{place}: a fresh process until all layers have run once, ms", fontsize=drawing.LETTERS)


def _layers(axes: Any, place: str, runs: list[Record]) -> None:
    """Points: a row for each layer, from the request for it to its result."""
    chosen = [run for run in runs if run["way"] == FIRST_RESULT and "layers" in run]
    names = list(dict.fromkeys(row["name"] for run in chosen for row in run["layers"]))
    for run in chosen:
        for row in run["layers"]:
            seconds = first_result_seconds(row)
            axes.plot(seconds * 1e3, names.index(row["name"]), ms=7, zorder=3, **LOOKS[run["cache"]].style())
    drawing.label_rows(axes, [name.replace("_", " ") for name in names], are_points=True)
    axes.set_title(f"{place}: each layer's first result, asked for at once, ms", fontsize=drawing.LETTERS)
    if names:
        drawing.use_logarithms(axes)
