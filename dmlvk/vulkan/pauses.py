"""The pauses between the calls of a queue, in which a driver that compiles where the queue does may compile."""

from __future__ import annotations

import time
from collections.abc import Callable

from dmlvk.vulkan.interrupts.locks import RLock
from dmlvk.vulkan.interrupts.visits import Visits
from dmlvk.vulkan.queue import Queue

# After this time without a submission, a program is doing something other than calling one operator after another.
PAUSE_SECONDS = 0.03
# A program without pauses gets its kernels after this time. Each of its calls then waits for at most one kernel.
LONGEST_DELAY_SECONDS = 2.0


class Pauses:
    """Lets work that holds up a queue wait for a pause."""

    def __init__(self, queue: Queue, visits: Visits) -> None:
        self._queue = queue
        self._visits = visits
        # Held by the work, so that a call never waits for more than one piece of it.
        self._turn = RLock()
        # The queue's latest value when such work ended last.
        self._ended_at = -1

    def use(self, work: Callable[[], None]) -> None:
        """Wait for a pause, at most for a while, and do some work of the queue in it.

        Raises DeviceError: the device is closed or lost.
        """
        latest_begin = time.monotonic() + LONGEST_DELAY_SECONDS
        with self._turn: self._use(work, latest_begin)  # noqa: E701  # fmt: skip

    def _use(self, work: Callable[[], None], latest_begin: float) -> None:
        seen = self._queue.latest
        # If nothing was submitted since the last such work, it is still the same pause.
        while seen != self._ended_at and time.monotonic() < latest_begin:
            time.sleep(PAUSE_SECONDS)
            before, seen = seen, self._queue.latest
            if seen == before and self._visits.during(self._is_idle):
                break
        work()
        self._ended_at = self._queue.latest

    def _is_idle(self) -> bool:
        _, reached = self._queue.timeline.look()
        return reached >= self._queue.latest
