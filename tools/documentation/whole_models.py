"""Whole models beside ONNX Runtime: README's table and picture, and the page of whole models.

python -m tools.documentation.whole_models --add RECORD.json    # a record of `dmlvk bench --model`
python -m tools.documentation.whole_models --write              # puts table and picture where they belong
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from dmlvk.benchmark.model.tables import is_correct
from dmlvk.onnx.registry import ENTRIES
from tools.debian import ROOT

README = ROOT / "README.md"
FIGURES = ROOT / "bench" / "results" / "whole_models.jsonl"
PICTURE = ROOT / "docs" / "whole_models.svg"
BETWEEN = re.compile(r"(<!-- speed: .* -->\n).*?(<!-- end of speed -->)", re.DOTALL)
# README's table is that of this device, and of these models.
SHOWN = "H200"
SHOWN_MODELS = ("MobileNetV2", "ResNet-50")
HEADINGS = (
    "network, quantized to 8 bits",
    "images at a time",
    "dmlvk, ms",
    "ONNX Runtime on the CPU, ms",
    "times as fast",
)
# Of the page. torch runs torchvision's network of the same name in float16, its input and output on the host; alone, in
# the device's memory, as "on the device alone" is here.
PEERS = {"torch-compile": "torch.compile", "torch-graph": "torch in a CUDA graph"}
OF_US = {
    "mapped_ms": "in `session.map`, ms",
    "device_ms": "of it on the device, with the bus, ms",
    "alone_ms": "on the device alone, ms",
}
OF_PEERS = {"peers_ms": "ms", "peers_alone_ms": "on the device alone, ms"}
MORE_HEADINGS = (
    *OF_US.values(),
    *(f"{peer}, {what}" for what in OF_PEERS.values() for peer in PEERS.values()),
    "parts",
    "bytes to the device",
    "bytes back",
)
COMMAND = "dmlvk bench --model MODEL.onnx --batch 1 --batch 8 --batch 64 --json RECORD.json"
DOMAIN = "com.microsoft"

Figure = dict[str, Any]


def figures() -> list[Figure]:
    """The figures, by device, model and batch: each names its device, driver, date and processor."""
    return [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]


def figures_of(record: dict[str, Any]) -> Iterator[Figure]:
    """The figures of a record of `dmlvk bench --model`.

    Raises:
        ValueError: It is another record, an output is wrong, or ONNX Runtime is not in it.
    """
    if record.get("kind") != "model" or not is_correct(record):
        raise ValueError("not a record of `dmlvk bench --model --json`, or one with a wrong output")
    for row in record["batches"]:
        peers = {trial["peer"]: trial for trial in row["peers"] if "seconds" in trial}
        if "onnxruntime" not in peers:
            raise ValueError("ONNX Runtime is not in the record: install onnxruntime")
        yield {
            "model": record["model"]["file"].removesuffix(".onnx"),
            "batch": row["batch"] or 1,
            "dmlvk_ms": milliseconds(row["seconds"]["median"]),
            "onnxruntime_ms": milliseconds(peers["onnxruntime"]["seconds"]["median"]),
            "device": record["device"]["name"],
            "driver": record["device"]["driver"],
            "date": record["date"],
            "processor": f"{record['host']['processors']} cores",
            "peers_ms": {name: milliseconds(peers[name]["seconds"]["median"]) for name in PEERS if name in peers},
            "peers_alone_ms": {name: milliseconds(peers[name]["gpu_seconds"]) for name in PEERS if name in peers},
            "mapped_ms": milliseconds(row["mapped_seconds"]),
            "alone_ms": milliseconds(row["alone_seconds"]),
            **traffic(row["steps"]),
        }


def traffic(steps: list[dict[str, Any]]) -> dict[str, int | float]:
    """In how many parts a run is, how long they take on the device, and the bytes that go there and back."""
    return {
        "device_ms": milliseconds(sum(step["gpu_seconds"] or 0 for step in steps)),
        "parts": sum(step["where"] in ("device", "host") for step in steps),
        "bytes_to_device": sum(step["bytes_to_device"] for step in steps),
        "bytes_from_device": sum(step["bytes_from_device"] for step in steps),
    }


def milliseconds(seconds: float) -> float:
    """As the figures have them."""
    return round(seconds * 1e3, 3)


def key(figure: Figure) -> tuple[Any, ...]:
    return figure["device"], figure["model"], figure["batch"]


def add(record: dict[str, Any]) -> None:
    """Put a record's figures in place of older ones of the same device, model and batch."""
    known = {key(figure): figure for figure in figures()}
    known |= {key(figure): figure for figure in figures_of(record)}
    lines = [json.dumps(known[each]) for each in sorted(known)]
    FIGURES.write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")


def table(chosen: list[Figure], *, is_whole: bool = False) -> Iterator[str]:
    """A row for each figure; whole, it says what torch takes, and what goes over the bus."""
    headings = HEADINGS + MORE_HEADINGS * is_whole
    yield f"| {' | '.join(headings)} |"
    yield f"|{' --- |' * len(headings)}"
    for each in chosen:
        ours, theirs = each["dmlvk_ms"], each["onnxruntime_ms"]
        row = [each["model"], str(each["batch"]), f"{ours:.3g}", f"{theirs:.3g}", f"{theirs / ours:.1f}"]
        if is_whole:
            row += [number(each.get(name)) for name in OF_US]
            row += [number(each.get(what, {}).get(name)) for what in OF_PEERS for name in PEERS]
            row += [number(each.get(name)) for name in ("parts", "bytes_to_device", "bytes_from_device")]
        yield f"| {' | '.join(row)} |"


def number(value: float | None) -> str:
    """An integer or a time as the page has it."""
    if value is None:
        return "not recorded"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def circumstances(chosen: list[Figure]) -> str:
    """The device, the driver, the dates and the processor of some figures of one device."""
    first, dates = chosen[0], sorted({each["date"] for each in chosen})
    return (
        f"From the array that goes in to the array that comes out. {first['device']}, driver {first['driver']}, beside "
        f"ONNX Runtime on {first['processor']} of the same host; {' and '.join(dates)}; `{COMMAND}`."
    )


def shown() -> list[Figure]:
    """The figures of README."""
    return [each for each in figures() if SHOWN in each["device"] and each["model"] in SHOWN_MODELS]


def written(text: str) -> str:
    """README's text with the table between its two marks.

    Raises:
        ValueError: The marks are not there.
    """
    made = "\n".join([*table(shown()), "", circumstances(shown()), ""])
    found, count = BETWEEN.subn(lambda marks: f"{marks[1]}{made}{marks[2]}", text)
    if count != 1:
        raise ValueError(f"README needs one pair of marks for the table of speed, and has {count}")
    return found


def page() -> Iterator[str]:
    """The tables of the page of whole models: one for each device."""
    known = figures()
    for device in dict.fromkeys(figure["device"] for figure in known):
        chosen = [figure for figure in known if figure["device"] == device]
        yield from (f"### {device}", "", *table(chosen, is_whole=True), "", circumstances(chosen), "")


def operators() -> Iterator[str]:
    """The table of ONNX's operators that a device runs, from the registry."""
    yield "| Operator | Domain | On the device |"
    yield "| --- | --- | --- |"
    for (domain, name), entry in sorted(ENTRIES.items(), key=lambda item: item[0][1]):
        if domain not in ("", DOMAIN):
            continue
        how = "a view: the same memory, no copy" if entry.is_view else "a dispatch"
        yield f"| {name} | {domain or 'ONNX'} | {how} |"


def picture() -> str:
    """A bar for each figure of README: how many times as fast as ONNX Runtime. It has a dark form and large letters."""
    chosen = shown()
    largest = max(each["onnxruntime_ms"] / each["dmlvk_ms"] for each in chosen)
    row, left, width = 44, 250, 720
    title = f"Times as fast as ONNX Runtime on {chosen[0]['processor']}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {row * len(chosen) + 60}" role="img"'
        ' font-family="sans-serif" font-size="22">',
        "<title>How many times as fast as ONNX Runtime on the CPU</title>",
        "<style>text { fill: #1f2328 } rect { fill: #0072b2 }"
        " @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } rect { fill: #56b4e9 } }</style>",
        f'<text x="0" y="26" font-weight="bold">{escape(title)}</text>',
    ]
    for number, each in enumerate(chosen):
        factor, y = each["onnxruntime_ms"] / each["dmlvk_ms"], 50 + number * row
        bar = round((width - left - 70) * factor / largest)
        lines += [
            f'<text x="0" y="{y + 25}">{escape(each["model"])}, {each["batch"]}</text>',
            f'<rect x="{left}" y="{y}" width="{bar}" height="34" rx="3"/>',
            f'<text x="{left + bar + 8}" y="{y + 25}">{factor:.1f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", type=Path, action="append", default=[], metavar="RECORD.json")
    parser.add_argument("--write", action="store_true", help="write README's table and the picture")
    options = parser.parse_args()
    for path in options.add:
        add(json.loads(path.read_text(encoding="utf-8")))
    if options.add or options.write:
        README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
        PICTURE.write_text(picture(), encoding="utf-8", newline="\n")
    else:
        print("\n".join(page()))


if __name__ == "__main__":
    main()
