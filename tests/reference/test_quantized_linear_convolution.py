"""QUANTIZED_LINEAR_CONVOLUTION's reference against ONNX Runtime's QLinearConv, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import output_size
from dmlvk.reference import run
from dmlvk.tensor_desc import TensorDesc
from tests.convolution_cases import TYPES, qlinear_conv, random_case


def convolve(arrays: dict[str, np.ndarray], output_dtype: Any, **attributes: Any) -> np.ndarray:
    """The reference's output for the descriptor that the arrays imply."""
    x, w = arrays["input_tensor"], arrays["filter_tensor"]
    fields = {name: attributes[name] for name in ("strides", "dilations", "start_padding", "end_padding")}
    spatial = [
        output_size(x.shape[2 + k], w.shape[2 + k], *(values[k] for values in fields.values()))
        for k in range(x.ndim - 2)
    ]
    tensors = {name: TensorDesc(array.dtype, array.shape) for name, array in arrays.items()}
    output = TensorDesc(output_dtype, (x.shape[0], w.shape[0], *spatial))
    desc = QuantizedLinearConvolutionDesc(**tensors, output_tensor=output, **attributes)  # type: ignore[arg-type]
    result = run(desc, **arrays)
    assert result.shape == output.sizes and result.dtype == np.dtype(output_dtype)
    return result


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("y_type", TYPES)
@pytest.mark.parametrize("w_type", TYPES)
@pytest.mark.parametrize("x_type", TYPES)
def test_it_is_onnx_runtime_s_qlinear_conv(x_type: str, w_type: str, y_type: str, seed: int) -> None:
    number = seed + 100 * list(TYPES).index(x_type) + 1000 * list(TYPES).index(w_type)
    arrays, attributes = random_case(number, x_type, w_type)
    if seed % 4:
        limits = np.iinfo(TYPES[y_type])
        point = np.random.default_rng(seed).integers(limits.min, limits.max + 1)
        arrays["output_zero_point_tensor"] = np.array([point], TYPES[y_type])
    output = convolve(arrays, TYPES[y_type], **attributes)
    expected = qlinear_conv(arrays, TYPES[y_type], **attributes)
    np.testing.assert_array_equal(output, expected)


def test_the_random_cases_are_not_all_clamped() -> None:
    inside = []
    for seed in range(12):
        arrays, attributes = random_case(seed, "s8", "s8")
        output = convolve(arrays, np.int8, **attributes)
        inside.append(np.mean((output > -128) & (output < 127)))
    assert np.mean(inside) > 0.3


def single(x: int, w: int, scales: tuple[float, float, float], *, bias: int = 0, zero_point: int = 0) -> int:
    """The output of a convolution with one tap. `scales` are those of input, filter and output."""
    arrays: dict[str, np.ndarray] = {
        "input_tensor": np.full((1, 1, 1, 1), x, np.uint8),
        "filter_tensor": np.full((1, 1, 1, 1), w, np.uint8),
        "bias_tensor": np.full((1, 1, 1, 1), bias, np.int32),
        "output_zero_point_tensor": np.array([zero_point], np.int8),
    }
    for name, scale in zip(("input", "filter", "output"), scales, strict=True):
        arrays[f"{name}_scale_tensor"] = np.array([scale], np.float32)
    return int(
        convolve(
            arrays, np.int8, strides=(1, 1), dilations=(1, 1), start_padding=(0, 0), end_padding=(0, 0), group_count=1
        ).item()
    )


@pytest.mark.parametrize(
    ("bias", "expected"), [(1, 0), (3, 2), (5, 2), (-1, 0), (-3, -2), (-5, -2), (253, 126), (255, 127)]
)
def test_halves_round_to_even(bias: int, expected: int) -> None:
    assert single(0, 0, (0.5, 1, 1), bias=bias) == expected


def test_the_zero_point_is_added_after_rounding() -> None:
    assert single(0, 0, (0.5, 1, 1), bias=1, zero_point=1) == 1
    assert single(0, 0, (0.5, 1, 1), bias=3, zero_point=1) == 3


def test_the_sum_does_not_wrap_at_32_bits() -> None:
    assert single(255, 255, (2.0**-25, 1, 1), bias=2**31 - 1) == 64
    assert single(255, 255, (2.0**-40, 1, 1), bias=2**31 - 1, zero_point=100) == 100


def test_the_sum_becomes_binary32_with_one_rounding() -> None:
    # The binary32 sum, 2**24, is a tie. The exact sum, 2**24 + 1, would round up.
    assert single(1, 1, (2.0**-25, 1, 1), bias=2**24) == 0
    # 2**25 + 3 lies between 2**25 and 2**25 + 4, and rounds to the latter.
    assert single(3, 1, (1.5 * 2.0**-25, 1, 1), bias=2**25) == 2
    sums = np.random.default_rng(0).integers(-(2**48), 2**48, 10_000)
    np.testing.assert_array_equal(sums.astype(np.float32), sums.astype(np.float64).astype(np.float32))


def rounded_product(total: int, multiplier: np.float32) -> int:
    """nearest_even(f32(f32(total) * multiplier)): binary64 holds the product of two binary32 numbers exactly."""
    return round(float(np.float32(np.float64(np.float32(total)) * np.float64(multiplier))))


def test_the_multiplier_is_rounded_after_each_step() -> None:
    generator = np.random.default_rng(3)
    told_apart = 0
    for _ in range(30):
        sx, sw, sy = (generator.uniform(0.5, 1, 3) * [2.0**-9, 2.0**-9, 1]).astype(np.float32)
        product = np.float64(sx) * np.float64(sw)
        twice_rounded = np.float32(np.float64(np.float32(product)) / np.float64(sy))
        once_rounded = np.float32(product / np.float64(sy))
        if twice_rounded == once_rounded:
            continue
        # The result of these sums lies next to a half, so that the last bit of the multiplier decides.
        for half in np.arange(0.5, 120):
            total = round(half / float(twice_rounded))
            expected = rounded_product(total, twice_rounded)
            if expected != rounded_product(total, once_rounded):
                told_apart += 1
                assert single(0, 0, (sx, sw, sy), bias=total) == expected
    assert told_apart > 10


def test_denormals_are_kept() -> None:
    assert single(7, 9, (2.0**-70, 2.0**-70, 2.0**-140)) == 63
    assert single(7, 9, (2.0**-149, 1, 2.0**-149)) == 63
    assert single(1, 1, (2.0**-130, 1, 1)) == 0


@pytest.mark.parametrize("scale", [0.0, -0.0, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("x", [0, 5])
def test_scales_that_are_undefined_give_some_value(scale: float, place: int, x: int) -> None:
    scales = [1.0, 1.0, 1.0]
    scales[place] = scale
    assert -128 <= single(x, 1, (scales[0], scales[1], scales[2])) <= 127


def test_an_absent_zero_point_is_0() -> None:
    arrays, attributes = random_case(7, "u8", "u8")
    arrays = {name: array for name, array in arrays.items() if "zero_point" not in name}
    zeros = {f"{name}_zero_point_tensor": np.zeros(1, np.uint8) for name in ("input", "filter", "output")}
    expected = convolve(arrays | zeros, np.uint8, **attributes)
    np.testing.assert_array_equal(convolve(arrays, np.uint8, **attributes), expected)


def test_padding_is_real_zero_even_beyond_the_input() -> None:
    arrays: dict[str, np.ndarray] = {
        "input_tensor": np.full((1, 1, 2, 2), 200, np.uint8),
        "input_zero_point_tensor": np.array([100], np.uint8),
        "filter_tensor": np.ones((1, 1, 1, 1), np.int8),
    }
    for name in ("input", "filter", "output"):
        arrays[f"{name}_scale_tensor"] = np.ones(1, np.float32)
    output = convolve(
        arrays, np.uint8, strides=(1, 1), dilations=(1, 1), start_padding=(1, 3), end_padding=(2, 0), group_count=1
    )
    expected = np.zeros((5, 5), np.uint8)
    expected[1:3, 3:] = 100
    np.testing.assert_array_equal(output[0, 0], expected)


def test_arrays_may_have_any_strides() -> None:
    arrays, attributes = random_case(11, "s8", "u8")
    views = {name: np.asfortranarray(array[::-1])[::-1] for name, array in arrays.items()}
    np.testing.assert_array_equal(convolve(views, np.int8, **attributes), convolve(arrays, np.int8, **attributes))
