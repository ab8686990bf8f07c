"""Two queues: waits between them, and the queue that each transfer takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.transfers import LARGE
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (LARGE,))
SMALL = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (64,))
VALUES = np.random.default_rng(1).integers(0, 256, LARGE, np.uint8)


class Submissions:
    """Records submissions: the signalled semaphore, and the awaited semaphore with its value, if any."""

    def __init__(self, own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self._vulkan = own.vulkan
        self._submit = vk.vkQueueSubmit
        self.seen: list[tuple[str, tuple[str, int] | None]] = []
        monkeypatch.setattr(vk, "vkQueueSubmit", self)

    def _name(self, semaphore: Any) -> str:
        return "compute" if semaphore == self._vulkan.queue.timeline.semaphore[0] else "copy"

    def __call__(self, queue: Any, count: int, array: Any, fence: Any) -> Any:
        information = array[0]
        waits = None
        if information.waitSemaphoreCount:
            timeline = vk.ffi.cast("VkTimelineSemaphoreSubmitInfo*", information.pNext)
            assert timeline.waitSemaphoreValueCount == information.waitSemaphoreCount == 1
            waits = (self._name(information.pWaitSemaphores[0]), timeline.pWaitSemaphoreValues[0])
        self.seen.append((self._name(information.pSignalSemaphores[0]), waits))
        return self._submit(queue, count, array, fence)


def test_compute_waits_once_for_a_large_write_and_a_write_for_what_uses_its_memory(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_variant(device, "staged-copy-queue") as own:
        assert own.vulkan.copy_queue is not None
        copy = own.compile(copy_desc(DESC))
        source, target = own.tensor(DESC), own.tensor(DESC)
        earlier = own.vulkan.queue.submitted  # where compiling takes a submission
        submissions = Submissions(own, monkeypatch)
        source.write(VALUES)
        copy(input_tensor=source, output_tensor=target)
        copy(input_tensor=source, output_tensor=target)
        assert submissions.seen == [("copy", None), ("compute", ("copy", 1)), ("compute", None)]
        submissions.seen.clear()
        monkeypatch.setattr(own.vulkan.queue, "completed", 0)
        source.write(VALUES)
        assert submissions.seen == [("copy", ("compute", earlier + 2))]
        np.testing.assert_array_equal(target.numpy(), VALUES)


@pytest.mark.parametrize("order", ["rising", "falling"])
def test_a_write_waits_for_the_latest_of_what_is_required(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    with open_variant(device, "staged-copy-queue") as own:
        copy = own.compile(copy_desc(SMALL))
        source, target, unused = own.tensor(VALUES[:64]), own.tensor(SMALL), own.tensor(DESC)
        for _ in range(2):
            copy(input_tensor=source, output_tensor=target)
        compute, copies, last = own.vulkan.queue, own.vulkan.copy_queue, own.vulkan.queue.submitted
        assert copies is not None
        monkeypatch.setattr(compute, "completed", 0)
        for value in sorted((last - 1, last), reverse=order == "falling"):
            own.vulkan.monitor.run(copies.require, compute, value)
        submissions = Submissions(own, monkeypatch)
        unused.write(VALUES)
        assert submissions.seen == [("copy", ("compute", last))]


@pytest.mark.parametrize("failure", ["refused", "interrupted before the driver", "interrupted after the driver"])
def test_compute_still_waits_after_a_submission_that_failed(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    with open_variant(device, "staged-copy-queue") as own:
        copy = own.compile(copy_desc(DESC))
        source, target = own.tensor(DESC), own.tensor(DESC)
        binding = copy.bind(input_tensor=source, output_tensor=target)
        source.write(VALUES)
        submit = vk.vkQueueSubmit

        def failing(*arguments: Any) -> int:
            if failure == "refused":
                return -2
            if "after" in failure:
                submit(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(vk, "vkQueueSubmit", failing)
            with pytest.raises(dmlvk.DeviceError if failure == "refused" else KeyboardInterrupt):
                own.submit([binding])
        submissions = Submissions(own, monkeypatch)
        own.submit([binding])
        own.submit([binding])
        settled = [] if failure == "refused" else [("compute", None)]
        assert submissions.seen == [*settled, ("compute", ("copy", 1)), ("compute", None)]
        np.testing.assert_array_equal(target.numpy(), VALUES)


def test_a_small_read_goes_beside_work_that_does_not_write_it(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_variant(device, "staged-copy-queue") as own:
        copy = own.compile(copy_desc(SMALL))
        source, first, second = own.tensor(VALUES[:64]), own.tensor(SMALL), own.tensor(SMALL)
        copy(input_tensor=source, output_tensor=first)
        written = own.vulkan.queue.submitted
        copy(input_tensor=source, output_tensor=second)
        monkeypatch.setattr(own.vulkan.queue, "completed", 0)
        submissions = Submissions(own, monkeypatch)
        np.testing.assert_array_equal(first.numpy(), VALUES[:64])
        np.testing.assert_array_equal(second.numpy(), VALUES[:64])
        # The latest work wrote the second tensor. Its read follows on the same queue, and waits for nothing else.
        assert submissions.seen == [("copy", ("compute", written)), ("compute", None)]


def test_large_transfers_wait_for_clearing(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_variant(device, "staged-copy-queue") as own:
        for use in (dmlvk.Tensor.numpy, lambda tensor: tensor.write(VALUES)):
            tensor = own.tensor(DESC)
            own.wait()
            with monkeypatch.context() as patch:
                submissions = Submissions(own, patch)
                own.vulkan.transfers.clear(tensor.memory(), 0, LARGE)
                patch.setattr(own.vulkan.queue, "completed", 0)
                use(tensor)
                assert submissions.seen[:2] == [("compute", None), ("copy", ("compute", own.vulkan.queue.submitted))]


def test_small_writes_stay_in_line_with_compute(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_variant(device, "staged-copy-queue") as own:
        tensor = own.tensor(SMALL)
        submissions = Submissions(own, monkeypatch)
        tensor.write(VALUES[:64])
        assert submissions.seen == [("compute", None)]
        np.testing.assert_array_equal(tensor.numpy(), VALUES[:64])
