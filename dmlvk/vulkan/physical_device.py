"""The machine's Vulkan devices: reading their capabilities, and choosing one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from dmlvk._common.arguments import integer_of
from dmlvk.device_profile import MINIMUM_API_VERSION, DeviceProfile, DeviceType
from dmlvk.errors import DeviceError, shown
from dmlvk.vulkan.device_properties import read_profile
from dmlvk.vulkan.instance import Instance, instance, names, version_tuple, while_process_lasts
from dmlvk.vulkan.library import driver_hint, structure, vk

# The best type first; a device of type OTHER does not say what it is.
PREFERENCE = (
    DeviceType.DISCRETE_GPU,
    DeviceType.INTEGRATED_GPU,
    DeviceType.VIRTUAL_GPU,
    DeviceType.CPU,
    DeviceType.OTHER,
)

# A selector of this form is an index and no part of a name: "1" is also a part of "LLVM 15.0.6". Python refuses to read
# thousands of digits as a number.
POSITION = re.compile(r"\s*[+-]?\d{1,20}\s*")


@dataclass(frozen=True)
class QueueFamily:
    """One VkQueueFamilyProperties."""

    index: int
    flags: int
    count: int
    timestamp_valid_bits: int

    @property
    def computes(self) -> bool:
        return bool(self.flags & 2)  # VK_QUEUE_COMPUTE_BIT

    @property
    def draws(self) -> bool:
        return bool(self.flags & 1)  # VK_QUEUE_GRAPHICS_BIT

    @property
    def transfers_only(self) -> bool:
        return bool(self.flags & 4) and not self.flags & 3  # VK_QUEUE_TRANSFER_BIT


@dataclass(frozen=True)
class MemoryType:
    """One VkMemoryType."""

    index: int
    flags: int
    heap: int


@dataclass(frozen=True)
class MemoryHeap:
    """One VkMemoryHeap."""

    index: int
    size: int
    device_local: bool


@dataclass(frozen=True)
class PhysicalDevice:
    """A snapshot of a VkPhysicalDevice.

    uuid: the 16 bytes by which other APIs know the same GPU.
    rejection: the reason why dmlvk cannot use the device, or None if it can.
    """

    handle: Any
    profile: DeviceProfile
    queue_families: tuple[QueueFamily, ...]
    memory_types: tuple[MemoryType, ...]
    memory_heaps: tuple[MemoryHeap, ...]
    pipeline_cache_uuid: bytes
    uuid: bytes
    rejection: str | None

    @property
    def memory_size(self) -> int:
        """Bytes of the largest device-local heap."""
        return max((heap.size for heap in self.memory_heaps if heap.device_local), default=0)

    @property
    def compute_family(self) -> QueueFamily:
        """The queue family that kernels run on; one without graphics is better, as kernels do not wait for drawing."""
        families = [family for family in self.queue_families if family.computes]
        return min(families, key=lambda family: (family.draws, family.index))

    @property
    def transfer_family(self) -> QueueFamily | None:
        """A family whose queues only copy, which they do while kernels run; None if there is no such family."""
        return next((family for family in self.queue_families if family.transfers_only), None)


def physical_devices() -> list[PhysicalDevice]:
    """The devices that dmlvk can use, the best first; those that are as good are in the loader's order."""
    return [device for device in _all_devices() if device.rejection is None]


def rejected_devices() -> list[PhysicalDevice]:
    """The devices that dmlvk cannot use, each with its `rejection`."""
    return [device for device in _all_devices() if device.rejection is not None]


def has_usable_device() -> bool:
    """Whether there is a device that dmlvk can use, asked of an instance that is closed again.

    Raises DeviceError: there is no Vulkan loader, or it has no driver.
    """
    return while_process_lasts(_probe)


def _probe() -> bool:
    with closing(Instance()) as probe:
        probe.open()
        return any(
            _rejection(_basic_properties(each), _queue_families(each)) is None for each in probe.physical_devices()
        )


def _all_devices() -> list[PhysicalDevice]:
    return while_process_lasts(_read_all)


def _read_all() -> list[PhysicalDevice]:
    return best_first(read_physical_device(handle) for handle in instance().physical_devices())


def best_first(found: Iterable[PhysicalDevice]) -> list[PhysicalDevice]:
    """Devices in the order of `dmlvk.devices()`."""
    return sorted(found, key=lambda each: (PREFERENCE.index(each.profile.device_type), each.profile.is_slow_driver))


def choose(selector: int | str | None = None) -> PhysicalDevice:
    """The device that a selector names.

    selector: an index in `physical_devices()`; part of a name, in upper or lower case; or None for $DMLVK_DEVICE, and
        for the best device if that is not set. A string of digits is an index and nothing else. If several names match,
        the first one counts.
    Raises DeviceError: there is no device, or none matches; the message lists the devices.
    Raises TypeError: the selector has another type.
    """
    devices = physical_devices()
    if not devices:
        left_out = "".join(f"\n  {device.profile.name}: {device.rejection}" for device in rejected_devices())
        raise DeviceError(f"no usable Vulkan device. {driver_hint()}" + (f"\nLeft out:{left_out}" if left_out else ""))
    origin = "selector ="
    if selector is None:
        selector = os.environ.get("DMLVK_DEVICE", "").strip() or None
        origin = "$DMLVK_DEVICE ="
        if selector is None:
            return devices[0]
    position = integer_of(selector)
    problem = "matches no device"
    if isinstance(selector, str):
        if POSITION.fullmatch(selector):
            position = int(selector)
        elif named := selector.strip().casefold():
            for device in devices:
                if named in device.profile.name.casefold():
                    return device
        else:
            problem = "is empty; leave it out for the best device"
    elif position is None:
        kinds = "None, an index, part of a name, or a dmlvk.DeviceInfo"
        raise TypeError(f"selector = {shown(selector)}: must be {kinds}, not {type(selector).__name__}")
    if position is not None:
        if 0 <= position < len(devices):
            return devices[position]
        problem = f"matches no device: a number is an index, here from 0 to {len(devices) - 1}"
    listing = "".join(f"\n  {index}: {device.profile.name}" for index, device in enumerate(devices))
    raise DeviceError(
        f"{origin} {shown(selector)} {problem}; give the index or part of the name of one of these:{listing}"
    )


def read_physical_device(handle: Any) -> PhysicalDevice:
    """Read the limits, features, queue families and memory of a VkPhysicalDevice."""
    ffi = vk.ffi
    basic = _basic_properties(handle)
    api_version = version_tuple(basic.apiVersion)
    # VkResult vkEnumerateDeviceExtensionProperties(VkPhysicalDevice physicalDevice, const char* pLayerName, uint32_t*
    #     pPropertyCount, VkExtensionProperties* pProperties)
    enumerate_extensions = vk.vkEnumerateDeviceExtensionProperties
    call = "vkEnumerateDeviceExtensionProperties"
    extensions = frozenset(
        names(enumerate_extensions, call, "VkExtensionProperties", "extensionName", handle, ffi.NULL)
    )
    families = _queue_families(handle)
    memory_types, memory_heaps = _memory(handle)
    return PhysicalDevice(
        handle=handle,
        profile=read_profile(handle, basic, api_version, extensions),
        queue_families=families,
        memory_types=memory_types,
        memory_heaps=memory_heaps,
        pipeline_cache_uuid=bytes(ffi.buffer(basic.pipelineCacheUUID)),
        uuid=_uuid(handle) if api_version >= MINIMUM_API_VERSION else b"",
        rejection=_rejection(basic, families),
    )


def _basic_properties(handle: Any) -> Any:
    properties = vk.ffi.new("VkPhysicalDeviceProperties*")
    # void vkGetPhysicalDeviceProperties(VkPhysicalDevice physicalDevice, VkPhysicalDeviceProperties* pProperties)
    vk.vkGetPhysicalDeviceProperties(handle, properties)
    return properties


def _rejection(basic: Any, families: tuple[QueueFamily, ...]) -> str | None:
    """The reason why dmlvk cannot use a device; None if it can."""
    api_version = version_tuple(basic.apiVersion)
    if api_version < MINIMUM_API_VERSION:
        version = ".".join(map(str, api_version))
        return f"it offers Vulkan {version}, but dmlvk needs 1.2 or later: update its driver"
    return None if any(family.computes for family in families) else "it has no compute queue"


def _uuid(handle: Any) -> bytes:
    identity = structure("PhysicalDeviceIDProperties")
    properties = structure("PhysicalDeviceProperties2", pNext=identity)
    vk.vkGetPhysicalDeviceProperties2(handle, properties)
    return bytes(vk.ffi.buffer(identity.deviceUUID))


def _queue_families(handle: Any) -> tuple[QueueFamily, ...]:
    count = vk.ffi.new("uint32_t*")
    # void vkGetPhysicalDeviceQueueFamilyProperties(VkPhysicalDevice physicalDevice, uint32_t*
    #     pQueueFamilyPropertyCount, VkQueueFamilyProperties* pQueueFamilyProperties)
    vk.vkGetPhysicalDeviceQueueFamilyProperties(handle, count, vk.ffi.NULL)
    array = vk.ffi.new("VkQueueFamilyProperties[]", max(1, count[0]))
    vk.vkGetPhysicalDeviceQueueFamilyProperties(handle, count, array)
    return tuple(
        QueueFamily(i, array[i].queueFlags, array[i].queueCount, array[i].timestampValidBits) for i in range(count[0])
    )


def _memory(handle: Any) -> tuple[tuple[MemoryType, ...], tuple[MemoryHeap, ...]]:
    properties = vk.ffi.new("VkPhysicalDeviceMemoryProperties*")
    # void vkGetPhysicalDeviceMemoryProperties(VkPhysicalDevice physicalDevice, VkPhysicalDeviceMemoryProperties*
    #     pMemoryProperties)
    vk.vkGetPhysicalDeviceMemoryProperties(handle, properties)
    types, heaps = properties.memoryTypes, properties.memoryHeaps
    return (
        tuple(MemoryType(i, types[i].propertyFlags, types[i].heapIndex) for i in range(properties.memoryTypeCount)),
        tuple(MemoryHeap(i, heaps[i].size, bool(heaps[i].flags & 1)) for i in range(properties.memoryHeapCount)),
    )
