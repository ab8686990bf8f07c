"""A record of the harness as tables for a terminal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dmlvk.benchmark.peers.peer import OTHER_ARITHMETIC
from dmlvk.benchmark.sections import ratio_text

Record = dict[str, Any]

# A mark's own noise is smaller than this.
MORE_THAN_THE_MARK = 1.05


def show(record: Record, terminal: Console, *, dispatches: bool = False) -> None:
    """Print a record: marks, cases, peers, and all that was absent.

    Parameters
    ----------
    record : dict
        A result of `dmlvk.benchmark.harness.run`.
    terminal : Console
    dispatches : bool
        Whether to print the time of each dispatch too.
    """
    device = record["device"]
    title = f"{device['name']}, {device['driver']}, {record['date']}"
    terminal.print(_marks(record, title))
    terminal.print(_cases(record))
    if dispatches:
        terminal.print(_dispatches(record))
    if record["peers"]:
        terminal.print(_peers(record))
    for name, reason in record["absent_marks"].items():
        terminal.print(f"mark {name}: absent, {reason}")
    for reason in dict.fromkeys(record["absent_peers"].values()):
        names = [name for name, why in record["absent_peers"].items() if why == reason]
        terminal.print(f"peer{'s' * (len(names) > 1)} {', '.join(names)}: absent, {reason}")
    for line in failures(record):
        terminal.print(line)
    for line in summary(record):
        terminal.print(line)


def best_trial(record: Record, row: Record) -> Record | None:
    """The fastest trial of a peer on the work of a case; None if there is none.

    Beside a GPU stand the libraries that run on one; beside a CPU's driver all stand, which run on that CPU.
    """
    runs_on = ("CPU", "CUDA", "Vulkan") if record["device"]["type"] == "CPU" else ("CUDA", "Vulkan")
    trials = [
        trial
        for other in record["cases"]
        if other.get("work") == row.get("work")
        for trial in other.get("peers", ())
        if "seconds" in trial and record["peers"][trial["peer"]]["runs_on"] in runs_on
    ]
    return min(trials, key=lambda trial: float(trial["seconds"]["median"]), default=None)


def summary(record: Record) -> Iterator[str]:
    """Geometric means over the convolutions with a peer, by layout and filter zero point; and what a figure means."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for row in record["cases"]:
        best = best_trial(record, row)
        if row["operator"] == "quantized_linear_convolution" and "seconds" in row and best is not None:
            parameters = row["name"].rpartition(":")[2]
            ratios[parameters].append(best["seconds"]["median"] / row["seconds"]["median"])
    for parameters, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        yield (
            f"convolutions with {parameters}: {ratio_text(mean)} times as fast as each one's best peer (geometric mean "
            f"of {len(values)}; the least {ratio_text(min(values))}, the most {ratio_text(max(values))})"
        )
    trials = [trial for row in record["cases"] for trial in row.get("peers", ())]
    others = dict.fromkeys(trial["peer"] for trial in trials if trial.get("result") == OTHER_ARITHMETIC)
    if others:
        yield f"another operator, with other types or without zero points: {', '.join(others)}"
    if any(row.get("mark") and row["mark"]["fraction"] > MORE_THAN_THE_MARK for row in record["cases"]):
        yield (
            "more than 100% of the mark: a mark is a plain kernel that was measured in the same run, and no limit of "
            "the hardware. A kernel that the driver compiles better, or that finds more in caches, is faster than it"
        )


def parameters(row: Record) -> dict[str, str]:
    """The parameters in a case's name."""
    return dict(pair.split("=", 1) for pair in row["name"].rpartition(":")[2].split(";") if "=" in pair)


def rate_text(bytes_per_second: float, operations_per_second: float) -> str:
    """A rate: TOPS for operators that compute, GB/s for operators that move data."""
    if operations_per_second:
        return f"{_three_digits(operations_per_second / 1e12)} TOPS"
    return f"{_three_digits(bytes_per_second / 1e9)} GB/s"


def _three_digits(value: float) -> str:
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}" if 0 < value < 100 else f"{value:,.0f}"


def _milliseconds(seconds: float) -> str:
    return _three_digits(seconds * 1e3)


def _spread(seconds: Record) -> str:
    return f"{_milliseconds(seconds['minimum'])} to {_milliseconds(seconds['maximum'])}"


def _verdict(correct: bool) -> Text:
    return Text("equal", "green") if correct else Text("DIFFERENT", "red")


def _marks(record: Record, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("mark", "what"):
        table.add_column(heading)
    for heading in ("rate", "median ms", "spread ms"):
        table.add_column(heading, justify="right")
    table.add_column("result")
    for name, mark in record["marks"].items():
        moves = mark["unit"] == "bytes/s"
        rate = rate_text(mark["rate"] if moves else 0.0, 0.0 if moves else mark["rate"])
        seconds = mark["seconds"]
        cells = rate, _milliseconds(seconds["median"]), _spread(seconds), _verdict(mark["correct"])
        table.add_row(name, mark["what"], *cells)
    return table


def _cases(record: Record) -> Table:
    table = Table()
    for heading in ("case", "path"):
        table.add_column(heading, overflow="fold")
    on_cpu = any(row.get("processor_seconds") for row in record["cases"])
    for heading in ("median ms", "spread ms", *(["processors, ms"] if on_cpu else []), "rate", "of the mark"):
        table.add_column(heading, justify="right")
    table.add_column("result")
    has_rivals = any(best_trial(record, row) for row in record["cases"])
    if has_rivals:
        table.add_column("best peer, ms")
        table.add_column("times as fast", justify="right")
    for row in record["cases"]:
        if "impossible" in row:
            table.add_row(row["name"], "none, see below")
            continue
        seconds, mark = row["seconds"], row["mark"]
        cells = [
            row["name"],
            row["path"],
            _milliseconds(seconds["median"]),
            _spread(seconds),
            *([_milliseconds(row["processor_seconds"]["median"])] if on_cpu else []),
            rate_text(row["bytes_per_second"], row["operations_per_second"]),
            "" if mark is None else f"{mark['fraction']:.0%} {mark['bound_by']}",
            _verdict(row["correct"]),
        ]
        best = best_trial(record, row)
        if has_rivals:
            cells.append("" if best is None else f"{_milliseconds(best['seconds']['median'])} {best['peer']}")
            cells.append("" if best is None else ratio_text(best["seconds"]["median"] / seconds["median"]))
        table.add_row(*cells)
    return table


def _dispatches(record: Record) -> Table:
    table = Table(title="dispatches", title_justify="left")
    for heading in ("case", "kernel"):
        table.add_column(heading, overflow="fold")
    for heading in ("median us", "GB/s", "TOPS"):
        table.add_column(heading, justify="right")
    for row in record["cases"]:
        for dispatch in row.get("dispatches", ()):
            seconds = dispatch["seconds"]
            table.add_row(
                row["name"],
                dispatch["kernel"],
                f"{seconds * 1e6:,.1f}",
                f"{dispatch['bytes'] / seconds / 1e9:,.1f}" if seconds else "",
                f"{dispatch['operations'] / seconds / 1e12:.3f}" if seconds and dispatch["operations"] else "",
            )
    return table


def _peers(record: Record) -> Table:
    versions = (f"{name} {peer['version']} ({peer['runs_on']})" for name, peer in record["peers"].items())
    table = Table(title=f"peers, ms: {', '.join(versions)}", title_justify="left")
    table.add_column("work", overflow="fold")
    for name in record["peers"]:
        table.add_column(name, justify="right")
    for row in record["cases"]:
        if "peers" in row:
            trials = {trial["peer"]: trial for trial in row["peers"]}
            cells = (trial_text(trials.get(name, {})) for name in record["peers"])
            table.add_row(row["work"], *(Text(cell, "red" if cell.endswith("DIFFERENT") else "") for cell in cells))
    return table


def trial_text(trial: Record) -> str:
    """A peer's milliseconds, and whether its result is another one; "failed", or "-" if it lacks the operator."""
    if "seconds" in trial:
        wrong = " DIFFERENT" if trial["result"] == "DIFFERENT" else ""
        return _milliseconds(trial["seconds"]["median"]) + wrong
    return "failed" if "failure" in trial else "-"


def failures(record: Record) -> Iterator[str]:
    """A line for each case without such a path here or with untrue times, and for each peer that failed at one."""
    for row in record["cases"]:
        if row.get("untrue_timestamps"):
            yield f"{row['name']}: the driver's timestamps cannot be true: {row['untrue_timestamps']}"
        if "impossible" in row:
            yield f"{row['name']}: {row['impossible']}"
        for trial in row.get("peers", ()):
            if "failure" in trial:
                yield f"{row['work']}: {trial['peer']} failed, {trial['failure']}"
