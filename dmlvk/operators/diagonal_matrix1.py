"""DIAGONAL_MATRIX1: fills a band of diagonals, or all but a band, with a value."""

from __future__ import annotations

import math
import numbers
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar

from dmlvk.arguments import is_number
from dmlvk.data_type import DataType
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.operators.rules import ALL_DATA_TYPES, INT32_MAX, INT32_MIN, OperatorDesc
from dmlvk.tensor_desc import TensorDesc, as_data_type

FLOAT_FORMATS = {DataType.FLOAT16: "<e", DataType.FLOAT32: "<f", DataType.FLOAT64: "<d"}


@dataclass(frozen=True, kw_only=True)
class DiagonalMatrix1Desc(OperatorDesc):
    """DML_DIAGONAL_MATRIX1_OPERATOR_DESC.

    With t = x - y, an element becomes Value where (End >= Begin) ^ (t >= Begin) ^ (t < End), else the input's element,
    or 0 without an input. Begin < End fills Begin <= t < End; Begin == End fills nothing; Begin > End fills all but
    End <= t < Begin. Dimensions before the last two are a batch.

    Parameters
    ----------
    input_tensor : TensorDesc, optional
        Of the output's data type and sizes; strides of 0 broadcast it.
    output_tensor : TensorDesc
        Rank 2 to 4, any data type.
    value_data_type : DataType, optional
        Must be the output's data type, which is the default.
    value : int, float, NumPy scalar or bytes
        A NumPy scalar of the value data type keeps its bits, and so do bytes, which are the element as it lies in
        memory (little endian). Other numbers are rounded to a floating point type, and must fit an integer type
        exactly.
    diagonal_fill_begin, diagonal_fill_end : int
        Begin (inclusive) and end (exclusive) of the diagonals, in 32 signed bits. The smallest and the largest value
        stand for the open ends, also in a matrix with more than 2**31 columns.

    Raises
    ------
    DescriptorError

    Notes
    -----
    Source: the page DML_DIAGONAL_MATRIX1_OPERATOR_DESC. Its example 1 is an erratum: Value 7 gives sevens.
    """

    operator_name: ClassVar[str] = "DIAGONAL_MATRIX1"
    input_fields: ClassVar[tuple[str, ...]] = ("input_tensor",)
    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor",)
    optional_fields: ClassVar[tuple[str, ...]] = ("input_tensor",)
    bit_fields: ClassVar[Mapping[str, str]] = MappingProxyType({"value": "value_bytes"})

    input_tensor: TensorDesc | None = None
    output_tensor: TensorDesc
    value_data_type: DataType | None = None
    # Descriptors compare by the bits of the value, so that NaN equals itself and -0.0 differs from 0.0.
    value: Any = field(compare=False)
    diagonal_fill_begin: int
    diagonal_fill_end: int
    value_bytes: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_tensors_are_descs()
        self._check_data_type("output_tensor", ALL_DATA_TYPES)
        self._check_rank("output_tensor", 2, 4)
        self._check_same_data_type("input_tensor", "output_tensor")
        self._check_same_rank("input_tensor", "output_tensor")
        if self.input_tensor is not None and self.input_tensor.sizes != self.output_tensor.sizes:
            rule = "must equal the sizes of output_tensor; an input broadcasts by strides of 0"
            self._fail("input_tensor.sizes", self.input_tensor.sizes, rule, str(self.output_tensor.sizes))
        self._check_value_data_type()
        self._set("value_bytes", self._encode_value())
        rule = "must fit a signed 32-bit integer"
        self._normalise_integer("diagonal_fill_begin", INT32_MIN, INT32_MAX, rule)
        self._normalise_integer("diagonal_fill_end", INT32_MIN, INT32_MAX, rule)
        self._check_outputs()

    def _check_value_data_type(self) -> None:
        output_type = self.output_tensor.data_type
        if self.value_data_type is not None:
            value_type = as_data_type(type(self).__name__, "value_data_type", self.value_data_type)
            if value_type != output_type:
                self._fail(
                    "value_data_type", value_type.name, "must match the DataType of output_tensor", output_type.name
                )
        self._set("value_data_type", output_type)

    def _encode_value(self) -> bytes:
        data_type = self.output_tensor.data_type
        if hasattr(self.value, "dtype") and getattr(self.value, "ndim", None) == 0:
            self._set("value", self.value[()])  # a 0-d array can change later, the scalar in it cannot
        value = self.value
        if isinstance(value, bytes):
            if len(value) != data_type.size_in_bytes:
                self._fail(
                    "value", value, f"bytes must be one element of {data_type.name}", f"{data_type.size_in_bytes} bytes"
                )
            return value
        if getattr(value, "dtype", None) == data_type.numpy_dtype and getattr(value, "ndim", None) == 0:
            return bytes(value.astype(data_type.numpy_dtype.newbyteorder("<")).tobytes())
        if not is_number(value):
            self._fail("value", value, f"must be one number, not {type(value).__name__}")
        if data_type.is_floating_point:
            return self._encode_float(value, data_type)
        bits = 8 * data_type.size_in_bytes
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if data_type.is_signed_integer else (0, 2**bits - 1)
        if not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
            self._fail("value", value, f"must be a value of {data_type.name}", f"an integer from {low} to {high}")
        return int(value).to_bytes(data_type.size_in_bytes, "little", signed=data_type.is_signed_integer)

    def _encode_float(self, value: Any, data_type: DataType) -> bytes:
        try:
            number = _nearest(value) if data_type == DataType.FLOAT64 else _rounded_to_odd(value)
            return struct.pack(FLOAT_FORMATS[data_type], number)
        except OverflowError:
            self._fail(
                "value", value, f"is finite, and too large for {data_type.name}", "an infinity, if that is meant"
            )

    @property
    def diagonal_range(self) -> tuple[int, int, bool]:
        """(low, high, inside): Value lies where low <= x - y < high if inside is true, and elsewhere if not.

        The range is cut to the diagonals that the output has, so 1 - height <= low <= high <= width.
        """
        height, width = self.output_tensor.sizes[-2:]
        begin, end = (
            self._cut_to_matrix(limit, height, width) for limit in (self.diagonal_fill_begin, self.diagonal_fill_end)
        )
        if self.diagonal_fill_end >= self.diagonal_fill_begin:
            return begin, end, True
        return end, begin, False

    @staticmethod
    def _cut_to_matrix(limit: int, height: int, width: int) -> int:
        open_ends: dict[int, float] = {INT32_MIN: -math.inf, INT32_MAX: math.inf}
        return int(min(max(open_ends.get(limit, limit), 1 - height), width))

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """5.1, which introduced the operator with all its ranks and data types."""
        return FeatureLevel.FEATURE_LEVEL_5_1


def _nearest(value: Any) -> float:
    """The float64 that is nearest to a real number.

    Raises
    ------
    OverflowError
        It is finite, and too large.
    """
    nearest = float(value)
    if math.isinf(nearest) and nearest != value:  # a long double; integers and fractions have raised it themselves
        raise OverflowError
    return nearest


def _rounded_to_odd(value: Any) -> float:
    """A real number itself where a float64 holds it, else of the two float64 around it the one with an odd last bit.

    The nearest float64, rounded again to the 24 or 11 bits of a narrower type, could go wrong at a tie. From a value
    that is rounded to odd, the second rounding gives what a single one would have given.
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
