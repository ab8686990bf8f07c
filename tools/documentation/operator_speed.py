"""The table of operators and of networks' convolutions beside other libraries, from the records in bench/results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from dmlvk.benchmark.networks.tables import row_seconds, trial_seconds
from dmlvk.benchmark.tables import best_trial, parameters
from tools.debian import ROOT

RESULTS = ROOT / "bench" / "results"
OPERATORS = "nvidia-h200.json"
NETWORKS = ("nvidia-h200-resnet50.json", "nvidia-h200-mobilenetv2.json")

Record = dict[str, Any]
HEADINGS = (
    "work",
    "dmlvk's speed / the other library's (least to most)",
    "the other library",
    "part of the mark reached",
)
# The names of peers, as people know them.
PEERS = {
    "torch": "torch",
    "torch-compile": "torch.compile",
    "cudnn-fp16-nhwc": "cuDNN float16",
    "cudnn-fp16-nchw": "cuDNN float16",
    "cudnn-fp16-graph": "cuDNN float16 in a CUDA graph",
    "cudnn-int8": "cuDNN int8",
}


def table() -> Iterator[str]:
    """The table, and the line below it."""
    record = _read(OPERATORS)
    settings = record["settings"]
    batch, size = settings["batch"], settings["data_bytes"] >> 20
    rows = []
    for name in ("SLICE1", "DIAGONAL_MATRIX1", "ONE_HOT"):
        chosen = [row for row in record["cases"] if row["operator"] == name.lower()]
        rows.append(_cases(record, f"{name}, {size} MiB", chosen))
    for layout in ("nhwc", "nchw"):
        chosen = [row for row in record["cases"] if _is_convolution(row, layout)]
        rows.append(_cases(record, f"convolutions, batch {batch}, {layout.upper()}", chosen))
    networks = [_read(name) for name in NETWORKS]
    rows += [row for network in networks for row in _chains(network)]
    lines = [f"| {' | '.join(HEADINGS)} |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    device = record["device"]
    dates = sorted({each["date"] for each in (record, *networks)})
    line = (
        f"{device['name']}, {device['driver']}, {' and '.join(dates)}. Each case stands beside the library that is "
        "fastest in it; below 1 dmlvk is slower. Means are geometric. The mark of moved data is a plain copy or fill "
        "of the same run, that of a convolution the rate of the device's units from registers, or the copy. cuDNN's "
        "convolutions are not the same operator: they are float16, or int8 without zero points. Every result of dmlvk "
        "was compared bit for bit."
    )
    yield from (*lines, "", line)


def _is_convolution(row: Record, layout: str) -> bool:
    """Whether a case is a convolution in a layout, with a filter whose zero point is 0: cuDNN has no other."""
    known = parameters(row)
    return bool(row.get("operations")) and (known["layout"], known["filter_zero_point"]) == (layout, "0")


def _read(name: str) -> Record:
    record = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    assert isinstance(record, dict)
    return record


def _cases(record: Record, what: str, chosen: list[Record]) -> tuple[str, ...]:
    """A row for the cases of a kind: their speed beside the fastest GPU peer of each, and their part of the mark."""
    rows = [row for row in chosen if "seconds" in row]
    trials = [(row, best) for row in rows if (best := best_trial(record, row)) is not None]
    ratios = [best["seconds"]["median"] / row["seconds"]["median"] for row, best in trials]
    marks = [row["mark"]["fraction"] for row in rows if row["mark"] is not None]
    peers = dict.fromkeys(str(best["peer"]) for _, best in trials)
    names = dict.fromkeys(PEERS.get(peer, peer) for peer in peers)
    return (
        f"{what}: {len(rows)} cases",
        f"{_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        ", ".join(names),
        f"{_mean(marks):.0%} ({min(marks):.0%} to {max(marks):.0%})",
    )


def _chains(record: Record) -> Iterator[tuple[str, ...]]:
    """Rows for all convolutions of a network one after the other."""
    network = record["network"]
    for run in record["runs"]:
        seconds, peers = row_seconds(run["chain"]), trial_seconds(run["chain"])
        if seconds is None or not peers:
            continue
        name = min(peers, key=lambda peer: peers[peer])
        what = f"{network['name']}'s {network['layers']} convolutions in a row, batch {run['batch']}"
        yield (
            f"{what}, {run['layout'].upper()}",
            f"{peers[name] / seconds:.2f} ({seconds * 1e3:.2f} and {peers[name] * 1e3:.2f} ms)",
            PEERS.get(name, name),
            "",
        )


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
