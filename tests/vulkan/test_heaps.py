"""The memory types that tensors and staging memory get, among those of devices that are not here."""

from __future__ import annotations

import pytest

from dmlvk.device_profile import DeviceType
from dmlvk.vulkan.heaps import DEVICE_LOCAL, DIRECT, HOST_CACHED, STAGING, staging_type, tensor_type
from dmlvk.vulkan.physical_device import MemoryHeap, MemoryType

PROTECTED = 32
GIB = 1 << 30
# The flags of each type and its heap; the heaps' sizes; the type for tensors, for tensors that are staged, for staging.
DEVICES: dict[str, tuple[DeviceType, list[tuple[int, int]], list[int], tuple[int, int, int]]] = {
    "a GPU with a window of the host's on its memory": (
        DeviceType.DISCRETE_GPU,
        [
            *((0, 1), (DEVICE_LOCAL | PROTECTED, 0), (DEVICE_LOCAL, 0), (DEVICE_LOCAL, 0), (STAGING, 1)),
            *((STAGING | HOST_CACHED, 1), (STAGING | HOST_CACHED, 1), (DEVICE_LOCAL | STAGING, 2)),
        ],
        [24 * GIB, 32 * GIB, GIB // 4],
        (2, 2, 5),
    ),
    "a GPU all of whose memory the host sees": (
        DeviceType.DISCRETE_GPU,
        [(DIRECT, 0), (DEVICE_LOCAL, 0), (DEVICE_LOCAL | STAGING, 0), (STAGING, 1)],
        [16 * GIB, 32 * GIB],
        (1, 1, 0),
    ),
    "a GPU with two kinds of memory, and no cached memory of the host": (
        DeviceType.DISCRETE_GPU,
        [(DEVICE_LOCAL, 0), (DEVICE_LOCAL, 1), (DEVICE_LOCAL | STAGING, 1), (STAGING, 2)],
        [GIB, 8 * GIB, 32 * GIB],
        (1, 1, 3),
    ),
    "memory that is the host's": (
        DeviceType.INTEGRATED_GPU,
        [(DEVICE_LOCAL, 0), (DEVICE_LOCAL | STAGING, 0), (DIRECT, 0), (DIRECT, 0)],
        [16 * GIB],
        (2, 0, 2),
    ),
    "one type": (DeviceType.CPU, [(DIRECT, 0)], [2 * GIB], (0, 0, 0)),
}


@pytest.mark.parametrize("name", DEVICES)
def test_types_of_tensors_and_of_staging_memory(name: str) -> None:
    device_type, flags, sizes, expected = DEVICES[name]
    types = [MemoryType(index, *each) for index, each in enumerate(flags)]
    heaps = [MemoryHeap(index, size, device_local=True) for index, size in enumerate(sizes)]
    own, staged = (tensor_type(types, heaps, device_type, force_staging=is_forced) for is_forced in (False, True))
    assert (own.index, staged.index, staging_type(types).index) == expected
