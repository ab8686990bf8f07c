"""Blocks: one VkBuffer on one VkDeviceMemory each, and segments, which are parts of blocks."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias
from weakref import ref

import numpy as np
import numpy.typing as npt

from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.external import export_of_buffer, export_of_memory
from dmlvk.vulkan.free_ranges import FreeRanges
from dmlvk.vulkan.handles import Handle
from dmlvk.vulkan.heaps import HOST_VISIBLE
from dmlvk.vulkan.library import VK_SUCCESS, check, structure, vk
from dmlvk.vulkan.physical_device import MemoryType

# VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
BUFFER_USAGE = 1 | 2 | 32

Bytes = npt.NDArray[np.uint8]
# A weak reference to the holder of a part of a block. If the reference is dead, the part belongs to nobody.
Lease: TypeAlias = "ref[object]"


class MemoryBlock:
    """One VkBuffer on one VkDeviceMemory, persistently mapped if the memory type is host-visible.

    A block is made in two steps, so that its owner can note it before there is anything to lose.

    size: bytes.
    is_shared: whether several tensors may lie in the block, so that the pool may keep the block for the next ones when
        it is empty.
    is_staging: whether the block holds no tensors.
    ranges: the holder of each part.
    buffer: VkBuffer. None before `create`.
    mapped: the host's view of the memory.
    allocated_size: bytes of the VkDeviceMemory; 0 before `create`.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_memory",
        "allocated_size",
        "buffer",
        "is_shared",
        "is_staging",
        "mapped",
        "memory_type",
        "ranges",
        "size",
    )

    def __init__(self, size: int, memory_type: MemoryType, *, is_shared: bool, is_staging: bool) -> None:
        self.size = size
        self.memory_type = memory_type
        self.is_shared = is_shared
        self.is_staging = is_staging
        self.ranges: FreeRanges[Lease] = FreeRanges(size)
        self.mapped: Bytes | None = None
        self.buffer: Any = None
        self.allocated_size = 0
        self._buffer: Handle | None = None
        self._memory: Handle | None = None

    def create(self, context: Context) -> None:
        """Ask the driver for the buffer and the memory.

        Raises OutOfMemoryError, DeviceError.
        """
        ffi = vk.ffi
        is_exported = context.configuration.exports_memory and not self.is_staging
        self._buffer = create_buffer(context, self.size, is_exported=is_exported)
        self.buffer = self._buffer.value
        device = context.handle
        self.allocated_size = size = _requirements(context, self.buffer).size
        export = export_of_memory() if is_exported else ffi.NULL
        index = self.memory_type.index
        information = structure("MemoryAllocateInfo", pNext=export, allocationSize=size, memoryTypeIndex=index)
        self._memory = memory = context.handles.new("DeviceMemory")
        # VkResult vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo* pAllocateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkDeviceMemory* pMemory)
        result = vk.vkAllocateMemory(device, information, ffi.NULL, memory.array)
        if result != VK_SUCCESS:
            memory.array[0] = ffi.NULL  # some drivers write to it all the same
        check(result, "vkAllocateMemory")
        # VkResult vkBindBufferMemory(VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize
        #     memoryOffset)
        check(vk.vkBindBufferMemory(device, self.buffer, memory.value, 0), "vkBindBufferMemory")
        if self.memory_type.flags & HOST_VISIBLE:
            address = ffi.new("void**")
            # VkResult vkMapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size,
            #     VkMemoryMapFlags flags, void** ppData)
            check(vk.vkMapMemory(device, memory.value, 0, self.size, 0, address), "vkMapMemory")
            self.mapped = np.frombuffer(ffi.buffer(address[0], self.size), np.uint8)

    @property
    def memory(self) -> Any:
        """The VkDeviceMemory."""
        assert self._memory is not None, "asked for after `create`"
        return self._memory.value

    @property
    def handles(self) -> list[Handle]:
        """The Vulkan objects of the block."""
        return [handle for handle in (self._buffer, self._memory) if handle is not None]

    def destroy(self) -> None:
        """Return the buffer and the memory to the driver; freeing memory also unmaps it. May be repeated."""
        self.mapped = None
        for handle in self.handles:
            handle.destroy()


class Segment(NamedTuple):
    """Bytes [offset, offset + size) of one block."""

    block: MemoryBlock
    offset: int
    size: int

    @property
    def mapped(self) -> Bytes:
        """The host's view of these bytes, in a mapped block. It does not keep the memory."""
        mapped = self.block.mapped
        assert mapped is not None, "staging and direct memory are mapped for as long as they live"
        return mapped[self.offset : self.offset + self.size]


def create_buffer(context: Context, size: int, *, is_exported: bool = False) -> Handle:
    """A VkBuffer without memory yet, which kernels and copies on all of the device's queues can use."""
    families = context.configuration.families
    export = export_of_buffer() if is_exported else vk.ffi.NULL
    information = structure("BufferCreateInfo", pNext=export, size=size, usage=BUFFER_USAGE)
    indices = vk.ffi.new("uint32_t[]", families)
    if len(families) > 1:
        # No queue family owns the buffer: both families would have to know a transfer of ownership beforehand.
        information.sharingMode = vk.VK_SHARING_MODE_CONCURRENT
        information.queueFamilyIndexCount = len(families)
        information.pQueueFamilyIndices = indices
    return context.handles.create("Buffer", information)


def _requirements(context: Context, buffer: Any) -> Any:
    requirements = vk.ffi.new("VkMemoryRequirements*")
    # void vkGetBufferMemoryRequirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements* pMemoryRequirements)
    vk.vkGetBufferMemoryRequirements(context.handle, buffer, requirements)
    return requirements


def allowed_types(context: Context) -> list[MemoryType]:
    """The memory types that a block may have."""
    probe = create_buffer(context, LARGEST_OFFSET_ALIGNMENT, is_exported=context.configuration.exports_memory)
    bits = _requirements(context, probe.value).memoryTypeBits
    probe.destroy()
    return [kind for kind in context.physical.memory_types if bits >> kind.index & 1]
