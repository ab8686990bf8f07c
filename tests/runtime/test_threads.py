"""Many threads on one device, and several devices at a time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan import staging_ring
from tests.runtime.busy import keep_busy
from tests.runtime.small_work import reverse_desc
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
LARGE = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1 << 22,))
VALUES = np.arange(64, dtype=np.int32)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work(0), work(1), ... at once; an exception in one of them is raised here."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("variant", ["direct", "staged", "staged-copy-queue"])
def test_everything_at_once(device: dmlvk.Device, variant: str) -> None:
    """Eight threads share operators and a source tensor. Each does everything possible, in an order of its own."""
    with open_variant(device, variant) as own:
        copy, reverse = own.compile(copy_desc(DESC)), own.compile(reverse_desc(DESC))
        shared = own.tensor(VALUES)

        def work(number: int) -> None:
            order = random.Random(number)
            target, other = own.tensor(DESC), own.tensor(VALUES + number)
            pair = [
                reverse.bind(input_tensor=other, output_tensor=target),
                copy.bind(input_tensor=target, output_tensor=other),
            ]
            sequence = own.sequence(pair)
            expected = VALUES + number
            for _ in range(40):
                match order.randrange(6):
                    case 0:
                        copy(input_tensor=shared, output_tensor=target)
                        np.testing.assert_array_equal(target.numpy(), VALUES)
                    case 1:
                        own.submit(pair)
                        expected = expected[::-1]
                    case 2:
                        sequence.submit().wait()
                        expected = expected[::-1]
                    case 3:
                        np.testing.assert_array_equal(other.numpy(), expected)
                    case 4:
                        expected = expected + 1
                        other.write(expected)
                    case 5:
                        fresh = own.tensor(DESC)
                        reverse(input_tensor=shared, output_tensor=fresh)
                        own.compile(copy_desc(DESC))
                        np.testing.assert_array_equal(fresh.numpy(), VALUES[::-1])
            np.testing.assert_array_equal(other.numpy(), expected)

        in_threads(8, work)
        shared.free()
        own.wait()
        assert own.memory_used == 0


@pytest.mark.parametrize("variant", ["staged", "staged-copy-queue"])
def test_large_transfers_share_the_ring(device: dmlvk.Device, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six threads need more of the ring than it has."""
    monkeypatch.setattr(staging_ring, "RING_SIZE", 1 << 20)
    monkeypatch.setattr("dmlvk.vulkan.transfers.PIECE_SIZE", 1 << 18)
    size = 5 << 18
    with open_variant(device, variant) as own:

        def work(number: int) -> None:
            for round_ in range(2):
                values = np.random.default_rng(10 * number + round_).integers(0, 256, size, np.uint8)
                tensor = own.tensor(values)
                np.testing.assert_array_equal(tensor.numpy(), values)

        in_threads(6, work)
        own.wait()
        assert own.memory_used == 0


def test_others_submit_while_one_waits_for_a_result(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source, target = own.tensor(VALUES), own.tensor(DESC)
        copy(input_tensor=source, output_tensor=target).wait()
        # On a busy machine the first works may end before the other thread comes to submit.
        assert any(
            _submits_while_one_waits(own, lambda: copy(input_tensor=source, output_tensor=target), seconds)
            for seconds in (0.4, 2.0, 10.0)
        )
        np.testing.assert_array_equal(target.numpy(), VALUES)


def _submits_while_one_waits(own: dmlvk.Device, submit: Callable[[], dmlvk.Submission], seconds: float) -> bool:
    """Whether a submission is made before work of so many seconds ends, for which another thread waits."""
    running, written = keep_busy(own, seconds)
    thread = threading.Thread(target=written.numpy)
    thread.start()
    time.sleep(0.02)
    last = submit()
    was_first = thread.is_alive() and not running.done
    thread.join()
    last.wait()
    return was_first


def test_closing_while_others_work(device: dmlvk.Device) -> None:
    """Each thread ends with correct results or with a DeviceError."""
    for variant in ("direct", "staged-copy-queue"):
        own = open_variant(device, variant)
        copy = own.compile(copy_desc(DESC))

        def work(number: int, own: dmlvk.Device = own, copy: dmlvk.CompiledOperator = copy) -> None:
            if number == 0:
                time.sleep(0.05)
                own.close()
                return
            try:
                while True:
                    source, target = own.tensor(VALUES + number), own.tensor(DESC)
                    copy(input_tensor=source, output_tensor=target)
                    np.testing.assert_array_equal(target.numpy(), VALUES + number)
            except dmlvk.DeviceError as error:
                assert "closed" in str(error)

        in_threads(5, work)
        assert own.is_closed


def test_closing_waits_for_who_is_in_the_midst_of_something(device: dmlvk.Device) -> None:
    own = open_variant(device, "direct")
    entered = threading.Event()
    left: list[bool] = []

    def work(number: int) -> None:
        def stay() -> None:
            entered.set()
            time.sleep(0.3)
            left.append(True)

        if number == 0:
            own.vulkan.visits.during(stay)
        else:
            entered.wait()
            own.close()
            assert left

    in_threads(2, work)
    with pytest.raises(dmlvk.DeviceError, match="closed"):
        own.vulkan.visits.during(time.sleep, 0)


def test_devices_run_beside_each_other(device: dmlvk.Device) -> None:
    devices = [open_variant(device, variant) for variant in ("direct", "staged", "direct")]

    def work(number: int) -> None:
        own = devices[number]
        reverse = own.compile(reverse_desc(DESC))
        a, b = own.tensor(VALUES + number), own.tensor(DESC)
        for _ in range(50):
            reverse(input_tensor=a, output_tensor=b)
            reverse(input_tensor=b, output_tensor=a)
        np.testing.assert_array_equal(a.numpy(), VALUES + number)

    in_threads(len(devices), work)
    for own in devices:
        own.close()
