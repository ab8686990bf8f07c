"""Times: warm-up, rounds, and their statistics."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import dmlvk
from dmlvk.device_profile import DeviceType
from dmlvk.runtime.binding import Binding

# An idle GPU runs at a fraction of its clock and takes a while to speed up (an H200: 345 of 1,980 MHz).
WARM_UP_SECONDS = 1.0
# If the rounds together take longer than this, there are fewer than requested, but never fewer than three.
ENOUGH_SECONDS = 1.0
FEWEST_ROUNDS = 3

# A device lowers its clock between short pieces of work, so before each timed one it is kept busy for this long; with
# the same work, since what work has left in the cache is written to memory in the time of the next.
BUSY_SECONDS = 1e-3

# Tensors are rotated through this much memory: several times the largest cache of any device.
ROTATION_BYTES = 1 << 28
LARGEST_ROTATION = 64


# The most that a submission may take by the host's clock in addition to its work: far more than any driver needs.
LONGEST_SUBMISSION_SECONDS = 5e-3
# The largest ratio of this additional time, over all rounds, to the time on the device. A larger one shows that
# timestamps were taken before the work had ended.
LARGEST_RATIO = 3
# A timestamp's clock and the host's are different crystals.
CLOCKS_DIFFERENCE = 0.01


@dataclass(frozen=True)
class Times:
    """Seconds of each round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def record(self) -> dict[str, float | int]:
        """Median, extremes and quartiles, for JSON."""
        ordered = sorted(self.seconds)
        quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
        return {
            "median": self.median,
            "minimum": ordered[0],
            "maximum": ordered[-1],
            "first_quartile": quartiles[0],
            "third_quartile": quartiles[2],
            "rounds": len(ordered),
        }


@dataclass(frozen=True)
class Rounds:
    """The result of time_bindings.

    times: times of the whole binding, on the device.
    dispatches: times of each dispatch.
    processor: on a CPU driver: the time that this program's threads ran on all processors together. Other work on the
        machine disturbs this time less than it disturbs the other two.
    host: by the host's clock, from before each submission to after its end.
    """

    times: Times
    dispatches: tuple[Times, ...]
    processor: Times | None
    host: Times

    @property
    def untrue(self) -> str | None:
        """Why the device's timestamps cannot be true; None if they can be.

        Work cannot take longer on the device than on the whole. And if all rounds take far longer on the whole, the
        timestamps were taken too early.
        """
        for seconds, on_host in zip(self.times.seconds, self.host.seconds, strict=True):
            if seconds > on_host * (1 + CLOCKS_DIFFERENCE):
                return f"{seconds * 1e3:,.3f} ms on the device, and {on_host * 1e3:,.3f} ms by the host's clock in all"
        seconds, on_host = max(self.times.seconds), min(self.host.seconds)
        if on_host > LONGEST_SUBMISSION_SECONDS + LARGEST_RATIO * seconds:
            on_device = f"at most {seconds * 1e3:,.3f} ms on the device"
            return f"{on_device}, and at least {on_host * 1e3:,.3f} ms by the host's clock"
        return None


def rotation(bytes_moved: int, device_type: DeviceType) -> int:
    """The number of sets of tensors to use in turn, so that no data is found in a cache."""
    most = 4 if device_type is DeviceType.CPU else LARGEST_ROTATION
    return max(1, min(most, -(-ROTATION_BYTES // max(1, bytes_moved))))


def require_final(bindings: Sequence[Binding]) -> None:
    """Refuse to time kernels that other kernels will replace during the measurement.

    Raises ValueError: a binding's own kernels are still compiled.
    """
    if not all(binding.is_final for binding in bindings):
        raise ValueError(
            "general kernels would be timed, because special ones are still being compiled; compile with wait=True"
        )


def time_bindings(
    device: dmlvk.Device, bindings: Sequence[Binding], rounds: int, warm_up_seconds: float = WARM_UP_SECONDS
) -> Rounds:
    """Run bindings in turn and time them on the device.

    device: with timestamps.
    bindings: the same work on different memory.
    rounds: the largest number of timed rounds. A warm-up, in which each binding runs at least once, comes first.
    warm_up_seconds: the duration of the warm-up on a GPU.
    """
    return time_in_turns(device, [bindings], rounds, warm_up_seconds)[0]


def time_in_turns(
    device: dmlvk.Device,
    items: Sequence[Sequence[Binding]],
    rounds: int,
    warm_up_seconds: float = WARM_UP_SECONDS,
    busy_seconds: float = 0,
) -> list[Rounds]:
    """Run the bindings of several items in turns, so that all meet the same clock, and time them on the device.

    device: with timestamps.
    items: the bindings of an item are the same work on different memory.
    rounds: the largest number of timed rounds of each item. A warm-up, in which each binding runs at least once, comes
        first.
    warm_up_seconds: the duration of the warm-up on a GPU.
    busy_seconds: how long an item's bindings run on a GPU before each of its timed runs.
    Returns: one for each item.
    """
    for bindings in items:
        require_final(bindings)
    is_cpu = device.profile.device_type is DeviceType.CPU

    start = time.perf_counter()
    while True:
        for bindings in items:
            for binding in bindings:
                device.submit([binding]).wait()
        if is_cpu or time.perf_counter() - start > warm_up_seconds:
            break
    timed = [_TimedItem(bindings) for bindings in items]
    start = time.perf_counter()
    for number in range(rounds):
        for item in timed:
            item.run(device, 0 if is_cpu else busy_seconds)
        if number + 1 >= FEWEST_ROUNDS and time.perf_counter() - start > ENOUGH_SECONDS * len(items):
            break
    return [item.rounds(is_cpu) for item in timed]


class _TimedItem:
    """The times of one item's rounds, as they come."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._bindings = cycle(bindings)
        self._found: list[tuple[float, ...]] = []
        self._processor: list[float] = []
        self._host: list[float] = []

    def run(self, device: dmlvk.Device, busy_seconds: float) -> None:
        begun = time.perf_counter()
        while time.perf_counter() - begun < busy_seconds:
            device.submit([next(self._bindings)]).wait()
        before, begun = time.process_time(), time.perf_counter()
        submission = device.submit([next(self._bindings)])
        self._found.append(submission.dispatch_times)
        self._host.append(time.perf_counter() - begun)
        self._processor.append(time.process_time() - before)

    def rounds(self, is_cpu: bool) -> Rounds:
        return Rounds(
            Times(tuple(map(sum, self._found))),
            tuple(map(Times, zip(*self._found, strict=True))),
            Times(tuple(self._processor)) if is_cpu else None,
            Times(tuple(self._host)),
        )


def time_on_host(step: Callable[[int], Any], rounds: int) -> Times:
    """Time a function by the host's clock: one call per round, with the round's number, after an untimed call."""
    step(0)
    found: list[float] = []
    start = time.perf_counter()
    while len(found) < rounds:
        before = time.perf_counter()
        step(len(found))
        found.append(time.perf_counter() - before)
        if len(found) >= FEWEST_ROUNDS and time.perf_counter() - start > ENOUGH_SECONDS:
            break
    return Times(tuple(found))


def warm_up(step: Callable[[], object], seconds: float = WARM_UP_SECONDS) -> None:
    """Repeat a step for some time: an idle GPU runs at a fraction of its clock."""
    start = time.perf_counter()
    while True:
        step()
        if time.perf_counter() - start > seconds:
            return
