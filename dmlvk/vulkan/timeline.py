"""A timeline semaphore, and how the host waits for a value of it."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from dmlvk import quirks
from dmlvk.device_profile import DeviceType
from dmlvk.vulkan.library import VK_SUCCESS, VK_TIMEOUT, WaitTimeoutError, vk
from dmlvk.vulkan.visits import Visit

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

ON_WINDOWS = sys.platform == "win32"

# The longest time in a driver's wait: Python runs signal handlers (Ctrl-C) only between calls.
WAIT_SLICE = 50_000_000  # nanoseconds
# How long a wait looks again and again before it sleeps. A GPU is done with a small dispatch in 10 us, and waking a
# thread takes 20 to 40 more. A CPU driver wants the core that looking would take.
WATCH_SECONDS = 100e-6
# A thread that sleeps by itself looks again after this part of the time that it has waited so far, or the longest nap.
NAP_SHARE = 1 / 32
LONGEST_NAP = 1e-3  # seconds


class Waiter:
    """What one wait for a timeline needs.

    Attributes
    ----------
    information : VkSemaphoreWaitInfo*
    counter : uint64_t*
        The value waited for, or the one that was found.
    value : memoryview
        The same, for reading and setting it in half the time.
    visit : Visit
        Entered during the wait.
    """

    __slots__ = ("counter", "information", "value", "visit")

    def __init__(self, semaphore: Any, visit: Visit) -> None:
        self.visit = visit
        ffi = vk.ffi
        self.counter = ffi.new("uint64_t*")
        self.value = memoryview(ffi.buffer(self.counter)).cast("Q")
        self.information = ffi.new("VkSemaphoreWaitInfo*")
        self.information.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO
        self.information.semaphoreCount = 1
        self.information.pSemaphores = semaphore
        self.information.pValues = self.counter


class Timeline:
    """A timeline semaphore, which the submissions of a queue count up.

    Attributes
    ----------
    semaphore : VkSemaphore[1]
    watch_seconds : float
        How long a wait looks again and again before it sleeps.
    sleeps_in_driver : bool
        Whether a wait sleeps in the driver. Else it sleeps by itself, and looks again.
    """

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self.watch_seconds = 0.0 if device.profile.device_type == DeviceType.CPU else WATCH_SECONDS
        # Windows was not measured; before Python 3.11 a nap takes 16 ms there.
        slows_down = quirks.NVIDIA_SLEEPING_WAITS_SLOW_SUBMISSIONS.applies_to(device.profile)
        self.sleeps_in_driver = ON_WINDOWS or not slows_down
        self._waiters: deque[Waiter] = deque()
        ffi = vk.ffi
        kind = ffi.new("VkSemaphoreTypeCreateInfo*")
        kind.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO
        kind.semaphoreType = vk.VK_SEMAPHORE_TYPE_TIMELINE
        information = ffi.new("VkSemaphoreCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO
        information.pNext = kind
        self._handle = device.handles.create("Semaphore", information)
        self.semaphore = self._handle.array

    def look(self) -> tuple[int, int]:
        """The VkResult of looking at the timeline, and the value it has reached."""
        counter = vk.ffi.new("uint64_t*")
        # VkResult vkGetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore, uint64_t* pValue)
        result = vk.vkGetSemaphoreCounterValue(self._device.handle, self.semaphore[0], counter)
        return result, counter[0]

    def take_waiter(self) -> Waiter:
        """A Waiter for one wait."""
        try:
            return self._waiters.popleft()
        except IndexError:  # there are as many as there were threads waiting at a time
            waiter = Waiter(self.semaphore, Visit())
            self._device.visits.register(waiter.visit)
            return waiter

    def give_back(self, waiter: Waiter) -> None:
        """Take back a Waiter."""
        self._waiters.append(waiter)

    def wait(self, waiter: Waiter, value: int, timeout: float | None, latest: int) -> None:
        """Wait until the timeline reaches a value.

        Parameters
        ----------
        waiter : Waiter
            Nobody else's meanwhile.
        value : int
        timeout : float or None
            Seconds; None for no limit.
        latest : int
            The latest submission's. Where the device reports more it may be lost, and the driver is asked again.

        Raises
        ------
        WaitTimeoutError
            Not within `timeout` seconds; it can be waited for again.
        DeviceError
            The device was lost, or the driver fails.
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
            result = vk.vkWaitSemaphores(self._device.handle, waiter.information, limit)
            if result == VK_SUCCESS:
                return
            if result != VK_TIMEOUT:
                raise self._device.failure(result, "vkWaitSemaphores")
            now = time.monotonic()
            if now >= deadline:
                raise WaitTimeoutError(f"the work was not done within {timeout} s; wait again for it to go on")
            if not self.sleeps_in_driver:
                time.sleep(min(LONGEST_NAP, NAP_SHARE * (now - start)))

    def _watch(self, waiter: Waiter, value: int, timeout: float | None, latest: int) -> bool:
        """Look at the timeline for a moment; whether it came to the value."""
        device, semaphore, counter = self._device.handle, self.semaphore[0], waiter.counter
        # Not time.monotonic(): before Python 3.13 its steps on Windows are 16 ms, far more than what is measured here.
        end = time.perf_counter() + (self.watch_seconds if timeout is None else min(self.watch_seconds, timeout))
        while True:
            result = vk.vkGetSemaphoreCounterValue(device, semaphore, counter)
            if result != VK_SUCCESS:
                raise self._device.failure(result, "vkGetSemaphoreCounterValue")
            reached = waiter.value[0]
            if reached >= value:
                return reached <= latest  # else the wait that follows says whether the device is lost
            if time.perf_counter() >= end:
                return False
