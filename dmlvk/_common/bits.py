"""Elements as bare bits: NaNs, denormals and the sign of a zero count as they are, and no copy changes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def as_bits(array: Array) -> Array:
    """The array's elements as unsigned integers of the same size; a view, with the same shape and any strides."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def equal_bits(first: Array, second: Array) -> bool:
    """Whether two arrays of one type and shape have the same bits."""
    return bool(np.array_equal(as_bits(first), as_bits(second)))


def first_difference(first: Array, second: Array) -> tuple[tuple[int, ...], int] | None:
    """The first coordinate at which two arrays of one type and shape have other bits.

    Elements may have any number of bytes: complex numbers have 16, and text has more.

    Returns the coordinate, and how many elements differ; None if none does.
    """
    size = first.dtype.itemsize
    rows = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, size) for array in (first, second)]
    different = np.flatnonzero((rows[0] != rows[1]).any(axis=1))
    if not different.size:
        return None
    return tuple(int(index) for index in np.unravel_index(different[0], first.shape)), different.size
