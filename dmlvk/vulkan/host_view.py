"""Views of mapped memory for other libraries: they keep the memory alive, past the closing of the device too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from dmlvk.errors import DeviceError
from dmlvk.vulkan.blocks import Bytes, Segment


class HostView:
    """The holder of an allocation that others read and write through the host's addresses.

    The arrays that `bytes` makes keep this object, and this object keeps the allocation. A device that is closed
    meanwhile keeps the blocks under its views, and destroys them and itself when the last view goes.

    Parameters
    ----------
    memory : object
        The owner of the memory, which is kept.
    segment : Segment
        The memory, in a mapped block.
    close_device : callable
        Goes on with closing the device.
    is_device_closed : callable
        Whether the device was closed.

    Attributes
    ----------
    is_dropped : bool
        No array is left. (A weak reference still finds an object while its finalizer runs.)
    """

    __slots__ = ("__weakref__", "_close_device", "_is_device_closed", "_memory", "_segment", "is_dropped")

    def __init__(
        self,
        memory: object,
        segment: Segment,
        close_device: Callable[[], None],
        is_device_closed: Callable[[], bool],
    ) -> None:
        self._memory = memory
        self._segment = segment
        self._close_device = close_device
        self._is_device_closed = is_device_closed
        self.is_dropped = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface: the whole segment as bytes that can be written."""
        address = self._segment.mapped.ctypes.data
        return {"version": 3, "shape": (self._segment.size,), "typestr": "|u1", "data": (address, False)}

    def bytes(self) -> Bytes:
        """The memory of the allocation. The array, and every array made from it, keeps this view."""
        return np.asarray(self)

    def __del__(self) -> None:
        self.is_dropped = True
        if self._is_device_closed() and not sys.is_finalizing():
            # In the middle of a call of this thread, the next opening of a device goes on with closing.
            with suppress(DeviceError):
                self._close_device()
