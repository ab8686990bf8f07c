"""Recorded devices, to plan for without having one. `dmlvk devices --record FILE` writes another."""

from __future__ import annotations

from functools import cache
from importlib import resources

from dmlvk._common import files
from dmlvk.device_profile import DeviceProfile

NAMES = sorted(
    entry.name[: -len(".json")] for entry in resources.files(__name__).iterdir() if entry.name.endswith(".json")
)


@cache
def load(name: str) -> DeviceProfile:
    """The profile recorded under a name such as "swiftshader"."""
    return DeviceProfile.from_record(files.packaged_json(__name__, f"{name}.json"))
