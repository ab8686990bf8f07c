"""A record of operators as a picture: a row for each case, with dmlvk, the mark and the peers on the same work."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dmlvk.benchmark import drawing
from dmlvk.benchmark.drawing import OURS, PEERS, Look
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.tables import parameters

# The marks: bytes at the rate of a plain kernel, or operations at the rate of multiply-adds from registers.
MARKS = {
    "copy": Look("mark: a plain copy of the same bytes", "black", "|"),
    "fill": Look("mark: a plain fill of the same bytes", "gray", "|"),
    "operations": Look("mark: multiply-adds from registers", "#999999", "|"),
}
# Inches.
ROW, FRAME, ENTRY, HEADING = 0.27, 1.2, 0.22, 0.6
# Of a row.
SPREAD = 0.11


@dataclass
class PictureRow:
    """A row of a panel: its label and the rates of its points, in operations or bytes a second."""

    label: str
    ours: list[tuple[Look, float]] = field(default_factory=list)
    peers: list[tuple[Look, float]] = field(default_factory=list)
    mark: tuple[Look, float] | None = None


def figure_of(record: Record) -> Any:
    """A panel of the convolutions and one of the other operators; what the record does not have is left out."""
    panels = [
        (title, unit, rows)
        for title, unit, rows in (
            ("QUANTIZED_LINEAR_CONVOLUTION", "operations", _convolutions(record)),
            (_moving_names(record), "bytes", _movement(record)),
        )
        if rows
    ]
    device = record["device"]
    heights = [FRAME + ROW * len(rows) + ENTRY * len(_looks(rows)) for _, _, rows in panels] or [FRAME]
    title = f"dmlvk on {device['name']}, {device['driver']}, {record['date']}"
    figure = drawing.figure_with(HEADING + sum(heights), title)
    parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (title, unit, rows) in zip(parts, panels, strict=False):
        part.suptitle(title, fontsize=drawing.LETTERS + 1)
        _panel(part.subplots(), unit, rows)
        # Below the panel: inside it, some point would be hidden.
        handles = [look.handle() for look in _looks(rows)]
        part.legend(handles=handles, loc="outside lower center", fontsize=drawing.LETTERS)
    return figure


def _looks(rows: list[PictureRow]) -> list[Look]:
    """Those of dmlvk, of the peers and of the marks, each once."""
    ours = [look for row in rows for look, _ in row.ours]
    peers = [look for row in rows for look, _ in row.peers]
    return list(dict.fromkeys([*ours, *peers, *(row.mark[0] for row in rows if row.mark is not None)]))


def _convolutions(record: Record) -> list[PictureRow]:
    """A row for each layer and filter zero point; the layouts are points of one row."""
    rows: dict[tuple[str, ...], PictureRow] = {}
    for case in record["cases"]:
        if not case.get("operations"):
            continue
        known = parameters(case)
        layer, zero_point = case["name"].split(":")[1], known.get("filter_zero_point", "0")
        layout = known.get("layout", "")
        kept = tuple(value for name, value in known.items() if name != "layout")
        label = layer.replace("_", " ")
        if _types(record) > 1:
            label += f", {known.get('type', '')}"
        if zero_point != "0":
            label += f", filter zero point {zero_point}"
        row = rows.setdefault((layer, *kept), PictureRow(label))
        row.ours.append((OURS[layout], case["operations_per_second"]))
        _add_peers(row, record, case, case["operations"])
        mark = case["mark"]
        if mark is not None:
            look = MARKS["copy" if mark["bound_by"] == "copy" else "operations"]
            found = look, case["operations"] / mark["seconds"]
            # The layouts may run on different units: the faster one is the mark.
            row.mark = found if row.mark is None else max(row.mark, found, key=lambda each: each[1])
    return list(rows.values())


def _movement(record: Record) -> list[PictureRow]:
    rows = []
    for case in record["cases"]:
        if "seconds" not in case or case["operations"]:
            continue
        operator, group, _ = case["name"].split(":")
        values = ", ".join(parameters(case).values())
        row = PictureRow(f"{operator.upper()} {group.replace('_', ' ')}, {values}")
        row.ours.append((OURS[""], case["bytes_per_second"]))
        _add_peers(row, record, case, case["bytes"])
        mark = case["mark"]
        row.mark = MARKS[mark["bound_by"]], case["bytes"] / mark["seconds"]
        rows.append(row)
    return rows


def _add_peers(row: PictureRow, record: Record, case: Record, amount: float) -> None:
    row.peers += [(PEERS[trial["peer"]], amount / trial["seconds"]["median"]) for trial in _trials(record, case)]


def _panel(axes: Any, unit: str, rows: list[PictureRow]) -> None:
    rates = [rate for row in rows for _, rate in (*row.ours, *row.peers, *filter(None, [row.mark]))]
    billions = "GOPS" if unit == "operations" else "GB/s"
    is_fast = unit == "operations" and statistics.median(rate for row in rows for _, rate in row.ours) >= 1e12
    factor, text = (1e12, "TOPS") if is_fast else (1e9, billions)
    for height, row in enumerate(rows):
        if row.mark is not None:
            axes.plot(row.mark[1] / factor, height, ms=13, zorder=1, **{**row.mark[0].style(), "mew": 2.2})
        # Points of the same rate stand a little above and below each other.
        points = [*row.peers, *row.ours]
        for place, (look, rate) in enumerate(points):
            offset = (place - (len(points) - 1) / 2) * SPREAD
            axes.plot(rate / factor, height + offset, ms=7, zorder=3, **look.style())
    drawing.label_rows(axes, [row.label for row in rows], are_points=True)
    axes.set_xlim(min(rates) / factor / 1.3, max(rates) / factor * 1.3)
    axes.set_xlabel(f"{text}, of the {unit} that the operator needs; further right is faster")
    drawing.use_logarithms(axes, is_wide=max(rates) / min(rates) > 300)


def _trials(record: Record, case: Record) -> Iterator[Record]:
    """The trials to draw. On a GPU, those of a CPU are left out: they would lie far away at the edge."""
    for trial in case.get("peers", ()):
        on_cpu = record["peers"][trial["peer"]]["runs_on"] == "CPU"
        if "seconds" in trial and (not on_cpu or record["device"]["type"] == "CPU"):
            yield trial


def _moving_names(record: Record) -> str:
    found = dict.fromkeys(case["operator"] for case in record["cases"] if case.get("operations") == 0)
    return ", ".join(operator.upper() for operator in found)


def _types(record: Record) -> int:
    """How many data types the convolutions of a record have."""
    return len({parameters(case).get("type") for case in record["cases"] if case.get("operations")})
