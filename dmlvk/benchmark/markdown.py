"""A record of the harness as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dmlvk.benchmark.sections import origin, ratio_text
from dmlvk.benchmark.tables import best_trial, failures, parameters, rate_text, summary, trial_text

Record = dict[str, Any]


def page(record: Record) -> Iterator[str]:
    """The lines of a page: the marks, each operator's share of them and speed beside the best peer, and all peers."""
    device = record["device"]
    yield f"# {device['name']}, {device['driver']}, {record['date']}"
    yield ""
    settings = record["settings"]
    yield (
        f"Median of {settings['rounds']} rounds; inputs of {settings['data_bytes']:,} bytes for data movement, batches "
        f"of {settings['batch']} for convolutions. {origin(record)}"
    )
    yield ""
    on = "" if device["type"] == "CPU" else " on a GPU"
    yield from _table(("mark", "rate", "what"), _marks(record))
    moving = [row for row in record["cases"] if row.get("operations") == 0]
    computing = [row for row in record["cases"] if row.get("operations")]
    if moving:
        yield f"Of the mark, and how many times as fast as the fastest other library{on}:"
        yield ""
        heads = ("case", "ms", "rate", "of the mark", "times as fast", "as")
        yield from _table(heads, (_row(record, row) for row in moving))
    if computing:
        yield from _table(
            ("convolution", "filter zero point", "layout", "path", "ms", "rate", "of the mark", "times as fast", "as"),
            (_convolution(record, row) for row in computing),
        )
    if record["peers"]:
        yield 'The peers\' times in ms; "-" where a peer lacks the operator:'
        yield ""
        yield from _table(("work", *record["peers"]), _peers(record))
    for line in (*failures(record), *summary(record)):
        yield f"- {line}"
    wrong = [row["name"] for row in record["cases"] if row.get("correct") is False]
    yield f"- results: {'all equal to the reference' if not wrong else 'DIFFERENT: ' + ', '.join(wrong)}"
    for name, peer in record["peers"].items():
        yield f"- {name}: version {peer['version']}, on {peer['runs_on']}"
    for name, reason in record["absent_peers"].items():
        yield f"- {name}: absent, {reason}"


def _table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _marks(record: Record) -> Iterator[tuple[str, ...]]:
    for name, mark in record["marks"].items():
        moves = mark["unit"] == "bytes/s"
        yield name.replace("_", " "), rate_text(*((mark["rate"], 0.0) if moves else (0.0, mark["rate"]))), mark["what"]


def _row(record: Record, row: Record) -> tuple[str, ...]:
    operator, group, _ = row["name"].split(":")
    values = ", ".join(f"{value}" for value in parameters(row).values())
    return (f"{operator} {group}, {values}".replace("_", " "), *_figures(record, row))


def _convolution(record: Record, row: Record) -> tuple[str, ...]:
    known = parameters(row)
    layer = row["name"].split(":")[1].replace("_", " ")
    return (layer, known["filter_zero_point"], known["layout"], row["path"], *_figures(record, row))


def _peers(record: Record) -> Iterator[tuple[str, ...]]:
    for row in record["cases"]:
        if "peers" in row:
            trials = {trial["peer"]: trial for trial in row["peers"]}
            yield row["work"], *(trial_text(trials.get(name, {})) for name in record["peers"])


def _figures(record: Record, row: Record) -> tuple[str, ...]:
    median, mark = row["seconds"]["median"], row["mark"]
    best = best_trial(record, row)
    return (
        f"{median * 1e3:.4g}",
        rate_text(row["bytes_per_second"], row["operations_per_second"]),
        "" if mark is None else f"{mark['fraction']:.0%} ({mark['bound_by'].replace('_', ' ')})",
        "" if best is None else ratio_text(best["seconds"]["median"] / median),
        "" if best is None else best["peer"],
    )
