"""The memory layout of a tensor's elements: DML_BUFFER_TENSOR_DESC, and its rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property, lru_cache
from typing import Any, SupportsIndex

from dmlvk.arguments import as_integer, as_integers, integer_of
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError

MAXIMUM_RANK = 8  # DML_TENSOR_DIMENSION_COUNT_MAX1
MAXIMUM_UINT32 = 2**32 - 1
MAXIMUM_UINT64 = 2**64 - 1
OVERLAP_SEARCH_LIMIT = 100_000  # steps, a fraction of a second


class TensorFlags(IntFlag):
    """DML_TENSOR_FLAGS. OWNED_BY_DML: an input that is bound once, when the operator is initialised."""

    NONE = 0
    OWNED_BY_DML = 1


def as_data_type(descriptor: str, field: str, data_type: Any) -> DataType:
    """The data type that a DataType, its integer value or a NumPy dtype stands for."""
    if type(data_type) is DataType:
        return data_type
    try:
        if isinstance(data_type, (bool, type(None))):
            raise TypeError
        integer = integer_of(data_type)
        return DataType.from_numpy(data_type) if integer is None else DataType(integer)
    except (TypeError, ValueError):
        supported = ", ".join(member.name for member in DataType)
        rule = "must be one of DirectML's data types that these operators take"
        raise DescriptorError(descriptor, field, data_type, rule, f"one of {supported}") from None


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Element strides of the row-major layout without gaps."""
    strides = [1] * len(sizes)
    for dimension in reversed(range(len(sizes) - 1)):
        strides[dimension] = strides[dimension + 1] * sizes[dimension + 1]
    return tuple(strides)


@dataclass(frozen=True, init=False)
class TensorDesc:
    """A tensor's data type, sizes and memory layout (DML_BUFFER_TENSOR_DESC). Immutable and hashable.

    Parameters
    ----------
    data_type : DataType
        Also its integer value, or a NumPy dtype.
    sizes : sequence of int
        1 to 8 sizes, outermost first, each 1 or more; at most 2**32 - 1 elements in all.
    strides : sequence of int, optional
        Elements (not bytes) from one coordinate to the next, 0 to 2**32 - 1; 0 broadcasts. None is packed.
    total_size_in_bytes : int, optional
        Bytes of memory the tensor takes; at least `minimum_size_in_bytes`, which is the default.
    guaranteed_base_offset_alignment : int
        0, or a power of two that is at least the size of an element. The tensor's offset in its buffer is a multiple of
        it.
    flags : TensorFlags

    Raises
    ------
    DescriptorError
        If one of these rules is broken.

    Notes
    -----
    Source: the page of DML_BUFFER_TENSOR_DESC. All arithmetic is exact; nothing wraps at 32 or 64 bits.
    """

    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None
    total_size_in_bytes: int
    guaranteed_base_offset_alignment: int
    flags: TensorFlags

    def __init__(
        self,
        data_type: Any,
        sizes: Iterable[SupportsIndex],
        strides: Iterable[SupportsIndex] | None = None,
        *,
        total_size_in_bytes: SupportsIndex | None = None,
        guaranteed_base_offset_alignment: SupportsIndex = 0,
        flags: TensorFlags | int = TensorFlags.NONE,
    ) -> None:
        fields: dict[str, Any] = {
            "data_type": as_data_type("TensorDesc", "data_type", data_type),
            "sizes": _checked_sizes(sizes),
            "flags": _checked_flags(flags),
        }
        fields["strides"] = None if strides is None else _checked_strides(strides, len(fields["sizes"]))
        fields["guaranteed_base_offset_alignment"] = _checked_alignment(
            guaranteed_base_offset_alignment, fields["data_type"]
        )
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "total_size_in_bytes", self._checked_total_size(total_size_in_bytes))

    def _checked_total_size(self, total_size_in_bytes: object) -> int:
        minimum = self.minimum_size_in_bytes
        if minimum > MAXIMUM_UINT64:
            raise DescriptorError(
                "TensorDesc",
                "strides",
                self.strides,
                f"the last element ends at byte {minimum}, past the 64 bits of a size",
            )
        if total_size_in_bytes is None:
            return minimum
        rule = (
            f"must hold the elements of sizes {self.sizes} with strides {self.element_strides}, rounded up to 4 bytes"
        )
        return as_integer("TensorDesc", "total_size_in_bytes", total_size_in_bytes, minimum, MAXIMUM_UINT64, rule)

    @property
    def rank(self) -> int:
        """The number of dimensions: DimensionCount."""
        return len(self.sizes)

    @cached_property
    def element_count(self) -> int:
        """The product of the sizes."""
        return math.prod(self.sizes)

    @cached_property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements, written out when `strides` is None."""
        return packed_strides(self.sizes) if self.strides is None else self.strides

    @cached_property
    def minimum_size_in_bytes(self) -> int:
        """DirectML's minimum implied size: up to the end of the last element, rounded up to a multiple of 4 bytes."""
        last = sum((size - 1) * stride for size, stride in zip(self.sizes, self.element_strides, strict=True))
        return -(-(last + 1) * self.data_type.size_in_bytes // 4) * 4

    @cached_property
    def is_packed(self) -> bool:
        """Whether the elements lie in row-major order without gaps; the stride of a size of 1 does not matter."""
        layout = zip(self.sizes, self.element_strides, packed_strides(self.sizes), strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in layout)

    def has_overlap(self) -> bool:
        """Whether two coordinates share an element. Also True in the rare case that `find_overlap` cannot decide."""
        return find_overlap(self.sizes, self.element_strides) is not None


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

    Parameters
    ----------
    sizes, strides : tuple of int
        Of the same length; strides in elements.
    limit : int
        Steps after which the search gives up.

    Returns
    -------
    Overlap or None
        None: no two coordinates share an element.
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


def _checked_sizes(sizes: object) -> tuple[int, ...]:
    rule = "a size is 1 or more; a tensor without elements cannot be described"
    checked = as_integers("TensorDesc", "sizes", sizes, 1, MAXIMUM_UINT32, rule)
    if not 1 <= len(checked) <= MAXIMUM_RANK:
        raise DescriptorError(
            "TensorDesc", "sizes", checked, f"a tensor has 1 to {MAXIMUM_RANK} dimensions, not {len(checked)}"
        )
    if math.prod(checked) > MAXIMUM_UINT32:
        rule = f"a tensor has at most 2**32 - 1 elements, not {math.prod(checked)}"
        raise DescriptorError("TensorDesc", "sizes", checked, rule)
    return checked


def _checked_strides(strides: object, rank: int) -> tuple[int, ...]:
    rule = "a stride counts elements in 32 unsigned bits; 0 broadcasts"
    checked = as_integers("TensorDesc", "strides", strides, 0, MAXIMUM_UINT32, rule)
    if len(checked) != rank:
        raise DescriptorError("TensorDesc", "strides", checked, "there is one stride a dimension", f"{rank} strides")
    return checked


def _checked_alignment(alignment: object, data_type: DataType) -> int:
    rule = f"must be 0 or a power of two that is no smaller than an element of {data_type.name}"
    field = "guaranteed_base_offset_alignment"
    checked = as_integer("TensorDesc", field, alignment, 0, MAXIMUM_UINT32, rule)
    if checked and (checked & (checked - 1) or checked < data_type.size_in_bytes):
        raise DescriptorError(
            "TensorDesc", field, checked, rule, f"0, {data_type.size_in_bytes}, 16 or 32, for example"
        )
    return checked


def _checked_flags(flags: object) -> TensorFlags:
    rule = "must be TensorFlags.NONE or TensorFlags.OWNED_BY_DML"
    return TensorFlags(as_integer("TensorDesc", "flags", flags, 0, 1, rule))
