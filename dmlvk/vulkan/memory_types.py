"""Memory types: which one tensors live in, and which one the host and the device exchange data through."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.device_profile import DeviceType
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
    """Whether the host reads and writes such memory without staging."""
    return memory_type.flags & DIRECT == DIRECT


def tensor_type(
    allowed: Sequence[MemoryType], heaps: Sequence[MemoryHeap], device_type: DeviceType, *, force_staging: bool
) -> MemoryType:
    """The type that tensors live in: direct memory, or the device's own memory where a bus lies between.

    Parameters
    ----------
    allowed : sequence of MemoryType
        The types that a storage buffer may have.
    heaps : sequence of MemoryHeap
        All heaps of the device.
    device_type : DeviceType
    force_staging : bool
        Prefer no direct memory; for tests.
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
