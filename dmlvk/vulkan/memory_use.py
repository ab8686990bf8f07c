"""Which work on a device reads and writes which memory, so that the host waits for that work and for no other."""

from __future__ import annotations

from collections.abc import Iterable


class Run:
    """The latest submission of a recording.

    Attributes
    ----------
    last : int
        Its timeline value on the compute queue; 0 before the first.
    """

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


class MemoryUse:
    """The submissions and recordings that use an allocation.

    A recording that is submitted again and again notes its value once, in its Run, and not in each of the allocations
    that it uses: those look when the host wants to know, which is rare. What is submitted once or twice notes its value
    here, which is cheaper than being known to every allocation.
    """

    __slots__ = ("_used", "_users", "_writers", "_written")

    def __init__(self) -> None:
        self._used = 0
        self._written = 0
        self._users: set[Run] = set()
        self._writers: set[Run] = set()

    @property
    def last_use(self) -> int:
        """Timeline value of the latest submission that reads or writes the memory."""
        if not self._users:
            return self._used
        # A copy, for finalizers and other threads change the set.
        return max([self._used, *(run.last for run in self._users.copy())])

    @property
    def last_write(self) -> int:
        """Timeline value of the latest submission that writes the memory."""
        if not self._writers:
            return self._written
        return max([self._written, *(run.last for run in self._writers.copy())])

    def discard(self, run: Run) -> None:
        """Forget a recording that is not in flight."""
        self._users.discard(run)
        self._writers.discard(run)


def register(run: Run, uses: Iterable[MemoryUse], writes: Iterable[MemoryUse]) -> None:
    """Let memory know a recording that reads or writes it, and what of it it writes."""
    for access in uses:
        access._users.add(run)
    for access in writes:
        access._writers.add(run)


def mark(value: int, uses: Iterable[MemoryUse], writes: Iterable[MemoryUse]) -> None:
    """Note a submission in the memory that it reads or writes, and in what of it it writes."""
    for access in uses:
        access._used = value
    for access in writes:
        access._written = value
