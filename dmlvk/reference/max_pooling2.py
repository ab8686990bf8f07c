"""MAX_POOLING2."""

from __future__ import annotations

import numpy as np

from dmlvk.operators import MaxPooling2Desc
from dmlvk.reference.pooling import Array, five_dimensional, taps


def run(desc: MaxPooling2Desc, *, input_tensor: Array) -> Array:
    """The largest element of each window."""
    return values_and_indices(desc, input_tensor)[0]


def values_and_indices(desc: MaxPooling2Desc, input_tensor: Array) -> tuple[Array, Array]:
    """The largest element of each window, and its index in the packed input; of equal ones, the first index.

    Source: DML_MAX_POOLING2_OPERATOR_DESC (directml.h): the indices "treat the input tensor as a contiguous
    one-dimensional array".
    """
    geometry = desc.geometry
    x = five_dimensional(input_tensor)
    places = np.arange(x.size, dtype=np.uint32).reshape(x.shape)
    values, indices = np.zeros(geometry.output_sizes, x.dtype), np.zeros(geometry.output_sizes, np.uint32)
    is_found = np.zeros(geometry.output_sizes, bool)
    for outputs, positions in taps(geometry):
        seen = x[positions]
        is_larger = ~is_found[outputs] | (seen > values[outputs])
        values[outputs] = np.where(is_larger, seen, values[outputs])
        indices[outputs] = np.where(is_larger, places[positions], indices[outputs])
        is_found[outputs] = True
    return values.reshape(desc.output_tensor.sizes), indices.reshape(desc.output_tensor.sizes)
