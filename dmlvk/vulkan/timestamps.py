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
    """A VkQueryPool of `capacity` timestamps. Its owner holds this object; when it goes, the pool is used again.

    Attributes
    ----------
    handle : VkQueryPool
    """

    __slots__ = ("_free", "capacity", "handle")

    def __init__(self, free: dict[int, deque[Any]], capacity: int, handle: Any) -> None:
        self._free = free
        self.capacity = capacity
        self.handle = handle

    def __del__(self) -> None:
        self._free.setdefault(self.capacity, deque()).append(self.handle)


class QueryPools:
    """Query pools of one device, used again."""

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self._free: dict[int, deque[Any]] = {}  # by capacity

    def take(self, count: int) -> QueryPool:
        """A pool of at least `count` timestamps. Called with the device's monitor entered.

        Raises
        ------
        DeviceError
            The queue cannot write timestamps.
        """
        if not self._device.family.timestamp_valid_bits:
            raise DeviceError(f"{self._device.profile.name}: its compute queue cannot write timestamps; ask for none")
        capacity = max(SMALLEST_POOL, 1 << (count - 1).bit_length())
        free = self._free.get(capacity)
        if free:
            return QueryPool(self._free, capacity, free.popleft())
        information = vk.ffi.new("VkQueryPoolCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO
        information.queryType = vk.VK_QUERY_TYPE_TIMESTAMP
        information.queryCount = capacity
        return QueryPool(self._free, capacity, self._device.handles.create("QueryPool", information).value)

    def read(self, pool: QueryPool, count: int) -> tuple[float, ...]:
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
        return tuple(((values[i + 1] - values[i]) & mask) * tick for i in range(count - 1))
