"""Query pools: timestamps on the GPU, and the times between them."""

from __future__ import annotations

from collections import deque
from typing import Any

from dmlvk.errors import DeviceError
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.library import check, structure, vk

SMALLEST_POOL = 32
RESULT_64 = 1  # VK_QUERY_RESULT_64_BIT
RESULT_WAIT = 2  # VK_QUERY_RESULT_WAIT_BIT


class QueryPool:
    """A VkQueryPool of `capacity` timestamps. Its one owner holds this object; when that goes, the pool is reused."""

    __slots__ = ("_free", "capacity", "handle")

    def __init__(self, free: dict[int, deque[Any]], capacity: int, handle: Any) -> None:
        self._free = free
        self.capacity = capacity
        self.handle = handle

    def __del__(self) -> None:
        self._free.setdefault(self.capacity, deque()).append(self.handle)


class QueryPools:
    """The query pools of one device."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._timestamp_bits = context.configuration.compute_family.timestamp_valid_bits
        self._free: dict[int, deque[Any]] = {}  # by capacity

    def take(self, count: int) -> QueryPool:
        """A pool of at least `count` timestamps. Called with the device's monitor entered.

        Raises DeviceError: the compute queue cannot write timestamps.
        """
        if not self._timestamp_bits:
            raise DeviceError(
                f"{self._context.profile.name}: its compute queue cannot write timestamps: timestamps must be False"
            )
        capacity = max(SMALLEST_POOL, 1 << (count - 1).bit_length())
        free = self._free.get(capacity)
        if free:
            return QueryPool(self._free, capacity, free.popleft())
        information = structure("QueryPoolCreateInfo", queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=capacity)
        return QueryPool(self._free, capacity, self._context.handles.create("QueryPool", information).value)

    def read(self, pool: QueryPool, count: int) -> tuple[float, ...]:
        """Seconds between consecutive timestamps of the first `count`; the submission must be done."""
        values = vk.ffi.new("uint64_t[]", count)
        # VkResult vkGetQueryPoolResults(VkDevice device, VkQueryPool queryPool, uint32_t firstQuery, uint32_t
        #     queryCount, size_t dataSize, void* pData, VkDeviceSize stride, VkQueryResultFlags flags)
        result = vk.vkGetQueryPoolResults(
            self._context.handle, pool.handle, 0, count, 8 * count, values, 8, RESULT_64 | RESULT_WAIT
        )
        check(result, "vkGetQueryPoolResults")
        # The counter has this many bits, and starts again at 0 after its highest value.
        mask = (1 << self._timestamp_bits) - 1
        tick = self._context.physical.profile.limits.timestamp_period * 1e-9
        return tuple(((values[i + 1] - values[i]) & mask) * tick for i in range(count - 1))
