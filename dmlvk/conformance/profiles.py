"""Narrowed profiles of a device, with which a capable GPU runs the paths of a less capable one.

A feature that a narrowed profile lacks is not enabled on the VkDevice either. So the validation layer catches a kernel
that uses it all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dmlvk.conformance.case import Workload
from dmlvk.device_profile import DeviceProfile, DeviceType, Limits

# The unchanged device.
DEVICE = "device"

# The limits that Vulkan 1.2 guarantees (its "Required Limits"). maxBufferSize is newer: its value is Vulkan 1.3's.
REQUIRED_LIMITS: Mapping[str, Any] = MappingProxyType(
    {
        "max_storage_buffer_range": 1 << 27,
        "max_push_constants_size": 128,
        "max_per_stage_descriptor_storage_buffers": 4,
        "max_compute_shared_memory_size": 16_384,
        "max_compute_work_group_count": (65_535, 65_535, 65_535),
        "max_compute_work_group_size": (128, 128, 64),
        "max_compute_work_group_invocations": 128,
        "min_storage_buffer_offset_alignment": 256,
        "max_memory_allocation_count": 4096,
        "max_memory_allocation_size": 1 << 30,
        "max_buffer_size": 1 << 30,
        "non_coherent_atom_size": 256,
    }
)

# The features that every device of Vulkan 1.2 has.
REQUIRED_FEATURES = frozenset(
    {
        "hostQueryReset", "imagelessFramebuffer", "multiview", "robustBufferAccess", "separateDepthStencilLayouts",
        "shaderSubgroupExtendedTypes", "subgroupBroadcastDynamicId", "timelineSemaphore", "uniformBufferStandardLayout",
    }
)  # fmt: skip

STORAGE_FEATURES = frozenset(
    {
        "storageBuffer8BitAccess", "uniformAndStorageBuffer8BitAccess", "storagePushConstant8",
        "storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess", "storagePushConstant16",
    }
)  # fmt: skip
INT64_FEATURES = frozenset({"shaderInt64", "shaderBufferInt64Atomics", "shaderSharedInt64Atomics"})
SUBGROUP_CONTROL_FEATURES = frozenset({"subgroupSizeControl", "computeFullSubgroups"})


def narrowed_limits(limits: Limits, changes: Mapping[str, Any]) -> Limits:
    """Limits no better than these and no better than the changes: the smaller of both; for alignments, the larger.

    Raises ValueError: for a name that is not a limit.
    """
    narrow: dict[str, Any] = {}
    for name, value in changes.items():
        if not hasattr(limits, name):
            raise ValueError(f"{name!r} is not a member of Limits")
        own = getattr(limits, name)
        lesser = max if name.startswith(("min_", "non_coherent")) else min
        if isinstance(own, tuple):
            narrow[name] = tuple(map(lesser, own, value))
        else:
            narrow[name] = lesser(own, value)
    return replace(limits, **narrow)


def _limits(**changes: Any) -> Callable[[DeviceProfile], DeviceProfile]:
    return lambda profile: replace(profile, limits=narrowed_limits(profile.limits, changes))


def _required_limits(*names: str) -> Callable[[DeviceProfile], DeviceProfile]:
    return _limits(**{name: REQUIRED_LIMITS[name] for name in names})


def _without(*features: str) -> Callable[[DeviceProfile], DeviceProfile]:
    return lambda profile: replace(profile, features=profile.features - set(features))


def _minimum(profile: DeviceProfile) -> DeviceProfile:
    return replace(
        profile,
        api_version=(1, 2, 0),
        features=profile.features & REQUIRED_FEATURES,
        extensions=frozenset(),
        properties=frozenset(),
        limits=narrowed_limits(profile.limits, REQUIRED_LIMITS),
        subgroup_size=1,
        min_subgroup_size=1,
        max_subgroup_size=1,
        cooperative_matrices=(),
    )


def _without_matrices(profile: DeviceProfile) -> DeviceProfile:
    return replace(
        profile,
        features=profile.features - {"cooperativeMatrix"},
        extensions=profile.extensions - {"VK_KHR_cooperative_matrix"},
        cooperative_matrices=(),
    )


def _without_dot_product(profile: DeviceProfile) -> DeviceProfile:
    return replace(
        profile,
        features=profile.features - {"shaderIntegerDotProduct"},
        extensions=profile.extensions - {"VK_KHR_shader_integer_dot_product"},
        properties=frozenset(name for name in profile.properties if not name.startswith("integerDotProduct")),
    )


def _few_registers(*signs: str) -> Callable[[DeviceProfile], DeviceProfile]:
    """Of a GPU with few registers, on which packed dot products of these signs are an instruction."""
    accelerated = "integerDotProduct4x8BitPacked{}Accelerated".format

    def other(profile: DeviceProfile) -> DeviceProfile:
        properties = profile.properties - {accelerated("Signed"), accelerated("MixedSignedness")}
        properties |= {accelerated(sign) for sign in signs}
        return replace(profile, device_type=DeviceType.DISCRETE_GPU, vendor_id=0, properties=properties)

    return other


def _accelerated_dot_product(profile: DeviceProfile) -> DeviceProfile:
    properties = profile.properties | {"integerDotProduct4x8BitPackedSignedAccelerated"}
    return replace(profile, device_type=DeviceType.DISCRETE_GPU, properties=properties)


PROFILES: Mapping[str, Callable[[DeviceProfile], DeviceProfile]] = MappingProxyType(
    {
        DEVICE: lambda profile: profile,
        "minimum": _minimum,
        "no-8-16-bit-storage": _without(*STORAGE_FEATURES),
        "no-8-bit-arithmetic": _without("shaderInt8"),
        "no-int64": _without(*INT64_FEATURES),
        "no-float64": _without("shaderFloat64"),
        "no-float16": _without("shaderFloat16"),
        "no-dot-product": _without_dot_product,
        "no-matrix": _without_matrices,
        "no-subgroup-size-control": _without(*SUBGROUP_CONTROL_FEATURES),
        "subgroups-of-1": lambda profile: replace(
            profile, subgroup_size=1, min_subgroup_size=1, max_subgroup_size=1, cooperative_matrices=()
        ),
        "push-constants-128": _required_limits("max_push_constants_size"),
        "workgroup-128": _required_limits("max_compute_work_group_invocations", "max_compute_work_group_size"),
        "workgroup-count-65535": _required_limits("max_compute_work_group_count"),
        "shared-memory-16k": _required_limits("max_compute_shared_memory_size"),
        "storage-range-128m": _required_limits("max_storage_buffer_range"),
        "storage-buffers-4": _required_limits("max_per_stage_descriptor_storage_buffers"),
        "offset-alignment-256": _required_limits("min_storage_buffer_offset_alignment"),
        "tiny-segments": _limits(
            max_storage_buffer_range=1 << 16, max_memory_allocation_size=1 << 17, max_buffer_size=1 << 17
        ),
        # Not narrower but different, on a CPU driver or another GPU: the plans for GPUs, for GPUs with an instruction
        # for packed dot products, for GPUs of few registers, and for those of them that have packed dot products of
        # signed by unsigned bytes alone, or no instruction for any.
        "discrete-gpu": lambda profile: replace(profile, device_type=DeviceType.DISCRETE_GPU),
        "accelerated-dot-product": _accelerated_dot_product,
        "few-registers": _few_registers("Signed", "MixedSignedness"),
        "mixed-dot-product": _few_registers("MixedSignedness"),
        "emulated-dot-product": _few_registers(),
    }
)


def narrow(profile: DeviceProfile, name: str) -> DeviceProfile:
    """A device's profile, narrowed as a name of `PROFILES` says."""
    return PROFILES[name](profile)


def workload_profile(device: DeviceProfile, name: str, workload: Workload) -> DeviceProfile:
    """The profile that plans of a workload are made for, under a profile of `profiles.PROFILES`."""
    narrowed = narrow(device, name)
    if workload.profile is not None:
        narrowed = narrow(narrowed, workload.profile)
    return replace(
        narrowed,
        limits=narrowed_limits(narrowed.limits, workload.limits),
        device_type=narrowed.device_type if workload.device_type is None else workload.device_type,
    )
