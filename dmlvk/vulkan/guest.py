"""Being in the midst of something for which a device has to stay open."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice


class Guest:
    """`with Guest(device):` keeps a device from being closed; a DeviceError when it is closed or lost already."""

    __slots__ = ("_device",)

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._device.guests.add(self)
        try:
            self._device.require_open()
        except BaseException:
            self._device.guests.discard(self)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._device.guests.discard(self)
