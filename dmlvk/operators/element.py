"""A number as one element of a tensor: its bytes in memory, and back as text."""

from __future__ import annotations

import math
import numbers
import struct
from contextlib import suppress
from fractions import Fraction
from typing import Any

from dmlvk._common.arguments import is_number
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError

FLOAT_FORMATS = {DataType.FLOAT16: "<e", DataType.FLOAT32: "<f", DataType.FLOAT64: "<d"}


def encode_element(descriptor: str, field: str, value: Any, data_type: DataType) -> bytes:
    """Encode a number as an element of a data type, in little endian order.

    descriptor, field: the class and the field that an error names.
    value: a NumPy scalar of the data type keeps its bits, and so do bytes, which are the element itself. Other numbers
        are rounded once to a floating point type, to the nearest value, and must fit an integer type exactly.
    Raises DescriptorError: the value is not a number, or the data type cannot hold it.
    """
    if isinstance(value, bytes):
        if len(value) != data_type.size_in_bytes:
            rule = f"bytes must be one element of {data_type.name}"
            raise DescriptorError(descriptor, field, value, rule, f"{data_type.size_in_bytes} bytes")
        return value
    if getattr(value, "dtype", None) == data_type.numpy_dtype and getattr(value, "ndim", None) == 0:
        return bytes(value.astype(data_type.numpy_dtype.newbyteorder("<")).tobytes())
    if not is_number(value):
        raise DescriptorError(descriptor, field, value, f"must be one number, not {type(value).__name__}")
    if data_type.is_floating_point:
        try:
            number = _nearest(value) if data_type == DataType.FLOAT64 else _rounded_to_odd(value)
            return struct.pack(FLOAT_FORMATS[data_type], number)
        except OverflowError:
            rule = f"is a finite number that is too large for {data_type.name}"
            raise DescriptorError(descriptor, field, value, rule, "a smaller number, or an infinity") from None
    bits = 8 * data_type.size_in_bytes
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if data_type.is_signed_integer else (0, 2**bits - 1)
    if not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
        rule = f"must be a value of {data_type.name}"
        raise DescriptorError(descriptor, field, value, rule, f"an integer from {low} to {high}")
    return int(value).to_bytes(data_type.size_in_bytes, "little", signed=data_type.is_signed_integer)


def element_text(content: bytes, data_type: DataType) -> str:
    """An element as Python text from which `encode_element` makes the same bytes: a short number, or else the bytes."""
    if not data_type.is_floating_point:
        return str(int.from_bytes(content, "little", signed=data_type.is_signed_integer))
    (value,) = struct.unpack(FLOAT_FORMATS[data_type], content)
    if not math.isfinite(value):
        # A NaN's sign and payload are in its bytes alone.
        is_plain = struct.pack(FLOAT_FORMATS[data_type], float(str(value))) == content
        return f"float('{value}')" if is_plain else repr(content)
    if value.is_integer() and abs(value) < 1e16:
        return repr(value)
    for digits in range(1, 17):
        number = float(f"{value:.{digits}g}")
        with suppress(OverflowError):  # the largest numbers, rounded up
            if struct.pack(FLOAT_FORMATS[data_type], number) == content:
                return repr(number)
    return repr(value)


def _nearest(value: Any) -> float:
    """The float64 that is nearest to a real number.

    Raises OverflowError: the number is finite and too large.
    """
    nearest = float(value)
    if math.isinf(nearest) and nearest != value:  # a long double; integers and fractions raise it themselves
        raise OverflowError
    return nearest


def _rounded_to_odd(value: Any) -> float:
    """A real number as float64: itself if it fits, otherwise the one of its two neighbours with an odd last bit.

    If the nearest float64 were rounded again to the 24 or 11 bits of a narrower type, a tie could go wrong. After
    rounding to odd, the second rounding gives the result of a single rounding.
    """
    nearest = _nearest(value)
    if isinstance(value, float) or not math.isfinite(nearest):
        return nearest
    if isinstance(value, numbers.Rational):
        exact = Fraction(int(value.numerator), int(value.denominator))  # NumPy's integers are no longer ones that wrap
    else:
        exact = Fraction(*value.as_integer_ratio())
    (bits,) = struct.unpack("<q", struct.pack("<d", nearest))
    if exact == nearest or bits & 1:
        return nearest
    return math.nextafter(nearest, math.inf if exact > nearest else -math.inf)
