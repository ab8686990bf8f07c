"""Reads what a VkPhysicalDevice can do: limits, features, properties and matrices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

from dmlvk.device_profile import (
    FLAG_PROPERTIES,
    MINIMUM_API_VERSION,
    CooperativeMatrix,
    DeviceProfile,
    DeviceType,
    Limits,
)
from dmlvk.vulkan.instance import instance
from dmlvk.vulkan.library import check, structure, vk

# VkComponentTypeKHR; those of later extensions are not in the header of the `vulkan` package.
COMPONENT_TYPES = {
    0: "float16", 1: "float32", 2: "float64", 3: "sint8", 4: "sint16", 5: "sint32", 6: "sint64",
    7: "uint8", 8: "uint16", 9: "uint32", 10: "uint64",
    1000141000: "bfloat16", 1000491000: "sint8_packed", 1000491001: "uint8_packed",
    1000491002: "float8_e4m3", 1000491003: "float8_e5m2",
}  # fmt: skip
SCOPES = {1: "device", 2: "workgroup", 3: "subgroup", 5: "queue_family"}

# Extensions that are in core since Vulkan 1.3, with their structures' names.
EXTENSIONS_OF_1_3 = {
    "VK_KHR_shader_integer_dot_product": "ShaderIntegerDotProduct",
    "VK_EXT_subgroup_size_control": "SubgroupSizeControl",
    "VK_KHR_maintenance4": "Maintenance4",
}

# The feature structures of extensions that are in no version of core Vulkan up to 1.3, with their names.
FEATURES_OF_EXTENSIONS = {
    "VK_KHR_cooperative_matrix": "PhysicalDeviceCooperativeMatrixFeaturesKHR",
    "VK_EXT_pipeline_robustness": "PhysicalDevicePipelineRobustnessFeaturesEXT",
}


def read_profile(
    handle: Any, basic: Any, api_version: tuple[int, int, int], extensions: frozenset[str]
) -> DeviceProfile:
    """Read the limits, features and properties of a VkPhysicalDevice.

    handle: VkPhysicalDevice.
    basic: VkPhysicalDeviceProperties.
    extensions: the extensions that the device lists.
    """
    ffi = vk.ffi
    features: set[str] = set()
    properties: dict[str, Any] = {}
    if api_version >= MINIMUM_API_VERSION:
        chain = chain_of(["PhysicalDeviceFeatures2", *feature_structures(api_version, extensions)])
        # void vkGetPhysicalDeviceFeatures2(VkPhysicalDevice physicalDevice, VkPhysicalDeviceFeatures2* pFeatures)
        vk.vkGetPhysicalDeviceFeatures2(handle, chain[0])
        for known in (ffi.addressof(chain[0].features), *chain[1:]):
            features |= {name for name, value in _members(known) if value}
        chain = chain_of(["PhysicalDeviceProperties2", *_structures("Properties", api_version, extensions)])
        # void vkGetPhysicalDeviceProperties2(VkPhysicalDevice physicalDevice, VkPhysicalDeviceProperties2*
        #     pProperties)
        vk.vkGetPhysicalDeviceProperties2(handle, chain[0])
        for known in chain[1:]:
            properties.update(_members(known))
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


def feature_structures(api_version: tuple[int, int, int], extensions: frozenset[str]) -> list[str]:
    """The feature structures that a device of this version and these extensions knows."""
    structures = _structures("Features", api_version, extensions)
    return structures + [name for extension, name in FEATURES_OF_EXTENSIONS.items() if extension in extensions]


def chain_of(kinds: list[str]) -> list[Any]:
    """New structures of these kinds, linked by pNext in order."""
    chain = [structure(kind) for kind in kinds]
    for one, following in pairwise(chain):
        one.pNext = following
    return chain


def _structures(
    kind: Literal["Features", "Properties"], api_version: tuple[int, int, int], extensions: frozenset[str]
) -> list[str]:
    """The structures of a kind in core Vulkan, and in the extensions that 1.3 took into it."""
    names = ["Vulkan11", "Vulkan12"]
    if api_version >= (1, 3, 0):
        names.append("Vulkan13")
    else:
        names += [name for extension, name in EXTENSIONS_OF_1_3.items() if extension in extensions]
    return [f"PhysicalDevice{name}{kind}" for name in names]


def _members(structure: Any) -> Iterator[tuple[str, Any]]:
    for name, _ in vk.ffi.typeof(structure).item.fields:
        if name not in ("sType", "pNext"):
            yield name, getattr(structure, name)


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
