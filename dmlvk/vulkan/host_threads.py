"""Threads of the host, which copy data and compile kernels.

One core moves only a fraction of the bytes that a bus can take, and compiles one kernel at a time.

The standard library's executors and threads do not serve: an exception from a signal handler leaves their locks held,
and the next call, or the end of the process, waits for ever. The threads here share a queue and locks that are written
in C, which are whole at any time.
"""

from __future__ import annotations

import _thread
import os
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

from dmlvk.vulkan.interrupts.locks import Lock

AnyPart = TypeVar("AnyPart")

# More threads gain little: on 16 cores, 8 threads copy 30 to 40 GB/s, 12 threads a few GB/s more, one thread 6 to 8.
MAXIMUM_THREADS = 8


def core_count() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """The number of threads that copy at once: at least two, so that one copies while another waits for the device."""
    return max(2, min(MAXIMUM_THREADS, core_count()))


class Job:
    """Work that another thread does once."""

    __slots__ = ("_lock", "_work", "error")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = deque([work])  # a queue of one: the thread that takes the work out does it
        self._lock = Lock()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do the work, unless it is done or under way."""
        with self._lock: self._run()  # noqa: E701  # fmt: skip

    def _run(self) -> None:
        try:
            while self._work:
                self._work.pop()()
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        """Wait for the work if another thread has begun it; else keep all threads from beginning it."""
        self._work.clear()
        with self._lock: pass  # noqa: E701  # fmt: skip


class Workers:
    """Threads that do jobs. They are started with the first jobs, and live as long as the process."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._threads: list[int] = []

    def start(self, job: Job, threads: int) -> None:
        """Hand a job to one of the threads. There are at most `threads` of them, including the caller's own."""
        self._jobs.put(job)
        if len(self._threads) < threads - 1:
            self._threads.append(_thread.start_new_thread(work_for_ever, (self._jobs,)))


def work_for_ever(jobs: SimpleQueue[Job]) -> None:
    """Do one job after the other, for ever."""
    while True:
        jobs.get().run()


_workers = Workers()
# The background has workers of its own, so that a copy never waits for the driver's compiler.
_background = Workers()
# Calls of `for_each` inside a call of `for_each` have workers of their own.
_nested = Workers()


def in_background(work: Callable[[], None]) -> Job:
    """Do some work on another thread; on this one, before the function returns, if no thread can be started.

    Returns for those that want to wait for its end.
    """
    job = Job(work)
    try:
        _background.start(job, max(2, core_count()))
    except RuntimeError:  # at the interpreter's end, or at a limit of the system
        job.run()
    return job


def for_each(
    parts: Iterable[AnyPart],
    move: Callable[[AnyPart], None],
    calls: ForEachCalls | None = None,
    threads: int | None = None,
    *,
    is_nested: bool = False,
) -> None:
    """Call a function with each part, on this thread and others, in any order. An exception of one call is raised here.

    The function returns, or raises, when no thread works on it any more. After an interrupt (Ctrl-C), no thread begins
    another part.

    move: called with each part.
    calls: the calls of one thread and one device on which other threads may still be working. If two interrupts ended
        an earlier call, the new call first waits until the other threads are done with the earlier one.
    threads: the number of threads, with the caller's own; `thread_count()` by default.
    is_nested: whether the caller may be a part of another call, whose threads may be waiting for this one. It then has
        other threads.
    """
    threads = thread_count() if threads is None else threads
    calls = set() if calls is None else calls
    left = deque(parts)
    # In a signal handler, in the middle of another call of this thread, the other threads belong to that call.
    is_interrupting = any(call.lock.locked() for call in calls)
    if not is_interrupting:
        for abandoned in tuple(calls):
            abandoned.finish()
            calls.discard(abandoned)
    if is_interrupting or threads == 1 or len(left) == 1:
        while left:
            move(left.popleft())
        return
    call = ForEach(_nested if is_nested else _workers)
    with call.lock: call.run(left, move, calls, threads)  # noqa: E701  # fmt: skip
    calls.discard(call)


class ForEach:
    """A call of `for_each`.

    lock: held during the call, by `with` in one line: see `dmlvk.vulkan.interrupts.monitor`.
    """

    def __init__(self, workers: Workers) -> None:
        self.lock = Lock()
        self._workers = workers
        self._jobs: list[Job] = []

    def run(self, left: deque[AnyPart], move: Callable[[AnyPart], None], calls: ForEachCalls, threads: int) -> None:
        """Move all parts. Calls that come meanwhile or later find this one in `calls`."""
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
                for _ in range(min(len(left), threads) - 1):
                    self._jobs.append(Job(work))
                    self._workers.start(self._jobs[-1], threads)
                work()
            finally:
                left.clear()
                self.finish()
        except BaseException:  # once more, in case an exception struck in the lines above
            left.clear()
            self.finish()
            raise
        for job in self._jobs:
            if job.error is not None:
                raise job.error

    def finish(self) -> None:
        """Wait for the other threads' jobs, and cancel those that none has begun."""
        for job in self._jobs:
            job.finish()


ForEachCalls: TypeAlias = set[ForEach]


def forget_threads() -> None:
    """In a forked child, which lacks the parent's other threads: start new ones at the next use."""
    global _background, _nested, _workers
    _background, _nested, _workers = Workers(), Workers(), Workers()
