"""A timeline semaphore, and how the host waits for a value of it."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from typing import Any

from dmlvk import quirks
from dmlvk.device_profile import DeviceType
from dmlvk.errors import WaitTimeoutError
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.interrupts.visits import Visit
from dmlvk.vulkan.library import VK_SUCCESS, VK_TIMEOUT, structure, vk

ON_WINDOWS = sys.platform == "win32"

# The longest wait in one call of the driver: Python runs signal handlers (Ctrl-C) only between calls.
WAIT_SLICE = 50_000_000  # nanoseconds
# A thread that naps outside of the driver polls again after this share of its waiting time so far, at most LONGEST_NAP.
NAP_SHARE = 1 / 32
LONGEST_NAP = 1e-3  # seconds
# The shortest nap: Linux wakes a sleeping thread some 55 us late, its timer slack, and a driver hardly sooner.
SHORTEST_NAP = 60e-6
# A wait polls the timeline for this long before it sleeps, until then the shortest nap would be a larger share than
# NAP_SHARE. A CPU driver needs the core that polling would take.
WATCH_SECONDS = SHORTEST_NAP / NAP_SHARE


class Waiter:
    """The structures of one wait for a timeline.

    information: VkSemaphoreWaitInfo*.
    counter: uint64_t*. The value that is waited for, or the value that was read.
    value: the same value; reading and setting it through the view takes half the time.
    visit: entered during the wait.
    """

    __slots__ = ("counter", "information", "value", "visit")

    def __init__(self, semaphore: Any, visit: Visit) -> None:
        self.visit = visit
        ffi = vk.ffi
        self.counter = ffi.new("uint64_t*")
        self.value = memoryview(ffi.buffer(self.counter)).cast("Q")
        self.information = structure("SemaphoreWaitInfo", semaphoreCount=1, pSemaphores=semaphore, pValues=self.counter)


class Timeline:
    """A timeline semaphore, whose value the submissions of a queue increase.

    semaphore: VkSemaphore[1].
    watch_seconds: a wait polls for this long before it sleeps.
    sleeps_in_driver: whether a wait sleeps in the driver. If not, it polls, with naps outside of the driver between.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._device = context.handle
        self.watch_seconds = 0.0 if context.profile.device_type == DeviceType.CPU else WATCH_SECONDS
        # Windows was not measured; before Python 3.11 a nap takes 16 ms there.
        slows_down = quirks.NVIDIA_SLEEPING_WAITS_SLOW_SUBMISSIONS.applies_to(context.profile)
        self.sleeps_in_driver = ON_WINDOWS or not slows_down
        self._waiters: deque[Waiter] = deque()
        kind = structure("SemaphoreTypeCreateInfo", semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE)
        information = structure("SemaphoreCreateInfo", pNext=kind)
        self._handle = context.handles.create("Semaphore", information)
        self.semaphore = self._handle.array

    def look(self) -> tuple[int, int]:
        """The VkResult of reading the timeline, and the value that it has reached."""
        counter = vk.ffi.new("uint64_t*")
        # VkResult vkGetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore, uint64_t* pValue)
        result = vk.vkGetSemaphoreCounterValue(self._device, self.semaphore[0], counter)
        return result, counter[0]

    def take_waiter(self) -> Waiter:
        """A Waiter for one wait."""
        try:
            return self._waiters.popleft()
        except IndexError:  # more threads wait at once than ever before
            waiter = Waiter(self.semaphore, Visit())
            self._context.visits.register(waiter.visit)
            return waiter

    def give_back(self, waiter: Waiter) -> None:
        """Take back a Waiter."""
        self._waiters.append(waiter)

    def wait(self, waiter: Waiter, value: int, timeout: float | None, latest: int) -> None:
        """Wait until the timeline reaches a value.

        waiter: taken by this thread.
        timeout: seconds; None for no limit.
        latest: the value of the latest submission. A device that reports a higher value may be lost, so the driver is
            asked again.
        Raises WaitTimeoutError: it did not happen within `timeout` seconds; it can be waited for again.
        Raises DeviceError: the device was lost, or the driver fails.
        """
        start = time.monotonic()
        deadline = math.inf if timeout is None else start + timeout
        if self.watch_seconds and self._watch(waiter, value, timeout, latest):
            return
        waiter.value[0] = value
        longest = WAIT_SLICE if self.sleeps_in_driver else 0
        now = start
        while True:
            limit = int(min(longest, max(0, (deadline - now) * 1e9)))  # in this order: the time may be infinite
            # VkResult vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo* pWaitInfo, uint64_t timeout)
            result = vk.vkWaitSemaphores(self._device, waiter.information, limit)
            if result == VK_SUCCESS:
                return
            if result != VK_TIMEOUT:
                raise self._context.failure(result, "vkWaitSemaphores")
            now = time.monotonic()
            if now >= deadline:
                raise WaitTimeoutError(f"the work was not done within {timeout} s; it continues, so wait for it again")
            if not self.sleeps_in_driver:
                time.sleep(min(LONGEST_NAP, NAP_SHARE * (now - start)))

    def _watch(self, waiter: Waiter, value: int, timeout: float | None, latest: int) -> bool:
        """Poll the timeline for a moment; whether it reached the value."""
        device, semaphore, counter = self._device, self.semaphore[0], waiter.counter
        # Not time.monotonic(): before Python 3.13 its steps on Windows are 16 ms, far longer than this poll.
        end = time.perf_counter() + (self.watch_seconds if timeout is None else min(self.watch_seconds, timeout))
        while True:
            result = vk.vkGetSemaphoreCounterValue(device, semaphore, counter)
            if result != VK_SUCCESS:
                raise self._context.failure(result, "vkGetSemaphoreCounterValue")
            reached = waiter.value[0]
            if reached >= value:
                return reached <= latest  # if not, the wait that follows finds out whether the device is lost
            if time.perf_counter() >= end:
                return False
