"""QUANTIZED_LINEAR_CONVOLUTION in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry, QuantizedLinearConvolutionDesc

Array = npt.NDArray[Any]


def run(
    desc: QuantizedLinearConvolutionDesc,
    *,
    input_tensor: Array,
    input_scale_tensor: Array,
    input_zero_point_tensor: Array | None = None,
    filter_tensor: Array,
    filter_scale_tensor: Array,
    filter_zero_point_tensor: Array | None = None,
    bias_tensor: Array | None = None,
    output_scale_tensor: Array,
    output_zero_point_tensor: Array | None = None,
) -> Array:
    """Convolve quantized tensors.

    The page says that the operator "is mathematically equivalent to dequantizing the inputs, computing the output, and
    then quantizing the output", with (Input - ZeroPoint) * Scale to dequantize and clamp(round(Input / Scale) +
    ZeroPoint, Min, Max) to quantize. The integers between are exact here, and the three scales meet in one binary32
    multiplier; that is the arithmetic of ONNX Runtime's QLinearConv. Halves round to even.

    Source: DML_QUANTIZED_LINEAR_CONVOLUTION_OPERATOR_DESC (directml.h).
    """
    geometry = desc.geometry
    x = _integers(input_tensor) - _per_channel(input_zero_point_tensor, 1)
    w = _integers(filter_tensor) - _per_channel(filter_zero_point_tensor, 0)
    accumulator = correlate(x, w, geometry)
    if bias_tensor is not None:
        accumulator += _per_channel(bias_tensor, 1)

    zero_point = 0 if output_zero_point_tensor is None else int(output_zero_point_tensor.item())
    scale = filter_scale_tensor.reshape(1, -1, 1, 1)
    output = requantize(accumulator, input_scale_tensor.item(), scale, output_scale_tensor.item(), zero_point, desc)
    return output.reshape(desc.output_tensor.sizes)


def _integers(tensor: Array) -> Array:
    """The tensor as int64 of rank 4: {N, C, W} is {N, C, 1, W}."""
    wide = tensor.astype(np.int64)
    return wide if wide.ndim == 4 else wide[:, :, np.newaxis, :]


def _per_channel(tensor: Array | None, axis: int) -> Array:
    """One element, or one a channel along the axis of a rank 4 tensor; an absent one is 0."""
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    return np.zeros((), np.int64) if tensor is None else tensor.astype(np.int64).reshape(shape)


def correlate(x: Array, w: Array, geometry: ConvolutionGeometry) -> Array:
    """acc = sum over taps inside the input of x * w, separately in each group.

    A tap on padding meets the real number 0, so it is left out. The sum is exact: a product has 17 bits and there are
    fewer than 2**32 taps, so 64 bits always hold it. The matrix product of one tap is computed in float64, which is
    fast in NumPy and exact as long as a sum stays below 2**53. Reaching that would take 2**36 channels.
    """
    groups, (height, width) = geometry.group_count, geometry.output_size
    x = x.reshape(geometry.batch, groups, geometry.input_channels_per_group, *geometry.input_size).astype(np.float64)
    w = w.reshape(groups, geometry.output_channels_per_group, geometry.input_channels_per_group, *geometry.filter_size)
    w = w.astype(np.float64)
    accumulator = np.zeros((geometry.batch, groups, geometry.output_channels_per_group, height, width), np.int64)
    for tap_y in range(geometry.filter_size[0]):
        rows, source_rows = _inside(tap_y, 0, geometry)
        for tap_x in range(geometry.filter_size[1]):
            columns, source_columns = _inside(tap_x, 1, geometry)
            seen = x[:, :, :, source_rows, source_columns]
            if not seen.size:
                continue
            pixels = seen.reshape(*seen.shape[:3], -1)
            sums = np.matmul(w[:, :, :, tap_y, tap_x], pixels).astype(np.int64)
            accumulator[:, :, :, rows, columns] += sums.reshape(*sums.shape[:3], *seen.shape[3:])
    return accumulator.reshape(geometry.batch, geometry.output_channels, height, width)


def _inside(tap: int, k: int, geometry: ConvolutionGeometry) -> tuple[slice, slice]:
    """The output positions along dimension k whose tap lies inside the input, and the input positions it lies at."""
    shift = tap * geometry.dilations[k] - geometry.start_padding[k]  # output o meets input o * stride + shift
    stride = geometry.strides[k]
    first = max(0, -(shift // stride))
    last = min(geometry.output_size[k] - 1, (geometry.input_size[k] - 1 - shift) // stride)
    if last < first:
        return slice(0, 0), slice(0, 0)
    return slice(first, last + 1), slice(first * stride + shift, last * stride + shift + 1, stride)


def requantize(
    accumulator: Array,
    input_scale: float,
    filter_scale: Array,
    output_scale: float,
    zero_point: int,
    desc: QuantizedLinearConvolutionDesc,
) -> Array:
    """y = clamp(nearest_even(f32(f32(acc) * m)) + zy) with m = f32(f32(sx * sw[c]) / sy), f32 being one rounding.

    Scales that are 0, infinite or NaN are undefined in DirectML. If the result is then NaN, it becomes the zero point.
    """
    dtype = desc.output_tensor.data_type.numpy_dtype
    limits = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        multiplier = np.float32(input_scale) * filter_scale / np.float32(output_scale)
        scaled = np.rint(accumulator.astype(np.float32) * multiplier)
    # Clamp before the zero point is added: there every value is still a float32, and values in range are small
    # integers.
    in_range = np.clip(scaled, np.float32(limits.min - zero_point), np.float32(limits.max - zero_point))
    offsets = np.where(np.isnan(in_range), np.float32(0), in_range).astype(np.int64)
    return (offsets + zero_point).astype(dtype)
