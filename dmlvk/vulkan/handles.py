"""Vulkan objects and who destroys them: settled before the driver makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmlvk.vulkan.library import VK_SUCCESS, failure, vk

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice


def destroy_in(array: Any, destroy: Any, *parents: Any) -> None:
    """Destroy the Vulkan object in an array of one, if there is one, and empty the array: both or nothing.

    Parameters
    ----------
    array : Vk...[1]
    destroy : function
        Its vkDestroy... function.
    *parents
        The function's arguments before the object.
    """
    null = vk.ffi.NULL
    # In one line: between two, an exception would leave an object that nobody knows, or that is destroyed again.
    for handle, array[0] in ((array[0], null),): _ = handle and destroy(*parents, handle, null)  # noqa: B020, E701  # fmt: skip


class Handle:
    """A place for one Vulkan object of a device.

    The place is noted with the device before the driver fills it. An exception may strike at any time (see
    `dmlvk.vulkan.monitor`): whatever nobody came to know is destroyed with the device, and nothing is destroyed twice.

    Attributes
    ----------
    array : Vk...[1]
        What a vkCreate... function writes to; NULL before it is called and after the object is destroyed.
    """

    __slots__ = ("_destroy", "_handles", "array")

    def __init__(self, handles: Handles, kind: str) -> None:
        self._handles = handles
        # void vkDestroy...(VkDevice device, Vk... object, const VkAllocationCallbacks* pAllocator)
        self._destroy = "vkFreeMemory" if kind == "DeviceMemory" else f"vkDestroy{kind}"
        self.array: Any = vk.ffi.new(f"Vk{kind}[1]")

    @property
    def value(self) -> Any:
        """The Vulkan object."""
        return self.array[0]

    @property
    def is_empty(self) -> bool:
        """Whether there is no object: none yet, or none any more."""
        return self.array[0] == vk.ffi.NULL

    def destroy(self) -> None:
        """Destroy the object, if there is one; nothing may use it any more."""
        handles = self._handles
        if not handles.is_inherited:
            destroy_in(self.array, getattr(vk, self._destroy), handles.device.handle)
        handles.forget(self)


class Handles:
    """All Vulkan objects of one device.

    Attributes
    ----------
    device : VulkanDevice
    is_inherited : bool
        In a forked child: the objects are the parent's, and stay as they are.
    """

    def __init__(self, device: VulkanDevice) -> None:
        self.device = device
        self.is_inherited = False
        self._live: dict[int, Handle] = {}

    def new(self, kind: str) -> Handle:
        """A place for an object of a kind such as "Buffer", for a call that is to fill it."""
        handle = Handle(self, kind)
        self._live[id(handle)] = handle
        return handle

    def create(self, kind: str, information: Any) -> Handle:
        """Make an object by the function vkCreate<kind>.

        Raises
        ------
        DeviceError
            The driver fails.
        """
        handle = self.new(kind)
        function = f"vkCreate{kind}"
        # VkResult vkCreate...(VkDevice device, const Vk...CreateInfo* pCreateInfo, const VkAllocationCallbacks*
        #     pAllocator, Vk...* pObject)
        result = getattr(vk, function)(self.device.handle, information, vk.ffi.NULL, handle.array)
        if result != VK_SUCCESS:
            # Drivers may have written to it; there is no object.
            handle.array[0] = vk.ffi.NULL
            self.forget(handle)
            raise failure(result, function)
        return handle

    def forget(self, handle: Handle) -> None:
        """There is no object in this place any more."""
        self._live.pop(id(handle), None)

    def destroy_all(self) -> None:
        """Destroy every object that there still is, the last made first. May be repeated where it was interrupted."""
        for handle in reversed(list(self._live.values())):
            handle.destroy()
