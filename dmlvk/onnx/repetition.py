"""The same run again and again: whether every output has the same bits each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlvk._common import bits

# The differences that are kept, with their arrays.
MOST_DIFFERENCES = 10


@dataclass(frozen=True)
class Difference:
    """An output that a further run gave with other bits than the first.

    Attributes:
        run (int): The number of the run; the first one, with which others are compared, is 1.
        output (str):
        element (tuple of int): The coordinate of the first element that differs.
        count (int): How many elements differ.
        first, found (ndarray): The output of the first run, and that of this run.
    """

    run: int
    output: str
    element: tuple[int, ...]
    count: int
    first: np.ndarray
    found: np.ndarray

    def __str__(self) -> str:
        others = f"{self.count} of {self.first.size} elements differ"
        return (
            f"run {self.run}: {self.output}{list(self.element)} is {self.found[self.element]}; in the first run it was "
            f"{self.first[self.element]} ({others})"
        )


def repeat(
    run: Callable[[], Sequence[Any]],
    names: Sequence[str],
    runs: int,
    progress: Callable[[int, int], object] | None = None,
) -> list[Difference]:
    """Call a function `runs` times, and return the outputs that differ from those of the first call."""
    differences: list[Difference] = []
    first = run()
    for number in range(2, runs + 1):
        for name, right, found in zip(names, first, run(), strict=True):
            if not isinstance(right, np.ndarray) or right.dtype.kind == "O":
                continue
            different = bits.first_difference(found, right)
            if different is not None and len(differences) < MOST_DIFFERENCES:
                differences.append(Difference(number, name, *different, right, found))
        if progress is not None and progress(number, runs) is False:
            break
    return differences
