"""ELEMENT_WISE_QUANTIZED_LINEAR_ADD in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ElementWiseQuantizedLinearAddDesc

Array = npt.NDArray[Any]


def run(
    desc: ElementWiseQuantizedLinearAddDesc,
    *,
    a_tensor: Array,
    a_scale_tensor: Array,
    a_zero_point_tensor: Array | None = None,
    b_tensor: Array,
    b_scale_tensor: Array,
    b_zero_point_tensor: Array | None = None,
    output_scale_tensor: Array,
    output_zero_point_tensor: Array | None = None,
) -> Array:
    """Add two quantized tensors.

    ra = f32(sa / sy), rb = f32(sb / sy), k = f32(zy - fma(ra, za, f32(rb * zb))), and y is the integer nearest to
    fma(a, ra, fma(b, rb, k)), clamped to the output's type. f32() and fma() round once, to nearest even. This is the
    arithmetic of ONNX Runtime's QLinearAdd on x86-64 with FMA; DirectML's page says less.
    It is not symmetric in A and B. What is not a number, or at least 2**31 in magnitude, gives the type's minimum, also
    if it is positive: the processor's conversion to an integer does that.

    Source: DML_ELEMENT_WISE_QUANTIZED_LINEAR_ADD_OPERATOR_DESC (directml.h).
    """
    za, zb, zy = (
        np.float32(0 if zero_point is None else zero_point.item())
        for zero_point in (a_zero_point_tensor, b_zero_point_tensor, output_zero_point_tensor)
    )
    sa, sb, sy = (np.float32(scale.item()) for scale in (a_scale_tensor, b_scale_tensor, output_scale_tensor))
    dtype = desc.output_tensor.data_type.numpy_dtype
    limits = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        ra, rb = sa / sy, sb / sy
        k = zy - fused(ra, za, rb * zb)
        nearest = np.rint(fused(a_tensor.astype(np.float32), ra, fused(b_tensor.astype(np.float32), rb, k)))
        is_inside = np.abs(nearest) < np.float32(2**31)  # not for NaN
    clamped = np.clip(np.where(is_inside, nearest, np.float32(limits.min)), limits.min, limits.max)
    return clamped.astype(dtype)


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of float32 with one rounding.

    float64 holds the product, which has at most 48 bits, but not every sum. Of the two float64 around the exact sum,
    the one with an odd last bit is taken: rounding that to float32 gives what rounding the sum once does.
    """
    product = np.float64(a) * np.float64(b)
    c = np.float64(c)
    total = np.asarray(product + c)
    back = total - product
    lost = np.asarray((product - (total - back)) + (c - back))
    is_even = (total.view(np.int64) & 1) == 0
    beyond = np.nextafter(total, np.copysign(np.inf, lost))
    odd = np.where((lost != 0) & np.isfinite(lost) & np.isfinite(total) & is_even, beyond, total)
    return odd.astype(np.float32)[()]
