"""Monitors: shared state that one thread at a time changes, and never in the middle of another change.

Python runs signal handlers between any two steps of the main program, and also the finalizers of objects that the
garbage collector finds. Handlers and finalizers may raise there (Ctrl-C), and they may call dmlvk. So a Monitor guards
everything that several calls share. It settles three things in one place:

- the lock is released wherever an exception strikes;
- if a handler or finalizer interrupts a change and calls in again on the same thread, the call is refused with a
  DeviceError: it would see half of the change, and it cannot wait for the other half;
- a change that was left half done is repaired before the next change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dmlvk.errors import ReentryError
from dmlvk.vulkan.interrupts.availability import Availability
from dmlvk.vulkan.interrupts.locks import RLock

AnyResult = TypeVar("AnyResult")


def reentered() -> ReentryError:
    """The exception for such a call."""
    return ReentryError(
        "dmlvk was called by a signal handler or a finalizer in the middle of another call on the same thread, which "
        "cannot continue before this one returns; set a flag in the handler, and call dmlvk after the other call"
    )


class Monitor:
    """State that one thread at a time changes.

    availability: of the device that the state belongs to: once the device is closed or lost, nothing is changed any
        more.
    repair: makes the state whole again, from those parts of it that cannot be half done. Called before the next change
        if an exception ended the last one.
    lock: held during a change. It is an RLock because an RLock knows its owner as soon as it is taken.
    is_whole: False during a change, and after a change that an exception ended. Always True without a `repair`.
    """

    __slots__ = ("_availability", "_repair", "is_whole", "lock")

    def __init__(self, availability: Availability | None = None, repair: Callable[[], None] | None = None) -> None:
        self.lock: Any = RLock()
        self.is_whole = True
        self._availability = availability
        self._repair = repair

    @property
    def is_entered(self) -> bool:
        """Whether this thread is in the middle of a change."""
        return self.lock._is_owned()

    def run(self, change: Callable[..., AnyResult], *arguments: Any) -> AnyResult:
        """Call a function that changes the state, while no other thread does.

        Raises DeviceError: this thread is in the middle of a change already, or the device is closed or lost.
        """
        lock = self.lock
        if lock._is_owned():
            raise reentered()
        # In one line: an exception between two lines would leave the lock taken and nothing to release it.
        with lock: return self.inside(change, *arguments)  # noqa: E701  # fmt: skip

    def inside(self, change: Callable[..., AnyResult], *arguments: Any) -> AnyResult:
        """As `run`, for a caller that holds the lock by `with` in one line."""
        availability = self._availability
        if availability is not None and not availability.is_usable:
            availability.require_open()
        if self._repair is None:
            return change(*arguments)
        if not self.is_whole:
            self._repair()
        self.is_whole = False
        result = change(*arguments)
        self.is_whole = True
        return result

    def pass_through(self) -> None:
        """Wait until no other thread is making a change.

        Raises DeviceError: this thread is in the middle of a change itself.
        """
        if self.lock._is_owned():
            raise reentered()
        with self.lock: pass  # noqa: E701  # fmt: skip

    def renew(self) -> None:
        """In a forked child: release the lock, whose owner may be a thread of the parent that the child lacks."""
        self.lock._at_fork_reinit()
