"""One layout for all kernels: it has room for each of them, and no more buffers than a device allows."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

import dmlvk
from dmlvk.planning.kernel_interface import compiled_kernels, kernel_interface
from dmlvk.runtime.kernel_modules import spirv
from dmlvk.vulkan.descriptors import FIRST_POOL_SETS, LARGEST_BUFFER_COUNT, BufferRange
from dmlvk.vulkan.pipelines import LARGEST_PUSH_CONSTANTS_SIZE
from tests.runtime.test_self_test import DESC
from tests.vulkan.variants import copy_desc

pytestmark = pytest.mark.every_driver

KERNELS = sorted(compiled_kernels())
OP_DECORATE, BINDING = 71, 33


def bindings(kernel: str) -> Iterator[int]:
    """The bindings that a kernel's SPIR-V declares."""
    code = spirv(kernel)
    words = struct.unpack(f"<{len(code) // 4}I", code)
    position = 5
    while position < len(words):
        length, operation = words[position] >> 16, words[position] & 0xFFFF
        if operation == OP_DECORATE and words[position + 2] == BINDING:
            yield words[position + 3]
        position += length


def test_all_kernels_have_room() -> None:
    assert KERNELS
    assert max(max(bindings(kernel)) for kernel in KERNELS) == LARGEST_BUFFER_COUNT - 1
    sizes = [4 * len(kernel_interface(kernel).push_constant_words(_zeros(kernel))) for kernel in KERNELS]
    assert 128 < max(sizes) <= LARGEST_PUSH_CONSTANTS_SIZE


def _zeros(kernel: str) -> dict[str, int | list[int]]:
    places = kernel_interface(kernel).push_constants
    return {name: 0 if count == 1 else [0] * count for name, (_, count) in places.items()}


def test_operators_share_a_layout(device: dmlvk.Device) -> None:
    with dmlvk.Device(device.name) as own:
        own.compile(copy_desc(dmlvk.TensorDesc("uint8", (1, 2, 3, 4))), wait=True)
        own.compile(DESC, wait=True)
        pipelines = own.vulkan.pipelines
        assert pipelines.count >= 2
        assert len({pipeline.layout for pipeline in pipelines._pipelines.values()}) == 1


def test_a_set_is_used_again_with_as_many_buffers(device: dmlvk.Device) -> None:
    """With fewer, its last bindings would hold buffers that may be destroyed, and some drivers look at them."""
    with dmlvk.Device(device.name) as own:
        memory = own.vulkan.memory.allocate(256)
        segment = memory.segments[0]
        place = BufferRange(segment.block.buffer, segment.offset, segment.size)
        sets = own.vulkan.descriptors
        handles = {
            count: {sets.take([place] * count).handle for _ in range(2 * FIRST_POOL_SETS)} for count in (1, 2, 4)
        }
        assert all(len(taken) == FIRST_POOL_SETS for taken in handles.values())
        assert len(set().union(*handles.values())) == 3 * FIRST_POOL_SETS
