"""BYTE_LAYER_NORMALIZATION's reference against its page in fractions, which are exact until a step rounds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dmlvk import DataType, TensorDesc
from dmlvk.conformance.cases.byte_layer_normalization import NUMBERS, bytes_of, parameters_of
from dmlvk.operators import ByteLayerNormalizationDesc
from dmlvk.reference import run


def rounded(exact: Fraction) -> Fraction:
    """f32 of a number, nearest even."""
    if exact == 0:
        return exact
    exponent = max(math.frexp(float(exact))[1] - 24, -149)
    for each in (exponent - 1, exponent, exponent + 1):  # binary64 may have rounded to the next power of two
        unit = Fraction(2) ** max(each, -149)
        if abs(round(exact / unit)) <= 1 << 24:
            return round(exact / unit) * unit
    raise AssertionError(exact)


def root(v: Fraction) -> Fraction:
    """f32 of the square root of a number: an integer root of 80 bits, and a bit that is set if there are others."""
    shift = 160 - (v.numerator.bit_length() - v.denominator.bit_length()) // 2 * 2
    scaled = v * Fraction(2) ** shift
    found = math.isqrt(scaled.numerator // scaled.denominator)
    exact = found * found == scaled
    return rounded((found + (0 if exact else Fraction(1, 2))) / Fraction(2) ** (shift // 2))


def by_the_page(desc: ByteLayerNormalizationDesc, row: list[int], scale: np.ndarray, bias: np.ndarray) -> list[int]:
    input_scale, output_scale, epsilon = (
        Fraction(float(np.frombuffer(kept, np.float32)[0]))
        for kept in (desc.input_scale_bytes, desc.output_scale_bytes, desc.epsilon_bytes)
    )
    x = [rounded(input_scale * (element - desc.input_zero_point)) for element in row]
    mean = rounded(sum(x, Fraction(0)) / len(row))
    d = [rounded(each - mean) for each in x]
    sums = [Fraction(0)] * 8
    for i, each in enumerate(d):
        sums[i % 8] = rounded(each * each + sums[i % 8])
    for half in (4, 2, 1):
        sums = [rounded(sums[k] + sums[k + half]) for k in range(half)]
    factor = rounded(1 / root(rounded(rounded(sums[0] / len(row)) + epsilon)))
    output = []
    for each, g, b in zip(d, scale, bias, strict=True):
        y = rounded(rounded(each * factor) * Fraction(float(g)) + Fraction(float(b)))
        output.append(max(-128, min(127, round(rounded(y / output_scale)) + desc.output_zero_point)))
    return output


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("parameters", ["ordinary", "halves", "last_bits"])
def test_rows_are_those_of_the_page(parameters: str, numbers: str) -> None:
    random = np.random.default_rng(len(parameters))
    for length in (8, 16, 72, 200):
        input_scale, output_scale = (float(np.float32(2 ** random.uniform(-9, -3))) for _ in range(2))
        desc = ByteLayerNormalizationDesc(
            input_tensor=TensorDesc(DataType.INT8, (4, length)),
            scale_tensor=TensorDesc(DataType.FLOAT32, (length,)),
            bias_tensor=TensorDesc(DataType.FLOAT32, (length,)),
            epsilon=1e-5,
            input_scale=input_scale,
            input_zero_point=int(random.integers(-128, 128)),
            output_scale=output_scale,
            output_zero_point=-7,
        )
        x = bytes_of(numbers, (4, length), DataType.INT8, random)
        given = parameters_of(parameters, desc, x, random)
        found = run(desc, input_tensor=x, **given)
        expected = [by_the_page(desc, [*map(int, row)], *given.values()) for row in x]
        np.testing.assert_array_equal(found, expected)
