"""Messages of errors: values are shortened."""

from __future__ import annotations

import itertools
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.errors import LONGEST_VALUE, shown
from tests.argument_values import FLOAT16, HUGE, MOST_CHARACTERS, UINT8


class TestMessages:
    @pytest.mark.parametrize(
        "value",
        [
            HUGE,
            -HUGE,
            [HUGE],
            Fraction(HUGE, 3),
            "x" * 1_000_000,
            b"x" * 1_000_000,
            list(range(1_000_000)),
            (("a" * 1000,) * 100,) * 100,
            np.arange(1_000_000),
            np.array([HUGE], object),
            {number: number for number in range(1000)},
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_value_is_shortened(self, value: Any) -> None:
        assert 0 < len(shown(value)) <= LONGEST_VALUE

    @pytest.mark.parametrize("value", [5, -(2**64), (1, 2, 3), "text", np.int8(3), None, FLOAT16])
    def test_what_is_short_is_shown_whole(self, value: Any) -> None:
        assert shown(value) == repr(value)

    def test_a_repr_that_raises_does_no_harm(self) -> None:
        class Broken:
            def __repr__(self) -> str:
                raise RuntimeError

        assert "Broken" in shown(Broken())

    @pytest.mark.parametrize(
        ("sizes", "message"),
        [
            ([HUGE], r"sizes\[0\] = about 10\*\*5000"),
            ([-HUGE], r"sizes\[0\] = about -10\*\*5000"),
            ([1] * 1_000_000, "must have at most 64 elements"),
            (itertools.count(1), "must have at most 64 elements"),
            ({1, 2}, "must be a sequence"),
        ],
        ids=["huge", "negative", "a million", "endless", "without order"],
    )
    def test_errors_are_of_bounded_length(self, sizes: Any, message: str) -> None:
        with pytest.raises(dmlvk.DescriptorError, match=message) as caught:
            dmlvk.TensorDesc(UINT8, sizes)
        assert len(str(caught.value)) < MOST_CHARACTERS

    def test_a_dtype_that_is_none(self) -> None:
        dtypes: tuple[Any, ...] = ("f4," * 100_000, "(", "x" * 1_000_000, 5, HUGE)
        for dtype in dtypes:
            with pytest.raises(TypeError, match="supported are float32") as caught:
                dmlvk.DataType.from_numpy(dtype)
            assert len(str(caught.value)) < MOST_CHARACTERS


def test_a_descriptor_error_travels_by_pickle() -> None:
    with pytest.raises(dmlvk.DescriptorError) as caught:
        dmlvk.TensorDesc("int32", (4, 0))
    loaded = pickle.loads(pickle.dumps(caught.value))
    assert str(loaded) == str(caught.value)
    assert vars(loaded) == vars(caught.value)
