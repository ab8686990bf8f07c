"""The rates that `dmlvk tune --rates` has measured, remembered for each device in the cache folder.

They hold for exactly one device and driver. A file that cannot be read, or holds anything but rates, is ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import filelock

from dmlvk import files
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.rates import Rates
from dmlvk.runtime.tuned_paths import PREFIX as CHOICES_PREFIX
from dmlvk.runtime.tuned_paths import TunedPaths
from dmlvk.vulkan.pipeline_cache import LOCK_TIMEOUT_SECONDS, cache_folder

# CPU drivers differ from GPUs in more than rates; their paths were measured.
WITHOUT_RATES = frozenset((DeviceType.CPU,))

FORMAT = 1
PREFIX = "rates-"
FILE_NAME = re.compile(PREFIX + r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]{8}\.json")


class MeasuredRates:
    """The rates of one device.

    Attributes
    ----------
    file : Path
    device, driver : str
        The rates must be of this device and driver.
    device_type : DeviceType
    """

    def __init__(self, profile: DeviceProfile) -> None:
        beside = TunedPaths(profile)
        self.file = beside.file.with_name(PREFIX + beside.file.name.removeprefix(CHOICES_PREFIX))
        self.device, self.driver = beside.device, beside.driver
        self.device_type = profile.device_type

    def rates(self) -> Rates | None:
        """The remembered rates; None if there are none with this driver."""
        if self.device_type in WITHOUT_RATES:
            return None
        content = _content(self.file)
        return _rates(content) if content.get("driver") == self.driver else None

    def require_place(self) -> None:
        """Raise an OSError, before any work, if it can be foreseen that the file cannot be written."""
        files.require_folder_place(self.file.parent)
        files.require_replaceable(self.file)

    def remember(self, rates: Rates) -> None:
        """Write rates in place of earlier ones. A Device that is opened from now on plans by them.

        Raises
        ------
        OSError
            The folder cannot be written; the file's path is taken by something other than a file; or another process
            holds the file for too long.
        """
        content = {"format": FORMAT, "device": self.device, "driver": self.driver, "rates": asdict(rates)}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.file):
            files.replace_bytes(self.file, files.encoded(json.dumps(content, indent=1)))


def remembered_files() -> list[Path]:
    """The files of all devices. Entries with another kind of name, and entries that are not files, are left out."""
    found = cache_folder().glob(f"{PREFIX}*.json")
    return sorted(file for file in found if FILE_NAME.fullmatch(file.name) and file.is_file())


def read(file: Path) -> tuple[str, str, Rates] | None:
    """The device, the driver and the rates in a file; None if it holds none."""
    content = _content(file)
    rates = _rates(content)
    return None if rates is None else (str(content.get("device")), str(content.get("driver")), rates)


def clear(file: Path) -> None:
    """Forget a device's rates."""
    with _locked(file):
        file.unlink(missing_ok=True)


def _content(file: Path) -> Mapping[str, Any]:
    try:
        content = files.read_json(file)
    except OSError:
        return {}
    return content if isinstance(content, dict) and content.get("format") == FORMAT else {}


def _rates(content: Mapping[str, Any]) -> Rates | None:
    entries = content.get("rates")
    names = [field.name for field in fields(Rates)]
    if not isinstance(entries, dict) or set(entries) != set(names):
        return None
    values = [entries[name] for name in names]
    if not all(isinstance(value, float) and 0 < value < math.inf for value in values):
        return None
    return Rates(*values)


def _locked(file: Path) -> filelock.BaseFileLock:
    return filelock.FileLock(f"{file}.lock", timeout=LOCK_TIMEOUT_SECONDS)
