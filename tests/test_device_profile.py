"""A profile that a caller gives may say less than the device has, and never more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.conformance.profiles import PROFILES, narrow
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.device_profile import CooperativeMatrix, DeviceProfile, Limits
from dmlvk.vulkan.narrower_profile import narrower

H200 = load("nvidia-h200")
LIMITS = [field.name for field in fields(Limits) if field.name != "timestamp_period"]
ALIGNMENTS = ("min_storage_buffer_offset_alignment", "non_coherent_atom_size")


def with_limits(profile: DeviceProfile, **changes: Any) -> DeviceProfile:
    return replace(profile, limits=replace(profile.limits, **changes))


def refused(profile: DeviceProfile, device: DeviceProfile, *parts: str) -> None:
    with pytest.raises(ValueError) as caught:
        narrower(profile, device)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_narrowed_profile_of_every_recorded_device_may_be_planned_for(name: str) -> None:
    device = load(name)
    for kind in PROFILES:
        narrowed = narrow(device, kind)
        assert narrower(narrowed, device) == narrowed, kind


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_better_than_the_device_s_is_refused(name: str) -> None:
    device = load(name)
    for limit in LIMITS:
        own, field = getattr(device.limits, limit), f"profile.limits.{limit}"
        if limit in ALIGNMENTS:
            if own > 1:
                refused(with_limits(device, **{limit: own // 2}), device, field, f"{own // 2}", f"{own}")
            refused(with_limits(device, **{limit: 2 * own + 1}), device, field)
            continue
        more = (*own[:2], own[2] + 1) if isinstance(own, tuple) else own + 1
        shown = more[2] if isinstance(more, tuple) else more
        refused(with_limits(device, **{limit: more}), device, field, f"{shown}", f"the device's, {own}")


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    "value", [0, -1, 1.5, True, "8", None, np.array(8), [8], 10**5000], ids=lambda v: type(v).__name__
)
def test_a_limit_is_a_positive_integer(limit: str, value: Any) -> None:
    refused(with_limits(H200, **{limit: value}), H200, f"profile.limits.{limit}")


def test_limits_are_taken_by_value() -> None:
    given = with_limits(
        H200, max_storage_buffer_range=np.uint32(1 << 20), max_compute_work_group_size=[np.int16(128), 64, 8]
    )
    ones: dict[str, Any] = dict.fromkeys(("subgroup_size", "min_subgroup_size", "max_subgroup_size"), np.int8(1))
    found = narrower(replace(given, cooperative_matrices=(), **ones), H200)
    limits = found.limits
    assert limits.max_compute_work_group_size == (128, 64, 8)
    for value in (found.subgroup_size, limits.max_storage_buffer_range, *limits.max_compute_work_group_size):
        assert type(value) is int


MATRIX = CooperativeMatrix(8, 8, 8, "sint8", "sint8", "sint32", "sint32", False, "subgroup")
SWIFTSHADER = load("swiftshader")
BEFORE_1_3 = replace(
    H200, api_version=(1, 2, 200), extensions=H200.extensions | {"VK_EXT_subgroup_size_control", "VK_KHR_maintenance4"}
)


@pytest.mark.parametrize(
    ("device", "changes", "parts"),
    [
        (SWIFTSHADER, {"features": SWIFTSHADER.features | {"shaderInt64"}}, ("profile.features", "'shaderInt64'")),
        (SWIFTSHADER, {"extensions": SWIFTSHADER.extensions | {"VK_X"}}, ("profile.extensions", "'VK_X'")),
        (SWIFTSHADER, {"properties": SWIFTSHADER.properties | {"shaderX"}}, ("profile.properties", "'shaderX'")),
        (SWIFTSHADER, {"cooperative_matrices": (MATRIX,)}, ("profile.cooperative_matrices", "CooperativeMatrix")),
        (H200, {"extensions": frozenset()}, ("'cooperativeMatrix'", "'VK_KHR_cooperative_matrix'")),
        (BEFORE_1_3, {"extensions": H200.extensions - {"VK_EXT_subgroup_size_control"}}, ("VK_EXT_subgroup_size",)),
        (H200, {"api_version": (1, 5, 0)}, ("profile.api_version", "(1, 5, 0)", str(H200.api_version))),
        (H200, {"api_version": (1, 1, 0)}, ("profile.api_version", "(1, 1, 0)", "(1, 2, 0)")),
        (H200, {"api_version": "1.3"}, ("profile.api_version", "'1.3'")),
        (H200, {"max_subgroup_size": 64}, ("max_subgroup_size", "64", "(32, 32, 32)")),
        (H200, {"subgroup_size": 1, "min_subgroup_size": 1, "max_subgroup_size": 1}, ("cooperative matrices",)),
        (H200, {"device_type": 7}, ("profile.device_type = 7", "DISCRETE_GPU")),
        (H200, {"driver_id": 13}, ("profile.driver_id = 13", "lavapipe")),
    ],
)
def test_what_the_device_has_not_is_refused(
    device: DeviceProfile, changes: Mapping[str, Any], parts: tuple[str, ...]
) -> None:
    refused(replace(device, **changes), device, *parts)


def test_the_timestamp_period_is_the_device_s() -> None:
    refused(with_limits(H200, timestamp_period=2.5), H200, "timestamp_period = 2.5")


def test_who_made_the_device_is_as_it_is_given() -> None:
    given = replace(H200, name="Another", vendor_id=1, device_id=2, driver_id=4, driver_name="x", driver_version=3)
    assert narrower(given, H200) == given


@pytest.mark.parametrize("profile", ["minimum", 5, replace(H200, features=None), replace(H200, limits=None)])  # type: ignore[arg-type]
def test_what_is_no_profile_is_refused(profile: Any) -> None:
    with pytest.raises(TypeError, match="profile"):
        narrower(profile, H200)


def test_a_device_is_not_opened_for_more_than_it_has(device: dmlvk.Device) -> None:
    own = device.profile.limits.max_compute_work_group_invocations
    more = with_limits(device.profile, max_compute_work_group_invocations=4 * own)
    with pytest.raises(ValueError, match=f"max_compute_work_group_invocations = {4 * own}.*the device's, {own}"):
        dmlvk.Device(device.name, profile=more)
