"""Allocations: the memory of tensors and buffers, in one segment, or in several where one VkBuffer is too small."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from dmlvk.vulkan.blocks import Lease, Segment
from dmlvk.vulkan.memory_use import MemoryUse


class Allocation:
    """Memory of one tensor or buffer; it returns to its pool when the last reference to this object is dropped.

    release: takes the segments, the lease and the size when this object goes. Finalizers call it: it may run in the
        middle of anything, an allocation included.
    size: bytes asked for.
    segment_size: bytes of each segment except the last.
    is_direct: whether the host reads and writes the memory without staging.
    segments: byte b lies in segment b // segment_size.
    lease: by it the pool knows the holder of a segment. If the lease is dead, the segment belongs to nobody.
    access: the work that uses the memory.
    """

    __slots__ = ("__weakref__", "_release", "access", "lease", "segment_size", "segments", "size")

    def __init__(
        self,
        release: Callable[[tuple[Segment, ...], Lease, int], None],
        size: int,
        segment_size: int,
        is_direct: bool,
    ) -> None:
        self._release = release
        self.size = size
        self.segments: tuple[Segment, ...] = ()
        self.segment_size = segment_size
        self.access = MemoryUse(is_direct)
        self.lease: Lease = ref(self)

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
        self._release(self.segments, self.lease, self.size)
