"""The context of a device: its VkDevice, its configuration, and the objects that all parts of the device share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import DeviceError
from dmlvk.vulkan.configuration import Configuration
from dmlvk.vulkan.device_properties import chain_of, feature_structures
from dmlvk.vulkan.handles import Handle, Handles, destroy_in
from dmlvk.vulkan.interrupts.availability import Availability
from dmlvk.vulkan.interrupts.monitor import Monitor
from dmlvk.vulkan.interrupts.visits import Visits
from dmlvk.vulkan.library import VK_ERROR_DEVICE_LOST, VK_SUCCESS, failure, structure, vk
from dmlvk.vulkan.physical_device import PhysicalDevice


class Context:
    """The part of a device that its other parts stand on.

    It is made without a call of the driver, so that the code that opens a device can note it before there is anything
    to lose. `create` then makes the VkDevice.

    profile: the capabilities that plans are made for: those of the physical device, or narrower ones.
    availability: whether the device is open.
    handles: every Vulkan object of the device.
    monitor: entered while command buffers are recorded and submitted.
    visits: the waits and the uses of mapped memory that are going on; closing the device waits for them.
    """

    __slots__ = (
        "_array",
        "availability",
        "configuration",
        "handles",
        "monitor",
        "physical",
        "profile",
        "visits",
    )

    def __init__(self, physical: PhysicalDevice, profile: DeviceProfile, configuration: Configuration) -> None:
        self.physical = physical
        self.profile = profile
        self.configuration = configuration
        self._array: Any = vk.ffi.new("VkDevice[1]")
        self.availability = Availability(profile.name)
        self.handles = Handles(self._array, self.availability)
        self.monitor = Monitor(self.availability)
        self.visits = Visits(self.availability)

    @property
    def handle(self) -> Any:
        """The VkDevice; NULL before `create` and after `destroy`."""
        return self._array[0]

    def create(self) -> None:
        """Make the VkDevice with the queues, features and extensions of the configuration.

        Raises DeviceError: the driver fails.
        """
        ffi = vk.ffi
        configuration = self.configuration
        priorities = ffi.new("float[2]", [1.0, 1.0])
        queues = ffi.new("VkDeviceQueueCreateInfo[]", len(configuration.families))
        for queue, family in zip(queues, configuration.families, strict=True):
            queue.sType = vk.VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO
            queue.queueFamilyIndex = family
            queue.queueCount = configuration.queue_count(family)
            queue.pQueuePriorities = priorities
        version = self.physical.profile.api_version
        chain = chain_of(feature_structures(version, frozenset(configuration.extensions)))
        basic = ffi.new("VkPhysicalDeviceFeatures*")
        for features in (basic, *chain):
            for name, _ in ffi.typeof(features).item.fields:
                if name in configuration.features:
                    setattr(features, name, 1)
        names = [ffi.new("char[]", name.encode()) for name in configuration.extensions]
        name_array = ffi.new("char*[]", names)
        information = structure(
            "DeviceCreateInfo",
            pNext=chain[0],
            pEnabledFeatures=basic,
            queueCreateInfoCount=len(queues),
            pQueueCreateInfos=queues,
            enabledExtensionCount=len(names),
            ppEnabledExtensionNames=name_array,
        )
        # VkResult vkCreateDevice(VkPhysicalDevice physicalDevice, const VkDeviceCreateInfo* pCreateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkDevice* pDevice)
        result = vk.vkCreateDevice(self.physical.handle, information, ffi.NULL, self._array)
        if result != VK_SUCCESS:
            self._array[0] = ffi.NULL
            raise failure(result, "vkCreateDevice")

    def failure(self, result: int, call: str) -> DeviceError:
        """The exception for the VkResult of a call. After VK_ERROR_DEVICE_LOST the device counts as lost."""
        if result == VK_ERROR_DEVICE_LOST:
            self.availability.lose()
        return failure(result, call)

    def destroy(self, kept: Collection[Handle] = ()) -> None:
        """Destroy every Vulkan object but the kept ones, then the VkDevice if none is kept; nothing is in flight.

        May be repeated.
        """
        self.handles.destroy_all(kept)
        if kept:
            return
        # void vkDestroyDevice(VkDevice device, const VkAllocationCallbacks* pAllocator)
        destroy_in(self._array, vk.vkDestroyDevice)
