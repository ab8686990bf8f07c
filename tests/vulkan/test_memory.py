"""Device memory: tensors share blocks and give them back, and an error says that memory ran out."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan.heaps import DEVICE_LOCAL, HOST_VISIBLE, staging_type
from tests.vulkan.variants import SMALL_SEGMENT, copy_desc, open_variant

pytestmark = pytest.mark.every_driver

WORD = dmlvk.TensorDesc(dmlvk.DataType.UINT32, (1,))


def test_twenty_thousand_live_tensors_share_a_few_memory_objects(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        tensors = [own.tensor(WORD) for _ in range(20_000)]
        assert own.vulkan.memory.buffer_count <= 2
        assert own.memory_used == 20_000 * 256
        for index in (0, 777, 19_999):
            tensors[index].write(np.array([index], np.uint32))
        assert [tensors[index].numpy()[0] for index in (0, 777, 19_999)] == [0, 777, 19_999]
        del tensors
        gc.collect()
        assert own.memory_used == 0


def test_memory_comes_back_when_the_last_tensor_of_it_is_dropped(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        buffer = own.buffer(1000)
        tensor = buffer.tensor(WORD, 16)
        del buffer
        assert own.memory_used == 1024
        del tensor
        assert own.memory_used == 0


def test_freed_memory_is_used_again_and_one_empty_block_kept(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        quarter = own.vulkan.memory.block_size // 4
        buffers = [own.buffer(quarter) for _ in range(12)]
        assert own.vulkan.memory.buffer_count == 3
        del buffers[:6]
        buffers += [own.buffer(quarter) for _ in range(6)]
        assert own.vulkan.memory.buffer_count == 3
        buffers.clear()
        assert own.vulkan.memory.buffer_count == 1


def test_memory_of_running_work_is_given_back_only_when_it_is_done(device: dmlvk.Device) -> None:
    desc = dmlvk.TensorDesc(dmlvk.DataType.UINT32, (1 << 20,))
    with open_variant(device, "direct") as own:
        values = np.arange(1 << 20, dtype=np.uint32)
        operator = own.compile(copy_desc(desc))
        source, target, result = own.tensor(values), own.tensor(desc), own.tensor(desc)
        operator(input_tensor=source, output_tensor=target)
        submission = operator(input_tensor=target, output_tensor=result)
        del source, target
        assert own.tensor(desc).numpy().shape == desc.sizes
        submission.wait()
        np.testing.assert_array_equal(result.numpy(), values)
        del result, submission
        own.wait()
        assert own.memory_used == 0


def test_out_of_memory_says_how_much_was_asked_and_how_much_there_is(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        physical = own.vulkan.context.physical
        heap = physical.memory_heaps[own.vulkan.memory.memory_type.heap].size
        kept = own.tensor([1, 2, 3])
        with pytest.raises(
            dmlvk.DeviceError, match=rf"out of memory: .*\({heap + 4} bytes\) requested.*\({heap} bytes\)"
        ):
            own.buffer(heap + 4)
        with pytest.raises(dmlvk.DeviceError, match=r"out of memory: 1048576\.00 GiB"):
            own.tensor(dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1,), total_size_in_bytes=1 << 50))
        np.testing.assert_array_equal(kept.numpy(), [1, 2, 3])


def test_a_driver_that_is_out_of_memory_is_an_error_of_ours(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dmlvk.vulkan.library import vk

    with open_variant(device, "direct") as own:
        monkeypatch.setattr(vk, "vkAllocateMemory", lambda *arguments: -2)
        with pytest.raises(dmlvk.DeviceError, match="100 bytes requested") as caught:
            own.buffer(100)
        assert "VK_ERROR_OUT_OF_DEVICE_MEMORY" in str(caught.value)
        monkeypatch.undo()
        np.testing.assert_array_equal(own.tensor([5]).numpy(), [5])


def test_large_buffers_lie_in_segments_and_give_them_back(device: dmlvk.Device) -> None:
    with open_variant(device, "segmented") as own:
        buffer = own.buffer(3 * SMALL_SEGMENT + 5)
        allocation = buffer._live_memory()
        assert [segment.size for segment in allocation.segments] == [SMALL_SEGMENT] * 3 + [256]
        pieces = [(start, size) for _, start, size in allocation.pieces(SMALL_SEGMENT - 10, 30)]
        assert pieces == [(SMALL_SEGMENT - 10, 10), (0, 20)]
        del buffer, allocation
        assert own.memory_used == 0
        assert own.vulkan.memory.buffer_count == 0
        assert not any(own.vulkan.memory._heaps._used), "messages and later allocations count what is there"


def test_segments_behind_a_bus_are_kept_for_the_next_tensor(device: dmlvk.Device) -> None:
    with open_variant(device, "segmented-staged") as own:
        desc = dmlvk.TensorDesc("uint8", (20 * SMALL_SEGMENT,))
        first = own.tensor(desc)
        blocks = {id(segment.block) for segment in first.memory().segments}
        count = own.vulkan.memory.buffer_count
        for _ in range(3):
            first.free()
            own.wait()
            assert own.memory_used == 0
            first = own.tensor(desc)
            assert {id(segment.block) for segment in first.memory().segments} == blocks
            assert own.vulkan.memory.buffer_count == count
        first.free()
        own.wait()
        assert own.memory_used == 0
        for size, is_kept in ((SMALL_SEGMENT * 15 // 16, True), (SMALL_SEGMENT * 5 // 8, False)):
            (segment,) = own.buffer(size)._live_memory().segments
            assert (segment.block.size == SMALL_SEGMENT) == is_kept, "a much larger block would be wasted"


def test_the_oldest_kept_segments_go_first(device: dmlvk.Device) -> None:
    with open_variant(device, "segmented-staged") as own:
        own.vulkan.memory._largest_kept = 2 * SMALL_SEGMENT
        buffers = [own.buffer(SMALL_SEGMENT) for _ in range(3)]
        blocks = [buffer._live_memory().segments[0].block for buffer in buffers]
        while buffers:
            del buffers[0]
            assert own.memory_used == len(buffers) * SMALL_SEGMENT
        buffers = [own.buffer(SMALL_SEGMENT) for _ in range(3)]
        later = [buffer._live_memory().segments[0].block for buffer in buffers]
        assert set(later[:2]) == set(blocks[1:]) and later[2] not in blocks


def test_staging_keeps_out_of_the_way_of_the_device(device: dmlvk.Device) -> None:
    with open_variant(device, "staged") as own:
        assert not own.vulkan.memory.is_direct
        assert staging_type(own.vulkan.memory.allowed_types).flags & HOST_VISIBLE
        assert own.vulkan.memory.memory_type.flags & DEVICE_LOCAL


def test_the_number_of_memory_objects_stays_below_the_limit(device: dmlvk.Device) -> None:
    import dataclasses

    limits = dataclasses.replace(device.profile.limits, max_memory_allocation_count=2)
    with dmlvk.Device(device.name, profile=dataclasses.replace(device.profile, limits=limits)) as own:
        block = own.vulkan.memory.block_size
        kept = [own.buffer(block), own.buffer(block)]
        with pytest.raises(dmlvk.DeviceError, match=re.escape("all 2 memory objects")):
            own.buffer(block)
        kept.pop()
        own.buffer(block)


def test_a_kept_block_that_a_repair_returned_to_the_driver_is_not_used_again(device: dmlvk.Device) -> None:
    with open_variant(device, "segmented-staged") as own:
        elements = np.arange(SMALL_SEGMENT, dtype=np.uint16).astype(np.uint8)
        block = own.tensor(elements).memory().segments[0].block
        own.wait()
        assert own.memory_used == 0 and own.vulkan.memory.buffer_count > 0

        def strike() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            own.vulkan.memory.monitor.run(strike)
        tensor = own.tensor(elements)
        assert tensor.memory().segments[0].block is not block
        np.testing.assert_array_equal(tensor.numpy(), elements)


def test_memory_that_a_repair_returned_to_the_driver_is_not_used_again(device: dmlvk.Device) -> None:
    """An exception strikes a change of the pool while a dropped tensor waits to be freed."""
    with open_variant(device, "staged") as own:
        memory = own.vulkan.memory
        size = memory.block_size  # too large for a shared block, so it has one of its own
        tensor = own.tensor(dmlvk.TensorDesc("uint8", (size,)))
        (segment,) = tensor.memory().segments

        def strike() -> None:
            nonlocal tensor
            tensor = None  # type: ignore[assignment]  # in the middle of a change, it can only be queued
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            memory.monitor.run(strike)
        elements = np.arange(size, dtype=np.uint8)
        another = own.tensor(elements)
        assert another.memory().segments[0].block is not segment.block
        assert (another.numpy() == elements).all()
        assert memory.used == size
