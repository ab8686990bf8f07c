"""Command buffers, which are reused, and batches: recorded command buffers with all arguments of their submission."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

from dmlvk.vulkan.context import Context
from dmlvk.vulkan.library import check, structure, vk
from dmlvk.vulkan.memory_use import LatestRun, MemoryUse, register

# VkCommandBufferLevel
PRIMARY = 0
SECONDARY = 1


class CommandBuffer:
    """A VkCommandBuffer. Its one owner holds this object; when the object goes, the pool takes the command buffer back.

    is_recorded: whether its recording has ended, so that a new one can begin.
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
    """The command buffers of one queue family. Used with the device's monitor entered, except `take_back`."""

    def __init__(self, context: Context, family: int) -> None:
        self._device = context.handle
        self._free: tuple[deque[Any], deque[Any]] = (deque(), deque())
        self._unfinished: deque[Any] = deque()
        # VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        information = structure("CommandPoolCreateInfo", flags=2, queueFamilyIndex=family)
        self._pool = context.handles.create("CommandPool", information)

    def acquire(self, level: int = PRIMARY) -> CommandBuffer:
        """A command buffer ready for vkBeginCommandBuffer."""
        while self._unfinished:
            self._discard(self._unfinished.popleft())
        free = self._free[level]
        if free:
            return CommandBuffer(self, free.popleft(), level)
        ffi = vk.ffi
        information = structure(
            "CommandBufferAllocateInfo", commandPool=self._pool.value, level=level, commandBufferCount=1
        )
        array = ffi.new("VkCommandBuffer[1]")
        # VkResult vkAllocateCommandBuffers(VkDevice device, const VkCommandBufferAllocateInfo* pAllocateInfo,
        #     VkCommandBuffer* pCommandBuffers)
        check(vk.vkAllocateCommandBuffers(self._device, information, array), "vkAllocateCommandBuffers")
        return CommandBuffer(self, array[0], level)

    def take_back(self, handle: Any, level: int, is_recorded: bool) -> None:
        """Take back a command buffer that is not in flight. It only appends to a deque, because finalizers call it."""
        (self._free[level] if is_recorded else self._unfinished).append(handle)

    def _discard(self, handle: Any) -> None:
        """Free a command buffer whose recording did not end; unlike resetting it, this cannot fail."""
        array = vk.ffi.new("VkCommandBuffer[1]", [handle])
        # void vkFreeCommandBuffers(VkDevice device, VkCommandPool commandPool, uint32_t commandBufferCount, const
        #     VkCommandBuffer* pCommandBuffers)
        vk.vkFreeCommandBuffers(self._device, self._pool.value, 1, array)


class Batch:
    """Recorded command buffers that can be submitted again and again, with a VkSubmitInfo for each.

    One call of vkQueueSubmit takes all of them or none: work that is split because of watchdogs is one piece to its
    user. The queue keeps the batch, and so what the batch keeps, until the work is done.

    information: VkSubmitInfo[]. Each signals the queue's timeline.
    count: the number of command buffers, and of timeline values that one submission takes.
    run: its latest submission.
    uses, writes: the memory that it reads or writes, and the part of it that it writes.
    is_registered: whether the memory knows the run; if not, each submission is marked in the memory.
    kept: what the work needs beside the command buffers: pipelines, descriptor sets, memory. Not the device: that is
        closed when its users have dropped it, and closing waits for the work.
    is_kept: whether the queue already keeps the batch alive; the run tells the queue about later submissions.
    """

    __slots__ = (
        "_arrays",
        "_command_buffers",
        "_values",
        "count",
        "information",
        "is_kept",
        "is_registered",
        "kept",
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
        kept: object,
        registered: bool,
    ) -> None:
        ffi = vk.ffi
        self.run = LatestRun()
        self.uses = uses
        self.writes = writes
        self.is_registered = registered
        self.is_kept = False
        self.kept = kept
        self._command_buffers = tuple(command_buffers)
        self.count = len(self._command_buffers)
        self._arrays = [ffi.new("VkCommandBuffer[1]", [each.handle]) for each in self._command_buffers]
        self._values: list[Any] = []
        if self.count > 1:  # else the queue's own structure is enough
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
        """If there are several command buffers: set the values that they signal, given the last one's value."""
        for value, signalled in zip(self._values, range(last - self.count + 1, last + 1), strict=True):
            value[0] = signalled

    def __del__(self) -> None:
        run = getattr(self, "run", None)
        if run is not None and self.is_registered:
            for access in self.uses:
                access.discard(run)


def fill_submit_information(information: Any, timeline: Any, semaphore: Any, command_buffers: Any) -> None:
    """Fill a VkSubmitInfo that runs one command buffer, or none, and signals a semaphore.

    The caller keeps the arguments alive as long as the structure.

    information: VkSubmitInfo*.
    timeline: VkTimelineSemaphoreSubmitInfo*.
    semaphore: VkSemaphore[1].
    command_buffers: VkCommandBuffer[1] or None.
    """
    information.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
    information.pNext = timeline
    if command_buffers is not None:
        information.commandBufferCount = 1
        information.pCommandBuffers = command_buffers
    information.signalSemaphoreCount = 1
    information.pSignalSemaphores = semaphore
