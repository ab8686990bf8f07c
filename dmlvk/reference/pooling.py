"""The windows of pooling operators in NumPy: for each tap, the outputs whose tap lies inside the input."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators.pooling import PoolingGeometry

Array = npt.NDArray[Any]


def five_dimensional(tensor: Array) -> Array:
    """{N, C, H, W} as {N, C, 1, H, W}."""
    return tensor if tensor.ndim == 5 else tensor[:, :, np.newaxis]


def taps(geometry: PoolingGeometry) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """For each tap in the order of a window's rows: the outputs that have it inside the input, and where."""
    for tap in itertools.product(*map(range, geometry.window)):
        places = [_places(k, t, geometry) for k, t in enumerate(tap)]
        if all(place is not None for place in places):
            outputs, positions = zip(*(place for place in places if place is not None), strict=True)
            yield (slice(None), slice(None), *outputs), (slice(None), slice(None), *positions)


def _places(k: int, tap: int, geometry: PoolingGeometry) -> tuple[slice, slice] | None:
    shift = tap * geometry.dilations[k] - geometry.start_padding[k]  # output o has the tap at o * stride + shift
    stride = geometry.strides[k]
    first = max(0, -(shift // stride))
    last = min(geometry.output_size[k] - 1, (geometry.input_size[k] - 1 - shift) // stride)
    if last < first:
        return None
    return slice(first, last + 1), slice(first * stride + shift, last * stride + shift + 1, stride)
