"""Times on the GPU, from timestamps in query pools."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from dmlvk.errors import DeviceError
from dmlvk.vulkan.library import check, vk

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

SMALLEST_POOL = 32
RESULT_64 = 1  # VK_QUERY_RESULT_64_BIT
RESULT_WAIT = 2  # VK_QUERY_RESULT_WAIT_BIT


class QueryPool:
    """A VkQueryPool of `capacity` timestamps."""

    __slots__ = ("capacity", "handle")

    def __init__(self, handle: Any, capacity: int) -> None:
        self.handle = handle
        self.capacity = capacity


class QueryPools:
    """Query pools of one device, used again."""

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self._pools: list[QueryPool] = []
        self._free: deque[QueryPool] = deque()

    def take(self, count: int) -> QueryPool:
        """A pool of at least `count` timestamps. Called with the device's lock held.

        Raises
        ------
        DeviceError
            The queue cannot write timestamps.
        """
        if not self._device.family.timestamp_valid_bits:
            raise DeviceError(f"{self._device.profile.name}: its compute queue cannot write timestamps; ask for none")
        for _ in range(len(self._free)):
            pool = self._free.popleft()
            if pool.capacity >= count:
                return pool
            self._free.append(pool)
        capacity = max(SMALLEST_POOL, 1 << (count - 1).bit_length())
        information = vk.ffi.new("VkQueryPoolCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO
        information.queryType = vk.VK_QUERY_TYPE_TIMESTAMP
        information.queryCount = capacity
        handle = vk.ffi.new("VkQueryPool*")
        # VkResult vkCreateQueryPool(VkDevice device, const VkQueryPoolCreateInfo* pCreateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkQueryPool* pQueryPool)
        check(vk.vkCreateQueryPool(self._device.handle, information, vk.ffi.NULL, handle), "vkCreateQueryPool")
        pool = QueryPool(handle[0], capacity)
        self._pools.append(pool)
        return pool

    def recycle(self, pool: QueryPool) -> None:
        """Take back a pool that nothing in flight uses. Needs no lock, so that finalizers may call it."""
        self._free.append(pool)

    def read(self, pool: QueryPool, count: int) -> list[float]:
        """Seconds between consecutive timestamps of the first `count`; the submission must be done."""
        values = vk.ffi.new("uint64_t[]", count)
        # VkResult vkGetQueryPoolResults(VkDevice device, VkQueryPool queryPool, uint32_t firstQuery, uint32_t
        #     queryCount, size_t dataSize, void* pData, VkDeviceSize stride, VkQueryResultFlags flags)
        result = vk.vkGetQueryPoolResults(
            self._device.handle, pool.handle, 0, count, 8 * count, values, 8, RESULT_64 | RESULT_WAIT
        )
        check(result, "vkGetQueryPoolResults")
        # The counter has so many bits and starts again from 0.
        mask = (1 << self._device.family.timestamp_valid_bits) - 1
        tick = self._device.physical.profile.limits.timestamp_period * 1e-9
        return [((values[i + 1] - values[i]) & mask) * tick for i in range(count - 1)]

    def close(self) -> None:
        """Destroy all pools; nothing may be in flight."""
        for pool in self._pools:
            # void vkDestroyQueryPool(VkDevice device, VkQueryPool queryPool, const VkAllocationCallbacks* pAllocator)
            vk.vkDestroyQueryPool(self._device.handle, pool.handle, vk.ffi.NULL)
        self._pools.clear()
        self._free.clear()
