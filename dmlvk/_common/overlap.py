"""Whether two coordinates of a strided tensor share an element: decided exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

OVERLAP_SEARCH_LIMIT = 100_000  # steps, a fraction of a second


@dataclass(frozen=True)
class Overlap:
    """Two coordinates that share an element; None and None if the search gave up undecided."""

    first: tuple[int, ...] | None
    second: tuple[int, ...] | None

    def __str__(self) -> str:
        if self.first is None:
            return (
                f"it could not be decided in {OVERLAP_SEARCH_LIMIT} steps whether two do, so it is taken that they do"
            )
        return f"coordinates {self.first} and {self.second} share an element"


@lru_cache(maxsize=1024)
def find_overlap(sizes: tuple[int, ...], strides: tuple[int, ...], limit: int = OVERLAP_SEARCH_LIMIT) -> Overlap | None:
    """Find two coordinates of a strided layout that share an element.

    Two coordinates share an element if their difference d is not zero and sum(d[k] * strides[k]) == 0, with abs(d[k]) <
    sizes[k]. Layouts that come from permuting, padding and slicing are decided at once. An exact search decides others.

    sizes, strides: of the same length; strides in elements.
    limit: steps after which the search gives up.
    Returns None: no two coordinates share an element.
    """
    for dimension, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if size > 1 and stride == 0:
            return _overlap_of_difference({dimension: 1}, len(sizes))
    search = _OverlapSearch(sizes, strides, limit)
    difference = {} if search.is_nested() else search.run()
    if difference is None:
        return Overlap(None, None)
    return _overlap_of_difference(difference, len(sizes)) if difference else None


def _overlap_of_difference(difference: dict[int, int], rank: int) -> Overlap:
    first = tuple(max(difference.get(dimension, 0), 0) for dimension in range(rank))
    second = tuple(max(-difference.get(dimension, 0), 0) for dimension in range(rank))
    return Overlap(first, second)


class _OverlapSearch:
    """Searches for a difference d that is not zero, with abs(d[k]) <= reach[k] and sum(d[k] * stride[k]) == 0.

    Dimensions are kept with the largest stride first. Before the search they are thinned out: a dimension can only take
    steps in multiples that the greatest common divisor of the other strides allows, and only as far as the others can
    compensate. Often no dimension is left. The others are searched depth first, the last two of them in closed form.
    """

    def __init__(self, sizes: tuple[int, ...], strides: tuple[int, ...], limit: int) -> None:
        entries = [
            (stride, size - 1, k) for k, (size, stride) in enumerate(zip(sizes, strides, strict=True)) if size > 1
        ]
        entries.sort(reverse=True)
        self.dimensions = [k for _, _, k in entries]
        self.strides = [stride for stride, _, _ in entries]
        self.reach = [reach for _, reach, _ in entries]
        self.units = [1] * len(entries)  # steps of the original dimension for one step of the thinned-out dimension
        self.steps_left = limit
        self.dead_ends: set[tuple[int, int]] = set()

    def is_nested(self) -> bool:
        """Whether each stride exceeds the total reach of all smaller dimensions, as in ordinary layouts."""
        covered = 0
        for stride, reach in zip(reversed(self.strides), reversed(self.reach), strict=True):
            if stride <= covered:
                return False
            covered += stride * reach
        return True

    def run(self) -> dict[int, int] | None:
        """The difference by original dimension; {} if there is none; None if the search reached the step limit."""
        self._thin_out()
        count = len(self.strides)
        self.covered = [sum(self.strides[j] * self.reach[j] for j in range(k, count)) for k in range(count + 1)]
        self.divisor = [math.gcd(*self.strides[k:]) for k in range(count + 1)]
        try:
            # The smallest leading dimension first: its search space is the smallest, and dead ends are remembered.
            for leading in reversed(range(count - 1)):
                for step in range(1, min(self.reach[leading], self.covered[leading + 1] // self.strides[leading]) + 1):
                    self._count_step()
                    tail = self._complete(leading + 1, step * self.strides[leading])
                    if tail is not None:
                        found = [0] * leading + [step, *tail]
                        return {self.dimensions[k]: d * self.units[k] for k, d in enumerate(found) if d}
        except _StepLimitReached:
            return None
        return {}

    def _thin_out(self) -> None:
        changed = True
        while changed:
            changed = False
            total = sum(stride * reach for stride, reach in zip(self.strides, self.reach, strict=True))
            for k, stride in enumerate(self.strides):
                others = math.gcd(*self.strides[:k], *self.strides[k + 1 :])
                unit = others // math.gcd(others, stride) if others else self.reach[k] + 1
                reach = min(self.reach[k], (total - stride * self.reach[k]) // stride) // unit
                if unit == 1 and reach == self.reach[k]:
                    continue
                self.units[k] *= unit
                self.strides[k] *= unit
                self.reach[k] = reach
                changed = True
                break
            kept = sorted((k for k in range(len(self.strides)) if self.reach[k]), key=lambda k: -self.strides[k])
            self.dimensions = [self.dimensions[k] for k in kept]
            self.units = [self.units[k] for k in kept]
            self.reach = [self.reach[k] for k in kept]
            self.strides = [self.strides[k] for k in kept]

    def _complete(self, k: int, residual: int) -> list[int] | None:
        """Steps of dimensions k, k + 1, ... that sum to minus the residual."""
        if residual % self.divisor[k] if self.divisor[k] else residual:
            return None
        if abs(residual) > self.covered[k] or (k, residual) in self.dead_ends:
            return None
        remaining = len(self.strides) - k
        found: list[int] | None = None
        if remaining == 1:
            found = [-residual // self.strides[k]]
        elif remaining == 2:
            found = self._complete_two(k, residual)
        else:
            low, high = self._step_range(k, residual)
            for step in range(low, high + 1):
                self._count_step()
                tail = self._complete(k + 1, residual + step * self.strides[k])
                if tail is not None:
                    return [step, *tail]
        if found is None:
            self.dead_ends.add((k, residual))
        return found

    def _step_range(self, k: int, residual: int) -> tuple[int, int]:
        """The steps of dimension k for which the dimensions after it can still compensate the rest."""
        stride, rest = self.strides[k], self.covered[k + 1]
        return max(-self.reach[k], -((residual + rest) // stride)), min(self.reach[k], (rest - residual) // stride)

    def _complete_two(self, k: int, residual: int) -> list[int] | None:
        first, second = self.strides[k], self.strides[k + 1]
        divisor = self.divisor[k]
        low, high = self._step_range(k, residual)
        modulus = second // divisor
        start = -residual // divisor * pow(first // divisor, -1, modulus) % modulus if modulus > 1 else 0
        step = low + (start - low) % modulus
        return [step, -(residual + step * first) // second] if step <= high else None

    def _count_step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise _StepLimitReached


class _StepLimitReached(Exception):
    """Raised inside the search only."""
