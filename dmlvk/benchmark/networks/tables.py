"""A network's record as tables."""

from __future__ import annotations

from collections.abc import Iterator

from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import DIFFERENT, EQUAL, Section, absences, title_of

CHAIN = "all in their order"


def sections(record: Record, *, dispatches: bool = False) -> Iterator[Section]:
    """The tables: the chains of all batches and layouts, then the layers of each.

    Parameters
    ----------
    record : dict
        A result of `dmlvk.benchmark.networks.measurement.run`.
    dispatches : bool
        Whether the layers' tables have the number of dispatches too.
    """
    network, peers = record["network"], list(record["peers"])
    floor = record["floor"]
    subject = f"{network['name']}'s {network['layers']} convolutions, images of {network['size']} x {network['size']},"
    heads = [
        "us", "on the wall, us", "predicted, us", *(f"{peer}, us" for peer in peers),
        "times as fast", "as", "result",
    ]  # fmt: skip
    yield Section(
        title_of(record, subject),
        ("batch", "layout", "dispatches", "floor, us", *heads),
        [_chain_row(run, floor, peers) for run in record["runs"] if "chain" in run],
        [
            "Times are from the first timestamp to the last; each layer waits for the one before.",
            f"The floor is {_us(_median(floor))} us a dispatch ({_us(floor['wall']['median'])} on the wall): a SLICE1 "
            "of 64 bytes after another.",
            *_failures(record),
            *absences(record),
        ],
    )
    extra = ["dispatches"] if dispatches else []
    for run in record["runs"]:
        yield Section(
            f"batch {run['batch']}, {run['layout'].upper()}",
            ("layer", "times", "path", *extra, *heads),
            [_layer_row(layer, peers, dispatches) for layer in run["layers"]] + _sum_row(run, peers, dispatches),
        )


def is_correct(record: Record) -> bool:
    """Whether every layer's output was the reference's, alone and in the chain."""
    return all(row.get("correct", True) for run in record["runs"] for row in (*run["layers"], run.get("chain", {})))


def _median(seconds: Record) -> float:
    """The device's own time where there is one."""
    return float((seconds["device"] or seconds["wall"])["median"])


def trial_seconds(row: Record) -> dict[str, float]:
    """The times of the peers that have done a row's work."""
    return {trial["peer"]: _median(trial["seconds"]) for trial in row["peers"] if "seconds" in trial}


def row_seconds(row: Record) -> float | None:
    """The device's own time for a row; None if it could not be measured."""
    return _median(row["seconds"]) if "seconds" in row else None


def _figures(row: Record, peers: list[str]) -> list[str]:
    if "seconds" not in row:
        return ["", "", "", *([""] * len(peers)), "", "", "failed, see above"]
    ours, theirs = _median(row["seconds"]), trial_seconds(row)
    best = min(theirs, key=lambda name: theirs[name], default=None)
    return [
        _us(ours),
        _us(row["seconds"]["wall"]["median"]),
        _us(row["predicted_seconds"]),
        *(_us(theirs[peer]) if peer in theirs else "-" for peer in peers),
        "" if best is None else f"{theirs[best] / ours:.2f}",
        best or "",
        EQUAL if row["correct"] else DIFFERENT,
    ]


def _chain_row(run: Record, floor: Record, peers: list[str]) -> list[str]:
    count = run["chain"].get("dispatches")
    marks = ["", ""] if count is None else [str(count), _us(count * _median(floor))]
    return [str(run["batch"]), run["layout"], *marks, *_figures(run["chain"], peers)]


def _layer_row(row: Record, peers: list[str], dispatches: bool) -> list[str]:
    extra = [str(row.get("dispatches", ""))] if dispatches else []
    return [row["name"], str(row["count"]), ", ".join(row.get("paths", ())), *extra, *_figures(row, peers)]


def _sum_row(run: Record, peers: list[str], dispatches: bool) -> list[list[str]]:
    """The sum of the layers' own times, each as often as it occurs."""
    rows = run["layers"]
    if not rows or any("seconds" not in row for row in rows):
        return []
    theirs = {
        peer: sum(row["count"] * trial_seconds(row)[peer] for row in rows)
        for peer in peers
        if all(peer in trial_seconds(row) for row in rows)
    }
    ours = sum(row["count"] * _median(row["seconds"]) for row in rows)
    best = min(theirs, key=lambda name: theirs[name], default=None)
    sums = [
        "sum of the layers",
        str(sum(row["count"] for row in rows)),
        "",
        *([str(sum(row["count"] * row["dispatches"] for row in rows))] if dispatches else []),
        _us(ours),
        _us(sum(row["count"] * row["seconds"]["wall"]["median"] for row in rows)),
        _us(sum(row["count"] * row["predicted_seconds"] for row in rows)),
        *(_us(theirs[peer]) if peer in theirs else "-" for peer in peers),
        "" if best is None else f"{theirs[best] / ours:.2f}",
        best or "",
        "",
    ]
    return [sums]


def _failures(record: Record) -> Iterator[str]:
    for run in record["runs"]:
        rows = [*run["layers"], *([{"name": CHAIN, **run["chain"]}] if "chain" in run else [])]
        place = f"batch {run['batch']}, {run['layout']}"
        for row in rows:
            if "failure" in row:
                yield f"{place}, {row['name']}: {row['failure']}"
            if row.get("wrong") and row["name"] == CHAIN:
                yield f"{place}: layers {', '.join(map(str, row['wrong']))} of the chain have DIFFERENT outputs"
            for trial in row["peers"]:
                if "failure" in trial:
                    yield f"{place}, {row['name']}: {trial['peer']} failed, {trial['failure']}"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f}" if seconds < 1e-3 else f"{seconds * 1e6:,.0f}"
