"""Traits of classes of devices: choices that make them faster, and the shared memory for a tile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.conformance.recorded import load
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning import device_traits


def with_shared_memory(name: str, size: int) -> DeviceProfile:
    profile = load(name)
    return replace(profile, limits=replace(profile.limits, max_compute_shared_memory_size=size))


def test_nvidia_s_shared_memory_ends_at_48_kib_whatever_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """See quirks.NVIDIA_SHARED_MEMORY_LOSES_THE_DEVICE. The limit holds even if other devices' tiles are larger."""
    monkeypatch.setattr(device_traits, "LARGEST_TILE_MEMORY", 1 << 20)
    assert device_traits.tile_memory(with_shared_memory("nvidia-h200", 96 << 10)) == 48 << 10
    assert device_traits.tile_memory(with_shared_memory("nvidia-h200", 32 << 10)) == 32 << 10
    assert device_traits.tile_memory(with_shared_memory("amd-navi31", 96 << 10)) == 96 << 10


@pytest.mark.parametrize(
    ("name", "size"), [("amd-navi31", 48 << 10), ("nvidia-h200", 48 << 10), ("lavapipe-26.2", 32 << 10)]
)
def test_a_tile_keeps_to_what_was_measured_and_to_the_limit(name: str, size: int) -> None:
    assert device_traits.tile_memory(load(name)) == size


def test_only_lavapipe_limits_iterations() -> None:
    assert device_traits.loop_iterations(load("lavapipe-22.3")) == 60_000
    assert device_traits.loop_iterations(load("swiftshader")) is None


@pytest.mark.parametrize(
    ("name", "registers", "ahead", "float_kernel", "depthwise"),
    [
        ("nvidia-h200", True, 6, False, True),
        ("nvk-ada", True, 6, False, True),
        ("amd-navi31", False, 2, False, True),
        ("lavapipe-22.3", False, 2, True, True),
        ("swiftshader", False, 2, False, False),
    ],
)
def test_traits_of_classes(name: str, registers: bool, ahead: int, float_kernel: bool, depthwise: bool) -> None:
    profile = load(name)
    assert device_traits.has_255_registers(profile) is registers
    assert device_traits.fetches_ahead(profile) == ahead
    assert device_traits.can_run_float_kernel(profile) is float_kernel
    assert device_traits.is_faster_with_depthwise(profile) is depthwise
