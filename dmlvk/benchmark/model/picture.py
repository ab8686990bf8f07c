"""A model's record as a picture: the parts of a run, beside other libraries."""

from __future__ import annotations

from typing import Any

from dmlvk.benchmark import drawing
from dmlvk.benchmark.model.tables import NAMES, PARTS, parts_of
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import title_of

# Colour-blind readers can tell these colours apart.
COLOURS = {
    "gpu": "#0072B2",
    "waiting": "#56B4E9",
    "to_device": "#E69F00",
    "from_device": "#D55E00",
    "host": "#009E73",
    "rest": "#BBBBBB",
}
WHOLE, PEER = "black", "#CC79A7"
HEIGHT = 0.25


def figure_of(record: Record) -> Any:
    """The figure of a record: bars of milliseconds for each batch."""
    rows = record["batches"]
    title = f"dmlvk: {title_of(record, record['model']['file'])}"
    figure = drawing.figure_with(2.6 + 1.9 * len(rows), title)
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axes, row in zip(panels, rows, strict=True):
        parts, start = parts_of(row), 0.0
        for part in PARTS:
            axes.barh(0, parts[part] * 1e3, HEIGHT, left=start, color=COLOURS[part], label=NAMES[part])
            start += parts[part] * 1e3
        axes.barh(1, row["seconds"]["median"] * 1e3, HEIGHT, color=WHOLE)
        labels = ["its steps, one waiting for another", "a whole run"]
        for trial in row["peers"]:
            if "seconds" in trial:
                axes.barh(len(labels), trial["seconds"]["median"] * 1e3, HEIGHT, color=PEER)
                labels.append(f"{trial['peer']}, {record['peers'][trial['peer']]['runs_on']}")
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(-0.5, len(labels) - 0.5)
        axes.set_title("" if row["batch"] is None else f"batch {row['batch']}", loc="left", fontsize=drawing.LETTERS)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    panels[-1].set_xlabel("ms")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=drawing.LETTERS)
    return figure
