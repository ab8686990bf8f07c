"""Files of results for tests, of devices that were never there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmlvk.conformance.results import Environment, Result, Status
from dmlvk.conformance.results_file import ResultsWriter

# The vendor's and the device's number, the driver's number, name and release.
DEVICES: Mapping[str, tuple[int, int, int, str, str]] = {
    "Red 9": (0x1002, 1, 3, "radv Mesa", "26.1.0"),
    "Green 5": (0x10DE, 2, 4, "NVIDIA", "580.1"),
    "Blue <1>": (0x8086, 3, 6, "ANV Mesa", "26.1.0"),
}
KERNELS = {"slice1/blocks": "aa", "slice1/tiles": "bb", "one_hot/blocks": "cc"}
FIRST = "slice1:window:type=uint8;step=1;path=blocks"
SECOND = "slice1:window:type=uint8;step=1;path=tiles"
THIRD = "one_hot:layout:type=int64;path=blocks"


def environment(device: str = "Red 9", **changes: Any) -> Environment:
    """The environment of a run on a made-up device."""
    vendor, number, driver, driver_name, version = DEVICES[device]
    version = changes.pop("driver_version", version)
    record = {
        "deviceName": device,
        "vendorID": vendor,
        "deviceID": number,
        "deviceType": 2,
        "properties": {"driverID": driver},
    }
    made = Environment(
        device, f"{driver_name} {version}", "1.4.0", version, record, (), "0.1.0", "3.11", "2.0", "Linux", KERNELS
    )
    return replace(made, date="2026-11-20T12:00:00+00:00", **changes)


def result(name: str, digest: str = "00" * 8, status: Status = Status.PASS, **changes: Any) -> Result:
    """A result; its path and its operator come from the name."""
    operator = name.partition(":")[0].upper()
    types = name.partition("type=")[2].partition(";")[0]
    return Result(
        name, changes.pop("profile", "device"), status, operator=operator, types=types, digest=digest,
        **{"path": name.rpartition("path=")[2], **changes},
    )  # fmt: skip


def results() -> list[Result]:
    """Three results, of two outputs."""
    return [result(FIRST, "a1" * 8), result(SECOND, "a1" * 8), result(THIRD, "b2" * 8)]


def written(path: Path, found: Environment, entries: Iterable[Result] | None = None) -> Path:
    """A file of results."""
    with ResultsWriter(path) as writer:
        writer.write(found)
        for entry in results() if entries is None else entries:
            writer.write(entry)
    return path


def bench_record(path: Path, seconds: Mapping[str, float], *, date: str, package: str = "0.1.0") -> Path:
    """Figures of `dmlvk bench --json`."""
    record = {
        "format": 1,
        "date": date,
        "device": {"name": "Red 9", "driver": "radv Mesa 26.1.0", "vendor_id": 0x1002, "device_id": 1},
        "versions": {"dmlvk": package},
        "marks": {},
        "cases": [
            {
                "name": name,
                "sizes": {"input_tensor": [64, 64]},
                "path": "blocks",
                "seconds": {"median": value, "first_quartile": value * 0.99, "third_quartile": value * 1.01},
            }
            for name, value in seconds.items()
        ],
    }
    path.write_text(json.dumps(record, indent=1))
    return path
