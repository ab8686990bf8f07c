"""Command buffers, used again, and batches: recorded command buffers with everything that submitting them needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dmlvk.vulkan.access import Access, Run, register
from dmlvk.vulkan.library import check, vk

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

# VkCommandBufferLevel
PRIMARY = 0
SECONDARY = 1


class CommandBuffers:
    """The command buffers of one queue family. Called with the device's lock held, but for `recycle`."""

    def __init__(self, device: VulkanDevice, family: int) -> None:
        ffi = vk.ffi
        self._device = device
        self._free: tuple[deque[Any], deque[Any]] = (deque(), deque())
        information = ffi.new("VkCommandPoolCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO
        information.flags = 2  # VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        information.queueFamilyIndex = family
        self._pool = ffi.new("VkCommandPool*")
        # VkResult vkCreateCommandPool(VkDevice device, const VkCommandPoolCreateInfo* pCreateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkCommandPool* pCommandPool)
        check(vk.vkCreateCommandPool(device.handle, information, ffi.NULL, self._pool), "vkCreateCommandPool")

    def acquire(self, level: int = PRIMARY) -> Any:
        """A command buffer ready for vkBeginCommandBuffer."""
        free = self._free[level]
        if free:
            return free.popleft()
        ffi = vk.ffi
        information = ffi.new("VkCommandBufferAllocateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO
        information.commandPool = self._pool[0]
        information.level = level
        information.commandBufferCount = 1
        array = ffi.new("VkCommandBuffer[1]")
        # VkResult vkAllocateCommandBuffers(VkDevice device, const VkCommandBufferAllocateInfo* pAllocateInfo,
        #     VkCommandBuffer* pCommandBuffers)
        check(vk.vkAllocateCommandBuffers(self._device.handle, information, array), "vkAllocateCommandBuffers")
        return array[0]

    def recycle(self, command_buffer: Any, level: int = PRIMARY) -> None:
        """Take back a recorded command buffer that is not in flight. Needs no lock: finalizers call it."""
        self._free[level].append(command_buffer)

    def abandon(self, command_buffer: Any) -> None:
        """Free a command buffer whose recording failed; unlike resetting it, this cannot fail."""
        array = vk.ffi.new("VkCommandBuffer[1]", [command_buffer])
        # void vkFreeCommandBuffers(VkDevice device, VkCommandPool commandPool, uint32_t commandBufferCount, const
        #     VkCommandBuffer* pCommandBuffers)
        vk.vkFreeCommandBuffers(self._device.handle, self._pool[0], 1, array)

    def close(self) -> None:
        """Free all command buffers; nothing may be in flight."""
        # void vkDestroyCommandPool(VkDevice device, VkCommandPool commandPool, const VkAllocationCallbacks*
        #     pAllocator)
        vk.vkDestroyCommandPool(self._device.handle, self._pool[0], vk.ffi.NULL)


class Batch:
    """A recorded command buffer that can be submitted again and again, with the VkSubmitInfo for it.

    Whoever submits it keeps it alive until it is done. The command buffer of a dropped one is used for something else.

    Attributes
    ----------
    information : VkSubmitInfo*
        Signals the queue's timeline.
    run : Run
        Its latest submission.
    uses, writes : collection of Access
        The memory that it reads or writes, and of that, what it writes.
    is_registered : bool
        Whether that memory knows the run; else each submission is to be marked in it.
    is_kept : bool
        Whether the queue keeps it alive for a submission, and sees by its run when a later one of it is done.
    """

    __slots__ = (
        "_array",
        "_command_buffer",
        "_pool",
        "information",
        "is_kept",
        "is_registered",
        "run",
        "uses",
        "writes",
    )

    def __init__(
        self,
        pool: CommandBuffers,
        command_buffer: Any,
        timeline: Any,
        semaphore: Any,
        uses: Collection[Access],
        writes: Collection[Access],
        *,
        registered: bool,
    ) -> None:
        self._pool = pool
        self._command_buffer = command_buffer
        self.uses = uses
        self.writes = writes
        self.is_registered = registered
        self.is_kept = False
        self.run = Run()
        self._array = vk.ffi.new("VkCommandBuffer[1]", [command_buffer])
        self.information = submit_information(timeline, semaphore, self._array)
        if registered:
            register(self.run, uses, writes)

    def __del__(self) -> None:
        run = getattr(self, "run", None)
        if run is not None:
            if self.is_registered:
                for access in self.uses:
                    access.discard(run)
            self._pool.recycle(self._command_buffer)


class Secondary:
    """A recorded secondary command buffer, used again for something else when it is dropped."""

    __slots__ = ("_pool", "command_buffer")

    def __init__(self, pool: CommandBuffers, command_buffer: Any) -> None:
        self._pool = pool
        self.command_buffer = command_buffer

    def __del__(self) -> None:
        self._pool.recycle(self.command_buffer, SECONDARY)


def submit_information(timeline: Any, semaphore: Any, command_buffers: Any) -> Any:
    """A VkSubmitInfo of one command buffer, or none, that signals a semaphore; its arguments have to be kept alive."""
    information = vk.ffi.new("VkSubmitInfo*")
    information.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
    information.pNext = timeline
    if command_buffers is not None:
        information.commandBufferCount = 1
        information.pCommandBuffers = command_buffers
    information.signalSemaphoreCount = 1
    information.pSignalSemaphores = semaphore
    return information
