"""The free ranges of a block of memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dmlvk.vulkan.free_ranges import FreeRanges


def test_the_smallest_range_that_fits_is_taken() -> None:
    ranges = FreeRanges(100)
    starts = [ranges.take(size) for size in (30, 10, 10, 10, 40)]
    assert starts == [0, 30, 40, 50, 60]
    ranges.give(0, 30)
    ranges.give(40, 10)
    assert ranges.take(10) == 40
    assert ranges.take(31) is None


def test_neighbours_become_one_range_again() -> None:
    ranges = FreeRanges(100)
    for _ in range(10):
        ranges.take(10)
    for start in (0, 20, 40, 60, 80, 10, 30, 50, 70, 90):
        ranges.give(start, 10)
    assert ranges.is_empty
    assert ranges.largest == 100


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=200))
def test_taken_ranges_never_overlap_and_nothing_is_lost(steps: list[tuple[bool, int]]) -> None:
    size = 200
    ranges = FreeRanges(size)
    taken: list[tuple[int, int]] = []
    for is_take, number in steps:
        if is_take:
            start = ranges.take(number)
            if start is not None:
                assert start + number <= size
                assert all(start + number <= other or other + length <= start for other, length in taken)
                taken.append((start, number))
        elif taken:
            ranges.give(*taken.pop(number % len(taken)))
        assert ranges.free == size - sum(length for _, length in taken)
    for place in taken:
        ranges.give(*place)
    assert ranges.largest == size
