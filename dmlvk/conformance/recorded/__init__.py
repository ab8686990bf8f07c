"""Recorded devices, to plan for without having one. `dmlvk devices --record FILE` writes another."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from dmlvk.device_profile import DeviceProfile

NAMES = sorted(entry.name[: -len(".json")] for entry in files(__name__).iterdir() if entry.name.endswith(".json"))


@cache
def load(name: str) -> DeviceProfile:
    """The profile recorded under a name such as "swiftshader"."""
    return DeviceProfile.from_record(json.loads(files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")))
