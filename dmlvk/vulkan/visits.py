"""Visits: being in the middle of something for which a device has to stay open."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from dmlvk.vulkan.monitor import reentered

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

Result = TypeVar("Result")

POLL_SECONDS = 0.001


class Visit:
    """One thread's stay, which lasts as long as its lock is held.

    Attributes
    ----------
    lock : Lock
        Held by `with` in one line, so that no exception leaves it held.
    thread : int
        Who holds it.
    """

    __slots__ = ("__weakref__", "lock", "thread")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread = 0


class Visits:
    """The stays of all threads: waits, and uses of mapped memory. Closing the device waits for their end."""

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self._free: deque[Visit] = deque()
        self._all: WeakSet[Visit] = WeakSet()

    def register(self, visit: Visit) -> None:
        """Let closing know a visit, before it is first used."""
        self._all.add(visit)

    def during(self, use: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function, and keep the device open until it returns.

        Raises
        ------
        DeviceError
            The device is closed or lost.
        """
        try:
            visit = self._free.pop()
        except IndexError:
            visit = Visit()
            self.register(visit)
        visit.thread = threading.get_ident()
        with visit.lock: result = self._inside(use, arguments)  # noqa: E701  # fmt: skip
        self._free.append(visit)  # an exception before this drops it
        return result

    def _inside(self, use: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        # Not before the lock is held: whoever closes first says that it is closed, and then looks at the locks.
        self._device.require_open()
        return use(*arguments)

    def wait_for_end(self) -> None:
        """Wait until nobody is there any more.

        Raises
        ------
        DeviceError
            This thread is there itself: its handler or finalizer cannot wait for it.
        """
        here = threading.get_ident()
        for visit in list(self._all):
            while visit.lock.locked():
                if visit.thread == here:
                    raise reentered()
                time.sleep(POLL_SECONDS)
