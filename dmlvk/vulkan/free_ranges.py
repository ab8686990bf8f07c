"""Which byte ranges of a block of memory are free: best fit, neighbours joined again."""

from __future__ import annotations

from bisect import bisect_left, insort


class FreeRanges:
    """The free ranges of `size` bytes.

    Best fit keeps large ranges whole, and joining neighbours at once keeps the number of ranges at most one more than
    the number of live allocations. Every step is a dictionary look-up or a bisection.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._size_at = {0: size}
        self._start_before = {size: 0}
        self._by_size = [(size, 0)]

    @property
    def largest(self) -> int:
        """Bytes of the largest free range."""
        return self._by_size[-1][0] if self._by_size else 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is taken."""
        return self.free == self.size

    def take(self, size: int) -> int | None:
        """The start of `size` bytes, now taken, or None when no free range is large enough."""
        position = bisect_left(self._by_size, (size, -1))
        if position == len(self._by_size):
            return None
        available, start = self._by_size.pop(position)
        del self._size_at[start], self._start_before[start + available]
        if available > size:
            self._add(start + size, available - size)
        self.free -= size
        return start

    def give(self, start: int, size: int) -> None:
        """Make a taken range free again."""
        self.free += size
        before = self._start_before.get(start)
        if before is not None:
            before_size = self._remove(before)
            start, size = before, before_size + size
        if start + size in self._size_at:
            size += self._remove(start + size)
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        self._size_at[start] = size
        self._start_before[start + size] = start
        insort(self._by_size, (size, start))

    def _remove(self, start: int) -> int:
        size = self._size_at.pop(start)
        del self._start_before[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]
        return size
