"""Whether a device can be used: it may be closed, lost, or inherited through a fork."""

from __future__ import annotations

from collections.abc import Callable

from dmlvk.errors import DeviceError


class Availability:
    """Whether one device can be used. All parts of the device ask this object.

    is_usable: the device is completely open, and neither closed, lost nor inherited.
    is_closed: `close` was called.
    is_lost: a call returned VK_ERROR_DEVICE_LOST.
    is_inherited: this process is a forked child. The Vulkan objects belong to its parent, and the child does not touch
        them.
    """

    __slots__ = ("_listeners", "_name", "is_closed", "is_inherited", "is_lost", "is_usable")

    def __init__(self, name: str) -> None:
        self.is_usable = False
        self.is_closed = False
        self.is_lost = False
        self.is_inherited = False
        self._name = name
        self._listeners: list[Callable[[], None]] = []

    def notify(self, listener: Callable[[], None]) -> None:
        """Have a function called, by any thread and any number of times, when the device stops being usable."""
        self._listeners.append(listener)

    def grant(self) -> None:
        """Make the device usable, now that it is complete, unless another thread has closed it meanwhile."""
        self.is_usable = True
        if self.is_closed:
            self.withdraw()
            self.require_open()

    def withdraw(self) -> None:
        """Make the device unusable: from now on each part looks here before it does anything."""
        self.is_usable = False
        for listener in self._listeners:
            listener()

    def lose(self) -> None:
        """Note that the device is lost."""
        self.is_lost = True
        self.withdraw()

    def disown(self) -> None:
        """In a forked child: leave the device to the parent."""
        self.is_inherited = True
        self.withdraw()

    def require_open(self) -> None:
        """Raise a DeviceError if the device is closed or lost, or was opened before a fork."""
        if self.is_inherited:
            raise DeviceError(
                f"{self._name}: this Device was opened before a fork; open one in the child, or use spawn "
                '(multiprocessing.get_context("spawn"))'
            )
        if self.is_closed:
            raise DeviceError(f"{self._name}: this Device is closed; open a new one")
        if self.is_lost:
            raise DeviceError(f"{self._name}: this Device was lost; close it and open a new one")
