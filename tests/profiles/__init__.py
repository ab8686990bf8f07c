"""Recorded devices, for planning without one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from dmlvk.device_profile import DeviceProfile

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.json"))


@cache
def load(name: str) -> DeviceProfile:
    """The profile recorded under a name such as "swiftshader"."""
    return DeviceProfile.from_record(json.loads((Path(__file__).parent / f"{name}.json").read_text()))
