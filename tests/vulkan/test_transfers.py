"""Transfers of many pieces: a failure or an interrupt in the middle of one leaves the ring whole."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan import host_threads, staging_ring, transfers
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.queue import Queue
from tests.runtime.busy import keep_busy
from tests.vulkan.variants import SMALL_SEGMENT, VARIANTS, copy_desc, open_variant

PIECE = 1 << 14
PIECES = 40  # three times as many as the ring holds
PIECES_OF_THE_RING = staging_ring.RING_SIZE // staging_ring.PIECE_SIZE
VALUES = np.random.default_rng(1).integers(0, 256, PIECE * PIECES - 100, np.uint8)


@pytest.fixture(autouse=True)
def _small_ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(staging_ring, "RING_SIZE", 12 * PIECE)
    monkeypatch.setattr("dmlvk.vulkan.transfers.PIECE_SIZE", PIECE)
    faulthandler.dump_traceback_later(300, exit=True)  # a lost piece would be waited for forever
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.every_driver
@pytest.mark.parametrize("variant", ["staged", "segmented-staged", "staged-copy-queue"])
def test_many_pieces_arrive(device: dmlvk.Device, variant: str) -> None:
    with open_variant(device, variant) as own:
        tensor = own.tensor(VALUES)
        np.testing.assert_array_equal(tensor.numpy(), VALUES)
        tensor.write(~VALUES)
        np.testing.assert_array_equal(tensor.numpy(), ~VALUES)


@pytest.mark.parametrize("variant", ["direct", "segmented"])
def test_large_copies_are_shared_by_threads(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    monkeypatch.setattr(transfers, "LEAST_SHARE", 3 * transfers.PAGE)
    monkeypatch.setattr(transfers, "LARGE", VALUES.size)
    monkeypatch.setattr("dmlvk.runtime.tensor.LARGE", VALUES.size)
    shares: list[int] = []

    def counted(parts: Iterable[Any], *arguments: Any, **options: Any) -> None:
        found = list(parts)
        shares.append(len(found))
        host_threads.for_each(found, *arguments, **options)

    monkeypatch.setattr("dmlvk.vulkan.transfers.for_each", counted)
    with open_variant(device, variant) as own:
        tensor = own.tensor(VALUES)
        assert shares.pop() > 1
        np.testing.assert_array_equal(tensor.numpy(), VALUES)
        tensor.write(~VALUES)
        np.testing.assert_array_equal(tensor.numpy(), ~VALUES)
        assert len(shares) == 3
        assert min(shares) > 1


def test_each_thread_has_room_for_two_pieces() -> None:
    """The device works on one while the host copies the other."""
    assert PIECES_OF_THE_RING >= 2 * host_threads.MAXIMUM_THREADS


@pytest.mark.parametrize("variant", ["staged", "staged-copy-queue"])
@pytest.mark.parametrize("failure", ["out of memory", "interrupt"])
def test_one_of_many_pieces_failing(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, variant: str, failure: str
) -> None:
    submit = vk.vkQueueSubmit
    left = 0

    def failing(*arguments: object) -> int:
        nonlocal left
        left -= 1
        if left:
            return submit(*arguments)
        if failure == "interrupt":
            raise KeyboardInterrupt
        return -2

    with open_variant(device, variant) as own:
        tensor = own.tensor(VALUES)
        for number in (1, 2, 7, PIECES - 1):
            for use in (lambda: tensor.write(VALUES), tensor.numpy):
                left = number
                with monkeypatch.context() as patch:
                    patch.setattr(vk, "vkQueueSubmit", failing)
                    with pytest.raises(KeyboardInterrupt if failure == "interrupt" else dmlvk.DeviceError):
                        use()
            # This needs the whole ring.
            tensor.write(VALUES + np.uint8(number))
            np.testing.assert_array_equal(tensor.numpy(), VALUES + np.uint8(number))


def test_transfers_at_the_same_time_have_two_threads_each(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    inside: list[dmlvk.Tensor] = []

    def for_each(parts: Any, move: Any, calls: Any, threads: int | None) -> None:
        asked.append(threads)

        def move_and_write(part: Any) -> None:
            if inside:  # in the middle of one write, another thread writes
                inside_thread = threading.Thread(target=inside.pop().write, args=(VALUES,))
                inside_thread.start()
                inside_thread.join()
            move(part)

        host_threads.for_each(parts, move_and_write, calls, threads)

    monkeypatch.setattr("dmlvk.vulkan.transfers.for_each", for_each)
    with open_variant(device, "staged") as own:
        first, second = own.tensor(VALUES), own.tensor(VALUES)
        asked.clear()
        inside.append(second)
        first.write(~VALUES)
        first.write(~VALUES)
        assert asked == [None, 2, None]
        np.testing.assert_array_equal(first.numpy(), ~VALUES)
        np.testing.assert_array_equal(second.numpy(), VALUES)


@pytest.mark.every_driver
@pytest.mark.parametrize("variant", VARIANTS)
def test_clearing_fills_these_bytes_and_no_others(device: dmlvk.Device, variant: str) -> None:
    values = np.random.default_rng(2).integers(1, 256, 2 * SMALL_SEGMENT + 1000, np.uint8)
    with open_variant(device, variant) as own:
        tensor = own.tensor(values)
        for offset, size in ((0, 4), (256, 1000), (SMALL_SEGMENT - 8, 16), (SMALL_SEGMENT + 4, SMALL_SEGMENT + 996)):
            own.vulkan.transfers.clear(tensor.memory(), offset, size)
            values[offset : offset + size] = 0
            np.testing.assert_array_equal(tensor.numpy(), values)


@pytest.mark.parametrize("variant", ["segmented", "segmented-staged"])
def test_a_copy_on_the_device_is_cut_where_segments_of_either_end(device: dmlvk.Device, variant: str) -> None:
    generator = np.random.default_rng(3)
    size = 3 * SMALL_SEGMENT
    values, expected = generator.integers(0, 256, (2, size + 1024), np.uint8)
    with open_variant(device, variant) as own:
        source, destination = own.tensor(values), own.tensor(expected)
        for source_offset, offset, count in ((256, 1024, size), (SMALL_SEGMENT - 8, 0, 2 * SMALL_SEGMENT + 16)):
            own.vulkan.transfers.copy(source.memory(), source_offset, destination.memory(), offset, count)
            expected[offset : offset + count] = values[source_offset : source_offset + count]
            np.testing.assert_array_equal(destination.numpy(), expected)


@pytest.mark.parametrize("variant", ["direct", "staged", "staged-copy-queue"])
def test_a_copy_on_the_device_has_what_its_source_held_then(device: dmlvk.Device, variant: str) -> None:
    values = np.random.default_rng(4).integers(1, 256, SMALL_SEGMENT, np.uint8)
    with open_variant(device, variant) as own:
        source, destination = own.tensor(values), own.zeros(values.shape, "uint8")
        running, _ = keep_busy(own)
        own.vulkan.transfers.copy(source.memory(), 0, destination.memory(), 0, values.size)
        assert not running.done
        source.write(np.zeros_like(values))
        np.testing.assert_array_equal(destination.numpy(), values)


@pytest.mark.parametrize("variant", ["direct", "staged", "staged-copy-queue"])
def test_clearing_comes_after_earlier_work_and_before_later_work(device: dmlvk.Device, variant: str) -> None:
    desc = dmlvk.TensorDesc("uint8", (SMALL_SEGMENT,))
    values = np.random.default_rng(2).integers(1, 256, SMALL_SEGMENT, np.uint8)
    with open_variant(device, variant) as own:
        copy = own.compile(copy_desc(desc))
        source, target, result = own.tensor(values), own.tensor(desc), own.tensor(values)
        running, _ = keep_busy(own)
        copy(input_tensor=source, output_tensor=target)
        own.vulkan.transfers.clear(target.memory(), 0, SMALL_SEGMENT)
        if variant != "direct":
            assert not running.done, "the device clears its memory by itself"
        copy(input_tensor=target, output_tensor=result)
        copy(input_tensor=source, output_tensor=target)
        assert not result.numpy().any()
        np.testing.assert_array_equal(target.numpy(), values)
        own.vulkan.transfers.clear(target.memory(), 0, SMALL_SEGMENT)
        target.write(values)
        np.testing.assert_array_equal(target.numpy(), values)


def test_the_host_moves_bytes_when_the_work_is_done_that_uses_them(device: dmlvk.Device) -> None:
    """In several segments of memory; the whole of one is moved by the tensor itself."""
    with open_variant(device, "segmented") as own:
        submission, used = keep_busy(own, 0.2)
        used.numpy()
        assert submission.done
        submission, used = keep_busy(own, 0.2)
        used.write(np.zeros(used.desc.sizes, np.uint8))
        assert submission.done


def test_the_copy_queue_waits_for_the_compute_queue(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU drivers run both in turn, so that no result shows it."""
    required: list[tuple[object, int]] = []
    with open_variant(device, "staged-copy-queue") as own:
        queue, copy_queue = own.vulkan.queue, own.vulkan.copy_queue
        assert copy_queue is not None
        require = Queue.require

        def recorded(self: Queue, other: Queue, value: int) -> None:
            if self is copy_queue:
                required.append((other, value))
            require(self, other, value)

        monkeypatch.setattr(Queue, "require", recorded)
        for use in (lambda tensor: tensor.numpy(), lambda tensor: tensor.write(np.zeros(tensor.desc.sizes, np.uint8))):
            _, used = keep_busy(own, 0.2)
            required.clear()
            last = queue.submitted
            use(used)
            assert required == [(queue, last)]
