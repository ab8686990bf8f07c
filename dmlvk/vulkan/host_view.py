"""Views of mapped memory for other libraries: they keep the memory alive, past the closing of the device too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dmlvk.vulkan.blocks import Bytes, Segment


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
