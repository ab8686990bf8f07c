"""Threads that copy for the host: one core moves a fraction of what a bus takes."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Part = TypeVar("Part")

# More gain little: on 16 cores 8 threads copy 30 to 40 GB/s, 12 a few more, one 6 to 8.
MAXIMUM_THREADS = 8


def thread_count() -> int:
    """How many threads copy at a time: two at least, so that the device fills one piece while another is emptied."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, min(MAXIMUM_THREADS, cores))


@cache
def _executor() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # not before the first large transfer: it takes a while

    return ThreadPoolExecutor(thread_count() - 1, thread_name_prefix="dmlvk-copy")


def for_each(parts: Iterable[Part], move: Callable[[Part], None], calls: Calls | None = None) -> None:
    """Do something with each part, on this thread and others, in no order. What one of them raises is raised here.

    Returns, or raises, when no thread is at it any more. An interrupt (Ctrl-C) leaves the parts alone that nobody has
    begun with.

    Parameters
    ----------
    parts : iterable
    move : callable
    calls : set of Call, optional
        The calls of one thread and one device that other threads may be at. A call waits first for what an earlier
        one, which two interrupts ended, left to them.
    """
    calls = set() if calls is None else calls
    left = deque(parts)
    # A signal handler may come in the middle of another call of its thread: that one has the other threads.
    is_nested = any(call.lock.locked() for call in calls)
    if not is_nested:
        for abandoned in tuple(calls):
            abandoned.finish()
            calls.discard(abandoned)
    if is_nested or len(left) == 1:
        while left:
            move(left.popleft())
        return
    call = Call()
    with call.lock: call.run(left, move, calls)  # noqa: E701  # fmt: skip
    calls.discard(call)


class Call:
    """One call of `for_each`.

    Attributes
    ----------
    lock : Lock
        Held as long as it goes on, by `with` in one line: see `dmlvk.vulkan.monitor`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._others: list[Future[None]] = []

    def run(self, left: deque[Part], move: Callable[[Part], None], calls: Calls) -> None:
        """Do it, known to the calls that come meanwhile and after it."""
        calls.add(self)

        def work() -> None:
            try:
                while left:
                    try:
                        part = left.popleft()
                    except IndexError:  # another thread was faster
                        return
                    move(part)
            except BaseException:
                left.clear()
                raise

        try:
            try:
                with suppress(RuntimeError):  # no more threads: the process ends, or has as many as it may
                    for _ in range(min(len(left), thread_count()) - 1):
                        self._others.append(_executor().submit(work))
                work()
            finally:
                left.clear()
                errors = self.finish()
        except BaseException:  # again, where an exception struck in those lines
            left.clear()
            self.finish()
            raise
        for error in errors:
            if error is not None:
                raise error

    def finish(self) -> list[BaseException | None]:
        """Wait for the other threads' work, but for what none has begun with; what they raised."""
        return [other.exception() for other in self._others if not other.cancel()]


Calls: TypeAlias = set[Call]


def forget_threads() -> None:
    """In a forked child, which has no thread but its own: start new ones when they are needed."""
    _executor.cache_clear()
