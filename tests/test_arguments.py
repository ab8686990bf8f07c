"""Numbers that callers pass: Python's and NumPy's integers are taken by value, everything else is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk._common.arguments import as_argument, as_boolean, as_integers, as_seconds, integer_of
from tests.argument_values import FLOAT32, HUGE, INTEGERS, NO_INTEGERS, UINT8


class Number(int):
    """An integer whose `__int__` and `__index__` give another value."""

    def __int__(self) -> int:
        return 7

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("kind", INTEGERS)
def test_numpy_s_integers_become_python_s(kind: Any) -> None:
    for value in (np.iinfo(kind).max, np.iinfo(kind).min, 16):
        found = integer_of(kind(value))
        assert type(found) is int and found == value


@pytest.mark.parametrize("value", [UINT8, Number(5), dmlvk.TensorFlags.OWNED_BY_DML])
def test_integers_of_other_classes_become_python_s_by_value(value: int) -> None:
    found = integer_of(value)
    assert type(found) is int and found == value


@pytest.mark.parametrize("value", NO_INTEGERS.values(), ids=NO_INTEGERS)
def test_all_else_is_no_integer(value: Any) -> None:
    assert integer_of(value) is None


def test_an_argument_s_error_says_what_would_be_right() -> None:
    with pytest.raises(dmlvk.BindingError) as caught:
        as_argument("size", np.uint8(0), 1, None, "a buffer has 1 byte or more")
    assert str(caught.value) == "size = 0: a buffer has 1 byte or more; expected an integer of 1 or more"
    with pytest.raises(
        ValueError, match=r"rounds = 1.5: must be an integer, not float; expected an integer from 1 to 9"
    ):
        as_argument("rounds", 1.5, 1, 9, "", ValueError)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (np.uint8(200), 200.0), (np.float16(0.5), 0.5), (math.inf, math.inf), (HUGE, math.inf)],
    ids=["zero", "uint8", "float16", "infinity", "huge"],
)
def test_seconds_are_numbers_by_value(value: Any, seconds: float) -> None:
    found = as_seconds("timeout", value)
    assert type(found) is float and found == seconds


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, np.float32("nan"), -HUGE], ids=lambda v: type(v).__name__)
def test_seconds_are_not_negative(value: Any) -> None:
    with pytest.raises(ValueError, match=r"timeout = .*0 seconds or more"):
        as_seconds("timeout", value)


@pytest.mark.parametrize("value", [True, "1", np.array(1.0), [1], np.timedelta64(1, "s"), 1j])
def test_seconds_are_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match=r"timeout = .*seconds as an int or a float"):
        as_seconds("timeout", value)


def test_sequences_are_taken_by_value() -> None:
    sizes = np.array([2, 3], np.uint8)
    assert as_integers("TensorDesc", "sizes", sizes, 1, 9, "") == (2, 3)
    desc = dmlvk.TensorDesc(UINT8, sizes)
    sizes += 1
    assert desc.sizes == (2, 3)
    assert all(type(size) is int for size in desc.sizes)


class TestDescriptors:
    @pytest.mark.parametrize("value", NO_INTEGERS.values(), ids=NO_INTEGERS)
    def test_every_integer_of_every_descriptor(self, value: Any) -> None:
        desc = dmlvk.TensorDesc(FLOAT32, (4, 4))
        window = {"input_window_offsets": (0, 0), "input_window_sizes": (4, 4), "input_window_strides": (1, 1)}
        calls: list[Callable[[], Any]] = [
            lambda: dmlvk.TensorDesc(FLOAT32, (4, value)),
            lambda: dmlvk.TensorDesc(FLOAT32, (4, 4), (4, value)),
            lambda: dmlvk.TensorDesc(FLOAT32, (4, 4), guaranteed_base_offset_alignment=value),
            lambda: dmlvk.TensorDesc(FLOAT32, (4, 4), flags=value),
            lambda: dmlvk.OneHotDesc(indices_tensor=desc, values_tensor=desc, output_tensor=desc, axis=value),
            lambda: dmlvk.DiagonalMatrix1Desc(
                output_tensor=desc, value=0.0, diagonal_fill_begin=value, diagonal_fill_end=0
            ),
        ]
        if value is not None:
            calls.append(lambda: dmlvk.TensorDesc(FLOAT32, (4, 4), total_size_in_bytes=value))
        for name in window:
            changed: dict[str, Any] = {**window, name: (0, value)}
            calls.append(lambda changed=changed: dmlvk.Slice1Desc(input_tensor=desc, output_tensor=desc, **changed))  # type: ignore[misc]
        for call in calls:
            with pytest.raises(dmlvk.DescriptorError, match=r" = .*: .*"):
                call()

    @pytest.mark.parametrize("data_type", [np.array(5), True, None, 12, HUGE, [5]], ids=lambda v: type(v).__name__)
    def test_a_data_type_is_no_array(self, data_type: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match="data_type"):
            dmlvk.TensorDesc(data_type, (4,))


class TestBooleans:
    @pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
    def test_truth_values_become_python_s(self, value: Any) -> None:
        assert as_boolean("Desc", "field", value) is bool(value)

    @pytest.mark.parametrize("value", [0, 1, None, "True", np.array([True]), 1.0])
    def test_everything_else_is_refused(self, value: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match=r"Desc\.field = .*: must be True or False, not "):
            as_boolean("Desc", "field", value)
