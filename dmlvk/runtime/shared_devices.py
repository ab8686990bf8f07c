"""The device of a call that names one: an open Device, an index, a part of a name, a DeviceInfo, or nothing.

A device that is named by anything but a Device is opened at the first such call and kept for the process. Calls that
name the same device in different ways share one Device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from dmlvk._common.arguments import integer_of
from dmlvk.errors import BindingError, shown
from dmlvk.runtime.device import Device
from dmlvk.runtime.device_info import DeviceInfo, another_device, numbered
from dmlvk.vulkan.interrupts.monitor import Monitor
from dmlvk.vulkan.physical_device import choose

if TYPE_CHECKING:
    from dmlvk.runtime.tensor import Tensor

DeviceName: TypeAlias = "Device | DeviceInfo | int | str | None"

_kept: dict[int | str | None, Device] = {}
_monitor = Monitor()


def named_device(name: DeviceName) -> Device:
    """The device that a call names, opened at the first such call unless it is a Device.

    name: a position in `devices()`, or an element of it; or part of a name in any case; None for $DMLVK_DEVICE, else
        the best device.
    Raises DeviceError: no device has the name; the message lists the devices. Or there is none, with what to install.
    Raises TypeError: for a name of another type.
    """
    if isinstance(name, Device):
        return name
    selector = _selector(name)
    found = _kept.get(selector)
    return _monitor.run(_open, selector) if found is None or found.is_closed else found


def device_of(tensors: Mapping[str, Tensor], name: DeviceName) -> Device:
    """The device of a call: that of its tensors, else the one that it names.

    tensors: the tensors that the call was given, by the names that messages have for them.
    name: as for `named_device`. With tensors it has to be their device.
    Raises BindingError: a tensor belongs to another device.
    Raises DeviceError, TypeError: as `named_device`.
    """
    device = named_device(name) if isinstance(name, Device) or not tensors else None
    for field, tensor in tensors.items():
        if device is None:  # a name does not say which of several Devices on one device is meant: the tensor does
            device = tensor.device
            if name is not None:
                _require_name(field, device, _selector(name))
        if tensor.device is not device:
            other = another_device(tensor.engine, device.engine)
            raise BindingError(f"{field} is a tensor of {other}; the tensors of one call share one device")
    assert device is not None, "there are tensors, or the name alone counts"
    return device


def _require_name(field: str, device: Device, selector: int | str | None) -> None:
    device.require_open()
    named = choose(selector)
    if named.handle != device.vulkan.context.physical.handle:
        own = numbered(device.vulkan.context.physical)
        raise BindingError(
            f"{field} is a tensor of {own}, and device={shown(selector)} names {numbered(named)}; leave device out: a "
            "call with tensors runs on their device"
        )


def _selector(name: object) -> int | str | None:
    """A name by value, as `choose` takes it."""
    if name is None or isinstance(name, str):
        return name
    if isinstance(name, DeviceInfo):
        return name.here
    position = integer_of(name)
    if position is None:
        kinds = "None, a dmlvk.Device, an index or an element of dmlvk.devices(), or part of a device's name"
        raise TypeError(f"device = {shown(name)}: must be {kinds}, not {type(name).__name__}")
    return position


def _open(selector: int | str | None) -> Device:
    found = _kept[selector] = _already_kept(selector) or Device(selector)
    return found


def _already_kept(selector: int | str | None) -> Device | None:
    """The open Device for what a selector names, kept under whatever name."""
    opened = [device for device in _kept.values() if not device.is_closed]
    if not opened:
        return None
    handle = choose(selector).handle
    return next((device for device in opened if device.vulkan.context.physical.handle == handle), None)


def forget(device: Device) -> None:
    """Keep a device no longer, because it is lost: the next call that names it opens it anew."""
    _monitor.run(_forget, device)


def _forget(device: Device) -> None:
    for name in [name for name, kept in _kept.items() if kept is device]:
        del _kept[name]


def _after_fork_in_child() -> None:
    _kept.clear()
    _monitor.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
