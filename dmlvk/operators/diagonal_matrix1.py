"""DIAGONAL_MATRIX1: fills a band of diagonals, or all but a band, with a value."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

from dmlvk.data_type import DataType
from dmlvk.operators.declared import (
    INT32_MAX,
    INT32_MIN,
    OperatorDesc,
    data_type,
    element,
    integer,
    operator,
    result,
    same_as,
    source,
)
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc


@operator("DIAGONAL_MATRIX1", number=3, family="data_movement", feature_level=FeatureLevel.FEATURE_LEVEL_5_1)
class DiagonalMatrix1Desc(OperatorDesc):
    """DML_DIAGONAL_MATRIX1_OPERATOR_DESC.

    With t = x - y, an element becomes Value where (End >= Begin) ^ (t >= Begin) ^ (t < End), else the input's element,
    or 0 without an input. Begin < End fills Begin <= t < End; Begin == End fills nothing; Begin > End fills all but
    End <= t < Begin. Dimensions before the last two are a batch.

    Args:
        input_tensor (TensorDesc, optional): Has the output's data type and sizes. Strides of 0 broadcast it.
        output_tensor (TensorDesc, optional): Rank 2 to 4, any data type. By default it has the input's sizes and data
            type, and is packed; without an input it is required.
        value_data_type (DataType, optional): Must be the output's data type, which is the default.
        value (int, float, NumPy scalar or bytes): A NumPy scalar of the value data type keeps its bits, and so do
            bytes, which are the element in memory (little endian). Other numbers are rounded to a floating point type,
            and must fit an integer type exactly.
        diagonal_fill_begin (int): The first diagonal, in 32 signed bits. The smallest value stands for the open end,
            also in a matrix with more than 2**31 rows.
        diagonal_fill_end (int): The diagonal behind the last, in 32 signed bits. The largest value stands for the open
            end, also in a matrix with more than 2**31 columns.

    Source: the page DML_DIAGONAL_MATRIX1_OPERATOR_DESC. Its example 1 is an erratum: Value 7 gives sevens.

    >>> desc = dmlvk.DiagonalMatrix1Desc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [3, 3]), value=0, diagonal_fill_begin=1, diagonal_fill_end=2**31 - 1
    ... )
    >>> dmlvk.reference.run(desc, input_tensor=np.full((3, 3), 7, dtype=np.uint8))  # zeros above the diagonal
    array([[7, 0, 0],
           [7, 7, 0],
           [7, 7, 7]], dtype=uint8)
    """

    input_tensor: TensorDesc | None = source(
        same_as("output_tensor"), rank=(2, 4), sizes=same_as("output_tensor"), default=None
    )
    output_tensor: TensorDesc = result(rank=(2, 4), type_from=("input_tensor",), default=None)
    value_data_type: DataType | None = data_type(of="output_tensor", default=None)
    value: Any = element("output_tensor", kept_as="value_bytes")
    diagonal_fill_begin: int = integer(INT32_MIN, INT32_MAX, "must fit a signed 32-bit integer")
    diagonal_fill_end: int = integer(INT32_MIN, INT32_MAX, "must fit a signed 32-bit integer")
    value_bytes: bytes = field(init=False, repr=False)

    def output_sizes(self) -> tuple[int, ...]:
        """Those of the input, if there is one."""
        if self.input_tensor is None:
            self._fail_without_output(
                "without an input_tensor no other field says how large the output is, or its data type"
            )
        return self.input_tensor.sizes

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
