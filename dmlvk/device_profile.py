"""The capabilities of a Vulkan device as plain data: all that planning needs to know and may know.

`dmlvk.vulkan` reads a profile from a device. A profile can also be loaded from a recorded JSON file, so that plans can
be made and tested for absent devices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from dmlvk._common.rates import Rates

# VkBuffers and suballocations start at multiples of this. No Vulkan device requires a larger storage buffer alignment.
LARGEST_OFFSET_ALIGNMENT = 256

# Prefixes of the names of properties that are flags. The type does not tell a VkBool32 from a number.
FLAG_PROPERTIES = ("shader", "integerDotProduct", "subgroupQuadOperations")

# Properties that only say which products are fast: all of them are possible wherever packed dot products are.
SPEED_HINT = re.compile("integerDotProduct.*Accelerated")

# The beginning of VkPhysicalDeviceDriverProperties::driverInfo of Mesa's drivers.
MESA_RELEASE = re.compile(r"Mesa (\d+)\.(\d+)\.(\d+)")

# The oldest version of Vulkan that dmlvk runs on.
MINIMUM_API_VERSION = (1, 2, 0)


class DeviceType(IntEnum):
    """VkPhysicalDeviceType."""

    OTHER = 0
    INTEGRATED_GPU = 1
    DISCRETE_GPU = 2
    VIRTUAL_GPU = 3
    CPU = 4


class DriverId(IntEnum):
    """VkDriverId: the drivers that quirks and device traits name. Vulkan has more."""

    MESA_RADV = 3
    NVIDIA_PROPRIETARY = 4
    INTEL_OPEN_SOURCE_MESA = 6
    GOOGLE_SWIFTSHADER = 10
    MESA_LLVMPIPE = 13
    MESA_TURNIP = 18
    SAMSUNG_PROPRIETARY = 21
    MESA_NVK = 24
    MESA_HONEYKRISP = 26


class VendorId(IntEnum):
    """VkPhysicalDeviceProperties::vendorID: the vendors that device traits name. Vulkan has more."""

    AMD = 0x1002
    QUALCOMM = 0x5143
    NVIDIA = 0x10DE
    GOOGLE = 0x1AE0
    MESA = 0x10005


@dataclass(frozen=True)
class Limits:
    """The members of VkPhysicalDeviceLimits (and of its extensions) that kernels must respect."""

    max_storage_buffer_range: int
    max_push_constants_size: int
    max_per_stage_descriptor_storage_buffers: int
    max_compute_shared_memory_size: int
    max_compute_work_group_count: tuple[int, int, int]
    max_compute_work_group_size: tuple[int, int, int]
    max_compute_work_group_invocations: int
    min_storage_buffer_offset_alignment: int
    max_memory_allocation_count: int
    max_memory_allocation_size: int
    max_buffer_size: int
    timestamp_period: float
    non_coherent_atom_size: int


@dataclass(frozen=True)
class CooperativeMatrix:
    """One entry of vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR; types such as VkComponentTypeKHR's "sint8"."""

    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    result_type: str
    saturating: bool
    scope: str


@dataclass(frozen=True)
class DeviceProfile:
    """A snapshot of one physical device: limits, features and driver. Immutable, hashable, comparable."""

    name: str
    device_type: DeviceType
    vendor_id: int
    device_id: int
    api_version: tuple[int, int, int]
    driver_id: int  # VkDriverId
    driver_name: str
    driver_info: str
    driver_version: int
    limits: Limits
    features: frozenset[str]  # names of the VkPhysicalDevice*Features members that are VK_TRUE
    extensions: frozenset[str]
    properties: frozenset[str]  # names of the boolean VkPhysicalDevice*Properties members that are VK_TRUE
    subgroup_size: int
    min_subgroup_size: int
    max_subgroup_size: int
    cooperative_matrices: tuple[CooperativeMatrix, ...] = ()
    distrusted_paths: frozenset[str] = frozenset()  # kernel paths whose answer to a known question was wrong
    rates: Rates | None = None  # what `dmlvk tune --rates` measured

    def __hash__(self) -> int:
        """By some of the fields: the planner remembers by a profile, dozens of times for a plan."""
        return hash((self.name, self.driver_id, self.driver_version, self.distrusted_paths))

    @property
    def is_slow_driver(self) -> bool:
        """Whether any other device of the same type is faster, so that it is the last choice among them.

        SwiftShader computes in vectors of 128 bits, without 8-bit storage: a Sobel filter on a CPU makes 2 frames a
        second with it, and 58 with lavapipe.
        """
        return self.driver_id == DriverId.GOOGLE_SWIFTSHADER

    @cached_property
    def segment_size(self) -> int:
        """The most bytes of one VkBuffer on one VkDeviceMemory. Larger tensors lie in segments of this size."""
        largest = min(self.limits.max_memory_allocation_size, self.limits.max_buffer_size)
        return largest // LARGEST_OFFSET_ALIGNMENT * LARGEST_OFFSET_ALIGNMENT

    @cached_property
    def offset_alignment(self) -> int:
        """The alignment, in bytes, of the start of a storage buffer binding: at least the 16 of a uvec4."""
        return max(16, self.limits.min_storage_buffer_offset_alignment)

    @property
    def driver_release(self) -> tuple[int, ...]:
        """The driver's version as its maker counts: (22, 3, 6) for Mesa 22.3.6, (580, 159, 4, 0) for NVIDIA 580.159.04.

        Mesa's version is read from `driver_info`, because lavapipe's `driver_version` was 1 for years.
        """
        if found := MESA_RELEASE.match(self.driver_info):
            return tuple(int(number) for number in found.groups())
        version = self.driver_version
        if self.driver_id == DriverId.NVIDIA_PROPRIETARY:
            return version >> 22, version >> 14 & 0xFF, version >> 6 & 0xFF, version & 0x3F
        return version >> 22, version >> 12 & 0x3FF, version & 0xFFF

    @property
    def runs_cuda(self) -> bool:
        """Whether CUDA drives the same GPU: beside NVIDIA's own driver."""
        return self.driver_id == DriverId.NVIDIA_PROPRIETARY

    @property
    def has_integer_dot_product(self) -> bool:
        """Whether kernels may use VK_KHR_shader_integer_dot_product (core in Vulkan 1.3)."""
        extension = "VK_KHR_shader_integer_dot_product" in self.extensions or self.api_version >= (1, 3, 0)
        return extension and "shaderIntegerDotProduct" in self.features

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> DeviceProfile:
        """Read a recorded profile: Vulkan's own member names under "limits", "properties", "features" and "extensions".

        A member that an older driver does not report (maxBufferSize before Vulkan 1.3) falls back to the value that the
        specification guarantees, or to the nearest member that bounds it.
        """
        limits, properties = record["limits"], record["properties"]
        allocation_size = properties.get("maxMemoryAllocationSize") or 1 << 30
        subgroup_size = properties.get("subgroupSize") or 1
        flags = {name for name, value in properties.items() if name.startswith(FLAG_PROPERTIES) and value == 1}
        flags |= set(properties.get("integerDotProductAccelerated") or ())
        count = limits["maxComputeWorkGroupCount"]
        size = limits["maxComputeWorkGroupSize"]
        major, minor, patch = (int(part) for part in record["apiVersion"].split("."))
        return cls(
            name=record["deviceName"],
            device_type=DeviceType(record["deviceType"]),
            vendor_id=record["vendorID"],
            device_id=record["deviceID"],
            api_version=(major, minor, patch),
            driver_id=properties.get("driverID", 0),
            driver_name=properties.get("driverName", ""),
            driver_info=properties.get("driverInfo", ""),
            driver_version=record["driverVersion"],
            limits=Limits(
                max_storage_buffer_range=limits["maxStorageBufferRange"],
                max_push_constants_size=limits["maxPushConstantsSize"],
                max_per_stage_descriptor_storage_buffers=limits["maxPerStageDescriptorStorageBuffers"],
                max_compute_shared_memory_size=limits["maxComputeSharedMemorySize"],
                max_compute_work_group_count=(count[0], count[1], count[2]),
                max_compute_work_group_size=(size[0], size[1], size[2]),
                max_compute_work_group_invocations=limits["maxComputeWorkGroupInvocations"],
                min_storage_buffer_offset_alignment=limits["minStorageBufferOffsetAlignment"],
                max_memory_allocation_count=limits.get("maxMemoryAllocationCount", 4096),
                max_memory_allocation_size=allocation_size,
                max_buffer_size=properties.get("maxBufferSize") or allocation_size,
                timestamp_period=limits.get("timestampPeriod", 1.0),
                non_coherent_atom_size=limits.get("nonCoherentAtomSize", 256),
            ),
            features=frozenset(record["features"]),
            extensions=frozenset(record.get("extensions") or ()),
            properties=frozenset(flags),
            subgroup_size=subgroup_size,
            min_subgroup_size=properties.get("minSubgroupSize") or subgroup_size,
            max_subgroup_size=properties.get("maxSubgroupSize") or subgroup_size,
            cooperative_matrices=tuple(
                CooperativeMatrix(m, n, k, a_type, b_type, c_type, result_type, bool(saturating), scope)
                for m, n, k, a_type, b_type, c_type, result_type, saturating, scope in record.get("cooperativeMatrix")
                or ()
            ),
        )

    def to_record(self) -> dict[str, Any]:
        """Write the profile as plain data that `from_record` reads back as an equal profile."""
        limits = self.limits
        return {
            "deviceName": self.name,
            "vendorID": self.vendor_id,
            "deviceID": self.device_id,
            "deviceType": int(self.device_type),
            "apiVersion": ".".join(map(str, self.api_version)),
            "driverVersion": self.driver_version,
            "limits": {
                "maxStorageBufferRange": limits.max_storage_buffer_range,
                "maxPushConstantsSize": limits.max_push_constants_size,
                "maxPerStageDescriptorStorageBuffers": limits.max_per_stage_descriptor_storage_buffers,
                "maxComputeSharedMemorySize": limits.max_compute_shared_memory_size,
                "maxComputeWorkGroupCount": list(limits.max_compute_work_group_count),
                "maxComputeWorkGroupSize": list(limits.max_compute_work_group_size),
                "maxComputeWorkGroupInvocations": limits.max_compute_work_group_invocations,
                "minStorageBufferOffsetAlignment": limits.min_storage_buffer_offset_alignment,
                "maxMemoryAllocationCount": limits.max_memory_allocation_count,
                "timestampPeriod": limits.timestamp_period,
                "nonCoherentAtomSize": limits.non_coherent_atom_size,
            },
            "properties": {
                "driverID": self.driver_id,
                "driverName": self.driver_name,
                "driverInfo": self.driver_info,
                "maxMemoryAllocationSize": limits.max_memory_allocation_size,
                "maxBufferSize": limits.max_buffer_size,
                "subgroupSize": self.subgroup_size,
                "minSubgroupSize": self.min_subgroup_size,
                "maxSubgroupSize": self.max_subgroup_size,
                **dict.fromkeys(sorted(self.properties), 1),
            },
            "features": sorted(self.features),
            "extensions": sorted(self.extensions),
            "cooperativeMatrix": [
                [
                    matrix.m,
                    matrix.n,
                    matrix.k,
                    matrix.a_type,
                    matrix.b_type,
                    matrix.c_type,
                    matrix.result_type,
                    matrix.saturating,
                    matrix.scope,
                ]
                for matrix in self.cooperative_matrices
            ],
        }
