"""The rates that `dmlvk tune --rates` has measured, remembered for each device in the cache folder.

They hold for exactly one device and driver. A file that cannot be read, or holds anything but rates, is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from dmlvk._common.rates import Rates
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.runtime import device_files

# CPU drivers differ from GPUs in more than rates; their paths were measured.
WITHOUT_RATES = frozenset((DeviceType.CPU,))

PREFIX = "rates-"


class MeasuredRates:
    """The rates of one device.

    device, driver: the rates must be of this device and driver.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self.file = device_files.device_file(PREFIX, profile)
        self.device, self.driver = profile.name, device_files.driver_of(profile)
        self.device_type = profile.device_type

    def rates(self) -> Rates | None:
        """The remembered rates; None if there are none with this driver."""
        if self.device_type in WITHOUT_RATES:
            return None
        content = device_files.read(self.file)
        return _rates(content) if content.get("driver") == self.driver else None

    def remember(self, rates: Rates) -> None:
        """Write rates in place of earlier ones. A Device that is opened from now on plans by them.

        Raises OSError: the folder cannot be written; the file's path is taken by something other than a file; or
            another process holds the file for too long.
        """
        file = device_files.require_place(self.file)
        with device_files.locked(file):
            device_files.write(file, {"device": self.device, "driver": self.driver, "rates": asdict(rates)})


def read(file: Path) -> tuple[str, str, Rates] | None:
    """The device, the driver and the rates in a file; None if it holds none."""
    content = device_files.read(file)
    rates = _rates(content)
    return None if rates is None else (str(content.get("device")), str(content.get("driver")), rates)


def _rates(content: Mapping[str, Any]) -> Rates | None:
    entries = content.get("rates")
    names = [field.name for field in fields(Rates)]
    if not isinstance(entries, dict) or set(entries) != set(names):
        return None
    values = [entries[name] for name in names]
    if not all(isinstance(value, float) and 0 < value < math.inf for value in values):
        return None
    return Rates(*values)
