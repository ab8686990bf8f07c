"""A record of a sweep as a picture: each shape's share of its bound, over the time of the bound."""

from __future__ import annotations

from typing import Any

from dmlvk.benchmark import drawing
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import title_of
from dmlvk.benchmark.sweep import OPERATORS
from dmlvk.benchmark.sweep.tables import measured, share

# Colour-blind readers can tell these apart, by colour and by shape.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#882255", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")


def figure_of(record: Record) -> Any:
    """The figure of a record: a panel for each operator."""
    operators = [operator for operator in OPERATORS if measured(record, operator)] or [OPERATORS[0]]
    figure = drawing.figure_with(0.6 + 5 * len(operators), f"dmlvk: {title_of(record, 'random shapes')}")
    panels = figure.subplots(len(operators), 1, squeeze=False)[:, 0]
    for panel, operator in zip(panels, operators, strict=True):
        rows = measured(record, operator)
        paths = sorted({row["path"] for row in rows})
        for number, path in enumerate(paths):
            own = [row for row in rows if row["path"] == path]
            panel.plot(
                [row["bound"]["seconds"] * 1e6 for row in own],
                [share(row) for row in own],
                ls="",
                marker=MARKERS[number % len(MARKERS)],
                color=COLOURS[number % len(COLOURS)],
                label=f"{path} ({len(own)})",
            )
        panel.set_title(f"{operator}: {len(rows)} shapes", fontsize=drawing.LETTERS + 1)
        panel.set_xlabel("time at the bound, us")
        panel.set_ylabel("share of the bound")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.axhline(1.0, color="#888888", lw=0.8)
        panel.grid(True, which="major", alpha=0.3)
        if paths:
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize=drawing.LETTERS)
    return figure
