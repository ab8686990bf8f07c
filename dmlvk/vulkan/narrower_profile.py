"""Profiles that claim less than a device has: plans for a lesser device, which run on this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from dmlvk._common.arguments import as_argument
from dmlvk._common.rates import Rates
from dmlvk.device_profile import (
    LARGEST_OFFSET_ALIGNMENT,
    MINIMUM_API_VERSION,
    SPEED_HINT,
    DeviceProfile,
    DeviceType,
    DriverId,
    Limits,
)
from dmlvk.errors import shown

# The least values of limits with which plans exist. A value is Vulkan's guarantee, or smaller if that makes
# small tensors take the paths of large ones. A limit that is not named has the least value 1.
LEAST_LIMITS: Mapping[str, int | tuple[int, int, int]] = MappingProxyType(
    {
        "max_storage_buffer_range": 1 << 12,
        "max_push_constants_size": 128,
        "max_per_stage_descriptor_storage_buffers": 4,
        "max_compute_shared_memory_size": 16_384,
        "max_compute_work_group_count": (65_535, 65_535, 65_535),
        "max_compute_work_group_size": (8, 1, 1),
        "max_compute_work_group_invocations": 8,
        "max_memory_allocation_size": 1 << 12,
        "max_buffer_size": 1 << 12,
    }
)
# Features that a VkDevice has only with an extension. The second table holds those that are core since Vulkan 1.3.
FEATURE_EXTENSIONS: Mapping[str, str] = MappingProxyType({"cooperativeMatrix": "VK_KHR_cooperative_matrix"})
FEATURE_EXTENSIONS_BEFORE_1_3: Mapping[str, str] = MappingProxyType(
    {
        "shaderIntegerDotProduct": "VK_KHR_shader_integer_dot_product",
        "subgroupSizeControl": "VK_EXT_subgroup_size_control",
        "computeFullSubgroups": "VK_EXT_subgroup_size_control",
        "maintenance4": "VK_KHR_maintenance4",
    }
)


def narrower(profile: DeviceProfile, device: DeviceProfile) -> DeviceProfile:
    """Check a profile for plans on a device: it must not claim more than the device's own profile.

    Names, vendor, driver, kind of device, rates, and the properties that say which packed dot products are fast, are
    taken as given. Plans differ by them, and all those plans run, except the ones with lavapipe's own kernels.

    profile: every limit is at most the device's, and every alignment at least the device's. It has only features,
        extensions, properties and cooperative matrices of the device. The subgroup sizes are the device's, or 1 for
        "nothing is known of them".
    device: the profile that was read from the device.
    Returns the same profile, with its numbers taken by value.
    Raises TypeError: the profile is no DeviceProfile, or one of its members is no set.
    Raises ValueError: the profile claims more than the device's, or less than any plan needs. The message names the
        field, its value and the device's.
    """
    if not isinstance(profile, DeviceProfile) or not isinstance(profile.limits, Limits):
        kind = type(profile).__name__
        raise TypeError(
            f"profile must be a DeviceProfile with Limits, such as dataclasses.replace(device.profile), not {kind}"
        )
    limits = {field.name: _limit(field.name, profile.limits, device.limits) for field in fields(Limits)}
    api_version = _numbers("profile.api_version", profile.api_version, (0, 0, 0), (1 << 10,) * 3, "has three numbers")
    if not MINIMUM_API_VERSION <= api_version <= device.api_version:
        raise ValueError(
            f"profile.api_version = {api_version}: must be from {MINIMUM_API_VERSION} to the device's, "
            f"{device.api_version}"
        )
    for name in ("features", "extensions", "properties", "cooperative_matrices"):
        if not isinstance(getattr(profile, name), (frozenset, set, tuple, list)):
            raise TypeError(
                f"profile.{name} must be a set, like the device's, not {type(getattr(profile, name)).__name__}"
            )
        claimed = set(getattr(profile, name)) - set(getattr(device, name))
        more = sorted((each for each in claimed if not SPEED_HINT.fullmatch(str(each))), key=str)
        if more:
            raise ValueError(
                f"profile.{name} has {shown(more[0])}, which the device lacks; a profile can only leave things out"
            )
    for name, extension in _needed_extensions(device):
        if name in profile.features and extension not in profile.extensions:
            raise ValueError(f"profile.features has {name!r}, which needs {extension!r} in profile.extensions")
    sizes, own = _subgroup_sizes(profile), _subgroup_sizes(device)
    if sizes not in (own, (1, 1, 1)) or (sizes != own and profile.cooperative_matrices):
        raise ValueError(
            f"profile.subgroup_size, min_subgroup_size, max_subgroup_size = {shown(sizes)}: must be the device's, "
            f"{own}, or (1, 1, 1) without cooperative matrices"
        )
    if profile.driver_id == DriverId.MESA_LLVMPIPE != device.driver_id:
        raise ValueError(
            f"profile.driver_id = {int(DriverId.MESA_LLVMPIPE)}: must be the device's, {device.driver_id}, since some "
            "kernels run on lavapipe only"
        )
    if profile.device_type not in list(DeviceType):
        raise ValueError(f"profile.device_type = {shown(profile.device_type)}: must be one of {list(DeviceType)}")
    if profile.rates is not None and not isinstance(profile.rates, Rates):
        raise TypeError(f"profile.rates must be Rates or None, not {type(profile.rates).__name__}")
    subgroup_size, smallest, largest = own if sizes == own else (1, 1, 1)
    return replace(
        profile,
        limits=Limits(**limits),
        api_version=api_version,
        device_type=DeviceType(profile.device_type),
        features=frozenset(profile.features),
        extensions=frozenset(profile.extensions),
        properties=frozenset(profile.properties),
        subgroup_size=subgroup_size,
        min_subgroup_size=smallest,
        max_subgroup_size=largest,
        cooperative_matrices=tuple(profile.cooperative_matrices),
    )


def _limit(name: str, limits: Limits, device: Limits) -> Any:
    """A limit, taken by value; a ValueError if it is better than the device's."""
    value, own = getattr(limits, name), getattr(device, name)
    field = f"profile.limits.{name}"
    if name == "timestamp_period":  # the unit of measured times, so it cannot be smaller
        if value != own:
            raise ValueError(f"{field} = {shown(value)}: must be the device's, {own}")
        return own
    if name in ("min_storage_buffer_offset_alignment", "non_coherent_atom_size"):
        largest = max(own, LARGEST_OFFSET_ALIGNMENT)
        rule = f"must be a power of two that is at least the device's, {own}"
        found = as_argument(field, value, own, largest, rule, ValueError)
        if found & (found - 1):
            raise ValueError(f"{field} = {found}: {rule}")
        return found
    least = LEAST_LIMITS.get(name, 1)
    if isinstance(own, tuple):
        lowest = least if isinstance(least, tuple) else (least,) * len(own)
        return _numbers(field, value, lowest, own, f"may not be more than the device's, {own}")
    assert isinstance(least, int)
    return as_argument(field, value, min(least, own), own, f"may not be more than the device's, {own}", ValueError)


def _numbers(field: str, values: Any, low: tuple[int, ...], high: tuple[int, ...], rule: str) -> tuple[int, int, int]:
    if not isinstance(values, (tuple, list)) or len(values) != 3:
        raise ValueError(f"{field} = {shown(values)}: must be three integers")
    first, second, third = (
        as_argument(f"{field}[{k}]", value, min(low[k], high[k]), high[k], rule, ValueError)
        for k, value in enumerate(values)
    )
    return first, second, third


def _needed_extensions(device: DeviceProfile) -> Iterator[tuple[str, str]]:
    yield from FEATURE_EXTENSIONS.items()
    if device.api_version < (1, 3, 0):
        yield from FEATURE_EXTENSIONS_BEFORE_1_3.items()


def _subgroup_sizes(profile: DeviceProfile) -> tuple[int, int, int]:
    return profile.subgroup_size, profile.min_subgroup_size, profile.max_subgroup_size
