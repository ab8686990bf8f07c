"""Times of bindings that run one after the other: on the GPU from the first to the last timestamp, and on the wall."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import dmlvk
from dmlvk.benchmark.timing import ENOUGH_SECONDS, FEWEST_ROUNDS, Times, require_final, warm_up
from dmlvk.device_profile import DeviceType
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.sequence import Sequence as Recorded

# Bindings that are shorter than this are repeated in one sequence, so that its beginning and end hardly count.
TARGET_SECONDS = 3e-3
MOST_REPEATS = 100
# Layers are measured one after the other, so the device is already warm for all except the first.
SHORT_WARM_UP_SECONDS = 0.3
ENOUGH_ON_CPU_SECONDS = 0.3


@dataclass(frozen=True)
class ChainTimes:
    """Seconds of a chain.

    device: from the first to the last timestamp; None for a library on the CPU.
    wall: by the host's clock, from the call until all is done.
    """

    device: Times | None
    wall: Times

    @property
    def best(self) -> Times:
        """The device's own time where there is one."""
        return self.wall if self.device is None else self.device

    def divided(self, count: int) -> ChainTimes:
        """The times of one of several equal parts."""
        device = None if self.device is None else _divided(self.device, count)
        return ChainTimes(device, _divided(self.wall, count))


def time_chain(
    device: dmlvk.Device,
    bindings: Sequence[Binding],
    rounds: int,
    is_repeated: bool,
    warm_up_seconds: float = SHORT_WARM_UP_SECONDS,
) -> ChainTimes:
    """Time bindings that each depend on the one before.

    device: with timestamps.
    bindings: their memory overlaps, so that a barrier stands between each two. Binding the same twice overlaps as well.
    rounds: the most timed runs of each kind.
    is_repeated: whether short bindings are repeated within a run. The times are those of one repetition.
    warm_up_seconds: the duration of the warm-up on a GPU.
    """
    require_final(bindings)
    is_cpu = device.profile.device_type is DeviceType.CPU
    count = 1
    if is_repeated:
        once = _measured(device, bindings)
        _run(once)
        count = repeats(min(_run(once) for _ in range(FEWEST_ROUNDS)))
    measured = _measured(device, tuple(bindings) * count)
    plain = Recorded(device.engine, tuple(bindings) * count, timestamps=False)
    if is_cpu:
        _run(plain)
    else:
        warm_up(lambda: _run(plain), warm_up_seconds)
    on_device: list[float] = []
    on_wall: list[float] = []
    begin = time.perf_counter()
    while len(on_wall) < rounds:
        submission = measured.submit()
        on_device.append(submission.gpu_time)
        on_wall.append(_run(plain))
        enough = ENOUGH_ON_CPU_SECONDS if is_cpu else ENOUGH_SECONDS
        if len(on_wall) >= FEWEST_ROUNDS and time.perf_counter() - begin > enough:
            break
    return ChainTimes(Times(tuple(on_device)), Times(tuple(on_wall))).divided(count)


def _divided(times: Times, count: int) -> Times:
    return Times(tuple(seconds / count for seconds in times.seconds))


def repeats(seconds: float) -> int:
    """How often work of this time is repeated."""
    return max(1, min(MOST_REPEATS, math.ceil(TARGET_SECONDS / max(seconds, 1e-9))))


def _measured(device: dmlvk.Device, bindings: Sequence[Binding]) -> Recorded:
    return Recorded(device.engine, tuple(bindings), timestamps=True, times_of_each=False)


def _run(sequence: Recorded) -> float:
    """Seconds by the host's clock."""
    start = time.perf_counter()
    sequence.submit().wait()
    return time.perf_counter() - start
