"""Threads that copy for the host: one core moves a fraction of what a bus takes.

Not the standard library's executors and threads: an exception out of a signal handler leaves their locks held, and the
next call, or the end of the process, waits for ever. What is shared here are a queue and locks of C, which are whole at
any time.
"""

from __future__ import annotations

import _thread
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

Part = TypeVar("Part")

# More gain little: on 16 cores 8 threads copy 30 to 40 GB/s, 12 a few more, one 6 to 8.
MAXIMUM_THREADS = 8


def thread_count() -> int:
    """How many threads copy at a time: two at least, so that the device fills one piece while another is emptied."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, min(MAXIMUM_THREADS, cores))


class Job:
    """What another thread is to do once.

    Attributes
    ----------
    error : BaseException, optional
        What it raised.
    """

    __slots__ = ("_lock", "_work", "error")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = deque([work])  # whoever takes it out does it
        self._lock = threading.Lock()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do it, if it is still to be done."""
        with self._lock: self._run()  # noqa: E701  # fmt: skip

    def _run(self) -> None:
        try:
            while self._work:
                self._work.pop()()
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        """Wait for its end, if another thread has begun; else nobody will."""
        self._work.clear()
        with self._lock: pass  # noqa: E701  # fmt: skip


class Workers:
    """Threads that do jobs, started when there are some, and alive as long as the process."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._threads: list[int] = []

    def start(self, job: Job) -> None:
        """Have one of them do a job."""
        self._jobs.put(job)
        if len(self._threads) < thread_count() - 1:
            self._threads.append(_thread.start_new_thread(work_for_ever, (self._jobs,)))


def work_for_ever(jobs: SimpleQueue[Job]) -> None:
    """Do one job after the other."""
    while True:
        jobs.get().run()


_workers = Workers()


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
        self._jobs: list[Job] = []

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
                for _ in range(min(len(left), thread_count()) - 1):
                    self._jobs.append(Job(work))
                    _workers.start(self._jobs[-1])
                work()
            finally:
                left.clear()
                self.finish()
        except BaseException:  # again, where an exception struck in those lines
            left.clear()
            self.finish()
            raise
        for job in self._jobs:
            if job.error is not None:
                raise job.error

    def finish(self) -> None:
        """Wait for the other threads' work, but for what none has begun with."""
        for job in self._jobs:
            job.finish()


Calls: TypeAlias = set[Call]


def forget_threads() -> None:
    """In a forked child, which has no thread but its own: start new ones when they are needed."""
    global _workers
    _workers = Workers()
