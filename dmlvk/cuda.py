"""CUDA beside dmlvk on the same GPU: which devices share memory, and why others do not. Extra: `cuda`.

Nothing here has to be called: `torch.from_dlpack(tensor)` and `device.tensor(cuda_tensor)` find CUDA themselves.
"""

from __future__ import annotations

import os

from dmlvk.errors import DeviceError
from dmlvk.runtime.cuda_driver import uuid_of
from dmlvk.runtime.cuda_sharing import sharing_of
from dmlvk.runtime.device import Device
from dmlvk.vulkan.interrupts.monitor import Monitor
from dmlvk.vulkan.physical_device import physical_devices

__all__ = ["device_of", "obstacle"]

# The devices that `device_of` has opened, by CUDA's numbers.
_devices: dict[int, Device] = {}
_devices_monitor = Monitor()


def obstacle(device: Device) -> str | None:
    """Why a device's tensors cannot be shared with CUDA; None if they can.

    Args:
        device (Device): The device whose tensors CUDA would see.
    """
    try:
        sharing_of(device.engine)
    except DeviceError as error:
        return str(error)
    return None


def device_of(ordinal: int) -> Device:
    """The device on the GPU of a CUDA device, opened at the first call.

    Args:
        ordinal (int): CUDA's number: 1 of "cuda:1".

    Raises:
        DeviceError: No Vulkan device is that GPU.
    """
    found = _devices.get(ordinal)
    return _devices_monitor.run(_open, ordinal) if found is None or found.is_closed else found


def _open(ordinal: int) -> Device:
    found = _devices.get(ordinal)
    if found is None or found.is_closed:
        uuid = uuid_of(ordinal)
        for index, physical in enumerate(physical_devices()):
            if physical.uuid == uuid:
                found = _devices[ordinal] = Device(index)
                return found
        raise DeviceError(
            f"no Vulkan device is the GPU of CUDA's device {ordinal}: is NVIDIA's Vulkan driver installed?"
        )
    return found


def _after_fork_in_child() -> None:
    _devices.clear()
    _devices_monitor.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
