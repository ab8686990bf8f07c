"""A window over an iterable: a bounded number of elements are worked on at a time, and results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeVar

Element = TypeVar("Element")
Result_co = TypeVar("Result_co", covariant=True)


class Pending(Protocol[Result_co]):
    """Work that has begun, such as a concurrent.futures.Future."""

    def result(self) -> Result_co:
        """Wait for the result; raises what the work raised."""

    def cancel(self) -> Any:
        """Stop the work if that is possible; its result is not asked for."""


def in_order(
    elements: Iterable[Element], begin: Callable[[Element], Pending[Result_co]], most: int
) -> Generator[Result_co, None, None]:
    """Begin work for each element and yield its result.

    elements: read only as far as the window reaches, so it may be endless.
    begin: begins the work for an element and returns at once. If it or the iterable raises an exception, the results of
        the elements before come first.
    most: elements that are read and whose results are not yet yielded.
    Yields the results, in the order of the elements. The first exception ends the iterator. However it ends, work whose
        result was not yielded is cancelled.
    """
    source = iter(elements)
    window: deque[Pending[Result_co]] = deque()
    failure: Exception | None = None
    is_read = False
    try:
        while True:
            while not is_read and len(window) < most:
                try:
                    for element in source:
                        window.append(begin(element))
                        break
                    else:
                        is_read = True
                except Exception as error:
                    is_read, failure = True, error
            if not window:
                break
            first = window[0]
            result = first.result()
            window.popleft()
            yield result
        if failure is not None:
            raise failure
    finally:
        for pending in window:
            pending.cancel()
