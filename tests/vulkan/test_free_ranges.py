"""The free ranges of a block of memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dmlvk.vulkan import free_ranges
from dmlvk.vulkan.free_ranges import FreeRanges
from tests.strikes import Strike


def test_the_smallest_range_that_fits_is_taken() -> None:
    ranges: FreeRanges[str] = FreeRanges(100)
    starts = [ranges.take(size, "a holder") for size in (30, 10, 10, 10, 40)]
    assert starts == [0, 30, 40, 50, 60]
    ranges.give(0, "a holder")
    ranges.give(40, "a holder")
    assert ranges.take(10, "a holder") == 40
    assert ranges.take(31, "a holder") is None


def test_neighbours_become_one_range_again() -> None:
    ranges: FreeRanges[str] = FreeRanges(100)
    for _ in range(10):
        ranges.take(10, "a holder")
    for start in (0, 20, 40, 60, 80, 10, 30, 50, 70, 90):
        ranges.give(start, "a holder")
    assert ranges.is_empty
    assert ranges.largest == 100


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=200))
def test_taken_ranges_never_overlap_and_nothing_is_lost(steps: list[tuple[bool, int]]) -> None:
    size = 200
    ranges: FreeRanges[int] = FreeRanges(size)
    taken: list[tuple[int, int]] = []
    for is_take, number in steps:
        if is_take:
            start = ranges.take(number, number)
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


def test_giving_again_or_by_another_changes_nothing() -> None:
    ranges: FreeRanges[object] = FreeRanges(100)
    first, second = object(), object()
    assert ranges.take(40, first) == 0
    ranges.give(0, second)
    assert ranges.free == 60
    ranges.give(0, first)
    assert ranges.take(50, second) == 0
    ranges.give(0, first)
    assert ranges.free == 50


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60), st.integers(0, 10_000))
def test_what_an_exception_left_half_done_is_repaired(steps: list[tuple[bool, int]], strikes_at: int) -> None:
    """An exception may strike any line. Holders keep their ranges, and everything else is free."""
    size = 200
    ranges: FreeRanges[int] = FreeRanges(size)
    held: dict[int, int] = {}  # by holder
    strike = Strike(strikes_at % 150, free_ranges.__file__)
    with strike:
        for number, (is_take, amount) in enumerate(steps):
            if is_take:
                start = ranges.take(amount, number)
                if start is not None:
                    held[number] = start
            elif held:
                holder, start = held.popitem()
                ranges.give(start, holder)
    if strike.has_struck:
        ranges.repair(lambda holder: holder in held)
    for holder, start in held.items():
        ranges.give(start, holder)
    assert ranges.is_empty
    assert ranges.largest == size
