"""The work that reads and writes an allocation: the device's own, and that of another API that shares the memory.

The host waits for that work and for no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class LatestRun:
    """The latest submission of a recording.

    last: its timeline value on the compute queue; 0 before the first.
    """

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


class MemoryUse:
    """The submissions and recordings that use an allocation.

    A recording that is submitted again and again notes its latest value in one place, its LatestRun. The allocations
    that it uses read it when the host asks, which is rare. A recording that is submitted once or twice notes its value
    in each allocation instead, which is cheaper than registering its LatestRun in each.

    is_direct: whether the host reads and writes the memory without staging.
    sharers: the ids of the objects through which another API uses the memory now.
    """

    __slots__ = ("_runs", "_used", "_written", "is_direct", "sharers")

    def __init__(self, is_direct: bool) -> None:
        self.is_direct = is_direct
        self.sharers: set[int] | None = None
        self._used = 0
        self._written = 0
        self._runs: dict[LatestRun, bool] = {}  # whether the recording writes the memory

    @property
    def is_shared(self) -> bool:
        """Whether another API uses the memory now."""
        return bool(self.sharers)

    @property
    def last_use(self) -> int:
        """Timeline value of the latest submission that reads or writes the memory."""
        # A copy, because finalizers and other threads change the dict.
        return max([self._used, *(run.last for run in self._runs.copy())]) if self._runs else self._used

    @property
    def last_write(self) -> int:
        """Timeline value of the latest submission that writes the memory."""
        return max([self._written, *(run.last for run, writes in self._runs.copy().items() if writes)])

    def discard(self, run: LatestRun) -> None:
        """Forget a recording that is not in flight."""
        self._runs.pop(run, None)


def register(run: LatestRun, uses: Iterable[MemoryUse], writes: Iterable[MemoryUse]) -> None:
    """Register a recording in the memory that it uses, and in the part of it that it writes."""
    for access in uses:
        access._runs.setdefault(run, False)
    for access in writes:
        access._runs[run] = True


def mark(value: int, uses: Iterable[MemoryUse], writes: Iterable[MemoryUse]) -> None:
    """Note the value of a submission in the memory that it uses, and in the part of it that it writes."""
    for access in uses:
        access._used = value
    for access in writes:
        access._written = value


class SemaphoreValue(NamedTuple):
    """A value of a timeline semaphore.

    semaphore: VkSemaphore[1].
    """

    semaphore: Any
    value: int


@dataclass(frozen=True)
class Crossing:
    """How one submission is ordered with the work of another API.

    wait: the other API signals it. The submission waits for it.
    signal: the submission signals it, for the other API to wait for.
    """

    wait: SemaphoreValue
    signal: SemaphoreValue | None


class Partner(Protocol):
    """Another API that shares memory with a device. Called with the device's monitor entered."""

    def before_submission(self, queue: object, uses: Collection[MemoryUse]) -> Crossing | None:
        """The crossing of a submission that uses this memory; None if it needs no order."""

    def after_submission(self, queue: object, crossing: Crossing) -> None:
        """Called when a submission with a crossing was handed to the driver."""
