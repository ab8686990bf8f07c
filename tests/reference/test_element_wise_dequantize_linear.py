"""ELEMENT_WISE_DEQUANTIZE_LINEAR's reference; test_element_wise_quantize_linear.py compares both with ONNX Runtime."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tests.reference.quantized import float32
from tests.reference.test_element_wise_quantize_linear import dequantize


def test_a_product_is_rounded_once_and_keeps_denormals() -> None:
    values = np.arange(256, dtype=np.uint8)
    for scale in (0.1, 1e-40, 3e-45, 1.7e35):
        output = dequantize(values, float32([scale]), np.array([7], np.uint8))
        for value, found in zip(values.tolist(), output, strict=True):
            exact = (value - 7) * Fraction(float(np.float32(scale)))
            distance = abs(Fraction(float(found)) - exact)
            for end in (-np.inf, np.inf):
                assert distance <= abs(Fraction(float(np.nextafter(found, np.float32(end)))) - exact)


def test_what_is_no_number_has_one_form() -> None:
    zero = np.zeros(1, np.uint8)
    for scale in (np.inf, -np.inf, np.nan):
        assert dequantize(zero, float32([scale]), None).view(np.uint32).tolist() == [0x7FC00000]
