"""Elements as bare bits, so that copying them cannot change a NaN, a denormal or the sign of a zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def as_bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array's elements as unsigned integers of the same size; a view, with the same shape and any strides."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))
