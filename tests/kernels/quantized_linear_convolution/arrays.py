"""Arrays of quantized convolutions, and their descriptors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk import QuantizedLinearConvolutionDesc, TensorDesc, TensorFlags
from dmlvk.operators.quantized_linear_convolution import output_size
from tests.convolution_cases import TYPES

PLAIN = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0), "group_count": 1}


def describe(
    arrays: dict[str, np.ndarray],
    output_dtype: Any,
    attributes: dict[str, Any],
    layouts: np.random.Generator | None = None,
    flags: dict[str, TensorFlags] | None = None,
) -> QuantizedLinearConvolutionDesc:
    """The descriptor that the arrays imply; with random layouts if a generator is given."""
    x, w = arrays["input_tensor"], arrays["filter_tensor"]
    fields = [attributes[name] for name in ("strides", "dilations", "start_padding", "end_padding")]
    spatial = [output_size(x.shape[2 + k], w.shape[2 + k], *(f[k] for f in fields)) for k in range(x.ndim - 2)]
    tensors = {
        name: TensorDesc(array.dtype, array.shape, strides_of(array, layouts), flags=(flags or {}).get(name, 0))
        for name, array in arrays.items()
    }
    sizes = (x.shape[0], w.shape[0], *spatial)
    output = TensorDesc(output_dtype, sizes, strides_of(np.empty(sizes, np.int8), layouts))
    return QuantizedLinearConvolutionDesc(**tensors, output_tensor=output, **attributes)  # type: ignore[arg-type]


def strides_of(array: np.ndarray, generator: np.random.Generator | None) -> list[int] | None:
    """Packed, channels last, or any order of the dimensions with gaps; all 0 if all elements are equal."""
    if generator is None or generator.integers(3) == 0:
        return None
    if array.size > 1 and array.dtype != np.int8 and (array == array.flat[0]).all():
        return [0] * array.ndim
    order = list(generator.permutation(array.ndim))
    if array.ndim > 2 and generator.integers(2):
        order = [1, *range(array.ndim - 1, 1, -1), 0]
    strides, step = [0] * array.ndim, 1
    for dimension in order:
        strides[dimension] = step
        step = step * array.shape[dimension] + int(generator.choice([0, 0, 1, 3]))
    return strides


def quantized(x: np.ndarray, w: np.ndarray, **others: np.ndarray) -> dict[str, np.ndarray]:
    scales = {f"{name}_scale_tensor": np.ones(1, np.float32) for name in ("input", "filter", "output")}
    return {"input_tensor": x, "filter_tensor": w, **scales, **others}


def last(sizes: Any, gap: int = 0) -> list[int]:
    """Strides of channels last, with a gap after each pixel's channels."""
    step = sizes[1] + gap
    return [sizes[2] * sizes[3] * step, 1, sizes[3] * step, step]


def special_case(
    seed: int, x_type: str, groups: int, channels: int, filters: int, size: tuple[int, int], **attributes: Any
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All ten tensors, zero points that differ by channel; every second scale a power of two, for ties."""
    generator = np.random.default_rng(seed)
    kernel = attributes.pop("kernel")
    taps = channels // groups * kernel[0] * kernel[1]
    kind = TYPES[x_type]
    factors = np.where(np.arange(filters) % 2 == 0, 1, generator.uniform(0.5, 2, filters))
    arrays = quantized(
        np.frombuffer(generator.bytes(2 * channels * size[0] * size[1]), kind).reshape(2, channels, *size),
        generator.integers(-128, 128, (filters, channels // groups, *kernel)).astype(np.int8),
        input_zero_point_tensor=generator.choice(np.array([np.iinfo(kind).min, np.iinfo(kind).max, 5], kind), 1),
        filter_scale_tensor=factors.astype(np.float32),
        output_zero_point_tensor=np.array([-20], np.int8),
        output_scale_tensor=np.array([2.0 ** round(np.log2(60 * taps**0.5))], np.float32),
        bias_tensor=generator.integers(-2000, 2000, (1, filters, 1, 1)).astype(np.int32),
    )
    if seed % 2:
        arrays["filter_zero_point_tensor"] = generator.integers(-128, 128, filters).astype(np.int8)
    if seed % 3 == 0:
        arrays["bias_tensor"][0, ::3] = 2**31 - 1  # sums that exceed 32 bits
    return arrays, {**PLAIN, **attributes, "group_count": groups}
