"""Narrowed devices: a profile adds nothing, and the VkDevice is created without the features that the profile lacks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import dmlvk
from dmlvk import DeviceProfile
from dmlvk.command_line import main
from dmlvk.conformance.profiles import PROFILES, REQUIRED_LIMITS, narrow, narrowed_limits
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.device_profile import SPEED_HINT


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_only_takes_away(name: str) -> None:
    for device_name in NAMES:
        check_narrowed(load(device_name), name)


def check_narrowed(rich: DeviceProfile, name: str) -> None:
    poor = narrow(rich, name)
    assert poor.features <= rich.features
    assert poor.extensions <= rich.extensions
    assert {each for each in poor.properties if not SPEED_HINT.fullmatch(each)} <= rich.properties
    assert set(poor.cooperative_matrices) <= set(rich.cooperative_matrices)
    for field in dataclasses.fields(poor.limits):
        mine, theirs = getattr(poor.limits, field.name), getattr(rich.limits, field.name)
        if field.name in ("min_storage_buffer_offset_alignment", "non_coherent_atom_size"):
            assert mine >= theirs
        elif isinstance(mine, tuple):
            assert all(small <= large for small, large in zip(mine, theirs, strict=True))
        else:
            assert mine <= theirs
    assert narrow(poor, name) == poor


@pytest.mark.parametrize("device_name", NAMES)
def test_the_minimum_is_what_vulkan_1_2_guarantees(device_name: str) -> None:
    poor = narrow(load(device_name), "minimum")
    for name, value in REQUIRED_LIMITS.items():
        assert getattr(poor.limits, name) == value or name.startswith(("max_memory", "max_buffer"))
    assert not poor.has_integer_dot_product
    assert poor.cooperative_matrices == ()
    assert "timelineSemaphore" in poor.features, "every device of Vulkan 1.2 has it, and dmlvk needs it"


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("no-int64", {"shaderInt64"}),
        ("no-dot-product", {"shaderIntegerDotProduct"}),
        ("no-float16", {"shaderFloat16"}),
        ("no-8-bit-arithmetic", {"shaderInt8"}),
        ("no-subgroup-size-control", {"subgroupSizeControl", "computeFullSubgroups"}),
    ],
)
def test_what_a_profile_lacks_is_not_enabled(device: dmlvk.Device, name: str, lost: set[str]) -> None:
    def features_of(opened: dmlvk.Device) -> frozenset[str]:
        return opened.vulkan.context.configuration.features

    with dmlvk.Device(device.name, profile=narrow(device.profile, name)) as narrowed:
        assert features_of(narrowed) == features_of(device) - lost


def test_the_minimum_enables_nothing_optional(device: dmlvk.Device) -> None:
    with dmlvk.Device(device.name, profile=narrow(device.profile, "minimum")) as narrowed:
        assert narrowed.vulkan.context.configuration.features == {"timelineSemaphore"}
        assert set(narrowed.vulkan.context.configuration.extensions) <= {"VK_KHR_portability_subset"}


def test_limits_are_only_lowered() -> None:
    limits = load("nvidia-h200").limits
    assert narrowed_limits(limits, {"max_push_constants_size": 1 << 20}) == limits
    assert narrowed_limits(limits, {"min_storage_buffer_offset_alignment": 1}) == limits
    assert narrowed_limits(limits, {"max_push_constants_size": 128}).max_push_constants_size == 128
    with pytest.raises(ValueError, match="is not a member of Limits"):
        narrowed_limits(limits, {"max_everything": 1})


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_profile_is_written_as_it_was_read(name: str) -> None:
    profile = load(name)
    record = json.loads(json.dumps(profile.to_record()))
    assert DeviceProfile.from_record(record) == profile


def test_devices_record_writes_the_live_profile(device: dmlvk.Device, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    finished = CliRunner().invoke(main, ["devices", "--record", str(path), "--device", device.name])
    assert finished.exit_code == 0, finished.output
    record = json.loads(path.read_text())
    assert record["profile"] == "mine"
    assert DeviceProfile.from_record(record) == device.profile


def test_devices_record_ends_in_one_clear_line(tmp_path: Path) -> None:
    for arguments in (["--record", str(tmp_path / "absent" / "x.json")], ["--record", "x.json", "--device", "nobody"]):
        finished = CliRunner().invoke(main, ["devices", *arguments])
        assert finished.exit_code == 1
        assert len(finished.output.strip().splitlines()) == 1
        assert finished.output.startswith("Error: ")
