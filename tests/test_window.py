"""A window over an iterable."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from dmlvk._common.window import in_order


class Work:
    """Futures that the test completes, and the elements that were read."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.futures: list[Future[int]] = []

    def begin(self, element: int) -> Future[int]:
        self.begun.append(element)
        self.futures.append(Future())
        return self.futures[-1]

    def at_once(self, element: int) -> Future[int]:
        future = self.begin(element)
        if element < 0:
            future.set_exception(ValueError(element))
        else:
            future.set_result(element * element)
        return future


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


@pytest.mark.parametrize("most", [1, 2, 7])
def test_an_endless_iterable_is_read_only_as_far_as_the_window_reaches(most: int) -> None:
    work = Work()
    results = in_order(endless(), work.at_once, most)
    assert work.begun == []
    for number in range(20):
        assert next(results) == number * number
        assert work.begun == list(range(number + most))


@pytest.mark.parametrize("most", [1, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 3, 10])
def test_each_result_once_and_in_order(most: int, count: int) -> None:
    work = Work()

    def begin(element: int) -> Future[int]:
        """Those begun later are done earlier."""
        future = work.begin(element)
        if len(work.futures) % most == 0 or element == count - 1:
            for number in range(len(work.futures) - 1, -1, -1):
                if not work.futures[number].done():
                    work.futures[number].set_result(number)
        return future

    assert list(in_order(range(count), begin, most)) == list(range(count))


def test_a_failure_has_its_turn_and_cancels_what_follows() -> None:
    work = Work()

    def begin(element: int) -> Future[int]:
        return work.at_once(element) if element < 3 else work.begin(element)

    results = in_order([0, 1, -2, 3, 4, 5], begin, 4)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="-2"):
        next(results)
    assert work.begun == [0, 1, -2, 3, 4, 5]
    assert [future.cancelled() for future in work.futures] == [False, False, False, True, True, True]
    assert list(results) == []


def test_results_before_the_iterables_own_failure_come_first() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("no such picture")

    work = Work()
    results = in_order(failing(), work.at_once, 5)
    assert [next(results), next(results)] == [1, 4]
    with pytest.raises(OSError, match="no such picture"):
        next(results)


def test_a_caller_that_stops_early_cancels_what_is_in_flight() -> None:
    work = Work()
    results = in_order(endless(), lambda element: work.at_once(element) if element < 2 else work.begin(element), 4)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert [future.cancelled() for future in work.futures[1:]] == [False, True, True]
