"""The element that DIAGONAL_MATRIX1 fills with: rounded once, and refused if it is no number or too large."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dmlvk
from tests.argument_values import FLOAT16, FLOAT32, FLOAT64, HUGE, UINT8


def element(value: Any, data_type: dmlvk.DataType) -> Any:
    """The element that DIAGONAL_MATRIX1 fills with."""
    desc = dmlvk.DiagonalMatrix1Desc(
        output_tensor=dmlvk.TensorDesc(data_type, (2, 2)), value=value, diagonal_fill_begin=0, diagonal_fill_end=1
    )
    return np.frombuffer(desc.value_bytes, data_type.numpy_dtype)[0]


class TestRounding:
    """A value is rounded once. Rounding to float64 first moves a value beside a tie onto it, and then the wrong way."""

    @pytest.mark.parametrize(("data_type", "tie"), [(FLOAT32, 2**24 + 1), (FLOAT16, 2**11 + 1)])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_of_fractions(self, data_type: dmlvk.DataType, tie: int, sign: int) -> None:
        tiny = Fraction(1, 10**40)
        assert element(sign * (tie + tiny), data_type) == sign * (tie + 1)
        assert element(sign * (tie - tiny), data_type) == sign * (tie - 1)
        assert element(sign * Fraction(tie), data_type) == sign * (tie - 1), "to even"
        assert element(sign * (tie + 2 - tiny), data_type) == sign * (tie + 1)

    @pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long double is float64 here")
    def test_of_long_doubles(self) -> None:
        tie = np.longdouble(2**24 + 1)
        assert element(tie + np.longdouble(2) ** -38, FLOAT32) == 2**24 + 2
        assert element(tie - np.longdouble(2) ** -38, FLOAT32) == 2**24
        scale = np.asarray(tie + np.longdouble(2) ** -38).astype(np.float32)
        assert scale == 2**24 + 2, "NumPy itself, as scales are converted, rounds once"
        with pytest.raises(dmlvk.DescriptorError, match="too large for FLOAT64"):
            element(np.longdouble("1e4000"), FLOAT64)

    def test_of_denormals(self) -> None:
        half = Fraction(1, 2**150)  # half of the smallest float32
        assert element(half, FLOAT32) == 0.0
        assert element(half + Fraction(1, 10**400), FLOAT32) == np.float32(2**-149)
        assert np.signbit(element(Fraction(-1, 10**5000), FLOAT32))

    @pytest.mark.parametrize("value", [True, np.True_, np.timedelta64(3, "s"), np.timedelta64(3), "3", 3j, [3]])
    @pytest.mark.parametrize("data_type", [UINT8, FLOAT32])
    def test_what_is_no_number_is_refused(self, data_type: dmlvk.DataType, value: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match="must be one number, not"):
            element(value, data_type)

    def test_signs_of_zeros_and_infinities_stay(self) -> None:
        assert np.signbit(element(-0.0, FLOAT32)) and np.signbit(element(np.longdouble(-0.0), FLOAT16))
        assert element(-math.inf, FLOAT16) == -math.inf and np.isnan(element(np.longdouble("nan"), FLOAT32))

    @pytest.mark.parametrize("value", [HUGE, Fraction(HUGE, 3), Fraction(-(10**309))], ids=lambda v: type(v).__name__)
    def test_what_is_too_large_is_refused(self, value: Any) -> None:
        for data_type in (FLOAT16, FLOAT32, FLOAT64):
            with pytest.raises(dmlvk.DescriptorError, match="too large"):
                element(value, data_type)
