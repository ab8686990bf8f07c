"""A model's record as tables, and as a picture: the parts of a run, beside other libraries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from dmlvk.benchmark import drawing
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.sections import DIFFERENT, EQUAL, Section, absences, ratio_text, title_of

NAMES = {
    "gpu": "on the GPU, inputs over the bus",
    "waiting": "submission and waiting",
    "to_device": "to the device",
    "from_device": "from the device",
    "host": "the host's nodes",
    "rest": "rest",
}
PARTS = tuple(NAMES)
STEP_HEADS = (
    "where",
    "operators",
    "nodes",
    "steps",
    "ms",
    "on the GPU, ms",
    "to device, MB",
    "to device, ms",
    "from device, MB",
    "from device, ms",
)
DISPATCH_HEADS = ("operator", "path", "in a run, us", "again and again, us")
OTHER_HEADS = (
    "batch",
    "library",
    "network",
    "run, ms",
    "times as fast",
    "on the GPU alone, ms",
    "here on the GPU alone, ms",
    "times as fast there",
)


def sections(record: Record, *, dispatches: bool = False) -> Iterator[Section]:
    """The tables: whole runs and their parts, then the steps by what runs in them, or each step.

    record: a result of `dmlvk.benchmark.model.measurement.run`.
    dispatches: whether each step has a row, or all steps of the same operators together.
    """
    yield Section(
        title_of(record, record["model"]["file"]),
        (
            "batch",
            "run, ms",
            "spread",
            "images a second",
            "first run, ms",
            "in map, ms",
            "on the device alone, ms",
            "ONNX Runtime, ms",
            "times as fast",
            "result",
        ),
        [_row(row) for row in record["batches"]],
        [*_notes(record), *absences(record)],
    )
    others = [row for batch in record["batches"] for row in _others(batch)]
    if others:
        yield Section("beside libraries of the GPU, which compute in FLOAT16", OTHER_HEADS, others)
    yield Section(
        "the parts of a run in which each step waits for the one before",
        ("batch", "together, ms", *(f"{NAMES[part]}, ms" for part in PARTS), "to device, MB", "from device, MB"),
        [_parts(row) for row in record["batches"]],
    )
    for row in record["batches"]:
        steps = [{**step, "steps": 1} for step in row["steps"]] if dispatches else _together(row)
        yield Section(f"the steps{_of_batch(row)}", STEP_HEADS, [_step(step) for step in steps])
        if dispatches and "dispatches" in row:
            yield Section(f"the dispatches{_of_batch(row)}", DISPATCH_HEADS, _dispatches(row["dispatches"]))


def is_correct(record: Record) -> bool:
    """Whether no output is wrong. One that a fusion may change, or the host's floats a little, is only different."""
    return all(
        output["result"] != "wrong"
        for row in record["batches"]
        for trial in row["peers"]
        for output in trial.get("outputs", ())
    )


def parts_of(row: Record) -> dict[str, float]:
    """The parts of a run in seconds, by PARTS: sums of the medians of its steps.

    Without timestamps all of the device's time is "waiting".
    """
    steps = row["steps"]
    gpu = sum(step["gpu_seconds"] or 0.0 for step in steps)
    parts = {
        "gpu": gpu,
        "waiting": max(0.0, sum(step["seconds"] for step in steps if step["where"] == "device") - gpu),
        "to_device": sum(step["to_device_seconds"] for step in steps),
        "from_device": sum(step["from_device_seconds"] for step in steps),
        "host": sum(step["seconds"] for step in steps if step["where"] == "host"),
    }
    return {**parts, "rest": row["rest_seconds"]}


def _row(row: Record) -> tuple[str, ...]:
    seconds = row["seconds"]
    trial: Record = next((trial for trial in row["peers"] if "outputs" in trial), {})
    theirs = trial["seconds"]["median"] if trial else None
    return (
        _batch(row),
        _ms(seconds["median"]),
        f"{_ms(seconds['minimum'])} to {_ms(seconds['maximum'])}",
        "" if row["batch"] is None else f"{row['batch'] / seconds['median']:,.1f}",
        _ms(row["first_seconds"]),
        *(_ms(row[name]) if name in row else "" for name in ("mapped_seconds", "alone_seconds")),
        "" if theirs is None else _ms(theirs),
        "" if theirs is None else ratio_text(theirs / seconds["median"]),
        _verdict(trial),
    )


def _others(row: Record) -> Iterator[tuple[str, ...]]:
    """A row for each library that measured a network of its own in the model's place."""
    for trial in row["peers"]:
        if "gpu_seconds" in trial:
            whole, on_gpu, ours = trial["seconds"]["median"], trial["gpu_seconds"], row.get("alone_seconds", 0.0)
            yield (
                _batch(row),
                trial["peer"],
                trial["network"],
                _ms(whole),
                ratio_text(whole / row["seconds"]["median"]),
                _ms(on_gpu),
                _ms(ours) if ours else "",
                ratio_text(on_gpu / ours) if ours else "",
            )


def _parts(row: Record) -> tuple[str, ...]:
    parts = parts_of(row)
    moved = (sum(step[f"bytes_{way}_device"] for step in row["steps"]) for way in ("to", "from"))
    return _batch(row), _ms(sum(parts.values())), *(_ms(parts[part]) for part in PARTS), *map(_mb, moved)


def _batch(row: Record) -> str:
    return "" if row["batch"] is None else str(row["batch"])


def _verdict(trial: Record) -> str:
    results = [output["result"] for output in trial.get("outputs", ())]
    if not results:
        return "not compared"
    if "wrong" in results:
        return DIFFERENT
    return next((result for result in results if result != EQUAL), EQUAL)


def _notes(record: Record) -> Iterator[str]:
    model = record["model"]
    places = ", ".join(f"{count} {where}" for where, count in model["nodes"].items())
    on_host = ", ".join(f"{count} {name}" for name, count in model["on_host"].items())
    yield f"nodes: {places}{f'; on the host {on_host}' if on_host else ''}"
    for row in record["batches"]:
        memory = row["memory"]
        yield f"memory for values{_of_batch(row)}: {memory['peak']:,} bytes; unshared {memory['sum']:,}"
        for trial in row["peers"]:
            if "failure" in trial:
                yield f"{trial['peer']} failed{_of_batch(row)}, {trial['failure']}"
            if "unsupported" in trial:
                yield f"{trial['peer']}{_of_batch(row)}: {trial['unsupported']}"
            for output in trial.get("outputs", ()):
                yield f"{output['name']}{_of_batch(row)}: {_comparison(output)}"


def _comparison(output: Record) -> str:
    if "different" not in output:
        to = f" to ONNX Runtime's {output['to']} run, {output['elements']:,} elements" if "to" in output else ""
        return f"{output['result']}{to}"
    largest = f", by at most {output['largest']:.3g}" if output.get("largest") is not None else ""
    counts = f"{output['different']:,} of {output['elements']:,} elements differ"
    return f"{counts} from ONNX Runtime's {output['to']} run{largest}"


def _of_batch(row: Record) -> str:
    return "" if row["batch"] is None else f", batch {row['batch']}"


def _dispatches(rows: list[Record]) -> list[tuple[str, ...]]:
    """A row for each operator, and their sum."""
    keys = ("seconds", "alone_seconds")
    whole = {"operator": "all", "path": "", **{key: sum(each[key] for each in rows) for key in keys}}
    return [(each["operator"], each["path"], *(f"{each[key] * 1e6:,.1f}" for key in keys)) for each in [*rows, whole]]


def _together(row: Record) -> list[Record]:
    """The steps of the same operators as one, the longest first."""
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for step in row["steps"]:
        groups[(step["where"], *step["operators"])].append(step)
    added = []
    for steps in groups.values():
        whole: Record = {"where": steps[0]["where"], "operators": steps[0]["operators"], "steps": len(steps)}
        for key in steps[0].keys() - whole.keys():
            found = [step[key] for step in steps if step[key] is not None]
            whole[key] = sum(found) if found else None
        added.append(whole)
    return sorted(added, key=lambda s: -(s["seconds"] + s["to_device_seconds"] + s["from_device_seconds"]))


def _step(step: Record) -> tuple[str, ...]:
    return (
        step["where"],
        ", ".join(step["operators"]),
        str(step["nodes"]) if step["nodes"] else "",
        str(step["steps"]),
        _ms(step["seconds"]),
        "" if step["gpu_seconds"] is None else _ms(step["gpu_seconds"]),
        _mb(step["bytes_to_device"]),
        _ms(step["to_device_seconds"]),
        _mb(step["bytes_from_device"]),
        _ms(step["from_device_seconds"]),
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f}" if seconds < 0.1 else f"{seconds * 1e3:,.1f}"


def _mb(count: int) -> str:
    return f"{count / 1e6:,.3f}" if count else ""


# Colour-blind readers can tell these colours apart.
COLOURS = {
    "gpu": "#0072B2",
    "waiting": "#56B4E9",
    "to_device": "#E69F00",
    "from_device": "#D55E00",
    "host": "#009E73",
    "rest": "#BBBBBB",
}
WHOLE, PEER = "black", "#CC79A7"
HEIGHT = 0.25


def figure_of(record: Record) -> Any:
    """The figure of a record: bars of milliseconds for each batch."""
    rows = record["batches"]
    title = f"dmlvk: {title_of(record, record['model']['file'])}"
    figure = drawing.figure_with(2.6 + 1.9 * len(rows), title)
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axes, row in zip(panels, rows, strict=True):
        parts, start = parts_of(row), 0.0
        for part in PARTS:
            axes.barh(0, parts[part] * 1e3, HEIGHT, left=start, color=COLOURS[part], label=NAMES[part])
            start += parts[part] * 1e3
        axes.barh(1, row["seconds"]["median"] * 1e3, HEIGHT, color=WHOLE)
        labels = ["its steps, one waiting for another", "a whole run"]
        for trial in row["peers"]:
            if "seconds" in trial:
                axes.barh(len(labels), trial["seconds"]["median"] * 1e3, HEIGHT, color=PEER)
                labels.append(f"{trial['peer']}, {record['peers'][trial['peer']]['runs_on']}")
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(-0.5, len(labels) - 0.5)
        axes.set_title("" if row["batch"] is None else f"batch {row['batch']}", loc="left", fontsize=drawing.LETTERS)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    panels[-1].set_xlabel("ms")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=drawing.LETTERS)
    return figure
