"""A network's record as tables, and as a picture: each batch's chain and layers, beside the peers and the floor."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from dmlvk.benchmark import drawing
from dmlvk.benchmark.drawing import OURS, Look
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import DIFFERENT, EQUAL, Section, absences, ratio_text, title_of, us_text

CHAIN = "all in their order"


def sections(record: Record, *, dispatches: bool = False) -> Iterator[Section]:
    """The tables: the chains of all batches and layouts, then the layers of each.

    record: a result of `dmlvk.benchmark.networks.measurement.run`.
    dispatches: whether the layers' tables have the number of dispatches too.
    """
    network, peers = record["network"], list(record["peers"])
    floor = record["floor"]
    subject = f"{network['name']}'s {network['layers']} convolutions, images of {network['size']} x {network['size']},"
    heads = ["on the device, us", "on the wall, us", "predicted, us", *(f"{peer}, us" for peer in peers)]
    heads += [*(["times as fast", "as"] if peers else []), "result"]
    yield Section(
        title_of(record, subject),
        ("batch", "layout", "dispatches", "floor, us", *heads),
        [_chain_row(run, floor, peers) for run in record["runs"] if "chain" in run],
        [
            "Times on the device are from the first timestamp to the last; each layer waits for the one before.",
            f"The floor is {us_text(_median(floor))} us a dispatch ({us_text(floor['wall']['median'])} on the wall): a "
            "SLICE1 of 64 bytes after another.",
            *_failures(record),
            *absences(record),
        ],
    )
    extra = ["dispatches"] if dispatches else []
    for run in record["runs"]:
        yield Section(
            f"batch {run['batch']}, {run['layout'].upper()}",
            ("layer", "times", "path", *extra, *heads),
            [*(_layer_row(layer, peers, dispatches) for layer in run["layers"]), *_sum_row(run, peers, dispatches)],
            list(_summary(run)),
        )


def is_correct(record: Record) -> bool:
    """Whether every layer's output was the reference's, alone and in the chain."""
    return all(row.get("correct", True) for run in record["runs"] for row in (*run["layers"], run.get("chain", {})))


def trial_seconds(row: Record) -> dict[str, float]:
    """The times of the peers that have done a row's work."""
    return {trial["peer"]: _median(trial["seconds"]) for trial in row["peers"] if "seconds" in trial}


def row_seconds(row: Record) -> float | None:
    """The device's own time for a row; None if it could not be measured."""
    return _median(row["seconds"]) if "seconds" in row else None


def _median(seconds: Record) -> float:
    """The device's own time where there is one."""
    return float((seconds["device"] or seconds["wall"])["median"])


def _chain_row(run: Record, floor: Record, peers: list[str]) -> list[str]:
    count = run["chain"].get("dispatches")
    marks = ["", ""] if count is None else [str(count), us_text(count * _median(floor))]
    return [str(run["batch"]), run["layout"], *marks, *_figures(run["chain"], peers)]


def _layer_row(row: Record, peers: list[str], dispatches: bool) -> list[str]:
    extra = [str(row.get("dispatches", ""))] if dispatches else []
    return [row["name"], str(row["count"]), ", ".join(row.get("paths", ())), *extra, *_figures(row, peers)]


def _figures(row: Record, peers: list[str]) -> list[str]:
    if "seconds" not in row:
        return ["", "", "", *[""] * len(peers), *(["", ""] if peers else []), "failed, see above"]
    seconds = _median(row["seconds"]), row["seconds"]["wall"]["median"], row["predicted_seconds"]
    return [*_cells(seconds, trial_seconds(row), peers), EQUAL if row["correct"] else DIFFERENT]


def _sum_row(run: Record, peers: list[str], dispatches: bool) -> Iterator[list[str]]:
    """The sum of the layers' own times, each times its count; nothing if one of them has no time."""
    rows = run["layers"]
    if not rows or any("seconds" not in row for row in rows):
        return
    theirs = {
        peer: sum(row["count"] * trial_seconds(row)[peer] for row in rows)
        for peer in peers
        if all(peer in trial_seconds(row) for row in rows)
    }
    seconds = (
        sum(row["count"] * _median(row["seconds"]) for row in rows),
        sum(row["count"] * row["seconds"]["wall"]["median"] for row in rows),
        sum(row["count"] * row["predicted_seconds"] for row in rows),
    )
    extra = [str(sum(row["count"] * row["dispatches"] for row in rows))] if dispatches else []
    count = str(sum(row["count"] for row in rows))
    yield ["sum of the layers", count, "", *extra, *_cells(seconds, theirs, peers), ""]


def _cells(seconds: tuple[float, float, float], theirs: Mapping[str, float], peers: list[str]) -> list[str]:
    """Our three times and each peer's, and how many times as fast as the best of them."""
    cells = [*map(us_text, seconds), *(us_text(theirs[peer]) if peer in theirs else "-" for peer in peers)]
    if peers:
        best = min(theirs, key=lambda name: theirs[name], default=None)
        cells += ["", ""] if best is None else [ratio_text(theirs[best] / seconds[0]), best]
    return cells


def _summary(run: Record) -> Iterator[str]:
    """The layers beside the best peer, and beside what was predicted for them."""
    rows = [row for row in run["layers"] if "seconds" in row]
    ratios = {
        row["name"]: min(trial_seconds(row).values()) / _median(row["seconds"]) for row in rows if trial_seconds(row)
    }
    if ratios:
        mean, least = statistics.geometric_mean(ratios.values()), min(ratios, key=lambda name: ratios[name])
        yield (
            f"layers: {ratio_text(mean)} times as fast as each one's best peer (geometric mean); the least "
            f"{ratio_text(ratios[least])}, {least}"
        )
    if rows:
        predicted = [row["predicted_seconds"] / _median(row["seconds"]) for row in rows]
        mean, least_and_most = statistics.geometric_mean(predicted), (min(predicted), max(predicted))
        yield (
            f"predicted: {ratio_text(mean)} times the measured time (geometric mean; "
            f"{' to '.join(map(ratio_text, least_and_most))})"
        )


def _failures(record: Record) -> Iterator[str]:
    """A line for each cause of failure, with the first layer that it hit."""
    failures: dict[str, list[str]] = defaultdict(list)
    for run in record["runs"]:
        rows = [*run["layers"], *([{"name": CHAIN, **run["chain"]}] if "chain" in run else [])]
        for row in rows:
            place = f"batch {run['batch']}, {run['layout']}, {row['name']}"
            if "failure" in row:
                failures[row["failure"]].append(place)
            if row.get("wrong") and row["name"] == CHAIN:
                yield f"{place}: layers {', '.join(map(str, row['wrong']))} have {DIFFERENT} outputs"
            for trial in row["peers"]:
                if "failure" in trial:
                    failures[f"{trial['peer']} failed, {trial['failure']}"].append(place)
    for failure, places in failures.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"{places[0]}{more}: {failure}"


# cuDNN's network is not the same: it multiplies in float16.
CUDNN = "cuDNN graphs, {}: other operators, in float16"
PEERS = {
    "cudnn-fp16-graph": {
        "nhwc": Look(CUDNN.format("NHWC"), "#D55E00", "o"),
        "nchw": Look(CUDNN.format("NCHW"), "#E69F00", "s"),
    },
    "onnxruntime": dict.fromkeys(("nhwc", "nchw"), Look("ONNX Runtime", "#CC79A7", "D")),
    "ncnn": dict.fromkeys(("nhwc", "nchw"), Look("ncnn", "#009E73", "P")),
}
PREDICTED, FLOOR = "black", "gray"


def figure_of(record: Record) -> Any:
    """The figure of a record."""
    batches = list(dict.fromkeys(run["batch"] for run in record["runs"]))
    names = list(dict.fromkeys(layer["name"] for run in record["runs"] for layer in run["layers"]))
    bars = max(sum(1 for _ in _bars(record, batch)) for batch in batches)
    heights = (0.9 + 0.3 * bars, 1.3 + 0.24 * len(names))
    title = f"dmlvk: {title_of(record, record['network']['name'])}"
    figure = drawing.figure_with(2.4 + len(batches) * sum(heights), title)
    panels = figure.subplots(2 * len(batches), 1, squeeze=False, height_ratios=heights * len(batches))[:, 0]
    for number, batch in enumerate(batches):
        _chains(panels[2 * number], record, batch)
        _layers(panels[2 * number + 1], record, batch, names)
    figure.legend(handles=_handles(record), loc="outside lower center", fontsize=drawing.LETTERS)
    return figure


def _bars(record: Record, batch: int) -> Iterator[tuple[str, float, str, Record]]:
    """Label, seconds, colour and run of each bar of a batch's chains."""
    for run in record["runs"]:
        chain = run.get("chain")
        if run["batch"] != batch or chain is None:
            continue
        layout, seconds = run["layout"], row_seconds(chain)
        if seconds is not None:
            yield OURS[layout].text, seconds, OURS[layout].colour, run
        for peer, theirs in trial_seconds(chain).items():
            look = PEERS[peer][layout]
            yield f"{peer}, {layout.upper()}", theirs, look.colour, {}


def _chains(axes: Any, record: Record, batch: int) -> None:
    """Bars. On those of dmlvk: the floor of their dispatches, and what the planner predicted."""
    from matplotlib.ticker import StrMethodFormatter

    labels = []
    for height, (label, seconds, colour, run) in enumerate(_bars(record, batch)):
        labels.append(label)
        axes.barh(height, seconds * 1e6, 0.6, color=colour)
        axes.annotate(f" {seconds * 1e6:,.0f}", (seconds * 1e6, height), va="center", fontsize=drawing.LETTERS - 1)
        if run:
            floor = run["chain"]["dispatches"] * _median(record["floor"]) * 1e6
            axes.plot([floor] * 2, [height - 0.4, height + 0.4], color=FLOOR, lw=2)
            axes.plot(run["chain"]["predicted_seconds"] * 1e6, height, "|", color=PREDICTED, ms=14, mew=2)
    drawing.label_rows(axes, labels)
    axes.margins(x=0.15)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    layers = record["network"]["layers"]
    axes.set_title(f"batch {batch}: all {layers} layers in their order, us", fontsize=drawing.LETTERS)


def _layers(axes: Any, record: Record, batch: int, names: list[str]) -> None:
    """Points: a row for each layer."""
    for run in record["runs"]:
        if run["batch"] != batch:
            continue
        layout = run["layout"]
        for row in run["layers"]:
            height, seconds = names.index(row["name"]), row_seconds(row)
            for peer, theirs in trial_seconds(row).items():
                axes.plot(theirs * 1e6, height, ms=7, zorder=3, **PEERS[peer][layout].style())
            if seconds is not None:
                axes.plot(seconds * 1e6, height, ms=8, zorder=4, **OURS[layout].style())
                axes.plot(row["predicted_seconds"] * 1e6, height, "|", color=PREDICTED, ms=9, zorder=2)
    axes.axvline(_median(record["floor"]) * 1e6, color=FLOOR, lw=2, zorder=1)
    counts = {row["name"]: row["count"] for run in record["runs"] for row in run["layers"]}
    labels = [f"{name.replace('_', ' ')}  x {counts[name]}" for name in names]
    drawing.label_rows(axes, labels, are_points=True)
    drawing.use_logarithms(axes)
    axes.set_xlabel("us; further left is faster")
    axes.set_title(f"batch {batch}: each layer", fontsize=drawing.LETTERS)


def _handles(record: Record) -> list[Any]:
    from matplotlib.lines import Line2D

    layouts = list(dict.fromkeys(run["layout"] for run in record["runs"]))

    looks = [OURS[layout] for layout in layouts]
    looks += [PEERS[peer][layout] for peer in record["peers"] for layout in layouts]
    handles = [look.handle() for look in dict.fromkeys(looks)]
    handles.append(Line2D([], [], ls="", marker="|", color=PREDICTED, ms=9, label="the planner's estimate"))
    handles.append(Line2D([], [], color=FLOOR, lw=2, label="floor: dispatches of nothing, one after another"))
    return handles
