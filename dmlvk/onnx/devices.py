"""The devices that a session's argument names."""

from __future__ import annotations

from collections.abc import Iterable

from dmlvk.runtime.device import Device
from dmlvk.runtime.device_info import best_devices
from dmlvk.runtime.shared_devices import DeviceName

ALL = "all"


def opened(device: DeviceName | Iterable[DeviceName]) -> list[Device]:
    """The devices that a session's argument names, opened unless they are Devices.

    Raises DeviceError: there is no such device.
    Raises ValueError: no device is named, or one twice.
    """
    if isinstance(device, str) and device == ALL:
        return [Device(info.index) for info in best_devices()]
    if not isinstance(device, Iterable) or isinstance(device, str):
        return [device if isinstance(device, Device) else Device(device)]
    found = [each if isinstance(each, Device) else Device(each) for each in device]
    if not found:
        raise ValueError("device names no device; leave it out for the best one")
    if len({each.vulkan.context.physical.handle for each in found}) < len(found):
        names = ", ".join(each.name for each in found)
        raise ValueError(
            f"device names one device twice: {names}; each is named once, since two sessions on it would only wait"
        )
    return found
