"""Devices that are treated as other devices: as a much smaller one, and as a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import dmlvk
from dmlvk.device_profile import DeviceType


@pytest.fixture(scope="session")
def tight_device(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The same device with storage buffers of 4 KiB and memory segments of 8 KiB: small tensors are cut as well.

    It also has only four storage buffers in a stage, as few as Vulkan allows.
    """
    limits = replace(
        device.profile.limits,
        max_storage_buffer_range=1 << 12,
        max_per_stage_descriptor_storage_buffers=4,
        max_memory_allocation_size=1 << 13,
        max_buffer_size=1 << 13,
    )
    with dmlvk.Device(device.name, profile=replace(device.profile, limits=limits)) as tight:
        yield tight


@pytest.fixture(scope="session")
def gpu_device(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The same device, with the plans of a GPU, so that these plans run on CPU drivers as well."""
    profile = replace(device.profile, device_type=DeviceType.DISCRETE_GPU)
    with dmlvk.Device(device.name, profile=profile) as gpu:
        yield gpu
