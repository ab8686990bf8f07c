"""BYTE_LAYER_NORMALIZATION in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ByteLayerNormalizationDesc
from dmlvk.operators.byte_layer_normalization import LANES
from dmlvk.operators.byte_softmax import limits_of

Array = npt.NDArray[Any]


def fused(a: Array, b: Array, c: Array) -> Array:
    """f32(a * b + c), rounded once.

    The product is exact in binary64. Where the sum is not, its last bit is set: so it is on no middle between two
    numbers of binary32 that the exact sum is not on.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product, summand = np.broadcast_arrays(a.astype(np.float64) * b, c.astype(np.float64))
        total = product + summand
        of_summand = total - product
        error = (product - (total - of_summand)) + (summand - of_summand)
        bits = total.view(np.int64)
        towards_error = np.where((error > 0) == (total > 0), 1, -1)
        bits = bits + np.where((error != 0) & (bits & 1 == 0), towards_error, 0)
        return bits.view(np.float64).astype(np.float32)


def normalized(desc: ByteLayerNormalizationDesc, input_tensor: Array) -> Array:
    """What each element is before it is multiplied by its scale.

    A row's sum is exact in binary64. Its quotient is rounded to binary64 first, which does not matter: in rows so short
    it is on the middle between two numbers of binary32, or further from it than that rounding goes.
    """
    epsilon, scale = (np.frombuffer(kept, np.float32)[0] for kept in (desc.epsilon_bytes, desc.input_scale_bytes))
    length = np.float32(input_tensor.shape[1])
    x = (input_tensor.astype(np.int32) - desc.input_zero_point).astype(np.float32) * scale
    d = x - (x.sum(axis=1, dtype=np.float64, keepdims=True) / length).astype(np.float32)
    sums = np.zeros((len(x), LANES), np.float32)
    for first in range(0, x.shape[1], LANES):
        group = d[:, first : first + LANES]
        sums = fused(group, group, sums)
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return d * (np.float32(1) / np.sqrt(sums / length + epsilon))


def run(desc: ByteLayerNormalizationDesc, *, input_tensor: Array, scale_tensor: Array, bias_tensor: Array) -> Array:
    """Take the steps of the page."""
    scales, biases = (np.where(np.isfinite(array), array, np.float32(0)) for array in (scale_tensor, bias_tensor))
    low, high = limits_of(desc.input_tensor.data_type)
    zero = desc.output_zero_point
    with np.errstate(over="ignore"):
        y = fused(normalized(desc, input_tensor), scales, biases)
        steps = np.rint(y / np.frombuffer(desc.output_scale_bytes, np.float32))
    return (np.clip(steps, low - zero, high - zero) + zero).astype(input_tensor.dtype)
