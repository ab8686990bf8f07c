"""The machine's Vulkan devices: reading their capabilities, and choosing one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from dmlvk.arguments import integer_of
from dmlvk.device_profile import (
    FLAG_PROPERTIES,
    MINIMUM_API_VERSION,
    CooperativeMatrix,
    DeviceProfile,
    DeviceType,
    Limits,
)
from dmlvk.errors import DeviceError, shown
from dmlvk.vulkan.instance import Instance, instance, names, version_tuple
from dmlvk.vulkan.library import check, driver_hint, vk

# The best type first; a device of type OTHER does not say what it is.
PREFERENCE = (
    DeviceType.DISCRETE_GPU,
    DeviceType.INTEGRATED_GPU,
    DeviceType.VIRTUAL_GPU,
    DeviceType.CPU,
    DeviceType.OTHER,
)

# The most characters that a position may have as text. Python refuses to read thousands of digits as a number.
LONGEST_POSITION = 20

# VkComponentTypeKHR; those of later extensions are not in the header of the `vulkan` package.
COMPONENT_TYPES = {
    0: "float16", 1: "float32", 2: "float64", 3: "sint8", 4: "sint16", 5: "sint32", 6: "sint64",
    7: "uint8", 8: "uint16", 9: "uint32", 10: "uint64",
    1000141000: "bfloat16", 1000491000: "sint8_packed", 1000491001: "uint8_packed",
    1000491002: "float8_e4m3", 1000491003: "float8_e5m2",
}  # fmt: skip
SCOPES = {1: "device", 2: "workgroup", 3: "subgroup", 5: "queue_family"}

# Extensions that are in core since Vulkan 1.3, with their structures' names in types and in sTypes.
EXTENSIONS_OF_1_3 = {
    "VK_KHR_shader_integer_dot_product": ("ShaderIntegerDotProduct", "SHADER_INTEGER_DOT_PRODUCT"),
    "VK_EXT_subgroup_size_control": ("SubgroupSizeControl", "SUBGROUP_SIZE_CONTROL"),
    "VK_KHR_maintenance4": ("Maintenance4", "MAINTENANCE_4"),
}


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

    Attributes
    ----------
    uuid : bytes
        The 16 bytes by which other APIs know the same GPU.
    rejection : str or None
        The reason why dmlvk cannot use the device, or None if it can.
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
    """The devices that dmlvk can use, the best first; devices of one type are in the loader's order."""
    return [device for device in _all_devices() if device.rejection is None]


def rejected_devices() -> list[PhysicalDevice]:
    """The devices that dmlvk cannot use, each with its `rejection`."""
    return [device for device in _all_devices() if device.rejection is not None]


def has_usable_device() -> bool:
    """Whether there is a device that dmlvk can use, asked of an instance that is closed again.

    Raises
    ------
    DeviceError
        There is no Vulkan loader, or it has no driver.
    """
    with closing(Instance()) as probe:
        probe.open()
        return any(
            _rejection(_basic_properties(each), _queue_families(each)) is None for each in probe.physical_devices()
        )


def _all_devices() -> list[PhysicalDevice]:
    found = [read_physical_device(handle) for handle in instance().physical_devices()]
    return sorted(found, key=lambda device: PREFERENCE.index(device.profile.device_type))


def choose(selector: int | str | None = None) -> PhysicalDevice:
    """The device that a selector names.

    Parameters
    ----------
    selector : int, str or None
        An index in `physical_devices()`; part of a name, in upper or lower case; or None for $DMLVK_DEVICE, and for the
        best device if that is not set. A string of digits is an index if there is such a device, else part of a name
        ("4090"). If several names match, the first one counts.

    Raises
    ------
    DeviceError
        There is no device, or none matches; the message lists the devices.
    TypeError
        The selector has another type.
    """
    devices = physical_devices()
    if not devices:
        left_out = "".join(f"\n  {device.profile.name}: {device.rejection}" for device in rejected_devices())
        raise DeviceError(f"no usable Vulkan device. {driver_hint()}" + (f"\nLeft out:{left_out}" if left_out else ""))
    origin = "selector"
    if selector is None:
        selector = os.environ.get("DMLVK_DEVICE") or None
        origin = "$DMLVK_DEVICE"
        if selector is None:
            return devices[0]
    position = integer_of(selector)
    if isinstance(selector, str):
        if selector.strip().isdecimal() and len(selector) <= LONGEST_POSITION:
            position = int(selector)
    elif position is None:
        raise TypeError(f"selector = {shown(selector)}: must be None, an int or a str, not {type(selector).__name__}")
    if position is not None and 0 <= position < len(devices):
        return devices[position]
    if isinstance(selector, str):
        for device in devices:
            if selector.casefold() in device.profile.name.casefold():
                return device
    listing = "".join(f"\n  {index}: {device.profile.name}" for index, device in enumerate(devices))
    given = shown(selector)
    raise DeviceError(
        f"{origin} {given} matches no device; give the index or part of the name of one of these:{listing}"
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
        profile=_profile(handle, basic, api_version, extensions),
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
    identity = vk.ffi.new("VkPhysicalDeviceIDProperties*")
    identity.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES
    properties = vk.ffi.new("VkPhysicalDeviceProperties2*")
    properties.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2
    properties.pNext = identity
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


def chain_of(structures: list[tuple[str, str]]) -> list[Any]:
    """New structures of the given types, each with its sType, linked by pNext in order."""
    chain: list[Any] = []
    for type_name, structure_type in structures:
        structure = vk.ffi.new(f"{type_name}*")
        structure.sType = getattr(vk, f"VK_STRUCTURE_TYPE_{structure_type}")
        if chain:
            chain[-1].pNext = structure
        chain.append(structure)
    return chain


def feature_structures(api_version: tuple[int, int, int], extensions: frozenset[str]) -> list[tuple[str, str]]:
    """Type and sType of the feature structures that a device of this version and these extensions knows."""
    structures = _structures("Features", api_version, extensions)
    if "VK_KHR_cooperative_matrix" in extensions:
        structures.append(
            ("VkPhysicalDeviceCooperativeMatrixFeaturesKHR", "PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR")
        )
    return structures


def _structures(
    kind: Literal["Features", "Properties"], api_version: tuple[int, int, int], extensions: frozenset[str]
) -> list[tuple[str, str]]:
    """Type and sType of the structures of a kind in core Vulkan, and in the extensions that 1.3 took into it."""
    names = [("Vulkan11", "VULKAN_1_1"), ("Vulkan12", "VULKAN_1_2")]
    if api_version >= (1, 3, 0):
        names.append(("Vulkan13", "VULKAN_1_3"))
    else:
        names += [names_of for extension, names_of in EXTENSIONS_OF_1_3.items() if extension in extensions]
    return [
        (f"VkPhysicalDevice{name}{kind}", f"PHYSICAL_DEVICE_{structure_type}_{kind.upper()}")
        for name, structure_type in names
    ]


def _members(structure: Any) -> Iterator[tuple[str, Any]]:
    for name, _ in vk.ffi.typeof(structure).item.fields:
        if name not in ("sType", "pNext"):
            yield name, getattr(structure, name)


def _profile(handle: Any, basic: Any, api_version: tuple[int, int, int], extensions: frozenset[str]) -> DeviceProfile:
    ffi = vk.ffi
    features: set[str] = set()
    properties: dict[str, Any] = {}
    if api_version >= MINIMUM_API_VERSION:
        head = ("VkPhysicalDeviceFeatures2", "PHYSICAL_DEVICE_FEATURES_2")
        chain = chain_of([head, *feature_structures(api_version, extensions)])
        # void vkGetPhysicalDeviceFeatures2(VkPhysicalDevice physicalDevice, VkPhysicalDeviceFeatures2* pFeatures)
        vk.vkGetPhysicalDeviceFeatures2(handle, chain[0])
        for structure in (ffi.addressof(chain[0].features), *chain[1:]):
            features |= {name for name, value in _members(structure) if value}
        head = ("VkPhysicalDeviceProperties2", "PHYSICAL_DEVICE_PROPERTIES_2")
        chain = chain_of([head, *_structures("Properties", api_version, extensions)])
        # void vkGetPhysicalDeviceProperties2(VkPhysicalDevice physicalDevice, VkPhysicalDeviceProperties2*
        #     pProperties)
        vk.vkGetPhysicalDeviceProperties2(handle, chain[0])
        for structure in chain[1:]:
            properties.update(_members(structure))
    limits = basic.limits
    allocation_size = properties.get("maxMemoryAllocationSize") or 1 << 30
    subgroup_size = properties.get("subgroupSize") or 1

    def text(name: str) -> str:
        return ffi.string(properties[name]).decode(errors="replace") if name in properties else ""

    return DeviceProfile(
        name=ffi.string(basic.deviceName).decode(errors="replace"),
        device_type=DeviceType(basic.deviceType) if basic.deviceType <= max(DeviceType) else DeviceType.OTHER,
        vendor_id=basic.vendorID,
        device_id=basic.deviceID,
        api_version=api_version,
        driver_id=properties.get("driverID", 0),
        driver_name=text("driverName"),
        driver_info=text("driverInfo"),
        driver_version=basic.driverVersion,
        limits=Limits(
            max_storage_buffer_range=limits.maxStorageBufferRange,
            max_push_constants_size=limits.maxPushConstantsSize,
            max_per_stage_descriptor_storage_buffers=limits.maxPerStageDescriptorStorageBuffers,
            max_compute_shared_memory_size=limits.maxComputeSharedMemorySize,
            max_compute_work_group_count=(*limits.maxComputeWorkGroupCount,),
            max_compute_work_group_size=(*limits.maxComputeWorkGroupSize,),
            max_compute_work_group_invocations=limits.maxComputeWorkGroupInvocations,
            min_storage_buffer_offset_alignment=limits.minStorageBufferOffsetAlignment,
            max_memory_allocation_count=limits.maxMemoryAllocationCount,
            max_memory_allocation_size=allocation_size,
            max_buffer_size=properties.get("maxBufferSize") or allocation_size,
            timestamp_period=limits.timestampPeriod,
            non_coherent_atom_size=limits.nonCoherentAtomSize,
        ),
        features=frozenset(features),
        extensions=extensions,
        properties=frozenset(
            name for name, value in properties.items() if name.startswith(FLAG_PROPERTIES) and value == 1
        ),
        subgroup_size=subgroup_size,
        min_subgroup_size=properties.get("minSubgroupSize") or subgroup_size,
        max_subgroup_size=properties.get("maxSubgroupSize") or subgroup_size,
        cooperative_matrices=_cooperative_matrices(handle) if "cooperativeMatrix" in features else (),
    )


def _cooperative_matrices(handle: Any) -> tuple[CooperativeMatrix, ...]:
    ffi = vk.ffi
    # VkResult vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(VkPhysicalDevice physicalDevice, uint32_t*
    #     pPropertyCount, VkCooperativeMatrixPropertiesKHR* pProperties)
    call = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
    enumerate_matrices = vk.instance_function(instance().handle, call)
    if enumerate_matrices is None:
        return ()
    count = ffi.new("uint32_t*")
    check(enumerate_matrices(handle, count, ffi.NULL), call)
    array = ffi.new("VkCooperativeMatrixPropertiesKHR[]", max(1, count[0]))
    for i in range(count[0]):
        array[i].sType = vk.VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
    check(enumerate_matrices(handle, count, array), call)

    def component(value: int) -> str:
        return COMPONENT_TYPES.get(value, f"component_type_{value}")

    return tuple(
        CooperativeMatrix(
            m=entry.MSize,
            n=entry.NSize,
            k=entry.KSize,
            a_type=component(entry.AType),
            b_type=component(entry.BType),
            c_type=component(entry.CType),
            result_type=component(entry.ResultType),
            saturating=bool(entry.saturatingAccumulation),
            scope=SCOPES.get(entry.scope, f"scope_{entry.scope}"),
        )
        for entry in (array[i] for i in range(count[0]))
    )
