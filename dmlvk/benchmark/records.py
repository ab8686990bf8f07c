"""Records of `dmlvk bench`: plain data that is written as JSON, with the circumstances of the run."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dmlvk
from dmlvk._common import files

FORMAT = 1
MOST_CHARACTERS = 200

# The kinds of record. A record without a kind is one of operators.
OPERATORS, MODEL, NETWORK = "operators", "model", "network"

Record = dict[str, Any]
# What a run calls before each measurement, with its name; and after it, with the record so far, so that an interrupted
# run has one.
Progress = Callable[[str], None]
Keep = Callable[[Record], None]


def write(record: Record, path: Path) -> None:
    """Write a record as JSON."""
    files.write_text(path, files.json_text(record, 1) + "\n")


def circumstances(device: dmlvk.Device, rounds: int) -> Record:
    """The circumstances of a run: where, when, and with which software."""
    profile = device.profile
    manifest = files.packaged_json("dmlvk", "spirv/manifest.json")
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "device": {
            "name": profile.name,
            "type": profile.device_type.name,
            "driver": f"{profile.driver_name} {profile.driver_info}".strip(),
            "driver_version": profile.driver_version,
            "api_version": ".".join(map(str, profile.api_version)),
            "vendor_id": profile.vendor_id,
            "device_id": profile.device_id,
        },
        "host": {"system": platform.system(), "machine": platform.machine(), "processors": os.cpu_count()},
        "versions": {"dmlvk": dmlvk.__version__, "python": platform.python_version(), "numpy": np.__version__},
        "kernels": {
            "compiler": manifest["compiler"],
            "spirv_sha256": {stem: entry["spirv_sha256"] for stem, entry in manifest["kernels"].items()},
        },
        "settings": {"rounds": rounds},
    }


def one_line(error: BaseException) -> str:
    """A peer's exception in one line of limited length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."
