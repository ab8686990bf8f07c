"""The free byte ranges of a block of memory: allocation by best fit; free neighbours are joined."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Generic, TypeVar

AnyHolder = TypeVar("AnyHolder")


class FreeRanges(Generic[AnyHolder]):
    """The free ranges of `size` bytes.

    Best fit keeps large ranges whole. Neighbours are joined at once, so that there is at most one range more than there
    are live allocations. Every step is a dictionary look-up or a bisection.

    The taken ranges, each with its holder, are the truth. Everything else follows from them, and `repair` makes it anew
    after an exception in `take` or `give`.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._taken: dict[int, tuple[int, AnyHolder]] = {}  # by start
        self._set_free([(0, size)])

    def _set_free(self, ranges: list[tuple[int, int]]) -> None:
        self._size_at = dict(ranges)
        self._start_before = {start + size: start for start, size in ranges}
        self._by_size = sorted((size, start) for start, size in ranges)

    @property
    def free(self) -> int:
        """Bytes that are free."""
        return self.size - sum(size for size, _ in self._taken.values())

    @property
    def largest(self) -> int:
        """Bytes of the largest free range."""
        return self._by_size[-1][0] if self._by_size else 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is taken."""
        return not self._taken

    def take(self, size: int, holder: AnyHolder) -> int | None:
        """Give `size` bytes to a holder; returns their start, or None if no free range is large enough."""
        position = bisect_left(self._by_size, (size, -1))
        if position == len(self._by_size):
            return None
        available, start = self._by_size[position]
        self._taken[start] = (size, holder)
        del self._by_size[position]
        del self._size_at[start], self._start_before[start + available]
        if available > size:
            self._add(start + size, available - size)
        return start

    def give(self, start: int, holder: AnyHolder) -> None:
        """Make a holder's range free again. Nothing happens if the holder has no range there: it was freed before."""
        taken = self._taken.get(start)
        if taken is None or taken[1] is not holder:
            return
        size = taken[0]
        del self._taken[start]
        before = self._start_before.get(start)
        if before is not None:
            before_size = self._remove(before)
            start, size = before, before_size + size
        if start + size in self._size_at:
            size += self._remove(start + size)
        self._add(start, size)

    def repair(self, is_held: Callable[[AnyHolder], bool]) -> None:
        """Free the ranges whose holders are gone, and make anew everything that follows from the taken ranges."""
        self._taken = {start: taken for start, taken in sorted(self._taken.items()) if is_held(taken[1])}
        ranges = []
        end = 0
        for start, (size, _) in self._taken.items():
            if start > end:
                ranges.append((end, start - end))
            end = start + size
        if end < self.size:
            ranges.append((end, self.size - end))
        self._set_free(ranges)

    def _add(self, start: int, size: int) -> None:
        self._size_at[start] = size
        self._start_before[start + size] = start
        insort(self._by_size, (size, start))

    def _remove(self, start: int) -> int:
        size = self._size_at.pop(start)
        del self._start_before[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]
        return size
