"""A device that is believed to be much smaller than it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import dmlvk


@pytest.fixture(scope="session")
def tight_device(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The same device with storage buffers of 4 KiB and memory segments of 8 KiB: small tensors are cut as well."""
    limits = replace(
        device.profile.limits,
        max_storage_buffer_range=1 << 12,
        max_memory_allocation_size=1 << 13,
        max_buffer_size=1 << 13,
    )
    with dmlvk.Device(device.name, profile=replace(device.profile, limits=limits)) as tight:
        yield tight
