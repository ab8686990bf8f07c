"""MAX_POOLING2."""

from __future__ import annotations

import numpy as np

from dmlvk.operators import MaxPooling2Desc
from dmlvk.reference.pooling import Array, five_dimensional, taps


def run(desc: MaxPooling2Desc, *, input_tensor: Array) -> Array:
    """The largest element of each window.

    Source: DML_MAX_POOLING2_OPERATOR_DESC (directml.h). Padding is never the largest: each window has elements.
    """
    x = five_dimensional(input_tensor)
    values = np.full(desc.geometry.output_sizes, np.iinfo(x.dtype).min, x.dtype)
    for outputs, positions in taps(desc.geometry):
        values[outputs] = np.maximum(values[outputs], x[positions])
    return values.reshape(desc.output_tensor.sizes)


def indices(desc: MaxPooling2Desc, *, input_tensor: Array) -> Array:
    """Where in the packed input each output was found; of equal elements, the first one counts.

    The indices "treat the input tensor as a contiguous one-dimensional array", the page says.
    """
    x = five_dimensional(input_tensor)
    values = run(desc, input_tensor=input_tensor).reshape(desc.geometry.output_sizes)
    places = np.arange(x.size, dtype=np.uint32).reshape(x.shape)
    found = np.full(values.shape, x.size, np.uint32)
    for outputs, positions in taps(desc.geometry):
        is_first = (found[outputs] == x.size) & (x[positions] == values[outputs])
        found[outputs] = np.where(is_first, places[positions], found[outputs])
    return found.reshape(desc.output_tensor.sizes)


FURTHER = {"output_indices_tensor": indices}
