"""The compute queue: command buffers go in, a timeline semaphore says what is done."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from dmlvk.vulkan.library import (
    VK_ERROR_DEVICE_LOST,
    VK_SUCCESS,
    VK_TIMEOUT,
    WaitTimeoutError,
    check,
    failure,
    vk,
)

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

# The longest time in a driver's wait: Python runs signal handlers (Ctrl-C) only between calls.
WAIT_SLICE_SECONDS = 0.05
CLOSE_POLL_SECONDS = 0.001


class Queue:
    """A VkQueue whose submissions run one after the other and count up one timeline semaphore.

    Attributes
    ----------
    submitted : int
        Timeline value of the latest submission.
    completed : int
        Highest timeline value that was seen to be reached.
    """

    def __init__(self, device: VulkanDevice) -> None:
        ffi = vk.ffi
        self._device = device
        self.submitted = 0
        self.completed = 0
        self._in_flight: deque[tuple[int, Any, Any]] = deque()
        self._free: deque[Any] = deque()
        self._waiters = 0
        self._waiters_lock = threading.Lock()
        handle = ffi.new("VkQueue*")
        # void vkGetDeviceQueue(VkDevice device, uint32_t queueFamilyIndex, uint32_t queueIndex, VkQueue* pQueue)
        vk.vkGetDeviceQueue(device.handle, device.family.index, 0, handle)
        self._handle = handle[0]

        kind = ffi.new("VkSemaphoreTypeCreateInfo*")
        kind.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO
        kind.semaphoreType = vk.VK_SEMAPHORE_TYPE_TIMELINE
        information = ffi.new("VkSemaphoreCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO
        information.pNext = kind
        self._semaphore = ffi.new("VkSemaphore[1]")
        # VkResult vkCreateSemaphore(VkDevice device, const VkSemaphoreCreateInfo* pCreateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkSemaphore* pSemaphore)
        check(vk.vkCreateSemaphore(device.handle, information, ffi.NULL, self._semaphore), "vkCreateSemaphore")

        pool_information = ffi.new("VkCommandPoolCreateInfo*")
        pool_information.sType = vk.VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO
        pool_information.flags = 2  # VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        pool_information.queueFamilyIndex = device.family.index
        self._pool = ffi.new("VkCommandPool*")
        # VkResult vkCreateCommandPool(VkDevice device, const VkCommandPoolCreateInfo* pCreateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkCommandPool* pCommandPool)
        result = vk.vkCreateCommandPool(device.handle, pool_information, ffi.NULL, self._pool)
        if result != VK_SUCCESS:
            vk.vkDestroySemaphore(device.handle, self._semaphore[0], ffi.NULL)
            raise failure(result, "vkCreateCommandPool")

        # Built once: a submission only sets the value to signal and the command buffer.
        self._signal_value = ffi.new("uint64_t[1]")
        self._timeline = ffi.new("VkTimelineSemaphoreSubmitInfo*")
        self._timeline.sType = vk.VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO
        self._timeline.signalSemaphoreValueCount = 1
        self._timeline.pSignalSemaphoreValues = self._signal_value
        self._command_buffer = ffi.new("VkCommandBuffer[1]")
        self._submit = ffi.new("VkSubmitInfo*")
        self._submit.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
        self._submit.pNext = self._timeline
        self._submit.commandBufferCount = 1
        self._submit.pCommandBuffers = self._command_buffer
        self._submit.signalSemaphoreCount = 1
        self._submit.pSignalSemaphores = self._semaphore
        self._counter = ffi.new("uint64_t*")
        self._null_fence = ffi.NULL

    def acquire(self) -> Any:
        """A command buffer ready for vkBeginCommandBuffer. Called with the device's lock held."""
        if self._free:
            return self._free.popleft()
        ffi = vk.ffi
        information = ffi.new("VkCommandBufferAllocateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO
        information.commandPool = self._pool[0]
        information.level = vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY
        information.commandBufferCount = 1
        array = ffi.new("VkCommandBuffer[1]")
        # VkResult vkAllocateCommandBuffers(VkDevice device, const VkCommandBufferAllocateInfo* pAllocateInfo,
        #     VkCommandBuffer* pCommandBuffers)
        check(vk.vkAllocateCommandBuffers(self._device.handle, information, array), "vkAllocateCommandBuffers")
        return array[0]

    def recycle(self, command_buffer: Any) -> None:
        """Take back a command buffer that is not in flight. Needs no lock, so that finalizers may call it."""
        self._free.append(command_buffer)

    def abandon(self, command_buffer: Any) -> None:
        """Take back a command buffer whose recording failed. Called with the device's lock held."""
        # VkResult vkResetCommandBuffer(VkCommandBuffer commandBuffer, VkCommandBufferResetFlags flags)
        check(vk.vkResetCommandBuffer(command_buffer, 0), "vkResetCommandBuffer")
        self.recycle(command_buffer)

    def submit(self, command_buffer: Any, keep: Any, *, recycle: bool = True) -> int:
        """Submit a recorded command buffer, to run after all earlier ones. Called with the device's lock held.

        Parameters
        ----------
        command_buffer : VkCommandBuffer
        keep : object
            Kept alive until the work is done.
        recycle : bool
            Whether the command buffer can be used for something else then.

        Returns
        -------
        int
            The timeline value that says that it is done.
        """
        value = self.submitted + 1
        self._signal_value[0] = value
        self._command_buffer[0] = command_buffer
        # VkResult vkQueueSubmit(VkQueue queue, uint32_t submitCount, const VkSubmitInfo* pSubmits, VkFence fence)
        result = vk.vkQueueSubmit(self._handle, 1, self._submit, self._null_fence)
        if result != VK_SUCCESS:
            if recycle:
                self.recycle(command_buffer)
            raise self._failed(result, "vkQueueSubmit")
        self.submitted = value
        self._in_flight.append((value, command_buffer if recycle else None, keep))
        self.poll()
        return value

    def poll(self) -> int:
        """Look how far the device is, and let go of what is done. Called with the device's lock held."""
        # VkResult vkGetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore, uint64_t* pValue)
        result = vk.vkGetSemaphoreCounterValue(self._device.handle, self._semaphore[0], self._counter)
        if result != VK_SUCCESS:
            raise self._failed(result, "vkGetSemaphoreCounterValue")
        # A lost device may report any value.
        self.completed = max(self.completed, min(self._counter[0], self.submitted))
        self._release_completed()
        return self.completed

    def _release_completed(self) -> None:
        in_flight, completed = self._in_flight, self.completed
        while in_flight and in_flight[0][0] <= completed:
            _, command_buffer, _ = in_flight.popleft()
            if command_buffer is not None:
                self._free.append(command_buffer)

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait until the timeline reaches a value.

        Raises
        ------
        WaitTimeoutError
            Not within `timeout` seconds; it can be waited for again.
        DeviceError
            The device was closed or lost.
        """
        if value > self.completed:
            deadline = None if timeout is None else time.monotonic() + timeout
            with self._waiters_lock:
                self._device.require_open()
                self._waiters += 1
            try:
                self._wait_slices(value, timeout, deadline)
            finally:
                with self._waiters_lock:
                    self._waiters -= 1
        # Whoever holds the lock looks after what is done by itself.
        if self._device.lock.acquire(blocking=False):
            try:
                self.completed = max(self.completed, value)
                self._release_completed()
            finally:
                self._device.lock.release()

    def _wait_slices(self, value: int, timeout: float | None, deadline: float | None) -> None:
        ffi = vk.ffi
        values = ffi.new("uint64_t[1]", [value])
        information = ffi.new("VkSemaphoreWaitInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO
        information.semaphoreCount = 1
        information.pSemaphores = self._semaphore
        information.pValues = values
        while True:
            seconds = WAIT_SLICE_SECONDS
            if deadline is not None:
                seconds = max(0.0, min(seconds, deadline - time.monotonic()))
            # VkResult vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo* pWaitInfo, uint64_t timeout)
            result = vk.vkWaitSemaphores(self._device.handle, information, int(seconds * 1e9))
            if result == VK_SUCCESS:
                return
            if result != VK_TIMEOUT:
                raise self._failed(result, "vkWaitSemaphores")
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeoutError(f"the work was not done within {timeout} s; wait again for it to go on")

    def wait_idle(self) -> None:
        """Wait for everything submitted so far."""
        self.wait(self.submitted)
        with self._device.lock:
            self.poll()

    def drain(self) -> None:
        """Before closing: wait for all work unless the device is lost, and for other threads' waits to end."""
        try:
            if not self._device.is_lost:
                self.wait(self.submitted)
        finally:
            with self._waiters_lock:
                self._device.is_closed = True
            while self._waiters:
                time.sleep(CLOSE_POLL_SECONDS)
            self._in_flight.clear()

    def _failed(self, result: int, call: str) -> Exception:
        if result == VK_ERROR_DEVICE_LOST:
            self._device.is_lost = True
        return failure(result, call)

    def close(self) -> None:
        """Destroy semaphore and command buffers; nothing may be in flight."""
        # void vkDestroyCommandPool(VkDevice device, VkCommandPool commandPool, const VkAllocationCallbacks*
        #     pAllocator)
        vk.vkDestroyCommandPool(self._device.handle, self._pool[0], vk.ffi.NULL)
        # void vkDestroySemaphore(VkDevice device, VkSemaphore semaphore, const VkAllocationCallbacks* pAllocator)
        vk.vkDestroySemaphore(self._device.handle, self._semaphore[0], vk.ffi.NULL)
