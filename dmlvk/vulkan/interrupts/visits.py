"""Visits: periods in which a thread needs the device to stay open."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

from dmlvk.vulkan.interrupts.availability import Availability
from dmlvk.vulkan.interrupts.locks import Lock
from dmlvk.vulkan.interrupts.monitor import reentered

AnyResult = TypeVar("AnyResult")

POLL_SECONDS = 0.001


class Visit:
    """One thread's visit. It lasts as long as its lock is held.

    lock: held by `with` in one line, so that no exception leaves it held.
    thread: the identifier of the thread that holds it.
    """

    __slots__ = ("__weakref__", "lock", "thread")

    def __init__(self) -> None:
        self.lock = Lock()
        self.thread = 0


class Visits:
    """The visits of all threads: waits, and uses of mapped memory. Closing the device waits until they end."""

    def __init__(self, availability: Availability) -> None:
        self._availability = availability
        self._free: deque[Visit] = deque()
        # A visit takes itself out when it goes. Not a WeakSet: other threads may add to it during the loops below.
        self._all: set[ref[Visit]] = set()

    def register(self, visit: Visit) -> None:
        """Let closing the device know a visit, before the first use of the visit."""
        self._all.add(ref(visit, self._all.discard))

    def during(self, use: Callable[..., AnyResult], *arguments: Any) -> AnyResult:
        """Call a function, and keep the device open until it returns.

        Raises DeviceError: the device is closed or lost.
        """
        try:
            visit = self._free.pop()
        except IndexError:
            visit = Visit()
            self.register(visit)
        visit.thread = threading.get_ident()
        with visit.lock: result = self._inside(use, arguments)  # noqa: E701  # fmt: skip
        self._free.append(visit)  # an exception before this line drops the visit
        return result

    def _inside(self, use: Callable[..., AnyResult], arguments: tuple[Any, ...]) -> AnyResult:
        # Asked with the lock held: closing first marks the device as closed, and then looks at the locks.
        self._availability.require_open()
        return use(*arguments)

    def wait_for_end(self) -> None:
        """Wait until no visit goes on.

        Raises DeviceError: one of the visits is this thread's own: its handler or finalizer cannot wait for it.
        """
        here = threading.get_ident()
        for visit in self._visits():
            while visit.lock.locked():
                if visit.thread == here:
                    raise reentered()
                time.sleep(POLL_SECONDS)

    @property
    def is_entered(self) -> bool:
        """Whether this thread is in the middle of a visit."""
        here = threading.get_ident()
        return any(visit.lock.locked() and visit.thread == here for visit in self._visits())

    def _visits(self) -> list[Visit]:
        visits = [reference() for reference in self._all.copy()]
        return [visit for visit in visits if visit is not None]
