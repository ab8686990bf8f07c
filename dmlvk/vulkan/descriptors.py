"""Descriptor sets: one layout for all kernels, and sets that are reused."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from dmlvk.vulkan.context import Context
from dmlvk.vulkan.interrupts.monitor import Monitor
from dmlvk.vulkan.library import check, structure, vk

# The storage buffers of the kernel with the most: quantized_linear_convolution_add/matrix, for one.
LARGEST_BUFFER_COUNT = 13
FIRST_POOL_SETS = 64
LARGEST_POOL_SETS = 4096
STORAGE_BUFFER = 7  # VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
COMPUTE_SHADER_STAGE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT


class BufferRange(NamedTuple):
    """One storage buffer binding: bytes [offset, offset + size) of a VkBuffer."""

    buffer: Any
    offset: int
    size: int


class DescriptorSet:
    """A VkDescriptorSet. Its one owner holds this object; when the object goes, the set is reused."""

    __slots__ = ("_free", "handle")

    def __init__(self, free: deque[Any], handle: Any) -> None:
        self._free = free
        self.handle = handle

    def __del__(self) -> None:
        # No work in flight uses the set: a submission keeps everything that it was made of alive.
        self._free.append(self.handle)


class DescriptorSets:
    """Makes descriptor sets of storage buffers at bindings 0, 1, 2, ..., for compute shaders.

    All sets have one layout, which has as many bindings as the kernel with the most. So all pipelines share one
    VkPipelineLayout. A kernel with fewer buffers does not use the last bindings, and nothing is ever written to them: a
    set is reused for the same number of buffers alone. lavapipe looks at all bindings of a set, and would find buffers
    there that are destroyed.

    layout: VkDescriptorSetLayout.
    """

    def __init__(self, context: Context) -> None:
        self._device = context.handle
        self._handles = context.handles
        self.monitor = Monitor(context.availability)
        self._count = min(LARGEST_BUFFER_COUNT, context.profile.limits.max_per_stage_descriptor_storage_buffers)
        # By the number of buffers that are written.
        self._pool_sizes: dict[int, int] = {}
        self._free: dict[int, deque[Any]] = {}
        self.layout = self._new_layout()

    def _new_layout(self) -> Any:
        ffi = vk.ffi
        bindings = ffi.new("VkDescriptorSetLayoutBinding[]", self._count)
        for i, binding in enumerate(bindings):
            binding.binding = i
            binding.descriptorType = STORAGE_BUFFER
            binding.descriptorCount = 1
            binding.stageFlags = COMPUTE_SHADER_STAGE
        information = structure("DescriptorSetLayoutCreateInfo", bindingCount=self._count, pBindings=bindings)
        return self._handles.create("DescriptorSetLayout", information).value

    def take(self, ranges: list[BufferRange]) -> DescriptorSet:
        """A descriptor set of the given buffers."""
        ffi = vk.ffi
        buffers = ffi.new("VkDescriptorBufferInfo[]", ranges)
        writes = ffi.new("VkWriteDescriptorSet*")
        writes.sType = vk.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
        # Consecutive bindings of one type can be written as if they were one array.
        writes.descriptorCount = len(ranges)
        writes.descriptorType = STORAGE_BUFFER
        writes.pBufferInfo = buffers
        return self.monitor.run(self._take, len(ranges), writes)

    def _take(self, count: int, writes: Any) -> DescriptorSet:
        free = self._free.setdefault(count, deque())
        if not free:
            free.extend(self._new_sets(count))
        taken = DescriptorSet(free, free.popleft())
        writes.dstSet = taken.handle
        # void vkUpdateDescriptorSets(VkDevice device, uint32_t descriptorWriteCount, const VkWriteDescriptorSet*
        #     pDescriptorWrites, uint32_t descriptorCopyCount, const VkCopyDescriptorSet* pDescriptorCopies)
        vk.vkUpdateDescriptorSets(self._device, 1, writes, 0, vk.ffi.NULL)
        return taken

    def _new_sets(self, count: int) -> list[Any]:
        ffi = vk.ffi
        # Each pool is twice as large as the last, so that few bindings make a small pool, and many make few pools.
        sets = self._pool_sizes.get(count, FIRST_POOL_SETS)
        self._pool_sizes[count] = min(2 * sets, LARGEST_POOL_SETS)
        size = ffi.new("VkDescriptorPoolSize*", (STORAGE_BUFFER, sets * self._count))
        information = structure("DescriptorPoolCreateInfo", maxSets=sets, poolSizeCount=1, pPoolSizes=size)
        pool = self._handles.create("DescriptorPool", information)
        layouts = ffi.new("VkDescriptorSetLayout[]", [self.layout] * sets)
        allocation = structure(
            "DescriptorSetAllocateInfo", descriptorPool=pool.value, descriptorSetCount=sets, pSetLayouts=layouts
        )
        array = ffi.new("VkDescriptorSet[]", sets)
        # VkResult vkAllocateDescriptorSets(VkDevice device, const VkDescriptorSetAllocateInfo* pAllocateInfo,
        #     VkDescriptorSet* pDescriptorSets)
        result = vk.vkAllocateDescriptorSets(self._device, allocation, array)
        if result:  # not VK_SUCCESS
            pool.destroy()
        check(result, "vkAllocateDescriptorSets")
        return list(array)
