"""Numbers that callers pass: taken by value as Python numbers, or refused with a message that says what is expected.

NumPy's integers have 8 to 64 bits and wrap. An array without dimensions can change after it was checked. So only Python
numbers leave this module.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from dmlvk.errors import BindingError, DescriptorError, shown

# More than any field has: one element for each dimension. At most this many are taken from an endless iterator.
MOST_ELEMENTS = 64


def integer_of(value: object) -> int | None:
    """The Python int of a Python or NumPy integer; None for everything else: bools, floats, arrays, text."""
    if type(value) is int:
        return value
    if isinstance(value, (int, np.integer)) and is_number(value):
        return int.__int__(value) if isinstance(value, int) else int(value)
    return None


def is_number(value: object) -> bool:
    """Whether a value is one real number. Bools and NumPy's durations claim to be numbers, but are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))


def as_integer(descriptor: str, field: str, value: object, low: int, high: int, rule: str) -> int:
    """The integer in [low, high] that a descriptor's field holds.

    Raises
    ------
    DescriptorError
        It is no integer, or breaks the rule.
    """
    return _in_range(value, low, high, rule, partial(DescriptorError, descriptor, field))


def as_boolean(descriptor: str, field: str, value: object) -> bool:
    """The truth value that a descriptor's field holds, given as Python's or NumPy's.

    Raises
    ------
    DescriptorError
        It is neither True nor False.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise DescriptorError(descriptor, field, value, f"must be True or False, not {type(value).__name__}")
    return bool(value)


def as_integers(descriptor: str, field: str, values: Any, low: int, high: int, rule: str) -> tuple[int, ...]:
    """The integers in [low, high] of a descriptor's field, given as any sequence. An error names the element."""
    if type(values) is tuple or type(values) is list:
        taken = tuple(values)  # at once, because a list may change
        wrong = [item for item in taken[:MOST_ELEMENTS] if type(item) is not int or not low <= item <= high]
        if not wrong and len(taken) <= MOST_ELEMENTS:
            return taken  # the usual case
    items = None
    if not isinstance(values, (str, bytes, bytearray, set, frozenset, dict)):  # text, or without an order of their own
        with suppress(TypeError):
            items = list(islice(values, MOST_ELEMENTS + 1))
    expected = "such as (1, 2, 3)"
    if items is None:
        raise DescriptorError(
            descriptor, field, values, "must be a sequence of integers, one for each dimension", expected
        )
    if len(items) > MOST_ELEMENTS:
        raise DescriptorError(descriptor, field, values, f"must have at most {MOST_ELEMENTS} elements", expected)
    return tuple([as_integer(descriptor, f"{field}[{i}]", item, low, high, rule) for i, item in enumerate(items)])


def as_argument(
    name: str, value: object, low: int, high: int | None, rule: str, error: type[Exception] = BindingError
) -> int:
    """An argument as an integer from `low` to `high`, or without an upper limit.

    Raises
    ------
    BindingError, or `error`
        It is no integer, or breaks the rule.
    """

    def refusal(value: object, rule: str, expected: str) -> Exception:
        return error(f"{name} = {shown(value)}: {rule}; expected {expected}")

    return _in_range(value, low, high, rule, refusal)


def as_seconds(name: str, value: object) -> float:
    """An argument as seconds, from 0 to infinity.

    Raises
    ------
    TypeError
        It is no real number.
    ValueError
        It is negative or NaN.
    """
    kinds = (int, float, np.integer, np.floating)
    if not isinstance(value, kinds) or not is_number(value):
        raise TypeError(f"{name} = {shown(value)}: must be seconds as an int or a float, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:  # an integer that no float holds
        seconds = math.inf if value >= 0 else -math.inf
    if not seconds >= 0:
        raise ValueError(f"{name} = {shown(value)}: must be 0 seconds or more; None waits without a limit")
    return seconds


def _in_range(
    value: object, low: int, high: int | None, rule: str, refusal: Callable[[object, str, str], Exception]
) -> int:
    integer = integer_of(value)
    if integer is None or integer < low or (high is not None and integer > high):
        if integer is None:
            kind = "a bool" if isinstance(value, (bool, np.bool_)) else type(value).__name__
            rule = f"must be an integer, not {kind}"
        expected = f"an integer of {low} or more" if high is None else f"an integer from {low} to {high}"
        raise refusal(value if integer is None else integer, rule, expected)
    return integer
