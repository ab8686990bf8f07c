"""The memory of one tensor, and views of it for other libraries, which keep it past the closing of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from dmlvk.vulkan.blocks import Bytes, Lease, Segment
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


class HostView:
    """The holder of an allocation that others read and write through the host's addresses.

    The arrays that `bytes` makes keep this object, and this object keeps the allocation. Each export has a view of its
    own: a view that two threads share could be dropped by one of them while the other one takes it. A device that is
    closed meanwhile keeps the blocks under its views, and destroys them and itself when the last view goes.

    memory: the owner of the memory, which is kept.
    segment: the part of the memory, in a mapped block.
    after_drop: called when no array is left.
    is_dropped: no array is left. (A weak reference still finds an object while its finalizer runs.)
    """

    __slots__ = ("__weakref__", "_after_drop", "_memory", "is_dropped", "segment")

    def __init__(self, memory: object, segment: Segment, after_drop: Callable[[], None]) -> None:
        self.is_dropped = False
        self._memory = memory
        self.segment = segment
        self._after_drop = after_drop  # last: `__del__` looks for it

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface: the whole segment as bytes that can be written."""
        address = self.segment.mapped.ctypes.data
        return {"version": 3, "shape": (self.segment.size,), "typestr": "|u1", "data": (address, False)}

    def bytes(self) -> Bytes:
        """The memory of the segment. The array, and every array made from it, keeps this view."""
        return np.asarray(self)

    def __del__(self) -> None:
        self.is_dropped = True
        after_drop = getattr(self, "_after_drop", None)
        if after_drop is not None:  # else an exception struck in the constructor
            after_drop()
