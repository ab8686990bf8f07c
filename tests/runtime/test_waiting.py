"""Waits for a submission: in the driver, by polling, and by naps outside of the driver."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan import timeline
from dmlvk.vulkan.library import VK_TIMEOUT, vk
from tests.runtime.busy import keep_busy
from tests.runtime.small_work import DESC, VALUES, Counter
from tests.vulkan.variants import copy_desc, open_variant

pytestmark = pytest.mark.every_driver


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
        now = 0.0

        def note(device: object, information: object, timeout: int) -> int:
            nonlocal now
            limits.append(timeout)
            now += timeout / 1e9 + 1e-6
            return VK_TIMEOUT

        monkeypatch.setattr(device.vulkan.queue.timeline, "sleeps_in_driver", True)
        monkeypatch.setattr(device.vulkan.queue.timeline, "watch_seconds", 0.0)
        monkeypatch.setattr(vk, "vkWaitSemaphores", note)
        monkeypatch.setattr(timeline, "time", SimpleNamespace(monotonic=lambda: now))  # else the machine's load counts
        with pytest.raises(TimeoutError):
            running.wait(0.0625)
        assert limits == [50_000_000, pytest.approx(12_499_000, abs=1)]

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
        # Long enough for a machine that stops this thread for some tenths of a second.
        submission, _ = keep_busy(own, 0.5)
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
