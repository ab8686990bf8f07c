"""QUANTIZED_LINEAR_AVERAGE_POOLING."""

from __future__ import annotations

import numpy as np

from dmlvk.operators import QuantizedLinearAveragePoolingDesc
from dmlvk.reference.pooling import Array, five_dimensional, taps


def run(
    desc: QuantizedLinearAveragePoolingDesc,
    *,
    input_tensor: Array,
    input_scale_tensor: Array,
    input_zero_point_tensor: Array | None = None,
    output_scale_tensor: Array,
    output_zero_point_tensor: Array | None = None,
) -> Array:
    """The mean of each window, dequantized and quantized.

    Each operation on float32 arrays rounds once, to the nearest even number. The sum takes the taps in the order of the
    window's rows: another order would round otherwise.

    Source: DML_QUANTIZED_LINEAR_AVERAGE_POOLING_OPERATOR_DESC (directml.h); the order of operations is that of ONNX
    Runtime's QLinearAveragePool, and of QLinearGlobalAveragePool for a window that is the whole plane.
    """
    x = five_dimensional(input_tensor).astype(np.int64) - _integers(input_zero_point_tensor)
    input_scale, output_scale = (tensor.reshape(1, -1, 1, 1, 1) for tensor in (input_scale_tensor, output_scale_tensor))
    zero_point = _integers(output_zero_point_tensor)
    with np.errstate(all="ignore"):
        if desc.is_global:
            output = _mean_of_plane(desc, x, input_scale, output_scale, zero_point)
        else:
            output = _means_of_windows(desc, x, input_scale, output_scale, zero_point)
    return output.astype(desc.output_tensor.data_type.numpy_dtype).reshape(desc.output_tensor.sizes)


def _means_of_windows(
    desc: QuantizedLinearAveragePoolingDesc, x: Array, input_scale: Array, output_scale: Array, zero_point: Array
) -> Array:
    """clamp(nearest_even(f32(f32(f32(t / n) / sy) + zy))); what no INT32 holds becomes the least value."""
    geometry = desc.geometry
    real = x.astype(np.float32) * input_scale
    total, count = np.zeros(geometry.output_sizes, np.float32), np.zeros(geometry.output_sizes, np.int64)
    for outputs, positions in taps(geometry):
        total[outputs] += real[positions]
        count[outputs] += 1
    if desc.include_padding:
        count[...] = geometry.tap_count
    rounded = np.rint(total / count.astype(np.float32) / output_scale + zero_point.astype(np.float32))
    limits = np.iinfo(desc.output_tensor.data_type.numpy_dtype)
    is_integer = np.abs(rounded) < np.float32(2.0**31)
    return np.where(is_integer, np.clip(rounded, limits.min, limits.max), limits.min)


def _mean_of_plane(
    desc: QuantizedLinearAveragePoolingDesc, x: Array, input_scale: Array, output_scale: Array, zero_point: Array
) -> Array:
    """clamp(nearest_even(f32(f32(sum(x - zx)) * m)) + zy) with m = f32(sx / f32(sy * n)); NaN: the least value."""
    total = x.sum(axis=(2, 3, 4), keepdims=True)
    multiplier = input_scale / (output_scale * np.float32(desc.geometry.tap_count))
    limits = np.iinfo(desc.output_tensor.data_type.numpy_dtype)
    scaled = total.astype(np.float32) * multiplier
    low, high = ((limit - zero_point).astype(np.float32) for limit in (limits.min, limits.max))
    return np.rint(np.clip(np.where(np.isnan(scaled), low, scaled), low, high)).astype(np.int64) + zero_point


def _integers(zero_point: Array | None) -> Array:
    """One element, or one a channel, of five dimensions; an absent zero point is 0."""
    return (
        np.zeros((1, 1, 1, 1, 1), np.int64)
        if zero_point is None
        else zero_point.astype(np.int64).reshape(1, -1, 1, 1, 1)
    )
