"""The memory of a device: the types that tensors and staging memory have, and the bytes that are used of each heap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dmlvk.device_profile import DeviceType
from dmlvk.errors import OutOfMemoryError, shown
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.library import structure, vk
from dmlvk.vulkan.physical_device import MemoryHeap, MemoryType

# VkMemoryPropertyFlagBits
DEVICE_LOCAL = 1
HOST_VISIBLE = 2
HOST_COHERENT = 4
HOST_CACHED = 8
# Memory of the device that the host reads and writes at full speed.
DIRECT = DEVICE_LOCAL | HOST_VISIBLE | HOST_COHERENT | HOST_CACHED
STAGING = HOST_VISIBLE | HOST_COHERENT


def is_direct(memory_type: MemoryType) -> bool:
    """Whether the host reads and writes memory with these flags without staging."""
    return memory_type.flags & DIRECT == DIRECT


def tensor_type(
    allowed: Sequence[MemoryType], heaps: Sequence[MemoryHeap], device_type: DeviceType, *, force_staging: bool
) -> MemoryType:
    """The type that tensors live in: direct memory, or the device's own memory where a bus lies between.

    allowed: the types that a storage buffer may have.
    force_staging: prefer no direct memory; for tests.
    """
    prefers_direct = device_type != DeviceType.DISCRETE_GPU and not force_staging

    def rank(kind: MemoryType) -> tuple[bool, bool, bool, int, int]:
        return (
            prefers_direct and is_direct(kind),
            bool(kind.flags & DEVICE_LOCAL),
            not kind.flags & HOST_VISIBLE,
            heaps[kind.heap].size,
            -kind.index,
        )

    # Types with other flags (protected, lazily allocated, device-coherent) are for other uses.
    plain = [kind for kind in allowed if not kind.flags & ~DIRECT]
    return max(plain or allowed, key=rank)


def staging_type(allowed: Sequence[MemoryType]) -> MemoryType:
    """The type of staging memory: coherent, cached for fast reads, not device-local if possible."""
    visible = [kind for kind in allowed if kind.flags & STAGING == STAGING]
    return max(visible, key=lambda kind: (bool(kind.flags & HOST_CACHED), not kind.flags & DEVICE_LOCAL, -kind.index))


def size_text(size: int) -> str:
    """A number of bytes in a readable unit, followed by the exact number."""
    if size.bit_length() > 64:  # no memory is as large, and a float may not hold it
        return f"{shown(size)} bytes"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.2f} {unit} ({size} bytes)"
    return f"{size} bytes"


class Heaps:
    """The bytes that one Device has allocated from each heap. Changed by one thread at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._heaps = context.physical.memory_heaps
        self._used = [0] * len(self._heaps)

    def take(self, memory_type: MemoryType, size: int) -> None:
        """Count an allocation."""
        self._used[memory_type.heap] += size

    def give(self, memory_type: MemoryType, size: int) -> None:
        """Count an allocation that was freed."""
        self._used[memory_type.heap] -= size

    def recount(self, allocations: Iterable[tuple[MemoryType, int]]) -> None:
        """Count all allocations anew, each given as its type and its bytes."""
        self._used = [0] * len(self._heaps)
        for memory_type, size in allocations:
            self.take(memory_type, size)

    def check(self, size: int, memory_type: MemoryType, asked: int) -> None:
        """Raise an OutOfMemoryError if `size` more bytes do not fit; the message names the `asked` bytes.

        CPU drivers accept any size and supply pages as they are touched, until the system kills the process.
        """
        if self._used[memory_type.heap] + size > self._heaps[memory_type.heap].size:
            raise self.out_of_memory(asked, memory_type)

    def out_of_memory(self, asked: int, memory_type: MemoryType, reason: str = "") -> OutOfMemoryError:
        """The error for `asked` bytes that do not fit; the message ends with the reason."""
        heap = memory_type.heap
        message = (
            f"{self._context.physical.profile.name}: out of memory: {size_text(asked)} requested; the heap has "
            f"{size_text(self._heaps[heap].size)}, of which this Device uses {size_text(self._used[heap])}"
        )
        budget = self._budget(heap)
        if budget is not None:
            message += f", and the driver reports {size_text(max(0, budget[0] - budget[1]))} as free"
        return OutOfMemoryError(message + reason)

    def _budget(self, heap: int) -> tuple[int, int] | None:
        """(budget, usage) of a heap in bytes as the driver estimates them, or None without VK_EXT_memory_budget."""
        if "VK_EXT_memory_budget" not in self._context.configuration.extensions:
            return None
        budget = structure("PhysicalDeviceMemoryBudgetPropertiesEXT")
        properties = structure("PhysicalDeviceMemoryProperties2", pNext=budget)
        # void vkGetPhysicalDeviceMemoryProperties2(VkPhysicalDevice physicalDevice,
        #     VkPhysicalDeviceMemoryProperties2* pMemoryProperties)
        vk.vkGetPhysicalDeviceMemoryProperties2(self._context.physical.handle, properties)
        return budget.heapBudget[heap], budget.heapUsage[heap]
