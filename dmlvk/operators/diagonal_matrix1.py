"""DIAGONAL_MATRIX1: fills a band of diagonals, or all but a band, with a value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from dmlvk.data_type import DataType
from dmlvk.operators.element import element_text, encode_element
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.operators.rules import ALL_DATA_TYPES, INT32_MAX, INT32_MIN, OperatorDesc
from dmlvk.tensor_desc import TensorDesc, as_data_type


@dataclass(frozen=True, kw_only=True, repr=False)
class DiagonalMatrix1Desc(OperatorDesc):
    """DML_DIAGONAL_MATRIX1_OPERATOR_DESC.

    With t = x - y, an element becomes Value where (End >= Begin) ^ (t >= Begin) ^ (t < End), else the input's element,
    or 0 without an input. Begin < End fills Begin <= t < End; Begin == End fills nothing; Begin > End fills all but
    End <= t < Begin. Dimensions before the last two are a batch.

    Parameters
    ----------
    input_tensor : TensorDesc, optional
        Has the output's data type and sizes. Strides of 0 broadcast it.
    output_tensor : TensorDesc, optional
        Rank 2 to 4, any data type. By default it has the input's sizes and data type, and is packed; without an input
        it is required.
    value_data_type : DataType, optional
        Must be the output's data type, which is the default.
    value : int, float, NumPy scalar or bytes
        A NumPy scalar of the value data type keeps its bits, and so do bytes, which are the element in memory (little
        endian). Other numbers are rounded to a floating point type, and must fit an integer type exactly.
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
    implied_fields: ClassVar[tuple[str, ...]] = ("value_data_type",)

    input_tensor: TensorDesc | None = None
    output_tensor: TensorDesc = None  # type: ignore[assignment]  # __post_init__ sets it
    value_data_type: DataType | None = None
    # Descriptors compare by the bits of the value, so that NaN equals itself and -0.0 differs from 0.0.
    value: Any = field(compare=False)
    diagonal_fill_begin: int
    diagonal_fill_end: int
    value_bytes: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_tensors_are_descs()
        rule = "must fit a signed 32-bit integer"
        self._normalise_integer("diagonal_fill_begin", INT32_MIN, INT32_MAX, rule)
        self._normalise_integer("diagonal_fill_end", INT32_MIN, INT32_MAX, rule)
        if self.output_tensor is None:
            self._check_rank("input_tensor", 2, 4)
            self._fill_output()
        self._check_data_type("output_tensor", ALL_DATA_TYPES)
        self._check_rank("output_tensor", 2, 4)
        self._check_same_data_type("input_tensor", "output_tensor")
        self._check_same_rank("input_tensor", "output_tensor")
        if self.input_tensor is not None and self.input_tensor.sizes != self.output_tensor.sizes:
            rule = "must equal the sizes of output_tensor; an input broadcasts by strides of 0"
            self._fail("input_tensor.sizes", self.input_tensor.sizes, rule, str(self.output_tensor.sizes))
        self._check_value_data_type()
        self._set("value_bytes", self._encode_value())
        self._check_outputs()

    def _implied_output(self) -> TensorDesc:
        if self.input_tensor is None:
            reason = "without an input_tensor no other field says how large the output is, or its data type"
            expected = "TensorDesc('float32', (3, 3)), for example"
            self._fail("output_tensor", None, f"must be a TensorDesc: {reason}", expected)
        return TensorDesc(self.input_tensor.data_type, self.input_tensor.sizes)

    def _text(self, field: str) -> str:
        if field == "value":
            return element_text(self.value_bytes, self.output_tensor.data_type)
        return super()._text(field)

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
        return encode_element(type(self).__name__, "value", self.value, data_type)

    @property
    def diagonal_range(self) -> tuple[int, int, bool]:
        """(low, high, inside): Value lies where low <= x - y < high if inside is true, and everywhere else if not.

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
