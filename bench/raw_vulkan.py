"""The loops with which calls are compared: the driver's functions through raw cffi, every structure built beforehand.

No code of dmlvk runs inside them. Only their arguments come from dmlvk: the device, a timeline semaphore with the
structure for waiting for it, and the prepared objects of a binding.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

import dmlvk
from dmlvk.device_profile import DeviceType
from dmlvk.runtime.binding import Binding
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.timeline import Timeline

FOREVER = 2**64 - 1


class RawCommandBuffer:
    """A command buffer with the dispatches of bindings, one after the other, submitted by raw calls.

    Args:
        device (Device):
        bindings (iterable of Binding):
    """

    def __init__(self, device: dmlvk.Device, bindings: Iterable[Binding]) -> None:
        from vulkan._vulkan import ffi, lib

        self._lib = lib
        self._null = ffi.NULL
        self._kept = list(bindings)
        self._device = device.vulkan.context.handle
        queue = ffi.new("VkQueue*")
        lib.vkGetDeviceQueue(self._device, device.vulkan.context.configuration.compute_family.index, 0, queue)
        self._queue = queue[0]
        pool_information = ffi.new("VkCommandPoolCreateInfo*")
        pool_information.sType = lib.VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO
        pool_information.queueFamilyIndex = device.vulkan.context.configuration.compute_family.index
        self._pool = ffi.new("VkCommandPool*")
        self._must(lib.vkCreateCommandPool(self._device, pool_information, ffi.NULL, self._pool))
        information = ffi.new("VkCommandBufferAllocateInfo*")
        information.sType = lib.VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO
        information.commandPool = self._pool[0]
        information.commandBufferCount = 1
        self._command_buffer = ffi.new("VkCommandBuffer[1]")
        self._must(lib.vkAllocateCommandBuffers(self._device, information, self._command_buffer))
        self._record(ffi)
        fence_information = ffi.new("VkFenceCreateInfo*")
        fence_information.sType = lib.VK_STRUCTURE_TYPE_FENCE_CREATE_INFO
        self._fence = ffi.new("VkFence[1]")
        self._must(lib.vkCreateFence(self._device, fence_information, ffi.NULL, self._fence))
        self._submit_information = ffi.new("VkSubmitInfo*")
        self._submit_information.sType = lib.VK_STRUCTURE_TYPE_SUBMIT_INFO
        self._submit_information.commandBufferCount = 1
        self._submit_information.pCommandBuffers = self._command_buffer
        self._timeline = Timeline(device.vulkan.context)
        self._prepare_timeline(ffi)

    def _prepare_timeline(self, ffi: Any) -> None:
        lib = self._lib
        self._value = 0
        self._signal = ffi.new("uint64_t[1]")
        self._signal_information = ffi.new("VkTimelineSemaphoreSubmitInfo*")
        self._signal_information.sType = lib.VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO
        self._signal_information.signalSemaphoreValueCount = 1
        self._signal_information.pSignalSemaphoreValues = self._signal
        self._signalling_information = ffi.new("VkSubmitInfo*", self._submit_information[0])
        self._signalling_information.pNext = self._signal_information
        self._signalling_information.signalSemaphoreCount = 1
        self._signalling_information.pSignalSemaphores = self._timeline.semaphore
        self._waiter = self._timeline.take_waiter()

    @staticmethod
    def _must(result: int) -> None:
        if result:
            raise SystemExit(f"a raw Vulkan call of the benchmark returned {result}")

    def _record(self, ffi: Any) -> None:
        lib, command_buffer = self._lib, self._command_buffer[0]
        begin = ffi.new("VkCommandBufferBeginInfo*")
        begin.sType = lib.VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO
        begin.flags = 4  # VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
        barrier = ffi.new("VkMemoryBarrier*")
        barrier.sType = lib.VK_STRUCTURE_TYPE_MEMORY_BARRIER
        barrier.srcAccessMask = 0x40  # VK_ACCESS_SHADER_WRITE_BIT
        barrier.dstAccessMask = 0x60  # VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT
        compute = 0x800  # VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        self._must(lib.vkBeginCommandBuffer(command_buffer, begin))
        for prepared in (each for binding in self._kept for stage in binding.stages for each in stage):
            lib.vkCmdPipelineBarrier(command_buffer, compute, compute, 0, 1, barrier, 0, ffi.NULL, 0, ffi.NULL)
            lib.vkCmdBindPipeline(command_buffer, 1, prepared.pipeline)
            lib.vkCmdBindDescriptorSets(command_buffer, 1, prepared.layout, 0, 1, prepared.sets, 0, ffi.NULL)
            if prepared.push_size:
                lib.vkCmdPushConstants(
                    command_buffer, prepared.layout, 0x20, 0, prepared.push_size, prepared.push_constants
                )
            lib.vkCmdDispatch(command_buffer, *prepared.groups)
        barrier_to_host = ffi.new("VkMemoryBarrier*")
        barrier_to_host.sType = lib.VK_STRUCTURE_TYPE_MEMORY_BARRIER
        barrier_to_host.srcAccessMask = 0x40
        barrier_to_host.dstAccessMask = 0x2000  # VK_ACCESS_HOST_READ_BIT
        host = 0x4000  # VK_PIPELINE_STAGE_HOST_BIT
        lib.vkCmdPipelineBarrier(command_buffer, compute, host, 0, 1, barrier_to_host, 0, ffi.NULL, 0, ffi.NULL)
        self._must(lib.vkEndCommandBuffer(command_buffer))

    def submit(self) -> None:
        """vkQueueSubmit and nothing else."""
        self._lib.vkQueueSubmit(self._queue, 1, self._submit_information, self._null)

    def signal_timeline(self, fence: Any = None) -> None:
        """vkQueueSubmit that signals the next value of a timeline semaphore, and a fence if given one."""
        self._value += 1
        self._signal[0] = self._value
        fence = self._null if fence is None else fence
        self._lib.vkQueueSubmit(self._queue, 1, self._signalling_information, fence)

    def wait_timeline(self) -> None:
        """vkWaitSemaphores for the latest value of the timeline."""
        self._waiter.counter[0] = self._value
        self._lib.vkWaitSemaphores(self._device, self._waiter.information, FOREVER)

    def poll_timeline(self) -> None:
        """vkGetSemaphoreCounterValue until the timeline's latest value is there."""
        lib, device, semaphore, value = self._lib, self._device, self._timeline.semaphore[0], self._value
        counter = self._waiter.counter
        lib.vkGetSemaphoreCounterValue(device, semaphore, counter)
        while counter[0] < value:
            lib.vkGetSemaphoreCounterValue(device, semaphore, counter)

    def poll_fence(self) -> None:
        """vkGetFenceStatus until the fence is signalled, and vkResetFences."""
        lib, device, fence = self._lib, self._device, self._fence[0]
        while lib.vkGetFenceStatus(device, fence):
            pass
        lib.vkResetFences(device, 1, self._fence)

    def poll_idle(self) -> None:
        """An empty vkQueueSubmit with a fence, and vkGetFenceStatus until it is signalled."""
        self._lib.vkQueueSubmit(self._queue, 0, self._null, self._fence[0])
        self.poll_fence()

    def submit_and_wait(self) -> None:
        """vkQueueSubmit with a fence, the wait for it, and its reset."""
        lib = self._lib
        lib.vkQueueSubmit(self._queue, 1, self._submit_information, self._fence[0])
        lib.vkWaitForFences(self._device, 1, self._fence, 1, FOREVER)
        lib.vkResetFences(self._device, 1, self._fence)

    def wait_idle(self) -> None:
        """vkQueueWaitIdle."""
        self._must(self._lib.vkQueueWaitIdle(self._queue))

    def close(self) -> None:
        """Destroy the Vulkan objects."""
        self.wait_idle()
        self._lib.vkDestroyFence(self._device, self._fence[0], self._null)
        self._lib.vkDestroyCommandPool(self._device, self._pool[0], self._null)


def warm_up(device: dmlvk.Device, binding: Binding) -> None:
    """Bring an idle GPU to its full clock, which takes most of a second on an H200."""
    end = perf_counter() + (0.1 if device.profile.device_type == DeviceType.CPU else 1.0)
    while perf_counter() < end:
        device.submit([binding] * 100).wait()


def driver_text(device: dmlvk.Device) -> str:
    """Device and driver, for the head of a table."""
    profile = device.profile
    checked = ", validation layer ON" if vk.validates else ""
    return f"{profile.name}, {profile.driver_name} {profile.driver_info}{checked}"
