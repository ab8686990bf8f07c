"""A record of first calls as tables, and as a picture: what each process waits for, and each layer's first result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.cold import CACHES, EMPTY, FIRST_RESULT, WAYS
from dmlvk.benchmark import drawing
from dmlvk.benchmark.drawing import Look
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import DIFFERENT, EQUAL, Section, title_of

HEADS = ("batch", "layout", "cache", "way", "pipelines", "opened, ms", "compiled, ms", "called, ms", "result")


def sections(record: Record, *, dispatches: bool = False) -> Iterator[Section]:
    """The tables: a row for each process, then the layers of each batch, layout and cache.

    record: a result of `bench.cold.measurement.run`.
    dispatches: of no meaning here.
    """
    network, runs = record["network"], record["runs"]
    distinct = max((len(run.get("layers", ())) for run in runs), default=0)
    yield Section(
        title_of(record, f"the first calls of {network['name']}'s {distinct} different convolutions,"),
        HEADS,
        [_row(run) for run in runs],
        [
            f"Each row is a fresh process of {record['cores']} cores; the driver's own caches are off. Compiled: all "
            "layers. Called: the sum of all layers' first calls, with their constants, until the result is there.",
            *_very_firsts(runs),
            *(f"{_place(run)}: {run['failure']}" for run in runs if "failure" in run),
        ],
    )
    for batch, layout, cache in dict.fromkeys((run["batch"], run["layout"], run["cache"]) for run in runs):
        group = [run for run in runs if (run["batch"], run["layout"], run["cache"]) == (batch, layout, cache)]
        by_way = {run["way"]: run["layers"] for run in group if "layers" in run}
        ways = [way for way in WAYS if way in by_way]
        heads = [head for way in ways for head in _layer_heads(way, by_way[way])]
        rows = [dict(zip(ways, row, strict=True)) for row in zip(*(by_way[way] for way in ways), strict=True)]
        yield Section(
            f"batch {batch}, {layout.upper()}, {cache} cache",
            ("layer", "times", *heads, "result"),
            [_layer_row(row) for row in rows],
        )


def is_correct(record: Record) -> bool:
    """Whether every first result was the reference's."""
    return all(_is_right(run) for run in record["runs"])


def first_result_seconds(row: Record) -> float:
    """From the beginning of a layer's compilation to its result."""
    return float((row["compile_seconds"] or 0.0) + row["call_seconds"])


def _is_right(run: Record) -> bool:
    rows = [*run.get("layers", ()), *([run["very_first"]] if "very_first" in run else [])]
    return all(row["correct"] for row in rows)


def _row(run: Record) -> tuple[str, ...]:
    head = (str(run["batch"]), run["layout"], run["cache"], run["way"])
    if "failure" in run:
        return (*head, "", "", "", "", "failed, see below")
    called = sum(row["call_seconds"] for row in run["layers"])
    times = (run["open_seconds"], run["compile_seconds"], called)
    return (*head, str(run["pipelines"]), *map(_ms, times), EQUAL if _is_right(run) else DIFFERENT)


def _very_firsts(runs: list[Record]) -> Iterator[str]:
    """How long the processes that ask for results at once took for their very first convolution."""
    for run in runs:
        if "very_first" in run:
            yield f"{_place(run)}: the process's very first convolution, another one, took " + (
                f"{_ms(first_result_seconds(run['very_first']))} ms; the longest of the layers after it "
                f"{_ms(max(map(first_result_seconds, run['layers']), default=0.0))} ms"
            )


def _place(run: Record) -> str:
    return f"batch {run['batch']}, {run['layout']}, {run['cache']} cache, {run['way']}"


def _layer_heads(way: str, rows: list[Record]) -> Iterator[str]:
    if way == FIRST_RESULT:
        yield f"{way}, ms"
        return
    if all(row["compile_seconds"] is not None for row in rows):
        yield f"{way}: compiled, ms"
    yield f"{way}: called, ms"


def _layer_row(row: dict[str, Record]) -> list[str]:
    """A layer's cells, by the way in which each process took it."""
    first = next(iter(row.values()))
    cells = [first["name"], str(first["count"])]
    for way, found in row.items():
        if way == FIRST_RESULT:
            cells.append(_ms(first_result_seconds(found)))
            continue
        if found["compile_seconds"] is not None:
            cells.append(_ms(found["compile_seconds"]))
        cells.append(_ms(found["call_seconds"]))
    return [*cells, EQUAL if all(found["correct"] for found in row.values()) else DIFFERENT]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}"


# Colour-blind readers can tell these colours apart.
PARTS = {
    "the device is opened": "#BBBBBB",
    "all layers are compiled": "#E69F00",
    "each layer's first call, with its result": "#0072B2",
}
LOOKS = {cache: Look(f"{cache} cache", "#0072B2", hollow=cache != EMPTY) for cache in CACHES}
BAR, LAYER, FRAME = 0.33, 0.24, 2.2


def figure_of(record: Record) -> Any:
    """The figure of a record: two panels for each batch and layout."""
    from matplotlib.patches import Patch

    groups: dict[tuple[int, str], list[Record]] = {}
    for run in record["runs"]:
        groups.setdefault((run["batch"], run["layout"]), []).append(run)
    layers = max((len(run.get("layers", ())) for run in record["runs"]), default=0)
    bars = max(map(len, groups.values()), default=1)
    heights = (0.9 + BAR * bars, 0.9 + LAYER * max(1, layers))
    pairs = max(1, len(groups))
    title = title_of(record, f"the first calls of {record['network']['name']}")
    figure = drawing.figure_with(FRAME + pairs * sum(heights), f"dmlvk: {title}")
    panels = figure.subplots(2 * pairs, 1, squeeze=False, height_ratios=heights * pairs)[:, 0]
    for number, ((batch, layout), runs) in enumerate(groups.items()):
        place = f"batch {batch}, {layout.upper()}"
        _processes(panels[2 * number], place, runs)
        _layers(panels[2 * number + 1], place, runs)
    handles: list[Any] = [Patch(color=colour, label=text) for text, colour in PARTS.items()]
    handles += [look.handle() for look in LOOKS.values()]
    figure.legend(handles=handles, loc="outside lower center", fontsize=drawing.LETTERS)
    return figure


def _processes(axes: Any, place: str, runs: list[Record]) -> None:
    """A bar for each process: the times one after another."""
    labels = []
    for height, run in enumerate(runs):
        labels.append(f"{run['way']}, {run['cache']} cache")
        if "failure" in run:
            axes.annotate(" failed", (0, height), va="center", fontsize=drawing.LETTERS - 1)
            continue
        called = sum(row["call_seconds"] for row in run["layers"])
        start = 0.0
        for seconds, colour in zip((run["open_seconds"], run["compile_seconds"], called), PARTS.values(), strict=True):
            axes.barh(height, seconds * 1e3, 0.6, left=start, color=colour)
            start += seconds * 1e3
        axes.annotate(f" {start:,.0f}", (start, height), va="center", fontsize=drawing.LETTERS - 1)
    drawing.label_rows(axes, labels)
    axes.margins(x=0.12)
    axes.set_title(f"{place}: a fresh process until all layers have run once, ms", fontsize=drawing.LETTERS)


def _layers(axes: Any, place: str, runs: list[Record]) -> None:
    """Points: a row for each layer, from the request for it to its result."""
    chosen = [run for run in runs if run["way"] == FIRST_RESULT and "layers" in run]
    names = list(dict.fromkeys(row["name"] for run in chosen for row in run["layers"]))
    for run in chosen:
        for row in run["layers"]:
            seconds = first_result_seconds(row)
            axes.plot(seconds * 1e3, names.index(row["name"]), ms=7, zorder=3, **LOOKS[run["cache"]].style())
    drawing.label_rows(axes, [name.replace("_", " ") for name in names], are_points=True)
    axes.set_title(f"{place}: each layer's first result, asked for at once, ms", fontsize=drawing.LETTERS)
    if names:
        drawing.use_logarithms(axes)
