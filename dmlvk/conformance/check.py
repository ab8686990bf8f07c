"""Compare the output that DxDispatch wrote with the right one, byte by byte. Needs Python and NumPy.

    python check.py               # this folder's case
    python check.py FOLDER...     # cases in other folders

Ends with status 1 if an element is wrong. Bytes outside the elements (gaps between strides, guard bytes) are reported,
but only --all-bytes counts them as wrong: DirectML does not promise to keep them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np


def elements(layout: dict, memory: np.ndarray) -> np.ndarray:
    """The output's elements in its memory, as unsigned integers."""
    strides = [stride if size > 1 else 0 for size, stride in zip(layout["sizes"], layout["strides"])]  # noqa: B905
    return np.ndarray(layout["sizes"], f"u{np.dtype(layout['type']).itemsize}", memory, layout["start"], strides)


def check(folder: Path, all_bytes: bool) -> bool:
    """Compare one case, print a line or two, and return whether it is right."""
    record = json.loads((folder / "model.json").read_text(encoding="utf-8"))["dmlvk"]
    layout, name = record["output"], record["case"]
    path = folder / layout["actual"]
    if not path.is_file():
        print(f"NO RESULT: {name}: there is no {path}; run DxDispatch on model.json first")
        return False
    expected = np.load(folder / layout["expected"]).view(np.uint8)
    actual = np.load(path).reshape(-1).view(np.uint8)
    if actual.size != expected.size:
        print(f"DIFFERS: {name}: {actual.size} bytes were written, not {expected.size}")
        return False
    mine, right = elements(layout, actual), elements(layout, expected)
    differing = np.argwhere(mine != right) if layout["is_defined"] else np.empty((0, 1), int)
    if len(differing):
        first = tuple(int(index) for index in differing[0])
        shown = [np.array(view[first]).view(layout["type"]).item() for view in (mine, right)]
        place = f"the first at {first}: {shown[0]}, not {shown[1]}"
        print(f"DIFFERS: {name}: {len(differing)} of {right.size} elements, {place}")
    others = actual.copy()
    elements(layout, others)[...] = right
    damaged = np.flatnonzero(others != expected)
    if damaged.size:
        place = int(damaged[0]) - layout["start"]
        print(f"outside the elements: {name}: {damaged.size} bytes changed, the first {place} from the tensor's start")
    if len(differing) or (all_bytes and damaged.size):
        return False
    print(f"equal: {name}" + ("" if layout["is_defined"] else " (the operator leaves the elements open)"))
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare what DxDispatch wrote with the expected output.")
    parser.add_argument("folders", nargs="*", type=Path, default=[Path(__file__).resolve().parent])
    parser.add_argument("--all-bytes", action="store_true", help="bytes outside the elements count too")
    arguments = parser.parse_args()
    results = [check(folder, arguments.all_bytes) for folder in arguments.folders]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
