"""Threads that copy for the host: one core moves a fraction of what a bus takes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Part = TypeVar("Part")
# What one thread has others do.
Copies: TypeAlias = "deque[Future[None]]"

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


def for_each(parts: Iterable[Part], move: Callable[[Part], None], others: Copies | None = None) -> None:
    """Do something with each part, on this thread and others, in no order. What one of them raises is raised here.

    Returns, or raises, when no thread is at it any more. An interrupt (Ctrl-C) leaves the parts alone that nobody has
    begun with.

    Parameters
    ----------
    parts : iterable
    move : callable
    others : deque of Future, optional
        Where other threads' work is noted until it is over. A call waits first for the work that an earlier one, which
        two interrupts ended, left here.
    """
    others = deque() if others is None else others
    _finish(others)
    left = deque(parts)

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

    if len(left) == 1:
        move(left.pop())
        return
    try:
        try:
            with suppress(RuntimeError):  # no more threads: the process ends, or has as many as it may
                for _ in range(min(len(left), thread_count()) - 1):
                    others.append(_executor().submit(work))
            work()
        finally:
            left.clear()
            errors = _finish(others)
    except BaseException:  # again, where an exception struck in those lines
        left.clear()
        _finish(others)
        raise
    for error in errors:
        if error is not None:
            raise error


def _finish(others: Copies) -> list[BaseException | None]:
    """Wait for the work that others do, but for what nobody has begun with; what it raised."""
    errors = []
    while others:
        if not others[0].cancel():
            errors.append(others[0].exception())
        others.popleft()
    return errors


def forget_threads() -> None:
    """In a forked child, which has no thread but its own: start new ones when they are needed."""
    _executor.cache_clear()
