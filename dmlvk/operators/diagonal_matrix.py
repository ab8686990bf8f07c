"""DIAGONAL_MATRIX: a value on one diagonal and zeros elsewhere; the predecessor of DIAGONAL_MATRIX1."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, NoReturn

from dmlvk.data_type import DataType
from dmlvk.operators.declared import (
    ALL_DATA_TYPES,
    INT32_MAX,
    INT32_MIN,
    SIXTY_FOUR_BIT_TYPES,
    Choices,
    OperatorDesc,
    element,
    integer,
    operator,
    result,
)
from dmlvk.operators.diagonal_matrix1 import DiagonalMatrix1Desc
from dmlvk.operators.element import encode_element
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc


@operator("DIAGONAL_MATRIX", number=6, family="data_movement", successor=DiagonalMatrix1Desc)
class DiagonalMatrixDesc(OperatorDesc):
    """DML_DIAGONAL_MATRIX_OPERATOR_DESC: an element is Value where x == y + Offset, and 0 elsewhere.

    Dimensions before the last two are a batch.

    Args:
        output_tensor (TensorDesc): Rank 2 to 4, any data type.
        offset (int): In 32 signed bits. A positive offset moves the diagonal to the right, a negative one to the left.
        value (int, float, NumPy scalar or bytes): A FLOAT for any output data type: other numbers are rounded to
            float32. A NumPy float32 keeps its bits, and so do 4 bytes, which are the FLOAT in memory (little endian).
            For an integer output the FLOAT is truncated towards 0 and has to fit. DIAGONAL_MATRIX1 takes integers with
            all their bits.

    Source: the page DML_DIAGONAL_MATRIX_OPERATOR_DESC. It is silent about a Value that the data type cannot hold.
    Here such a Value is refused: for an integer type a NaN, an infinity or a number out of range; for FLOAT16 a finite
    number that is too large.

    >>> desc = dmlvk.DiagonalMatrixDesc(output_tensor=dmlvk.TensorDesc("float32", [2, 3]), offset=1, value=0.5)
    >>> dmlvk.reference.run(desc)
    array([[0. , 0.5, 0. ],
           [0. , 0. , 0.5]], dtype=float32)
    """

    # For the same interface as DIAGONAL_MATRIX1. This operator never has an input.
    input_tensor: ClassVar[None] = None

    output_tensor: TensorDesc = result(rank=(2, 4))
    offset: int = integer(INT32_MIN, INT32_MAX, "must fit a signed 32-bit integer")
    value: Any = element(DataType.FLOAT32, kept_as="float_bytes")
    float_bytes: bytes = field(init=False, repr=False)
    value_bytes: bytes = field(init=False, repr=False, compare=False)

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A value that every data type holds, and any output."""
        sizes = choose.sizes("output_tensor", choose.one_of("output_tensor.rank", (2, 3, 4)))
        data_type = choose.one_of("output_tensor.data_type", ALL_DATA_TYPES)
        return {
            "output_tensor": choose.tensor("output_tensor", data_type, sizes),
            "value": choose.integer("value", 0, 100),
        }

    def output_sizes(self) -> NoReturn:
        """No other field says them."""
        self._fail_without_output("no other field says how large the output is, or its data type")

    def check_output(self) -> None:
        """Convert the value to the output's data type."""
        self._set("value_bytes", self._convert_value())

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
