"""Portions: consecutive batches that are one task of Dask, so that short batches do not wait for its messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# A device runs a portion in about this time, and reading a portion takes at most as long. Each task costs the client
# and the scheduler some ten milliseconds of messages, and there may be many devices.
PORTION_SECONDS = 0.1
MOST_BATCHES = 32
# A batch that takes longer to load is worth a task of its own, which any thread of the worker can run.
SLOW_LOADING_SECONDS = 0.01
# Arrays that travel with a task are copied several times on the way, so a portion has no more of them than this.
MOST_BYTES = 32 << 20
# Portions in flight for each device: two run, one while the other loads, and two are at hand.
PORTIONS_AHEAD = 4


@dataclass(frozen=True)
class Portion:
    """Consecutive batches.

    first: the number of the first one.
    is_checked: whether they run on two devices: all or none.
    """

    first: int
    batches: list[Any]
    is_checked: bool


class PortionSize:
    """How many batches a portion has: it follows from the time that a batch takes.

    most: batches of a portion at most.
    loads_slowly: whether batches that workers load take so long that each should be a task of Dask.
    """

    def __init__(self, most: int) -> None:
        self.loads_slowly = False
        self._most = most
        self._count = 1

    def learn(self, batches: int, seconds: float, loading_seconds: float = 0.0) -> None:
        """Take note of the time of some batches, and of the part of it in which their task loaded them."""
        if batches:
            self._count = max(1, min(self._most, int(PORTION_SECONDS * batches / max(seconds, 1e-6))))
            self.loads_slowly = self.loads_slowly or loading_seconds > SLOW_LOADING_SECONDS * batches

    def portions(self, elements: Iterable[Any], is_checked: Callable[[int], bool]) -> Iterator[Portion]:
        """Read batches as portions. If the iterable raises an exception, the batches read before come first."""
        source = enumerate(elements)
        held: tuple[int, Any] | None = None
        failure: Exception | None = None
        while failure is None:
            batches: list[Any] = []
            first, size = 0, 0
            start = time.monotonic()
            while len(batches) < self._count and size < MOST_BYTES and time.monotonic() - start < PORTION_SECONDS:
                try:
                    element = held or next(source, None)
                except Exception as error:
                    failure = error
                    break
                held = None
                if element is None:
                    break
                number, batch = element
                if not batches:
                    first = number
                elif is_checked(number) != is_checked(first):
                    held = element
                    break
                batches.append(batch)
                size += _size(batch)
            if batches:
                yield Portion(first, batches, is_checked(first))
            elif failure is None:
                return
        raise failure


def _size(batch: Any) -> int:
    """The bytes of a batch's arrays that lie in the client's memory."""
    parts = batch.values() if isinstance(batch, Mapping) else (batch,)
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
