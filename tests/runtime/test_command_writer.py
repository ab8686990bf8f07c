"""Command buffers: barriers between dispatches that depend on each other, and long work in several parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS
from dmlvk.runtime.tensor import Buffer
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.recorder import Recorder
from tests.runtime.small_work import DESC, VALUES, Counter
from tests.vulkan.variants import copy_desc, open_variant


class TestBarriers:
    @pytest.fixture
    def tensors(self, device: dmlvk.Device) -> list[dmlvk.Tensor]:
        return [device.tensor(VALUES) for _ in range(7)]

    def count(
        self,
        device: dmlvk.Device,
        tensors: list[dmlvk.Tensor],
        pairs: list[tuple[int, int]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> int:
        """Barriers between the dispatches of a submitted list; a sequence of the same bindings has the same number."""
        copy = device.compile(copy_desc(DESC))
        bindings = [copy.bind(input_tensor=tensors[i], output_tensor=tensors[j]) for i, j in pairs]
        barrier = device.vulkan.monitor.run(device.vulkan.dispatch_barrier.secondary).handle
        counter = Counter(monkeypatch, "vkCmdPipelineBarrier")
        recorded = device.sequence(bindings)
        # Each command buffer has a barrier before its dispatches, and one for the host after them.
        barriers = counter.count - 1 - device.vulkan.memory.is_direct
        executed: list[object] = []
        execute = vk.vkCmdExecuteCommands

        def watch(command_buffer: object, count: int, array: Any) -> None:
            executed.extend(array[0:count])
            execute(command_buffer, count, array)

        monkeypatch.setattr(vk, "vkCmdExecuteCommands", watch)
        counter.count = 0
        device.submit(bindings).wait()
        recorded.submit().wait()
        if len(bindings) > 1:
            assert counter.count == 1 + device.vulkan.memory.is_direct
            assert executed.count(barrier) == barriers
            assert len(executed) == len(bindings) + barriers
        return barriers

    @pytest.mark.parametrize(
        ("pairs", "barriers"),
        [
            ([(0, 1)], 0),
            ([(0, 1), (2, 3), (4, 5)], 0),
            ([(0, 1), (0, 2), (0, 3)], 0),
            ([(0, 1), (1, 2)], 1),
            ([(0, 1), (2, 1)], 1),
            ([(0, 1), (2, 0)], 1),
            ([(0, 1), (2, 3), (1, 4), (3, 5)], 1),
            ([(0, 1), (1, 2), (2, 3), (3, 4)], 3),
            ([(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (5, 6)], 1),
            ([(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (6, 1)], 1),
            ([(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (6, 0)], 1),
            ([], 0),
        ],
        ids=[
            "one",
            "apart",
            "same input",
            "read",
            "overwrite",
            "overwrite what was read",
            "one for two",
            "chain",
            "read, after many",
            "overwrite, after many",
            "overwrite what was read, after many",
            "none",
        ],
    )
    def test_stand_where_one_depends_on_another(
        self,
        device: dmlvk.Device,
        tensors: list[dmlvk.Tensor],
        pairs: list[tuple[int, int]],
        barriers: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        assert self.count(device, tensors, pairs, monkeypatch) == barriers

    def test_go_by_bytes_inside_a_buffer(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        buffer = device.buffer(2048)
        tensors = [buffer.tensor(DESC, 256 * k) for k in range(6)]
        assert self.count(device, tensors, [(0, 1), (2, 3), (4, 5)], monkeypatch) == 0
        tensors[3] = buffer.tensor(DESC, 256 + 128)
        assert self.count(device, tensors, [(0, 1), (5, 3)], monkeypatch) == 1


def test_long_work_is_split_into_submissions(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = device.compile(copy_desc(DESC))
    tensors = [device.tensor(VALUES) for _ in range(2)] + [device.tensor(DESC)]
    bindings = [
        copy.bind(input_tensor=tensors[0], output_tensor=tensors[1]),
        copy.bind(input_tensor=tensors[1], output_tensor=tensors[2]),
    ] * 5
    for binding in bindings:
        binding.seconds = ((0.4 * MAXIMUM_SUBMISSION_SECONDS,),)
    parts: list[int] = []
    submit = vk.vkQueueSubmit

    def watch(queue: object, count: int, *arguments: object) -> object:
        parts.append(count)
        return submit(queue, count, *arguments)

    monkeypatch.setattr(vk, "vkQueueSubmit", watch)
    device.submit(bindings).wait()
    # In one call, so that the driver takes all of the work or none.
    assert parts == [5]
    np.testing.assert_array_equal(tensors[2].numpy(), VALUES)


def test_a_barrier_follows_work_that_is_split_inside_a_binding(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = device.compile(copy_desc(DESC))
    tensors = [device.tensor(VALUES), device.tensor(DESC), device.tensor(DESC)]
    first, second = (
        copy.bind(input_tensor=source, output_tensor=target) for source, target in (tensors[:2], tensors[1:])
    )
    ((dispatch,),) = first.stages
    first.stages, first.seconds = ((dispatch, dispatch),), ((0.6 * MAXIMUM_SUBMISSION_SECONDS,) * 2,)
    counter = Counter(monkeypatch, "vkCmdPipelineBarrier")
    device.submit([first, second]).wait()
    # Two command buffers, each with a barrier before its dispatches and one for the host after them.
    assert counter.count - 2 * (1 + device.vulkan.memory.is_direct) == 1
    np.testing.assert_array_equal(tensors[2].numpy(), VALUES)


@pytest.mark.parametrize("how", ["a call", "a list", "a sequence"])
@pytest.mark.parametrize("is_on_host", [False, True])
def test_what_lies_on_the_host_is_made_visible_to_it(
    device: dmlvk.Device, how: str, is_on_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With memory of the device's own, the host reads no other output without a transfer."""
    made_visible: list[Recorder] = []
    before = Recorder.before_host_reads
    with open_variant(device, "staged") as staged:
        memory = Buffer.on_host(staged.engine, 4 * DESC.sizes[0]) if is_on_host else None
        target = staged.tensor(DESC) if memory is None else memory.tensor(DESC)
        source, copy = staged.tensor(VALUES), staged.compile(copy_desc(DESC))
        staged.wait()

        def noted(recorder: Recorder, **options: Any) -> None:
            made_visible.append(recorder)
            before(recorder, **options)

        monkeypatch.setattr(Recorder, "before_host_reads", noted)
        if how == "a call":
            submission = copy(input_tensor=source, output_tensor=target)
        else:
            binding = copy.bind(input_tensor=source, output_tensor=target)
            bindings = [binding, binding]
            submission = staged.submit(bindings) if how == "a list" else staged.sequence(bindings).submit()
        submission.wait()
        assert len(made_visible) == is_on_host
        monkeypatch.undo()
        np.testing.assert_array_equal(target.numpy(), VALUES)
