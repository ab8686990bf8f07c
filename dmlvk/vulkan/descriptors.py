"""Descriptor sets: one layout for each number of storage buffers, and sets that are used again."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from dmlvk.vulkan.library import check, vk

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

FIRST_POOL_SETS = 64
LARGEST_POOL_SETS = 4096
STORAGE_BUFFER = 7  # VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
COMPUTE_SHADER_STAGE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT


class BufferRange(NamedTuple):
    """One storage buffer binding: bytes [offset, offset + size) of a VkBuffer."""

    buffer: Any
    offset: int
    size: int


class DescriptorSets:
    """Makes descriptor sets of n storage buffers at bindings 0 to n - 1, for compute shaders."""

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._layouts: dict[int, Any] = {}
        self._pools: list[Any] = []
        self._pool_sizes: dict[int, int] = {}
        self._free: dict[int, deque[Any]] = {}

    def layout(self, count: int) -> Any:
        """The VkDescriptorSetLayout of `count` storage buffers."""
        with self._lock:
            return self._layout(count)

    def _layout(self, count: int) -> Any:
        layout = self._layouts.get(count)
        if layout is None:
            ffi = vk.ffi
            bindings = ffi.new("VkDescriptorSetLayoutBinding[]", max(1, count))
            for i in range(count):
                bindings[i].binding = i
                bindings[i].descriptorType = STORAGE_BUFFER
                bindings[i].descriptorCount = 1
                bindings[i].stageFlags = COMPUTE_SHADER_STAGE
            information = ffi.new("VkDescriptorSetLayoutCreateInfo*")
            information.sType = vk.VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO
            information.bindingCount = count
            information.pBindings = bindings
            handle = ffi.new("VkDescriptorSetLayout*")
            # VkResult vkCreateDescriptorSetLayout(VkDevice device, const VkDescriptorSetLayoutCreateInfo*
            #     pCreateInfo, const VkAllocationCallbacks* pAllocator, VkDescriptorSetLayout* pSetLayout)
            result = vk.vkCreateDescriptorSetLayout(self._device.handle, information, ffi.NULL, handle)
            check(result, "vkCreateDescriptorSetLayout")
            layout = self._layouts[count] = handle[0]
            self._free[count] = deque()
        return layout

    def take(self, ranges: list[BufferRange]) -> Any:
        """A VkDescriptorSet that holds the given buffers."""
        count = len(ranges)
        ffi = vk.ffi
        buffers = ffi.new("VkDescriptorBufferInfo[]", ranges)
        writes = ffi.new("VkWriteDescriptorSet*")
        writes.sType = vk.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
        # Consecutive bindings of one type can be written as if they were one array.
        writes.descriptorCount = count
        writes.descriptorType = STORAGE_BUFFER
        writes.pBufferInfo = buffers
        with self._lock:
            self._device.require_open()
            layout = self._layout(count)
            free = self._free[count]
            if not free:
                free.extend(self._new_sets(layout, count))
            descriptor_set = writes.dstSet = free.popleft()
            # void vkUpdateDescriptorSets(VkDevice device, uint32_t descriptorWriteCount, const VkWriteDescriptorSet*
            #     pDescriptorWrites, uint32_t descriptorCopyCount, const VkCopyDescriptorSet* pDescriptorCopies)
            vk.vkUpdateDescriptorSets(self._device.handle, 1, writes, 0, ffi.NULL)
        return descriptor_set

    def recycle(self, count: int, descriptor_set: Any) -> None:
        """Take back a set of `count` buffers that nothing in flight uses. Needs no lock: finalizers call it."""
        self._free[count].append(descriptor_set)

    def _new_sets(self, layout: Any, count: int) -> list[Any]:
        ffi = vk.ffi
        # Pools double, so that a program with few bindings makes a small one and one with many makes few.
        sets = self._pool_sizes.get(count, FIRST_POOL_SETS)
        self._pool_sizes[count] = min(2 * sets, LARGEST_POOL_SETS)
        size = ffi.new("VkDescriptorPoolSize*", (STORAGE_BUFFER, sets * count))
        information = ffi.new("VkDescriptorPoolCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO
        information.maxSets = sets
        information.poolSizeCount = 1
        information.pPoolSizes = size
        pool = ffi.new("VkDescriptorPool*")
        # VkResult vkCreateDescriptorPool(VkDevice device, const VkDescriptorPoolCreateInfo* pCreateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkDescriptorPool* pDescriptorPool)
        check(vk.vkCreateDescriptorPool(self._device.handle, information, ffi.NULL, pool), "vkCreateDescriptorPool")
        layouts = ffi.new("VkDescriptorSetLayout[]", [layout] * sets)
        allocation = ffi.new("VkDescriptorSetAllocateInfo*")
        allocation.sType = vk.VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO
        allocation.descriptorPool = pool[0]
        allocation.descriptorSetCount = sets
        allocation.pSetLayouts = layouts
        array = ffi.new("VkDescriptorSet[]", sets)
        # VkResult vkAllocateDescriptorSets(VkDevice device, const VkDescriptorSetAllocateInfo* pAllocateInfo,
        #     VkDescriptorSet* pDescriptorSets)
        try:
            check(vk.vkAllocateDescriptorSets(self._device.handle, allocation, array), "vkAllocateDescriptorSets")
        except BaseException:
            vk.vkDestroyDescriptorPool(self._device.handle, pool[0], ffi.NULL)
            raise
        self._pools.append(pool[0])
        return list(array)

    def close(self) -> None:
        """Destroy all sets and layouts; nothing may be in flight."""
        with self._lock:
            self._destroy()

    def _destroy(self) -> None:
        for pool in self._pools:
            # void vkDestroyDescriptorPool(VkDevice device, VkDescriptorPool descriptorPool, const
            #     VkAllocationCallbacks* pAllocator)
            vk.vkDestroyDescriptorPool(self._device.handle, pool, vk.ffi.NULL)
        for layout in self._layouts.values():
            # void vkDestroyDescriptorSetLayout(VkDevice device, VkDescriptorSetLayout descriptorSetLayout, const
            #     VkAllocationCallbacks* pAllocator)
            vk.vkDestroyDescriptorSetLayout(self._device.handle, layout, vk.ffi.NULL)
        self._pools.clear()
        self._layouts.clear()
