"""DIAGONAL_MATRIX: a value on one diagonal and zeros elsewhere; the predecessor of DIAGONAL_MATRIX1."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

from dmlvk.data_type import DataType
from dmlvk.operators.element import element_text, encode_element
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.operators.rules import (
    ALL_DATA_TYPES,
    INT32_MAX,
    INT32_MIN,
    SIXTY_FOUR_BIT_TYPES,
    OperatorDesc,
    output_has_to_be_given,
)
from dmlvk.tensor_desc import TensorDesc


@output_has_to_be_given
@dataclass(frozen=True, kw_only=True, repr=False)
class DiagonalMatrixDesc(OperatorDesc):
    """DML_DIAGONAL_MATRIX_OPERATOR_DESC: an element is Value where x == y + Offset, and 0 elsewhere.

    Dimensions before the last two are a batch.

    Parameters
    ----------
    output_tensor : TensorDesc
        Rank 2 to 4, any data type.
    offset : int
        In 32 signed bits. A positive offset moves the diagonal to the right, a negative one to the left.
    value : int, float, NumPy scalar or bytes
        A FLOAT for any output data type: other numbers are rounded to float32. A NumPy float32 keeps its bits, and so
        do 4 bytes, which are the FLOAT in memory (little endian). For an integer output the FLOAT is truncated towards
        0 and has to fit. DIAGONAL_MATRIX1 takes integers with all their bits.

    Raises
    ------
    DescriptorError

    Notes
    -----
    Source: the page DML_DIAGONAL_MATRIX_OPERATOR_DESC. It is silent about a Value that the data type cannot hold.
    Here such a Value is refused: for an integer type a NaN, an infinity or a number out of range; for FLOAT16 a finite
    number that is too large.
    """

    operator_name: ClassVar[str] = "DIAGONAL_MATRIX"
    input_fields: ClassVar[tuple[str, ...]] = ()
    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor",)
    bit_fields: ClassVar[Mapping[str, str]] = MappingProxyType({"value": "float_bytes"})
    # For the same interface as DIAGONAL_MATRIX1. This operator never has an input.
    input_tensor: ClassVar[None] = None

    output_tensor: TensorDesc
    offset: int
    # Descriptors compare by the bits of the value, so that NaN equals itself and -0.0 differs from 0.0.
    value: Any = field(compare=False)
    float_bytes: bytes = field(init=False, repr=False)
    value_bytes: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_tensors_are_descs()
        self._normalise_integer("offset", INT32_MIN, INT32_MAX, "must fit a signed 32-bit integer")
        self._fill_output()
        self._check_data_type("output_tensor", ALL_DATA_TYPES)
        self._check_rank("output_tensor", 2, 4)
        if hasattr(self.value, "dtype") and getattr(self.value, "ndim", None) == 0:
            self._set("value", self.value[()])  # a 0-d array can change later, the scalar in it cannot
        self._set("float_bytes", encode_element(type(self).__name__, "value", self.value, DataType.FLOAT32))
        self._set("value_bytes", self._convert_value())
        self._check_outputs()

    def _implied_output(self) -> NoReturn:
        reason = "no other field says how large the output is, or its data type"
        self._fail(
            "output_tensor", None, f"must be a TensorDesc: {reason}", "TensorDesc('float32', (3, 3)), for example"
        )

    def _text(self, field: str) -> str:
        return element_text(self.float_bytes, DataType.FLOAT32) if field == "value" else super()._text(field)

    def _convert_value(self) -> bytes:
        """Value as an element of the output."""
        data_type = self.output_tensor.data_type
        if data_type is DataType.FLOAT32:
            return self.float_bytes
        (value,) = struct.unpack("<f", self.float_bytes)
        if data_type.is_floating_point:
            return encode_element(type(self).__name__, "value", value, data_type)
        bits, is_signed = 8 * data_type.size_in_bytes, data_type.is_signed_integer
        lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        if not math.isfinite(value) or not lowest <= math.trunc(value) <= highest:
            rule = f"must be in the range of {data_type.name} after it is truncated to an integer"
            self._fail("value", self.value, rule, f"a number from {lowest} to {highest}")
        return encode_element(type(self).__name__, "value", math.trunc(value), data_type)

    @property
    def diagonal_range(self) -> tuple[int, int, bool]:
        """(low, high, inside): Value lies where low <= x - y < high; `inside` is always true.

        The range is cut to the diagonals that the output has, so 1 - height <= low <= high <= width. INT32_MIN and
        INT32_MAX are open ends in DIAGONAL_MATRIX1; here such an offset is one diagonal like any other.
        """
        height, width = self.output_tensor.sizes[-2:]
        low, high = (min(max(limit, 1 - height), width) for limit in (self.offset, self.offset + 1))
        return low, high, True

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """2.0 for FLOAT32 and FLOAT16 at rank 4, 2.1 for integers, 4.0 for ranks 2 and 3, 5.1 for 64-bit types."""
        data_type = self.output_tensor.data_type
        if data_type in SIXTY_FOUR_BIT_TYPES:
            return FeatureLevel.FEATURE_LEVEL_5_1
        if self.output_tensor.rank != 4:
            return FeatureLevel.FEATURE_LEVEL_4_0
        return FeatureLevel.FEATURE_LEVEL_2_0 if data_type.is_floating_point else FeatureLevel.FEATURE_LEVEL_2_1
