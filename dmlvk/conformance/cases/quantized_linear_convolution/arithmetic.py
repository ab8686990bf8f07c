"""Cases of QUANTIZED_LINEAR_CONVOLUTION's arithmetic: each step, at the limits of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.combinations import Groups, Parameters, only
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import (
    GENERAL_PATHS,
    KINDS,
    OPERATOR,
    PATHS,
    SHAPES,
    TYPE_PARAMETERS,
    CaseShape,
    any_value,
    convolution,
    kind,
    mantissas,
    ones,
    single,
    suits,
)
from dmlvk.conformance.cases.values import Array
from dmlvk.data_type import DataType

POINTS = ("min", "max", "middle", "absent")


def zero_point_of(label: str, data_type: DataType) -> Array:
    """A zero point by name: "min" is -128 or 0, "max" is 127 or 255, "middle" is 0 or 128."""
    limits = np.iinfo(data_type.numpy_dtype)
    middle = (int(limits.min) + int(limits.max) + 1) // 2
    return single({"min": limits.min, "max": limits.max, "middle": middle}[label], data_type)


def small_data(numbers: np.random.Generator, p: Parameters, shape: CaseShape, reach: int = 3) -> dict[str, Array]:
    """Data within a few steps of zero points that are not in the middle, and scales of 1."""
    zero_points = {"input": single(17, kind(p, "in")), "filter": single(9, kind(p, "filter"))}
    sizes = {
        "input": (shape.batch, shape.channels, *shape.size),
        "filter": (shape.filters, shape.channels // shape.groups, *shape.kernel),
    }
    arrays: dict[str, Array] = ones("input", "filter", "output")
    for name, zero in zero_points.items():
        steps = numbers.integers(-reach, reach + 1, sizes[name]) + int(zero[0])
        arrays[f"{name}_tensor"] = steps.astype(zero.dtype)
        arrays[f"{name}_zero_point_tensor"] = zero
    return arrays


def sums(numbers: np.random.Generator, p: Parameters) -> Workload:
    """So many of the largest products of a type that their sum needs more than 24, 31 or 32 bits.

    The products run along the channels, over the rows of a filter, or along one row.
    """
    shape, bits = {
        "24": (CaseShape(1, 600, (1, 3), 4, (1, 1)), 18),
        "31": (CaseShape(1, 33_024, (1, 3), 4, (1, 1)), 24),
        "32": (CaseShape(1, 33_026, (1, 3), 4, (1, 1)), 25),
        "33": (CaseShape(1, 70_001, (1, 3), 4, (1, 1)), 26),
        "rows": (CaseShape(1, 1, (182, 184), 4, (182, 182)), 25),
        "row": (CaseShape(1, 1, (1, 33_202), 4, (1, 33_200)), 25),
    }[p.sum]
    x_sizes = (1, shape.channels, *shape.size)
    w_sizes = (4, shape.channels, *shape.kernel)
    limits = {name: np.iinfo(kind(p, name).numpy_dtype) for name in ("in", "filter")}
    x = np.full(x_sizes, limits["in"].max, kind(p, "in").numpy_dtype)
    w = np.full(w_sizes, limits["filter"].max, kind(p, "filter").numpy_dtype)
    # One pixel and one filter have random bytes. Another filter has the values at the other end.
    x[..., 1] = any_value(numbers, kind(p, "in"), x[..., 1].size).reshape(x_sizes[:-1])
    w[1] = any_value(numbers, kind(p, "filter"), shape.taps).reshape(w_sizes[1:])
    w[2] = limits["filter"].min
    low, other = limits["filter"].min, limits["filter"].max if p.sign == "both" else limits["filter"].min
    zero_points = np.array([low, low, other, other])
    arrays = {
        "input_tensor": x,
        "filter_tensor": w,
        **ones("input", "filter"),
        "output_scale_tensor": np.array([2.0**bits], np.float32),
        "input_zero_point_tensor": single(limits["in"].min, kind(p, "in")),
        "filter_zero_point_tensor": zero_points.astype(w.dtype).reshape(1, 4, 1, 1),
    }
    bias = np.array([2**31 - 1, 0, -(2**31), 12_345], np.int32).reshape(1, 4, 1, 1)
    absent = () if p.bias == "given" else ("bias_tensor",)
    if not absent:
        arrays["bias_tensor"] = bias
    return convolution(numbers, p, shape, arrays=arrays, absent=absent)


def one_tap(
    numbers: np.random.Generator, p: Parameters, shape: CaseShape, bias: Array, filter_scale: Array
) -> Workload:
    """Sums of the bias and a single small product."""
    arrays = small_data(numbers, p, shape, reach=1)
    arrays["bias_tensor"] = bias.astype(np.int32).reshape(shape.per_channel)
    arrays["filter_scale_tensor"] = filter_scale.astype(np.float32).reshape(shape.per_channel)
    return convolution(numbers, p, shape, arrays=arrays)


ONE_TAP = CaseShape(1, 1, (3, 5), 48, (1, 1))


def _float_bits(numbers: np.random.Generator, low: int, high: int, count: int) -> Array:
    return numbers.integers(low, high, count).astype(np.uint32).view(np.float32)


CHANNELS = ("first_channel", "last_channel")
UNDEFINED: Mapping[str, float] = {"0": 0.0, "-0": -0.0, "inf": np.inf, "-inf": -np.inf, "nan": np.nan}


SOME_SHAPES = only(SHAPES, "odd", "vectors", "depthwise", "first_layer_small")


GROUPS = Groups(OPERATOR)


@GROUPS.of(**TYPE_PARAMETERS, zx=POINTS, zw=POINTS, zy=POINTS, shape=SOME_SHAPES, path=PATHS, keep=suits)
def zero_point(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Zero points at both ends of the range of their types, with data at both ends too."""
    labels = {"input": p.zx, "filter": p.zw, "output": p.zy}
    kinds = {"input": kind(p, "in"), "filter": kind(p, "filter"), "output": kind(p, "out")}
    arrays = {
        f"{name}_zero_point_tensor": zero_point_of(label, kinds[name])
        for name, label in labels.items()
        if label != "absent"
    }
    absent = [f"{name}_zero_point_tensor" for name, label in labels.items() if label == "absent"]
    return convolution(numbers, p, p.shape, arrays=arrays, absent=absent)


@GROUPS.of(**TYPE_PARAMETERS, bits=(1, 2, 3), shape=SOME_SHAPES, path=PATHS, keep=suits)
def tie(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Exact halves among the results: the multiplier is a power of two, and sums have either sign."""
    arrays = small_data(numbers, p, p.shape)
    arrays["filter_scale_tensor"] = np.array([2.0**-p.bits], np.float32)
    bias = numbers.integers(-9, 10, p.shape.filters).astype(np.int32).reshape(p.shape.per_channel)
    return convolution(numbers, p, p.shape, arrays={**arrays, "bias_tensor": bias})


@GROUPS.of(out=tuple(KINDS), zy=("min", "max", "middle"), scale=(1.0, 0.5, 3.0), path=PATHS)
def saturation(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Results at, just inside and far past both ends of the output's range, for three zero points."""
    shape = CaseShape(1, 1, (5, 9), 40, (1, 1))
    arrays = small_data(numbers, p, shape, reach=2)
    near = numbers.integers(-262, 263, shape.filters)
    far = numbers.integers(-(2**31), 2**31, shape.filters)
    bias = np.where(np.arange(shape.filters) % 4 == 0, far, near).astype(np.int32).reshape(shape.per_channel)
    arrays["output_zero_point_tensor"] = zero_point_of(p.zy, kind(p, "out"))
    arrays["output_scale_tensor"] = np.array([p.scale], np.float32)
    return convolution(numbers, p, shape, arrays={**arrays, "bias_tensor": bias})


GROUPS.add(
    "sum",
    sums,
    sum=("24", "31", "32", "33", "rows", "row"),
    in_=tuple(KINDS),
    filter=tuple(KINDS),
    sign=("plus", "both"),
    bias=("given", "absent"),
    path=GENERAL_PATHS,
)


@GROUPS.of(in_=tuple(KINDS), filter=tuple(KINDS), path=GENERAL_PATHS)
def cancellation(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Partial sums far above 2^24, which the rest of the sum cancels, so that the last bit of each one counts."""
    shape = CaseShape(1, 16_000, (1, 4), 6, (1, 1))
    limits = {name: np.iinfo(kind(p, name).numpy_dtype) for name in ("in", "filter")}
    half = shape.channels // 2
    x = int(limits["in"].max) - numbers.integers(0, 6, (shape.channels, 1))
    w = np.empty((shape.filters, shape.channels), np.int64)
    w[:, :half] = int(limits["filter"].max) - numbers.integers(0, 4, (shape.filters, half))
    w[:, half:] = int(limits["filter"].min) + numbers.integers(0, 4, (shape.filters, half))
    # The pixels differ from each other in a few channels.
    pixels = np.repeat(x, 4, 1) - (numbers.integers(0, 4000, (shape.channels, 4)) == 0)
    zero_points = {
        "in": int(limits["in"].min),
        "filter": (int(limits["filter"].min) + int(limits["filter"].max) + 1) // 2,
    }
    wide = (w - zero_points["filter"]) @ (pixels[:, 0] - zero_points["in"])
    arrays = {
        **ones("input", "filter"),
        "input_tensor": pixels.astype(kind(p, "in").numpy_dtype).reshape(1, shape.channels, 1, 4),
        "filter_tensor": w.astype(kind(p, "filter").numpy_dtype).reshape(shape.filters, shape.channels, 1, 1),
        "input_zero_point_tensor": single(zero_points["in"], kind(p, "in")),
        "filter_zero_point_tensor": single(zero_points["filter"], kind(p, "filter")),
        "bias_tensor": (numbers.integers(-300, 301, shape.filters) - wide).astype(np.int32).reshape(shape.per_channel),
        "output_scale_tensor": np.array([8], np.float32),
    }
    return convolution(numbers, p, shape, arrays=arrays)


@GROUPS.of(bits=(24, 25), in_=tuple(KINDS), filter=tuple(KINDS), path=PATHS)
def bias(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Biases at the ends of the 32-bit range; the sums go past the ends."""
    shape = CaseShape(1, 1, (3, 4), 24, (1, 1))
    values = np.array([2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1, 2**30, -(2**30), 1, -1])
    chosen = values[np.arange(shape.filters) % len(values)].astype(np.int32).reshape(shape.per_channel)
    # For sums around 2^31 the result is 64 or 65. If a sum wrapped, the result would be a large negative number.
    arrays: dict[str, Array] = {"bias_tensor": chosen, "output_scale_tensor": np.array([2.0**p.bits], np.float32)}
    return convolution(numbers, p, shape, arrays={**arrays, **ones("input", "filter")})


@GROUPS.of(step=("accumulator", "product", "beside"), out=tuple(KINDS), path=PATHS)
def rounding(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Each rounding of f32(f32(acc) * m), for results on or beside a half, where a missing rounding shows."""
    count = ONE_TAP.filters
    halves = numbers.integers(0, 100, count) + 0.5
    signs = numbers.integers(0, 2, count) * 2 - 1
    if p.step == "accumulator":
        # Odd multiples of 2^24, plus or minus a few: they have more bits than binary32 keeps, and the last bits decide.
        whole = (2 * numbers.integers(0, 60, count) + 1) << 24
        sums_wanted = (whole + numbers.integers(-3, 4, count)) * signs
        return one_tap(numbers, p, ONE_TAP, sums_wanted, np.full(count, 2.0**-25))
    if p.step == "product":
        # acc * m is not a half, but the nearest binary32 number is.
        sums_wanted = numbers.integers(1 << 22, 1 << 24, count)
        return one_tap(numbers, p, ONE_TAP, sums_wanted * signs, (halves / sums_wanted))
    # acc * m just below, at or just above a half: m varies by a unit in the last place.
    sums_wanted = numbers.integers(1, 1 << 12, count)
    exact = (halves / sums_wanted).astype(np.float32)
    steps = numbers.integers(-1, 2, count).astype(np.int32)
    return one_tap(numbers, p, ONE_TAP, sums_wanted * signs, (exact.view(np.int32) + steps).view(np.float32))


@GROUPS.of(other=("w/y*x", "x/y*w", "once"), path=PATHS)
def order(numbers: np.random.Generator, p: Parameters) -> Workload:
    """f32(f32(sx * sw) / sy) is near a power of two, and another order of the operations gives another number."""
    count = ONE_TAP.filters
    x, y = mantissas(numbers, 1), mantissas(numbers, 1)
    wanted = np.float32(0.5)
    candidates = (wanted * y / x).astype(np.float32)
    near = (candidates.view(np.int32) + np.arange(-64, 65, dtype=np.int32)).view(np.float32)
    others = near * np.float32(1)
    ours = near * x / y
    if p.other == "w/y*x":
        theirs = others / y * x
    elif p.other == "x/y*w":
        theirs = (x / y) * others
    else:
        theirs = (near.astype(np.float64) * x / y).astype(np.float32)
    telling = near[ours != theirs]
    scales = telling[np.arange(count) % len(telling)] if len(telling) else np.resize(near, count)
    # Sums that bring the result near a half with the right multiplier.
    multipliers = (scales * x / y).astype(np.float64)
    targets = np.rint((numbers.integers(0, 50, count) + 0.5) / multipliers)
    workload = one_tap(numbers, p, ONE_TAP, targets, scales)
    arrays = {**workload.inputs, "input_scale_tensor": x, "output_scale_tensor": y}
    return convolution(numbers, p, ONE_TAP, arrays=arrays)


@GROUPS.of(
    magnitude=(
        *("powers", "spread", "any", "denormal_filter", "denormal_product", "denormal_multiplier"),
        *("huge", "overflow", "negative"),
    ),
    shape=SOME_SHAPES,
    path=PATHS,
    keep=suits,
)
def scale(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Scales and multipliers over all magnitudes of binary32, including denormals and overflows."""
    shape = p.shape
    count = shape.filters
    x, w, y = mantissas(numbers, 1), mantissas(numbers, count), mantissas(numbers, 1)
    powers = numbers.integers(-20, 5, count)
    if p.magnitude == "powers":
        x, w, y = np.ones(1), 2.0 ** (numbers.integers(-18, -4, count)), np.ones(1)
    elif p.magnitude == "spread":
        w = w * 2.0**powers
    elif p.magnitude == "any":
        x, y = _float_bits(numbers, 1, 0x7F800000, 1), _float_bits(numbers, 1, 0x7F800000, 1)
        w = _float_bits(numbers, 1, 0x7F800000, count)
    elif p.magnitude == "denormal_filter":
        # The scales are denormal; their quotient has an ordinary magnitude.
        w = _float_bits(numbers, 1, 1 << 23, count)
        y = _float_bits(numbers, 1 << 21, 1 << 23, 1)
    elif p.magnitude == "denormal_product":
        # sx * sw is denormal and loses bits; the quotient is ordinary.
        x, w, y = x * 2.0**-70, w * 2.0**-66, y * 2.0**-128
    elif p.magnitude == "denormal_multiplier":
        x, w, y = x * 2.0**-60, w * 2.0**-70, y * 2.0**10
    elif p.magnitude == "huge":
        x, w, y = x * 2.0**60, w * 2.0**66, y * 2.0**112
    elif p.magnitude == "overflow":
        x, w = x * 2.0**100, w * 2.0 ** numbers.integers(-120, 100, count)
    elif p.magnitude == "negative":
        w = w * 2.0**-14 * (numbers.integers(0, 2, count) * 2 - 1)
    arrays = {
        "input_scale_tensor": x.astype(np.float32),
        "filter_scale_tensor": w.astype(np.float32).reshape(shape.per_channel),
        "output_scale_tensor": y.astype(np.float32),
    }
    return convolution(numbers, p, shape, arrays=arrays)


@GROUPS.of(
    value=tuple(UNDEFINED), place=("input", "filter", "output", *CHANNELS), shape=SOME_SHAPES, path=PATHS, keep=suits
)
def undefined(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Scales for which DirectML leaves the output undefined: any output will do, but no other byte may change.

    The place is a tensor, or one channel of the filter's scales.
    """
    if p.place in CHANNELS:
        return undefined_channel(numbers, SimpleNamespace(**{**vars(p), "channel": p.place.removesuffix("_channel")}))
    array = np.array([UNDEFINED[p.value]], np.float32)
    return convolution(numbers, p, p.shape, arrays={f"{p.place}_scale_tensor": array}, is_defined=False)


@GROUPS.of(value=tuple(UNDEFINED), channel=("first", "last"), shape=SOME_SHAPES, path=PATHS, default="none", keep=suits)
def undefined_channel(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Filter scales of which one channel's leaves the output undefined: any output will do, but no other byte may
    change."""
    workload = convolution(numbers, p, p.shape)
    scales = workload.inputs["filter_scale_tensor"].copy()
    scales[0, {"first": 0, "last": -1}[p.channel]] = UNDEFINED[p.value]
    return convolution(numbers, p, p.shape, arrays={**workload.inputs, "filter_scale_tensor": scales}, is_defined=False)
