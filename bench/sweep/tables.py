"""A record of a sweep: the shapes furthest from what bounds them as tables, and the share of each as a picture."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bench.sweep import OPERATORS
from dmlvk.benchmark import drawing
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import DIFFERENT, EQUAL, Section, absences, ratio_text, title_of, us_text

HEADS = (
    "shape",
    "path",
    "time, us",
    "bound, us",
    "by",
    "share",
    "predicted, us",
    "peer, us",
    "times as fast",
    "result",
)
# The most rows for an operator, and for shapes that are slowest beside a peer. The record has all of them.
MOST_ROWS = 40
MOST_ROWS_BESIDE_PEERS = 15


def sections(record: Record, *, dispatches: bool = False) -> Iterator[Section]:
    """The tables: of each operator the shapes with the least share of their bound.

    record: a result of `bench.sweep.measurement.run`.
    dispatches: of no meaning here.
    """
    for number, operator in enumerate(OPERATORS):
        rows = measured(record, operator)
        if not rows:
            continue
        title = f"{len(rows)} random shapes of {operator}"
        yield Section(
            f"{title}, the {min(MOST_ROWS, len(rows))} with the least share of their bound"
            if number
            else title_of(record, f"{title}, the {min(MOST_ROWS, len(rows))} with the least share of their bound,"),
            HEADS,
            [_cells(row) for row in rows[:MOST_ROWS]],
            [*_summary(rows), *(_closing(record) if number == 0 or not measured(record, OPERATORS[0]) else ())],
        )
        beside = sorted((ratio, row["name"], row) for row in rows if (ratio := _times_as_fast(row)) is not None)
        if beside:
            shown = [row for *_, row in beside[:MOST_ROWS_BESIDE_PEERS]]
            yield Section(
                f"{operator}, the {len(shown)} slowest beside the peer", HEADS, [_cells(row) for row in shown]
            )


def is_correct(record: Record) -> bool:
    """Whether every output was right, as far as it was checked."""
    return all(mark["correct"] for mark in record["marks"].values()) and all(
        row.get("correct", True) for row in record["shapes"]
    )


def measured(record: Record, operator: str) -> list[Record]:
    """The rows of an operator, those with the least share of their bound first."""
    rows = [row for row in record["shapes"] if row["name"].startswith(f"{operator}:") and "seconds" in row]
    return sorted(rows, key=share)


def share(row: Record) -> float:
    """The part of its time that a shape would take at its bound."""
    return float(row["bound"]["seconds"] / row["seconds"])


def _trial(row: Record) -> Record | None:
    """The peer's time, if it has one."""
    return next((each for each in row["peers"] if "seconds" in each), None)


def _times_as_fast(row: Record) -> float | None:
    """How many times as fast as the peer a shape is, if that has a time."""
    trial = _trial(row)
    return None if trial is None else float(trial["seconds"] / row["seconds"])


def _cells(row: Record) -> list[str]:
    trial, ratio = _trial(row), _times_as_fast(row)
    return [
        row["name"].partition(":")[2],
        row["path"],
        us_text(row["seconds"]),
        us_text(row["bound"]["seconds"]),
        row["bound"]["bound_by"],
        ratio_text(share(row)),
        us_text(row["predicted_seconds"]),
        "" if trial is None else us_text(trial["seconds"]),
        "" if ratio is None else ratio_text(ratio),
        EQUAL if row["correct"] else DIFFERENT,
    ]


def _summary(rows: list[Record]) -> Iterator[str]:
    shares = [share(row) for row in rows]
    yield f"share of the bound: {ratio_text(statistics.geometric_mean(shares))} (geometric mean of {len(rows)})"
    ratios = [ratio for row in rows if (ratio := _times_as_fast(row)) is not None]
    if ratios:
        slow = sum(ratio < 0.5 for ratio in ratios)
        yield (
            f"{ratio_text(statistics.geometric_mean(ratios))} times as fast as the peer (geometric mean of "
            f"{len(ratios)}; the least {ratio_text(min(ratios))}; {slow} below 0.5)"
        )
    paths = Counter(row["path"] for row in rows)
    yield f"paths: {', '.join(f'{path} {count}' for path, count in paths.most_common())}"


def _closing(record: Record) -> Iterator[str]:
    failures = [row for row in record["shapes"] if "failure" in row]
    for row in failures:
        yield f"{row['name']}: {row['failure']}"
    yield f"seed {record['seed']}; of a convolution's output, 64 elements were compared with the reference"
    yield from absences(record)


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
