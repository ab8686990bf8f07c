"""Device memory: blocks that many tensors share, and segments for what is larger than one VkBuffer may be."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT, DeviceType
from dmlvk.errors import shown
from dmlvk.vulkan.access import Access
from dmlvk.vulkan.free_ranges import FreeRanges
from dmlvk.vulkan.library import OutOfMemoryError, check, vk
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
    """One VkBuffer on one VkDeviceMemory, persistently mapped where the memory type is host-visible."""

    __slots__ = ("buffer", "mapped", "memory", "memory_type", "ranges", "size")

    def __init__(self, device: VulkanDevice, size: int, memory_type: MemoryType) -> None:
        ffi = vk.ffi
        self.size = size
        self.memory_type = memory_type
        self.ranges: FreeRanges | None = None
        self.mapped: Bytes | None = None
        self.memory: Any = None
        self.buffer = create_buffer(device, size)
        try:
            requirements = ffi.new("VkMemoryRequirements*")
            # void vkGetBufferMemoryRequirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements*
            #     pMemoryRequirements)
            vk.vkGetBufferMemoryRequirements(device.handle, self.buffer, requirements)
            information = ffi.new("VkMemoryAllocateInfo*")
            information.sType = vk.VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO
            information.allocationSize = requirements.size
            information.memoryTypeIndex = memory_type.index
            memory = ffi.new("VkDeviceMemory*")
            # VkResult vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo* pAllocateInfo, const
            #     VkAllocationCallbacks* pAllocator, VkDeviceMemory* pMemory)
            check(vk.vkAllocateMemory(device.handle, information, ffi.NULL, memory), "vkAllocateMemory")
            self.memory = memory[0]
            # VkResult vkBindBufferMemory(VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize
            #     memoryOffset)
            check(vk.vkBindBufferMemory(device.handle, self.buffer, self.memory, 0), "vkBindBufferMemory")
            if memory_type.flags & HOST_VISIBLE:
                address = ffi.new("void**")
                # VkResult vkMapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size,
                #     VkMemoryMapFlags flags, void** ppData)
                check(vk.vkMapMemory(device.handle, self.memory, 0, size, 0, address), "vkMapMemory")
                self.mapped = np.frombuffer(ffi.buffer(address[0], size), np.uint8)
        except BaseException:
            self.destroy(device)
            raise

    def destroy(self, device: VulkanDevice) -> None:
        """Give buffer and memory back to the driver; freeing memory also unmaps it."""
        self.mapped = None
        # void vkDestroyBuffer(VkDevice device, VkBuffer buffer, const VkAllocationCallbacks* pAllocator)
        vk.vkDestroyBuffer(device.handle, self.buffer, vk.ffi.NULL)
        if self.memory is not None:
            # void vkFreeMemory(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks* pAllocator)
            vk.vkFreeMemory(device.handle, self.memory, vk.ffi.NULL)
            self.memory = None


def create_buffer(device: VulkanDevice, size: int) -> Any:
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
    buffer = vk.ffi.new("VkBuffer*")
    # VkResult vkCreateBuffer(VkDevice device, const VkBufferCreateInfo* pCreateInfo, const VkAllocationCallbacks*
    #     pAllocator, VkBuffer* pBuffer)
    check(vk.vkCreateBuffer(device.handle, information, vk.ffi.NULL, buffer), "vkCreateBuffer")
    return buffer[0]


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
    access : Access
        The work that uses it.
    """

    __slots__ = ("__weakref__", "access", "pool", "segment_size", "segments", "size")

    def __init__(self, pool: MemoryPool, size: int, segments: tuple[Segment, ...], segment_size: int) -> None:
        self.pool = pool
        self.size = size
        self.segments = segments
        self.segment_size = segment_size
        self.access = Access()

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
        self.pool.release(self.segments)


class MemoryPool:
    """All device memory of one device.

    Dropped allocations are queued and not freed on the spot: a drop can happen anywhere, in the midst of an allocation
    too when the garbage collector runs, so it must not wait for a lock.
    """

    def __init__(self, device: VulkanDevice, *, force_staging: bool) -> None:
        self._device = device
        self._physical: PhysicalDevice = device.physical
        self._lock = threading.Lock()
        self._dropped: deque[tuple[Segment, ...]] = deque()
        self._buffers: set[MappedBuffer] = set()  # all of them: shared blocks, single segments, staging
        self._blocks: list[MappedBuffer] = []
        self._empty_blocks = 0
        self._closed = False
        self._used = 0
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
        vk.vkGetBufferMemoryRequirements(self._device.handle, probe, requirements)
        vk.vkDestroyBuffer(self._device.handle, probe, vk.ffi.NULL)
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

    def create_staging(self, size: int) -> MappedBuffer:
        """Host-visible memory that the pool keeps until it is closed."""
        with self._lock:
            return self.create(size, self.staging_type())

    def allocate(self, size: int) -> Allocation:
        """Memory for `size` bytes, its contents undefined.

        Raises
        ------
        DeviceError
            It does not fit; with how much was asked and how much there is.
        """
        segment_size = self._segment_size
        padded = -(-size // LARGEST_OFFSET_ALIGNMENT) * LARGEST_OFFSET_ALIGNMENT
        with self._lock:
            if self._closed:
                self._device.require_open()
            if self._dropped:
                self._drain()
            segments = self._take_from_block(padded)
        if segments is None:
            segments = self._allocate_anew(size, padded, segment_size)
        return Allocation(self, size, segments, segment_size)

    def _allocate_anew(self, size: int, padded: int, segment_size: int) -> tuple[Segment, ...]:
        # Work that is done may still hold memory that was dropped long ago.
        with self._device.lock:
            self._device.queue.look()
        with self._lock:
            self._device.require_open()
            self._drain()
            try:
                return self._take(size, padded, segment_size)
            except OutOfMemoryError:
                pass
        # So may work in flight, until it is done.
        self._device.queue.wait_idle()
        with self._lock:
            self._device.require_open()
            self._drain()
            self._trim(0)
            return self._take(size, padded, segment_size)

    def _take_from_block(self, padded: int) -> tuple[Segment, ...] | None:
        """A part of a block that there is already, counted as used."""
        if padded <= self.block_size // 2:
            for block in reversed(self._blocks):
                ranges = block.ranges
                if ranges is not None:
                    was_empty = ranges.is_empty
                    start = ranges.take(padded)
                    if start is not None:
                        self._empty_blocks -= was_empty
                        self._used += padded
                        return (Segment(block, start, padded),)
        return None

    def _take(self, size: int, padded: int, segment_size: int) -> tuple[Segment, ...]:
        """Memory from a block, or of its own, counted as used."""
        segments = self._take_from_block(padded)
        if segments is None:
            segments = self._new_segments(size, padded, segment_size)
            self._used += padded
        return segments

    def _new_segments(self, size: int, padded: int, segment_size: int) -> tuple[Segment, ...]:
        if padded <= self.block_size // 2:
            try:
                block = self.create(self.block_size, self.memory_type)
            except OutOfMemoryError:
                # A whole block does not fit any more; this one allocation may.
                return (Segment(self.create(padded, self.memory_type, size), 0, padded),)
            block.ranges = FreeRanges(self.block_size)
            block.ranges.take(padded)
            self._blocks.append(block)
            return (Segment(block, 0, padded),)
        self._check_heap(padded, self.memory_type, size)  # for all segments together, before the first is allocated
        segments: list[Segment] = []
        try:
            for start in range(0, padded, segment_size):
                length = min(segment_size, padded - start)
                segments.append(Segment(self.create(length, self.memory_type, size), 0, length))
        except BaseException:
            for segment in segments:
                self.destroy(segment.block)
            raise
        return tuple(segments)

    def create(self, size: int, memory_type: MemoryType, asked: int | None = None) -> MappedBuffer:
        """A buffer with memory of its own; `asked` is what a message says was wanted. Called with the lock held."""
        asked = size if asked is None else asked
        self._check_heap(size, memory_type, asked)
        limit = self._device.profile.limits.max_memory_allocation_count
        if len(self._buffers) >= limit:
            raise OutOfMemoryError(
                f"{size_text(asked)} asked, and all {limit} memory objects that the device allows are in use"
            )
        try:
            block = MappedBuffer(self._device, size, memory_type)
        except OutOfMemoryError as error:
            raise self._out_of_memory(asked, memory_type, f"; {error}") from error
        self._buffers.add(block)
        self.heap_used[memory_type.heap] += size
        return block

    def destroy(self, block: MappedBuffer) -> None:
        """Give a buffer that `create` made back to the driver."""
        block.destroy(self._device)
        self._buffers.discard(block)
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

    def release(self, segments: tuple[Segment, ...]) -> None:
        """Queue the memory of a dropped allocation, and free it at once when nobody is allocating."""
        self._dropped.append(segments)
        if self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def _drain(self) -> None:
        while self._dropped:
            segments = self._dropped.popleft()
            if self._closed:
                continue
            for block, offset, size in segments:
                self._used -= size
                if block.ranges is None:
                    self.destroy(block)
                else:
                    block.ranges.give(offset, size)
                    if block.ranges.is_empty:
                        self._empty_blocks += 1
                        self._trim(1)

    def _trim(self, keep: int) -> None:
        """Destroy empty blocks but `keep` of them.

        One is kept, so that a program that uses little memory does not ask the driver for it each time.
        """
        while self._empty_blocks > keep:
            block = next(block for block in self._blocks if block.ranges is not None and block.ranges.is_empty)
            self._blocks.remove(block)
            self.destroy(block)
            self._empty_blocks -= 1

    @property
    def used(self) -> int:
        """Bytes that live allocations hold, and work in flight."""
        with self._device.lock:
            self._device.queue.look()
        with self._lock:
            self._drain()
            return self._used

    @property
    def buffer_count(self) -> int:
        """Live VkDeviceMemory objects: shared blocks, single segments and staging memory."""
        return len(self._buffers)

    def close(self) -> None:
        """Free everything, live allocations too; nothing may be in flight."""
        with self._lock:
            self._drain()
            self._closed = True
            for block in list(self._buffers):
                self.destroy(block)
            self._blocks.clear()
