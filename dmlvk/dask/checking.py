"""Which batches run on two devices, on which two, and how their outputs are compared."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common.bits import first_difference
from dmlvk.dask.cluster import ClusterWorker

Array = npt.NDArray[Any]


class SpreadShare:
    """A share of all numbers, spread evenly, at places that keep no rhythm with the devices.

    share: from 0 to 1. Of each 1 / share numbers one is chosen, the same one in each run.
    """

    def __init__(self, share: float) -> None:
        self._share = Fraction(str(share))

    def has(self, number: int) -> bool:
        """Whether a number is chosen."""
        if not self._share:
            return False
        group = math.floor(number * self._share)
        first, end = math.ceil(group / self._share), math.ceil((group + 1) / self._share)
        return number == first + random.Random(group).randrange(max(1, end - first))


class Partners:
    """Pairs of devices that check each other.

    workers: two or more if pairs are asked for. Each has a device.
    """

    def __init__(self, workers: Sequence[ClusterWorker]) -> None:
        self._workers = workers
        self._turns = itertools.count()

    def next(self) -> tuple[ClusterWorker, ClusterWorker]:
        """A device and its partner: one of another driver if there is one, else another device. All take turns."""
        turn = next(self._turns)
        first = self._workers[turn % len(self._workers)]
        others = [other for other in self._workers if other is not first]
        best = max(_unlikeness(first, other) for other in others)
        partners = [other for other in others if _unlikeness(first, other) == best]
        return first, partners[turn // len(self._workers) % len(partners)]

    def beside(self, first: ClusterWorker, second: ClusterWorker) -> ClusterWorker | None:
        """A third device, the one least like both; None if there is none."""
        others = [other for other in self._workers if other not in (first, second)]
        return max(others, key=lambda other: (_unlikeness(first, other), _unlikeness(second, other)), default=None)


def _unlikeness(one: ClusterWorker, other: ClusterWorker) -> tuple[bool, bool]:
    return one.driver != other.driver, one.device != other.device


def difference(label: str, outputs: Any, other: str, again: Any) -> str:
    """The first element whose bits differ between two devices' outputs; "" if none does."""
    if isinstance(outputs, np.ndarray):
        return _difference("the output", label, outputs, other, again)
    for number, (mine, theirs) in enumerate(zip(outputs, again, strict=True)):
        text = _difference(f"output {number}", label, mine, other, theirs)
        if text:
            return text
    return ""


def _difference(name: str, label: str, mine: Any, other: str, theirs: Any) -> str:
    if not isinstance(mine, np.ndarray) or not isinstance(theirs, np.ndarray) or mine.dtype.hasobject:
        return "" if _same(mine, theirs) else f"{name} is {mine!r} on {label}, and {theirs!r} on {other}"
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        kinds = [f"{array.dtype.name} {array.shape}" for array in (mine, theirs)]
        return f"{name} is {kinds[0]} on {label}, and {kinds[1]} on {other}"
    different = first_difference(mine, theirs)
    if different is None:
        return ""
    place, count = different
    return (
        f"{name} differs: its element {list(place)} is {mine[place]} on {label}, and {theirs[place]} on {other}; "
        f"{count} of {mine.size} elements differ"
    )


def _same(mine: Any, theirs: Any) -> bool:
    """Whether two values are equal: lists of arrays, and arrays of text."""
    if isinstance(mine, (list, tuple)):
        return isinstance(theirs, (list, tuple)) and len(mine) == len(theirs) and all(map(_same, mine, theirs))
    return bool(np.array_equal(mine, theirs))
