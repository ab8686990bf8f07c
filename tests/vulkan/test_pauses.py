"""Work that holds up a queue waits for a pause between calls, and calls wait for one piece of it at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import dmlvk
from dmlvk.runtime.background import held_back
from dmlvk.vulkan import pauses
from dmlvk.vulkan.interrupts.availability import Availability
from dmlvk.vulkan.interrupts.visits import Visits
from dmlvk.vulkan.pauses import Pauses
from tests.runtime.convolutions import convolution


class StandIn:
    """A queue whose work is done at once, or never."""

    def __init__(self) -> None:
        self.latest = 7
        self.is_done = True
        self.timeline = SimpleNamespace(look=lambda: (0, self.latest if self.is_done else 0))


@pytest.fixture
def queue() -> StandIn:
    return StandIn()


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """What happens in each nap, one after the other. The clock goes on by the naps alone."""
    happens: list[Callable[[], None]] = []
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if happens:
            happens.pop(0)()

    monkeypatch.setattr(pauses, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now))
    yield happens


def of(queue: Any) -> Pauses:
    availability = Availability("stand-in")
    availability.is_usable = True
    return Pauses(queue, Visits(availability))


def submit(queue: StandIn) -> None:
    queue.latest += 1


def test_it_waits_while_calls_follow_each_other(queue: Any, naps: list[Callable[[], None]]) -> None:
    naps += [lambda: submit(queue)] * 5
    left: list[int] = []
    of(queue).use(lambda: left.append(len(naps)))
    assert left == [0]


def test_it_waits_while_a_call_runs(queue: Any, naps: list[Callable[[], None]]) -> None:
    queue.is_done = False
    naps += [lambda: None, lambda: None, lambda: setattr(queue, "is_done", True)]
    left: list[int] = []
    of(queue).use(lambda: left.append(len(naps)))
    assert left == [0]


def test_without_a_pause_it_begins_all_the_same(queue: Any, naps: list[Callable[[], None]]) -> None:
    endless = 10_000
    naps += [lambda: submit(queue)] * endless
    left: list[int] = []
    of(queue).use(lambda: left.append(len(naps)))
    assert left == [pytest.approx(endless - pauses.LONGEST_DELAY_SECONDS / pauses.PAUSE_SECONDS, abs=1)]


def test_a_pause_is_waited_for_once(queue: Any, naps: list[Callable[[], None]]) -> None:
    """Work follows work without another nap, until somebody calls."""
    own = of(queue)
    left: list[int] = []
    naps += [lambda: None] * 5

    def work() -> None:
        submit(queue)
        left.append(len(naps))

    for _ in range(3):
        own.use(work)
    assert left == [4, 4, 4]
    submit(queue)
    own.use(lambda: left.append(len(naps)))
    assert left[3:] == [3]


def test_one_piece_of_work_at_a_time(queue: Any) -> None:
    own = of(queue)
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1

    threads = [threading.Thread(target=own.use, args=(work,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_the_end_of_a_device_ends_the_waiting(device: dmlvk.Device) -> None:
    own = dmlvk.Device(device.name)
    own.tensor(range(9))
    own.close()
    with pytest.raises(dmlvk.DeviceError, match="closed"):
        own.vulkan.pauses.use(lambda: None)


@pytest.mark.every_driver
def test_only_the_background_gives_way(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver compiles in its queue: each kernel in a pause, or all at once for somebody who waits."""
    used: list[Callable[[], None]] = []
    honest = Pauses.use

    def use(own: Pauses, work: Callable[[], None]) -> None:
        used.append(work)
        honest(own, work)

    monkeypatch.setattr(Pauses, "use", use)
    compiles_in_queue = "llvmpipe" in device.name
    case = convolution(owned=True)
    for gives_way in (False, True):
        with dmlvk.Device(device.name) as own:
            general = held_back(own.engine, case.desc)
            assert not used
            general.build_special(gives_way=gives_way)
            special = general.latest
            assert special is not general
            fresh = {id(pipeline) for pipeline in special._pipelines.values()}
            shared = {id(pipeline) for pipeline in general._pipelines.values()}
            assert len(used) == (len(fresh - shared) if gives_way and compiles_in_queue else 0)
