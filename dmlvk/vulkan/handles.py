"""Vulkan objects, and the ledger that destroys them.

An object is in the ledger from before the driver makes it until after the driver has destroyed it, whoever does that:
finalizers in any thread, the part that the object belongs to, or the end of the device. Each object is destroyed with
its own lock held. So the end of the device, which destroys whatever the ledger still has, waits for everybody else who
is in the middle of that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dmlvk.vulkan.interrupts.availability import Availability
from dmlvk.vulkan.interrupts.locks import RLock
from dmlvk.vulkan.library import VK_SUCCESS, failure, vk


def destroy_in(array: Any, destroy: Any, *parents: Any) -> None:
    """Destroy the Vulkan object in an array of one, if there is one, and empty the array: both or neither.

    array: Vk...[1].
    destroy: the vkDestroy... function of the object.
    *parents: the function's arguments before the object.
    """
    null = vk.ffi.NULL
    # In one line: an exception between two lines would leave an object that nobody knows, or that is destroyed again.
    for handle, array[0] in ((array[0], null),): _ = handle and destroy(*parents, handle, null)  # noqa: B020, E701  # fmt: skip


class Handle:
    """A place for one Vulkan object of a device.

    The place is in the device's ledger before the driver fills it. An exception may strike at any time (see
    `dmlvk.vulkan.interrupts`): an object that no other code came to know is destroyed with the device, and no object is
    destroyed twice.

    array: Vk...[1]. The output of a vkCreate... function; NULL before the call, and from the moment when somebody
        destroys it.
    lock: held while the object is destroyed.
    """

    __slots__ = ("_destroy", "_handles", "array", "lock")

    def __init__(self, handles: Handles, kind: str) -> None:
        self._handles = handles
        # void vkDestroy...(VkDevice device, Vk... object, const VkAllocationCallbacks* pAllocator)
        self._destroy = "vkFreeMemory" if kind == "DeviceMemory" else f"vkDestroy{kind}"
        self.array: Any = vk.ffi.new(f"Vk{kind}[1]")
        self.lock: Any = RLock()

    @property
    def value(self) -> Any:
        """The Vulkan object."""
        return self.array[0]

    @property
    def is_empty(self) -> bool:
        """Whether there is no object: not yet, or no longer."""
        return self.array[0] == vk.ffi.NULL

    def destroy(self) -> None:
        """Destroy the object, if there is one, or wait for the thread that does so; nothing may use it any more."""
        handles = self._handles
        if not handles.availability.is_inherited:
            destroy = getattr(vk, self._destroy)
            with self.lock: destroy_in(self.array, destroy, handles.device[0])  # noqa: E701  # fmt: skip
        handles.forget(self)


class Handles:
    """The ledger of all Vulkan objects of one device.

    device: VkDevice[1]. The device, once it is created.
    availability: says whether the objects belong to a parent process; then they stay as they are.
    """

    def __init__(self, device: Any, availability: Availability) -> None:
        self.device = device
        self.availability = availability
        self._live: dict[int, Handle] = {}

    @property
    def is_entered(self) -> bool:
        """Whether this thread is in the middle of destroying an object."""
        return any(handle.lock._is_owned() for handle in list(self._live.values()))

    def new(self, kind: str) -> Handle:
        """A place for an object of a kind such as "Buffer", for a call that is about to fill it."""
        handle = Handle(self, kind)
        self._live[id(handle)] = handle
        return handle

    def create(self, kind: str, information: Any) -> Handle:
        """Make an object by the function vkCreate<kind>.

        kind: such as "Buffer".
        information: Vk...CreateInfo*.
        Raises DeviceError: the driver fails.
        """
        handle = self.new(kind)
        function = f"vkCreate{kind}"
        # VkResult vkCreate...(VkDevice device, const Vk...CreateInfo* pCreateInfo, const VkAllocationCallbacks*
        #     pAllocator, Vk...* pObject)
        result = getattr(vk, function)(self.device[0], information, vk.ffi.NULL, handle.array)
        if result != VK_SUCCESS:
            # There is no object, but some drivers write to the array all the same.
            handle.array[0] = vk.ffi.NULL
            self.forget(handle)
            raise failure(result, function)
        return handle

    def forget(self, handle: Handle) -> None:
        """Remove a place that holds no object any more from the ledger."""
        self._live.pop(id(handle), None)

    def destroy_all(self, kept: Collection[Handle] = ()) -> None:
        """Destroy every object that is left but the kept ones, the newest first. May be repeated."""
        for handle in reversed(list(self._live.values())):
            if handle not in kept:
                handle.destroy()
