"""Device memory: blocks that many tensors share, and segments for what is larger than one VkBuffer may be."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt

from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT, DeviceType
from dmlvk.errors import shown
from dmlvk.vulkan.free_ranges import FreeRanges
from dmlvk.vulkan.handles import Handle
from dmlvk.vulkan.library import VK_SUCCESS, OutOfMemoryError, check, vk
from dmlvk.vulkan.memory_use import MemoryUse
from dmlvk.vulkan.monitor import Monitor, reentered
from dmlvk.vulkan.physical_device import MemoryType, PhysicalDevice

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

# VkMemoryPropertyFlagBits
DEVICE_LOCAL = 1
HOST_VISIBLE = 2
HOST_COHERENT = 4
HOST_CACHED = 8
DIRECT = DEVICE_LOCAL | HOST_VISIBLE | HOST_COHERENT | HOST_CACHED
STAGING = HOST_VISIBLE | HOST_COHERENT

# VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
BUFFER_USAGE = 1 | 2 | 32

BLOCK_SIZE = 64 << 20

# What is dropped is freed at once from so many bytes on, or when so many allocations have come together; else with the
# next allocation.
LARGE = 1 << 20
DROPPED_KEPT = 64

Bytes = npt.NDArray[np.uint8]


def size_text(size: int) -> str:
    """A number of bytes for people, with the exact number behind it."""
    if size.bit_length() > 64:  # no memory is as large, and a float may not hold it
        return f"{shown(size)} bytes"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.2f} {unit} ({size} bytes)"
    return f"{size} bytes"


class MappedBuffer:
    """One VkBuffer on one VkDeviceMemory, persistently mapped where the memory type is host-visible.

    It is made in two steps, so that whoever keeps a list of them can note it before there is anything to be lost.

    Attributes
    ----------
    ranges : FreeRanges
        Who has which bytes of it.
    is_shared : bool
        Whether several tensors may lie in it, and it is kept for the next ones when it is empty.
    is_staging : bool
        Whether it is no tensor's memory.
    buffer : VkBuffer
    mapped : ndarray of uint8, optional
        The host's view.
    """

    __slots__ = ("_buffer", "_memory", "buffer", "is_shared", "is_staging", "mapped", "memory_type", "ranges", "size")

    def __init__(self, size: int, memory_type: MemoryType, *, is_shared: bool, is_staging: bool) -> None:
        self.size = size
        self.memory_type = memory_type
        self.is_shared = is_shared
        self.is_staging = is_staging
        self.ranges: FreeRanges[Lease] = FreeRanges(size)
        self.mapped: Bytes | None = None
        self.buffer: Any = None
        self._buffer: Handle | None = None
        self._memory: Handle | None = None

    def create(self, device: VulkanDevice) -> None:
        """Ask the driver for buffer and memory.

        Raises
        ------
        OutOfMemoryError, DeviceError
        """
        ffi = vk.ffi
        self._buffer = create_buffer(device, self.size)
        self.buffer = self._buffer.value
        requirements = ffi.new("VkMemoryRequirements*")
        # void vkGetBufferMemoryRequirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements*
        #     pMemoryRequirements)
        vk.vkGetBufferMemoryRequirements(device.handle, self.buffer, requirements)
        information = ffi.new("VkMemoryAllocateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO
        information.allocationSize = requirements.size
        information.memoryTypeIndex = self.memory_type.index
        self._memory = memory = device.handles.new("DeviceMemory")
        # VkResult vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo* pAllocateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkDeviceMemory* pMemory)
        result = vk.vkAllocateMemory(device.handle, information, ffi.NULL, memory.array)
        if result != VK_SUCCESS:
            memory.array[0] = ffi.NULL  # where the driver wrote what is none
        check(result, "vkAllocateMemory")
        # VkResult vkBindBufferMemory(VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize
        #     memoryOffset)
        check(vk.vkBindBufferMemory(device.handle, self.buffer, memory.value, 0), "vkBindBufferMemory")
        if self.memory_type.flags & HOST_VISIBLE:
            address = ffi.new("void**")
            # VkResult vkMapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size,
            #     VkMemoryMapFlags flags, void** ppData)
            check(vk.vkMapMemory(device.handle, memory.value, 0, self.size, 0, address), "vkMapMemory")
            self.mapped = np.frombuffer(ffi.buffer(address[0], self.size), np.uint8)

    def destroy(self) -> None:
        """Give buffer and memory back to the driver; freeing memory also unmaps it. May be repeated."""
        self.mapped = None
        for handle in (self._buffer, self._memory):
            if handle is not None:
                handle.destroy()


def create_buffer(device: VulkanDevice, size: int) -> Handle:
    """A VkBuffer that kernels and copies can use, on all of the device's queues, without memory yet."""
    information = vk.ffi.new("VkBufferCreateInfo*")
    information.sType = vk.VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO
    information.size = size
    information.usage = BUFFER_USAGE
    families = vk.ffi.new("uint32_t[]", device.families)
    if len(device.families) > 1:
        # No queue family owns it: a barrier for handing over would have to be known on both sides beforehand.
        information.sharingMode = vk.VK_SHARING_MODE_CONCURRENT
        information.queueFamilyIndexCount = len(device.families)
        information.pQueueFamilyIndices = families
    return device.handles.create("Buffer", information)


class Segment(NamedTuple):
    """Bytes [offset, offset + size) of one VkBuffer."""

    block: MappedBuffer
    offset: int
    size: int


class Allocation:
    """Memory of one tensor or buffer; given back when the last reference to it is dropped.

    Attributes
    ----------
    size : int
        Bytes asked for.
    segments : tuple of Segment
        Where they lie: byte b is in segment b // segment_size.
    lease : weak reference to this
        What the pool knows it by: memory whose lease is dead is nobody's.
    access : MemoryUse
        The work that uses it.
    """

    __slots__ = ("__weakref__", "access", "lease", "pool", "segment_size", "segments", "size")

    def __init__(self, pool: MemoryPool, size: int, segment_size: int) -> None:
        self.pool = pool
        self.size = size
        self.segments: tuple[Segment, ...] = ()
        self.segment_size = segment_size
        self.access = MemoryUse()
        self.lease = ref(self)

    def pieces(self, offset: int, size: int) -> list[tuple[Segment, int, int]]:
        """The parts of bytes [offset, offset + size): each a segment, the start in that segment, and the length."""
        found = []
        while size:
            index = offset // self.segment_size
            start = offset - index * self.segment_size
            length = min(size, self.segment_size - start)
            found.append((self.segments[index], start, length))
            offset += length
            size -= length
        return found

    def __del__(self) -> None:
        self.pool.release(self.segments, self.lease, self.size)


Lease = ref[Allocation]


class MemoryPool:
    """All device memory of one device.

    Who has which memory is told by the leases in the blocks' ranges. All else here follows from them and is made anew
    by `_repair` when an exception ended a change.

    Dropped allocations are queued and not freed on the spot: a drop can happen anywhere, in the midst of an allocation
    too when the garbage collector runs, so it must not wait for a lock.
    """

    def __init__(self, device: VulkanDevice, *, force_staging: bool) -> None:
        self._device = device
        self._physical: PhysicalDevice = device.physical
        self.monitor = Monitor(device, self._repair)
        self._dropped: deque[tuple[tuple[Segment, ...], Lease]] = deque()
        self._buffers: dict[int, MappedBuffer] = {}  # all of them: shared blocks, single segments, staging
        self._blocks: list[MappedBuffer] = []  # the shared ones
        self._segment_size = device.profile.segment_size
        self.heap_used = [0] * len(device.physical.memory_heaps)
        self.allowed_types = self._allowed_types()
        self.memory_type = self._choose_type(force_staging)
        self.is_direct = bool(self.memory_type.flags & DIRECT == DIRECT) and not force_staging
        heap_size = device.physical.memory_heaps[self.memory_type.heap].size
        limit = min(device.profile.segment_size, heap_size // 16, BLOCK_SIZE)
        self.block_size = max(limit // LARGEST_OFFSET_ALIGNMENT * LARGEST_OFFSET_ALIGNMENT, LARGEST_OFFSET_ALIGNMENT)

    def _allowed_types(self) -> list[MemoryType]:
        probe = create_buffer(self._device, LARGEST_OFFSET_ALIGNMENT)
        requirements = vk.ffi.new("VkMemoryRequirements*")
        vk.vkGetBufferMemoryRequirements(self._device.handle, probe.value, requirements)
        probe.destroy()
        return [kind for kind in self._physical.memory_types if requirements.memoryTypeBits >> kind.index & 1]

    def _choose_type(self, force_staging: bool) -> MemoryType:
        """Where tensors live: memory that the host reaches directly, or the device's own where a bus lies between."""
        direct = self._physical.profile.device_type != DeviceType.DISCRETE_GPU and not force_staging

        def rank(kind: MemoryType) -> tuple[bool, bool, bool, int, int]:
            return (
                bool(direct and kind.flags & DIRECT == DIRECT),
                bool(kind.flags & DEVICE_LOCAL),
                not kind.flags & HOST_VISIBLE,
                self._physical.memory_heaps[kind.heap].size,
                -kind.index,
            )

        # Types with flags beyond these (protected, lazily allocated, device-coherent) are for other uses.
        plain = [kind for kind in self.allowed_types if not kind.flags & ~DIRECT]
        return max(plain or self.allowed_types, key=rank)

    def staging_type(self) -> MemoryType:
        """Where host and device exchange data: coherent, cached for fast reads, not device-local if possible."""
        visible = [kind for kind in self.allowed_types if kind.flags & STAGING == STAGING]
        return max(
            visible, key=lambda kind: (bool(kind.flags & HOST_CACHED), not kind.flags & DEVICE_LOCAL, -kind.index)
        )

    def allocate_staging(self, size: int) -> Allocation:
        """Host-visible memory in one segment of its own, for exchanging data with the device."""
        allocation = Allocation(self, size, size)
        self.monitor.run(self._take_staging, allocation)
        return allocation

    def _take_staging(self, allocation: Allocation) -> None:
        block = self._create(allocation.size, self.staging_type(), is_staging=True)
        self._take_first(allocation, block, allocation.size)

    def allocate(self, size: int) -> Allocation:
        """Memory for `size` bytes, its contents undefined.

        Raises
        ------
        DeviceError
            It does not fit; with how much was asked and how much there is.
        """
        # It is there before its memory, so that there is no memory without someone to give it back.
        allocation = Allocation(self, size, self._segment_size)
        padded = -(-size // LARGEST_OFFSET_ALIGNMENT) * LARGEST_OFFSET_ALIGNMENT
        # Monitor.run, written out: most tensors come this way.
        monitor = self.monitor
        if monitor.lock._is_owned():
            raise reentered()
        with monitor.lock: found = monitor.inside(self._take_from_block, allocation, padded)  # noqa: E701  # fmt: skip
        if not found:
            self._allocate_anew(allocation, padded)
        return allocation

    def _allocate_anew(self, allocation: Allocation, padded: int) -> None:
        # Work that is done may still hold memory that was dropped long ago.
        self._device.queue.look()
        try:
            return self.monitor.run(self._take, allocation, padded)
        except OutOfMemoryError:
            pass
        # So may work in flight, until it is done.
        self._device.queue.wait_idle()
        self.monitor.run(self._drain, 0)
        self.monitor.run(self._take, allocation, padded)

    def _take_from_block(self, allocation: Allocation, padded: int) -> bool:
        """Whether there is room in a block that there is already; the allocation has it then."""
        if self._dropped:
            self._drain()
        if padded <= self.block_size // 2:
            for block in reversed(self._blocks):
                start = block.ranges.take(padded, allocation.lease)
                if start is not None:
                    allocation.segments = (Segment(block, start, padded),)
                    return True
        return False

    def _take_first(self, allocation: Allocation, block: MappedBuffer, padded: int) -> None:
        """Give an allocation the first part of a new block, behind the segments that it has."""
        start = block.ranges.take(padded, allocation.lease)
        assert start == 0, "a new block is empty"
        allocation.segments = (*allocation.segments, Segment(block, start, padded))

    def _take(self, allocation: Allocation, padded: int) -> None:
        """Memory from a block, or of its own."""
        if self._take_from_block(allocation, padded):
            return
        if padded <= self.block_size // 2:
            try:
                block = self._create(self.block_size, self.memory_type, is_shared=True)
            except OutOfMemoryError:
                # A whole block does not fit any more; this one allocation may.
                self._take_own(allocation, padded)
            else:
                self._blocks.append(block)
                self._take_first(allocation, block, padded)
            return
        self._check_heap(padded, self.memory_type, allocation.size)  # for all segments, before the first is allocated
        try:
            for start in range(0, padded, allocation.segment_size):
                self._take_own(allocation, min(allocation.segment_size, padded - start))
        except OutOfMemoryError:
            segments, allocation.segments = allocation.segments, ()
            self._give(segments, allocation.lease)
            raise

    def _take_own(self, allocation: Allocation, padded: int) -> None:
        self._take_first(allocation, self._create(padded, self.memory_type, allocation.size), padded)

    def _create(
        self,
        size: int,
        memory_type: MemoryType,
        asked: int | None = None,
        *,
        is_shared: bool = False,
        is_staging: bool = False,
    ) -> MappedBuffer:
        """A buffer with memory of its own; `asked` is the number of bytes that a message names."""
        asked = size if asked is None else asked
        self._check_heap(size, memory_type, asked)
        limit = self._device.profile.limits.max_memory_allocation_count
        if len(self._buffers) >= limit:
            raise OutOfMemoryError(
                f"{size_text(asked)} asked, and all {limit} memory objects that the device allows are in use"
            )
        block = MappedBuffer(size, memory_type, is_shared=is_shared, is_staging=is_staging)
        self._buffers[id(block)] = block
        self.heap_used[memory_type.heap] += size
        try:
            block.create(self._device)
        except OutOfMemoryError as error:
            self._destroy(block)
            raise self._out_of_memory(asked, memory_type, f"; {error}") from error
        return block

    def _destroy(self, block: MappedBuffer) -> None:
        """Give a buffer back to the driver."""
        block.destroy()
        if self._buffers.pop(id(block), None) is not None:
            self.heap_used[block.memory_type.heap] -= block.size

    def _check_heap(self, size: int, memory_type: MemoryType, asked: int) -> None:
        # CPU drivers accept any size and hand out pages as they are touched, until the system kills the process.
        heap = self._physical.memory_heaps[memory_type.heap]
        if self.heap_used[heap.index] + size > heap.size:
            raise self._out_of_memory(asked, memory_type, "")

    def _out_of_memory(self, asked: int, memory_type: MemoryType, reason: str) -> OutOfMemoryError:
        heap = self._physical.memory_heaps[memory_type.heap]
        used = self.heap_used[heap.index]
        message = (
            f"{self._physical.profile.name}: out of memory: {size_text(asked)} asked; the heap has "
            f"{size_text(heap.size)}, of which this Device uses {size_text(used)}"
        )
        budget = self._device.memory_budget(heap.index)
        if budget is not None:
            message += f", and the driver says that {size_text(max(0, budget[0] - budget[1]))} are free"
        return OutOfMemoryError(message + reason)

    def release(self, segments: tuple[Segment, ...], lease: Lease, size: int) -> None:
        """Queue the memory of a dropped allocation, and free much of it at once when nobody is allocating."""
        self._dropped.append((segments, lease))
        if size < LARGE and len(self._dropped) < DROPPED_KEPT:
            return  # the next allocation does it
        # Whoever is allocating, or what repairs it, finds it in the queue.
        monitor = self.monitor
        if monitor.is_whole and not monitor.is_entered and self._device.is_usable:
            monitor.run(self._drain)

    def _drain(self, keep: int = 1) -> None:
        """Free what was dropped, and destroy empty blocks but `keep` of them.

        One is kept, so that a program that uses little memory does not ask the driver for it each time.
        """
        has_emptied = keep == 0
        while self._dropped:
            has_emptied |= self._give(*self._dropped[0])
            self._dropped.popleft()
        if has_emptied:
            empty = [block for block in self._blocks if block.ranges.is_empty]
            for block in empty[keep:]:
                self._blocks.remove(block)
                self._destroy(block)

    def _give(self, segments: tuple[Segment, ...], lease: Lease) -> bool:
        """Make memory free again; whether a shared block is empty now."""
        has_emptied = False
        for block, offset, _ in segments:
            block.ranges.give(offset, lease)
            if block.ranges.is_empty:
                has_emptied |= block.is_shared
                if not block.is_shared:
                    self._destroy(block)
        return has_emptied

    def _repair(self) -> None:
        """Take the memory of dead leases back, and make anew what follows from those that live."""
        for block in list(self._buffers.values()):
            block.ranges.repair(lambda lease: lease() is not None)
            if block.ranges.is_empty:
                self._destroy(block)  # it may be half made
        self._blocks = [block for block in self._buffers.values() if block.is_shared]
        self.heap_used = [0] * len(self.heap_used)
        for block in self._buffers.values():
            self.heap_used[block.memory_type.heap] += block.size

    @property
    def used(self) -> int:
        """Bytes that live allocations hold, and work in flight."""
        self._device.queue.look()
        return self.monitor.run(self._used_now)

    def _used_now(self) -> int:
        self._drain()
        return sum(block.size - block.ranges.free for block in self._buffers.values() if not block.is_staging)

    @property
    def buffer_count(self) -> int:
        """Live VkDeviceMemory objects: shared blocks, single segments and staging memory."""
        return len(self._buffers)

    def close(self) -> None:
        """Drop everything; nothing may be in flight. The objects themselves are destroyed with the device."""
        self._dropped.clear()
        for block in list(self._buffers.values()):
            block.mapped = None
        self._buffers.clear()
        self._blocks.clear()
