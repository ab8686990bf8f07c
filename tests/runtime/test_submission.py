"""Submissions and sequences: order, barriers, waiting, times."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS
from dmlvk.vulkan.library import VK_TIMEOUT, vk
from tests.runtime.busy import keep_busy
from tests.vulkan.variants import VARIANTS, copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
VALUES = np.arange(64, dtype=np.int32)


def reverse_desc(desc: dmlvk.TensorDesc = DESC) -> dmlvk.Slice1Desc:
    return dmlvk.Slice1Desc(
        input_tensor=desc,
        output_tensor=desc,
        input_window_offsets=[0],
        input_window_sizes=desc.sizes,
        input_window_strides=[-1],
    )


class Counter:
    """Counts the calls of a function of the Vulkan library."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.count = 0
        self._function = getattr(vk, name)
        monkeypatch.setattr(vk, name, self)

    def __call__(self, *arguments: object) -> object:
        self.count += 1
        return self._function(*arguments)


@pytest.fixture(params=VARIANTS)
def own(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    with open_variant(device, request.param) as opened:
        yield opened


def test_work_runs_in_order(own: dmlvk.Device) -> None:
    reverse, copy = own.compile(reverse_desc()), own.compile(copy_desc(DESC))
    first, second, third = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
    for _ in range(20):
        reverse(input_tensor=first, output_tensor=second)
        copy(input_tensor=second, output_tensor=third)
        copy(input_tensor=third, output_tensor=first)
    reverse(input_tensor=first, output_tensor=second)
    np.testing.assert_array_equal(second.numpy(), VALUES[::-1])


def test_a_write_waits_for_work_that_still_reads(own: dmlvk.Device) -> None:
    large = dmlvk.TensorDesc(dmlvk.DataType.INT32, (1 << 19,))
    copy = own.compile(copy_desc(large))
    source, targets = own.tensor(large), [own.tensor(large) for _ in range(4)]
    for number, target in enumerate(targets):
        source.write(np.full(1 << 19, number, np.int32))
        copy(input_tensor=source, output_tensor=target)
    for number, target in enumerate(targets):
        assert (target.numpy() == number).all()


def test_a_list_of_bindings_runs_in_order(own: dmlvk.Device) -> None:
    reverse, copy = own.compile(reverse_desc()), own.compile(copy_desc(DESC))
    a, b, c = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
    bindings = [
        reverse.bind(input_tensor=a, output_tensor=b),
        copy.bind(input_tensor=b, output_tensor=c),
        reverse.bind(input_tensor=c, output_tensor=a),
    ]
    submission = own.submit(bindings * 9)
    submission.wait()
    assert submission.done
    np.testing.assert_array_equal(a.numpy(), VALUES)
    np.testing.assert_array_equal(c.numpy(), VALUES[::-1])


class TestBarriers:
    @pytest.fixture
    def tensors(self, device: dmlvk.Device) -> list[dmlvk.Tensor]:
        return [device.tensor(VALUES) for _ in range(6)]

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


class TestSequence:
    def test_replays_with_new_contents(self, own: dmlvk.Device) -> None:
        reverse, copy = own.compile(reverse_desc()), own.compile(copy_desc(DESC))
        a, b, c = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
        sequence = own.sequence(
            [reverse.bind(input_tensor=a, output_tensor=b), copy.bind(input_tensor=b, output_tensor=c)]
        )
        for number in range(5):
            a.write(VALUES + number)
            sequence.submit()
            np.testing.assert_array_equal(c.numpy(), VALUES[::-1] + number)

    def test_can_be_submitted_again_before_it_is_done(self, own: dmlvk.Device) -> None:
        desc = dmlvk.TensorDesc(dmlvk.DataType.INT32, (1 << 16,))
        reverse, copy = own.compile(reverse_desc(desc)), own.compile(copy_desc(desc))
        values = np.arange(1 << 16, dtype=np.int32)
        a, b = own.tensor(values), own.tensor(desc)
        sequence = own.sequence(
            [reverse.bind(input_tensor=a, output_tensor=b), copy.bind(input_tensor=b, output_tensor=a)]
        )
        for _ in range(9):
            last = sequence.submit()
        del sequence
        last.wait()
        np.testing.assert_array_equal(a.numpy(), values[::-1])

    def test_measures_every_replay(self, device: dmlvk.Device) -> None:
        with open_variant(device, "direct", timestamps=True) as own:
            copy = own.compile(copy_desc(DESC))
            a, b = own.tensor(VALUES), own.tensor(DESC)
            sequence = own.sequence([copy.bind(input_tensor=a, output_tensor=b)] * 3)
            submissions = [sequence.submit() for _ in range(3)]
            times = [submission.dispatch_times for submission in submissions]
            assert all(len(each) == 3 for each in times if each is not None)
            assert times == [submission.dispatch_times for submission in submissions]
            assert [submission.gpu_time for submission in submissions] == [sum(each) for each in times if each]


class TestTimes:
    def test_there_are_none_unless_asked_for(self, device: dmlvk.Device) -> None:
        copy = device.compile(copy_desc(DESC))
        submission = copy(input_tensor=device.tensor(VALUES), output_tensor=device.tensor(DESC))
        assert submission.gpu_time is None
        assert submission.dispatch_times is None

    def test_are_seconds_on_the_device(self, device: dmlvk.Device) -> None:
        desc = dmlvk.TensorDesc(dmlvk.DataType.INT32, (1 << 20,))
        with open_variant(device, "direct", timestamps=True) as own:
            copy = own.compile(copy_desc(desc))
            binding = copy.bind(input_tensor=own.tensor(desc), output_tensor=own.tensor(desc))
            submission = own.submit([binding] * 3)
            times = submission.dispatch_times
            assert times is not None
            assert len(times) == 3
            assert all(1e-6 < seconds < 10 for seconds in times)
            assert submission.gpu_time == sum(times)

    def test_of_a_closed_device_are_an_error(self, device: dmlvk.Device) -> None:
        own = open_variant(device, "direct", timestamps=True)
        submission = own.compile(copy_desc(DESC))(input_tensor=own.tensor(VALUES), output_tensor=own.tensor(DESC))
        own.close()
        with pytest.raises(dmlvk.DeviceError, match="closed"):
            _ = submission.gpu_time


class TestWaiting:
    @pytest.fixture
    def running(self, device: dmlvk.Device) -> dmlvk.Submission:
        return keep_busy(device)[0]

    def test_that_times_out_can_be_repeated(self, running: dmlvk.Submission) -> None:
        with pytest.raises(TimeoutError) as caught:
            running.wait(timeout=0)
        assert isinstance(caught.value, dmlvk.DeviceError)
        assert not running.done
        with pytest.raises(dmlvk.DeviceError, match=r"within 0\.001 s"):
            running.wait(0.001)
        running.wait(timeout=60)
        assert running.done
        running.wait(0)

    def test_may_have_no_end(self, running: dmlvk.Submission) -> None:
        running.wait(math.inf)
        assert running.done

    def test_sleeps_in_the_driver_for_a_slice_and_no_longer_than_its_time(
        self, device: dmlvk.Device, running: dmlvk.Submission, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits: list[int] = []

        def note(device: object, information: object, timeout: int) -> int:
            limits.append(timeout)
            return VK_TIMEOUT

        monkeypatch.setattr(device.vulkan.queue.timeline, "sleeps_in_driver", True)
        monkeypatch.setattr(vk, "vkWaitSemaphores", note)
        with pytest.raises(TimeoutError):
            running.wait(0.06)
        assert limits[0] == 50_000_000
        assert 0 < limits[-1] < 20_000_000
        assert limits == sorted(limits, reverse=True)

    def test_that_is_interrupted_leaves_the_device_usable(
        self, device: dmlvk.Device, running: dmlvk.Submission, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*arguments: object) -> int:
            signal.raise_signal(signal.SIGINT)
            return VK_TIMEOUT

        monkeypatch.setattr(vk, "vkWaitSemaphores", interrupted)
        with pytest.raises(KeyboardInterrupt):
            running.wait()
        monkeypatch.undo()
        running.wait()
        np.testing.assert_array_equal(device.tensor(VALUES).numpy(), VALUES)

    def test_is_over_when_the_device_is_closed(self, device: dmlvk.Device) -> None:
        own = open_variant(device, "direct")
        submission = own.compile(copy_desc(DESC))(input_tensor=own.tensor(VALUES), output_tensor=own.tensor(DESC))
        own.close()
        assert submission.done
        submission.wait()


class TestWatching:
    """A wait that polls the timeline before it sleeps, as on GPUs."""

    @pytest.fixture
    def own(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[dmlvk.Device]:
        with open_variant(device, "direct") as opened:
            monkeypatch.setattr(opened.vulkan.queue.timeline, "watch_seconds", 60.0)
            yield opened
            monkeypatch.undo()

    def submit(self, own: dmlvk.Device) -> dmlvk.Submission:
        return own.compile(copy_desc(DESC))(input_tensor=own.tensor(DESC), output_tensor=own.tensor(DESC))

    def test_need_not_sleep(self, own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        counter = Counter(monkeypatch, "vkWaitSemaphores")
        submission = self.submit(own)
        submission.wait()
        assert submission.done
        assert counter.count == 0

    def test_ends_with_its_time_and_can_be_repeated(self, own: dmlvk.Device) -> None:
        submission, _ = keep_busy(own, 0.1)
        with pytest.raises(TimeoutError):
            submission.wait(1e-6)
        submission.wait()
        assert submission.done

    def test_sleeps_after_a_moment(self, own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(own.vulkan.queue.timeline, "watch_seconds", 1e-6)
        submission, _ = keep_busy(own, 0.1)
        counter = Counter(monkeypatch, "vkWaitSemaphores")
        submission.wait()
        assert counter.count

    @pytest.mark.parametrize("value", [None, 2**64 - 1], ids=["returned", "a senseless value, then returned"])
    def test_sees_that_the_device_is_lost(
        self, own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, value: int | None
    ) -> None:
        submission = self.submit(own)

        def lost(device: object, semaphore: object, counter: Any) -> int:
            if value is None:
                return -4
            counter[0] = value
            return 0

        monkeypatch.setattr(vk, "vkGetSemaphoreCounterValue", lost)
        monkeypatch.setattr(vk, "vkWaitSemaphores", lambda *arguments: -4)
        with pytest.raises(dmlvk.DeviceError, match="VK_ERROR_DEVICE_LOST"):
            submission.wait()
        with pytest.raises(dmlvk.DeviceError, match="was lost"):
            own.tensor(VALUES)


class TestNapping:
    """A wait that sleeps outside the driver and polls again, for a driver in which no thread may sleep."""

    @pytest.fixture
    def own(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[dmlvk.Device]:
        with open_variant(device, "direct") as opened:
            monkeypatch.setattr(opened.vulkan.queue.timeline, "sleeps_in_driver", False)
            yield opened

    @pytest.fixture
    def limits(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The timeouts given to vkWaitSemaphores."""
        seen: list[int] = []
        wait = vk.vkWaitSemaphores

        def note(device: object, information: object, timeout: int) -> object:
            seen.append(timeout)
            return wait(device, information, timeout)

        monkeypatch.setattr(vk, "vkWaitSemaphores", note)
        return seen

    @pytest.mark.parametrize("timeout", [None, 60.0, math.inf])
    def test_never_sleeps_in_the_driver(self, own: dmlvk.Device, limits: list[int], timeout: float | None) -> None:
        submission, _ = keep_busy(own, 0.1)
        submission.wait(timeout)
        assert submission.done
        assert len(limits) > 1
        assert set(limits) == {0}

    def test_ends_with_its_time_and_can_be_repeated(self, own: dmlvk.Device, limits: list[int]) -> None:
        submission, _ = keep_busy(own, 0.1)
        for timeout in (0, 1e-6, 1e-3):
            with pytest.raises(TimeoutError):
                submission.wait(timeout)
        submission.wait()
        assert submission.done
        assert set(limits) == {0}

    def test_takes_longer_naps_the_longer_it_lasts(self, own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        naps: list[float] = []
        sleep = time.sleep

        def nap(seconds: float) -> None:
            naps.append(seconds)
            sleep(seconds)

        submission, _ = keep_busy(own, 0.2)
        monkeypatch.setattr(time, "sleep", nap)
        submission.wait()
        assert naps[0] < 1e-3
        assert naps == sorted(naps)
        assert max(naps) == 1e-3

    def test_can_be_interrupted(self, own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        submission, _ = keep_busy(own, 0.1)
        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", lambda seconds: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                submission.wait()
        submission.wait()
        assert submission.done

    def test_sees_that_the_device_is_lost(self, own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        submission, _ = keep_busy(own)
        monkeypatch.setattr(vk, "vkWaitSemaphores", lambda *arguments: -4)
        with pytest.raises(dmlvk.DeviceError, match="VK_ERROR_DEVICE_LOST"):
            submission.wait()

    @pytest.mark.parametrize(
        ("driver_id", "on_windows", "sleeps"),
        [(4, False, False), (4, True, True), (3, False, True)],  # 4 is VK_DRIVER_ID_NVIDIA_PROPRIETARY
        ids=["NVIDIA's on Linux", "NVIDIA's on Windows", "another"],
    )
    def test_is_for_nvidia_s_driver_on_linux(
        self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, driver_id: int, on_windows: bool, sleeps: bool
    ) -> None:
        profile = replace(device.profile, driver_id=driver_id)
        monkeypatch.setattr("dmlvk.vulkan.timeline.ON_WINDOWS", on_windows)
        with open_variant(device, "direct", profile=profile) as opened:
            assert opened.vulkan.queue.timeline.sleeps_in_driver is sleeps


def test_dropping_everything_while_it_runs_is_safe(device: dmlvk.Device) -> None:
    desc = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1 << 20,))
    with open_variant(device, "direct") as own:
        for _ in range(5):
            operator = own.compile(reverse_desc(desc))
            binding = operator.bind(input_tensor=own.tensor(desc), output_tensor=own.tensor(desc))
            own.sequence([binding]).submit()
            own.submit([binding])
            del operator, binding
        own.wait()
        assert own.memory_used == 0
