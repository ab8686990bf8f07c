"""A record of operators as tables, and as a picture: a row for each case, with the mark and the peers on its work."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dmlvk.benchmark import drawing
from dmlvk.benchmark.drawing import OURS, PEERS, Look
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


def is_correct(record: Record) -> bool:
    """Whether every result of a run was right: those of the marks and the cases. Those of the peers do not count."""
    return all(mark["correct"] for mark in record["marks"].values()) and all(
        row.get("correct", True) for row in record["cases"]
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
