"""Command buffers, used again, and batches: recorded command buffers with everything that submitting them needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from dmlvk.vulkan.library import check, vk
from dmlvk.vulkan.memory_use import MemoryUse, Run, register

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

# VkCommandBufferLevel
PRIMARY = 0
SECONDARY = 1


class CommandBuffer:
    """A VkCommandBuffer. It has one owner, who holds this object; when the object goes, the pool takes it back.

    Attributes
    ----------
    handle : VkCommandBuffer
    is_recorded : bool
        Whether recording it has ended, so that it can be begun anew.
    """

    __slots__ = ("_level", "_pool", "handle", "is_recorded")

    def __init__(self, pool: CommandBuffers, handle: Any, level: int) -> None:
        self._pool = pool
        self._level = level
        self.handle = handle
        self.is_recorded = False

    def __del__(self) -> None:
        self._pool.take_back(self.handle, self._level, self.is_recorded)


class CommandBuffers:
    """The command buffers of one queue family. Called with the device's monitor entered, but for `take_back`."""

    def __init__(self, device: VulkanDevice, family: int) -> None:
        self._device = device
        self._free: tuple[deque[Any], deque[Any]] = (deque(), deque())
        self._unfinished: deque[Any] = deque()
        information = vk.ffi.new("VkCommandPoolCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO
        information.flags = 2  # VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        information.queueFamilyIndex = family
        self._pool = device.handles.create("CommandPool", information)

    def acquire(self, level: int = PRIMARY) -> CommandBuffer:
        """A command buffer ready for vkBeginCommandBuffer."""
        while self._unfinished:
            self._discard(self._unfinished.popleft())
        free = self._free[level]
        if free:
            return CommandBuffer(self, free.popleft(), level)
        ffi = vk.ffi
        information = ffi.new("VkCommandBufferAllocateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO
        information.commandPool = self._pool.value
        information.level = level
        information.commandBufferCount = 1
        array = ffi.new("VkCommandBuffer[1]")
        # VkResult vkAllocateCommandBuffers(VkDevice device, const VkCommandBufferAllocateInfo* pAllocateInfo,
        #     VkCommandBuffer* pCommandBuffers)
        check(vk.vkAllocateCommandBuffers(self._device.handle, information, array), "vkAllocateCommandBuffers")
        return CommandBuffer(self, array[0], level)

    def take_back(self, handle: Any, level: int, is_recorded: bool) -> None:
        """Take back a command buffer that is not in flight. Changes nothing but a deque: finalizers call it."""
        (self._free[level] if is_recorded else self._unfinished).append(handle)

    def _discard(self, handle: Any) -> None:
        """Free a command buffer whose recording did not end; unlike resetting it, this cannot fail."""
        array = vk.ffi.new("VkCommandBuffer[1]", [handle])
        # void vkFreeCommandBuffers(VkDevice device, VkCommandPool commandPool, uint32_t commandBufferCount, const
        #     VkCommandBuffer* pCommandBuffers)
        vk.vkFreeCommandBuffers(self._device.handle, self._pool.value, 1, array)


class Batch:
    """Recorded command buffers that can be submitted again and again, with a VkSubmitInfo for each.

    One call of vkQueueSubmit takes them all, or none: work that is cut for the watchdogs' sake is whole to its user.
    Whoever submits it keeps it alive until it is done.

    Attributes
    ----------
    information : VkSubmitInfo[]
        Each signals the queue's timeline.
    count : int
        How many there are, and values of the timeline that a submission takes.
    run : Run
        Its latest submission.
    uses, writes : collection of MemoryUse
        The memory that it reads or writes, and of that, what it writes.
    is_registered : bool
        Whether that memory knows the run; else each submission is to be marked in it.
    is_kept : bool
        Whether the queue keeps it alive for a submission, and sees by its run when a later one of it is done.
    """

    __slots__ = (
        "_arrays",
        "_command_buffers",
        "_values",
        "count",
        "information",
        "is_kept",
        "is_registered",
        "run",
        "uses",
        "writes",
    )

    def __init__(
        self,
        command_buffers: Sequence[CommandBuffer],
        timeline: Any,
        semaphore: Any,
        uses: Collection[MemoryUse],
        writes: Collection[MemoryUse],
        *,
        registered: bool,
    ) -> None:
        ffi = vk.ffi
        self.run = Run()
        self.uses = uses
        self.writes = writes
        self.is_registered = registered
        self.is_kept = False
        self._command_buffers = tuple(command_buffers)
        self.count = len(self._command_buffers)
        self._arrays = [ffi.new("VkCommandBuffer[1]", [each.handle]) for each in self._command_buffers]
        self._values: list[Any] = []
        if self.count > 1:  # else the queue's own structure will do
            timelines = [ffi.new("VkTimelineSemaphoreSubmitInfo*", timeline[0]) for _ in self._arrays]
            self._values = [ffi.new("uint64_t[1]") for _ in self._arrays]
            for structure, value in zip(timelines, self._values, strict=True):
                structure.pSignalSemaphoreValues = value
            self._arrays += timelines
        else:
            timelines = [timeline]
        self.information = ffi.new("VkSubmitInfo[]", self.count)
        for each, structure, array in zip(self.information, timelines, self._arrays, strict=False):
            fill_submit_information(each, structure, semaphore, array)
        if registered:
            register(self.run, uses, writes)

    def number(self, last: int) -> None:
        """Where there are several command buffers: set the values that they signal, up to the last one's."""
        for value, signalled in zip(self._values, range(last - self.count + 1, last + 1), strict=True):
            value[0] = signalled

    def __del__(self) -> None:
        run = getattr(self, "run", None)
        if run is not None and self.is_registered:
            for access in self.uses:
                access.discard(run)


def fill_submit_information(information: Any, timeline: Any, semaphore: Any, command_buffers: Any) -> None:
    """Make a VkSubmitInfo of one command buffer, or none, that signals a semaphore; keep its arguments alive."""
    information.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
    information.pNext = timeline
    if command_buffers is not None:
        information.commandBufferCount = 1
        information.pCommandBuffers = command_buffers
    information.signalSemaphoreCount = 1
    information.pSignalSemaphores = semaphore
