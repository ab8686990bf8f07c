"""A record of the harness as tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from dmlvk.benchmark.peers.peer import OTHER_ARITHMETIC
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import DIFFERENT, EQUAL, Section, absences, ratio_text

# A mark's own noise is smaller than this.
MORE_THAN_THE_MARK = 1.05


def sections(record: Record, *, dispatches: bool = False) -> Iterator[Section]:
    """The tables: the marks, the cases, and the peers' times; below them all that failed or was absent.

    record: a result of `dmlvk.benchmark.harness.run`.
    dispatches: whether each dispatch has a row too.
    """
    device, settings = record["device"], record["settings"]
    yield Section(
        f"{device['name']}, {device['driver']}, {record['date']}",
        ("mark", "what", "rate", "median ms", "spread ms", "result"),
        [_mark(name, mark) for name, mark in record["marks"].items()],
        [
            f"Median of {settings['rounds']} rounds; inputs of {settings['data_bytes']:,} bytes for data movement, "
            f"batches of {settings['batch']} for convolutions.",
            *(f"mark {name}: absent, {reason}" for name, reason in record["absent_marks"].items()),
        ],
    )
    on_cpu = any(row.get("processor_seconds") for row in record["cases"])
    rivals = {row["name"]: best_trial(record, row) for row in record["cases"]}
    heads = ["case", "path", "median ms", "spread ms", *(["processors, ms"] if on_cpu else []), "rate", "of the mark"]
    heads += ["result", *(["best peer, ms", "times as fast"] if any(rivals.values()) else [])]
    rows = [_case(row, on_cpu, rivals[row["name"]]) for row in record["cases"]]
    notes = [*failures(record), *summary(record)]
    yield Section("cases", heads, [[*row, *[""] * len(heads)][: len(heads)] for row in rows], notes)
    if dispatches:
        dispatched = [_dispatch(row["name"], each) for row in record["cases"] for each in row.get("dispatches", ())]
        yield Section("dispatches", ("case", "kernel", "median us", "GB/s", "TOPS"), dispatched)
    yield Section(
        'peers, ms; "-" where a peer lacks the operator',
        ("work", *record["peers"]),
        list(_peers(record)),
        absences(record),
    )


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


def _verdict(correct: bool) -> str:
    return EQUAL if correct else DIFFERENT


def _mark(name: str, mark: Record) -> tuple[str, ...]:
    moves = mark["unit"] == "bytes/s"
    rate = rate_text(mark["rate"] if moves else 0.0, 0.0 if moves else mark["rate"])
    seconds = mark["seconds"]
    return name, mark["what"], rate, _milliseconds(seconds["median"]), _spread(seconds), _verdict(mark["correct"])


def _case(row: Record, on_cpu: bool, best: Record | None) -> list[str]:
    if "impossible" in row:
        return [row["name"], "none, see below"]
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
    if best is not None:
        median = best["seconds"]["median"]
        cells += [f"{_milliseconds(median)} {best['peer']}", ratio_text(median / seconds["median"])]
    return cells


def _dispatch(name: str, dispatch: Record) -> tuple[str, ...]:
    seconds = dispatch["seconds"]
    return (
        name,
        dispatch["kernel"],
        f"{seconds * 1e6:,.1f}",
        f"{dispatch['bytes'] / seconds / 1e9:,.1f}" if seconds else "",
        f"{dispatch['operations'] / seconds / 1e12:.3f}" if seconds and dispatch["operations"] else "",
    )


def _peers(record: Record) -> Iterator[tuple[str, ...]]:
    for row in record["cases"]:
        if "peers" in row and record["peers"]:
            trials = {trial["peer"]: trial for trial in row["peers"]}
            yield row["work"], *(trial_text(trials.get(name, {})) for name in record["peers"])


def trial_text(trial: Record) -> str:
    """A peer's milliseconds, and whether its result is another one; "failed", or "-" if it lacks the operator."""
    if "seconds" in trial:
        wrong = f" {DIFFERENT}" if trial["result"] == DIFFERENT else ""
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
