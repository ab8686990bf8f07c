"""Monitors: shared state that one thread at a time changes, and never in the middle of another change.

Python runs signal handlers, and finalizers of whatever the garbage collector finds, between any two steps of the main
program. They may raise there (Ctrl-C), and they may call dmlvk. Everything that several calls share therefore stands
behind a Monitor, which settles three things in one place:

- a lock that is given back wherever an exception strikes;
- a call from a handler or finalizer that interrupts a change on its own thread is refused with a DeviceError: it would
  see half of the change, and cannot wait for the other half;
- what a change left half done is repaired before the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from dmlvk.errors import DeviceError

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

Result = TypeVar("Result")


def reentered() -> DeviceError:
    """The exception for a call in the middle of another one on the same thread."""
    return DeviceError(
        "dmlvk was called by a signal handler or a finalizer in the middle of another call of it on the same thread, "
        "which cannot go on before this one returns; set a flag there, and call dmlvk when the other call is over"
    )


class Monitor:
    """State that one thread at a time changes.

    Parameters
    ----------
    device : VulkanDevice, optional
        The device that the state belongs to: when it is closed or lost, nothing is changed any more.
    repair : callable, optional
        Makes the state whole again, from what cannot be half done. Called before the next change when an exception
        ended the last one.

    Attributes
    ----------
    lock : RLock
        Held during a change. An RLock, for it knows whose it is as soon as it is taken.
    is_whole : bool
        False during a change, and after one that an exception ended. Only where there is a `repair`.
    """

    __slots__ = ("_device", "_repair", "is_whole", "lock")

    def __init__(self, device: VulkanDevice | None = None, repair: Callable[[], None] | None = None) -> None:
        self.lock: Any = threading.RLock()
        self.is_whole = True
        self._device = device
        self._repair = repair

    @property
    def is_entered(self) -> bool:
        """Whether this thread is in the middle of a change."""
        return self.lock._is_owned()

    def run(self, change: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function that changes the state, when no other thread does.

        Raises
        ------
        DeviceError
            This thread is in the middle of a change already, or the device is closed or lost.
        """
        lock = self.lock
        if lock._is_owned():
            raise reentered()
        # In one line: an exception between two would find the lock taken and nothing that gives it back.
        with lock: return self.inside(change, *arguments)  # noqa: E701  # fmt: skip

    def inside(self, change: Callable[..., Result], *arguments: Any) -> Result:
        """As `run`, with the lock held, by `with` in one line."""
        device = self._device
        if device is not None and not device.is_usable:
            device.require_open()
        if self._repair is None:
            return change(*arguments)
        if not self.is_whole:
            self._repair()
        self.is_whole = False
        result = change(*arguments)
        self.is_whole = True
        return result

    def pass_through(self) -> None:
        """Wait until the thread that is making a change, if there is one, is through with it."""
        if self.lock._is_owned():
            raise reentered()
        with self.lock: pass  # noqa: E701  # fmt: skip

    def renew(self) -> None:
        """In a forked child, where the thread that held the lock is not: make it free."""
        self.lock._at_fork_reinit()
