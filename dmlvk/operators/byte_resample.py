"""BYTE_RESAMPLE: planes of 8-bit numbers, interpolated linearly and in 8 bits again. It is dmlvk's own operator."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dmlvk.data_type import DataType
from dmlvk.operators.byte_softmax import limits_of
from dmlvk.operators.declared import (
    EIGHT_BIT_TYPES,
    Choices,
    OperatorDesc,
    element,
    integer,
    operator,
    result,
    source,
)
from dmlvk.tensor_desc import TensorDesc

# Between two bytes that follow each other.
THRESHOLDS = 255
# Rows and columns: all coordinates are exact in binary32, and one window of memory shows them.
MOST_SIDE = 1 << 23
# With such scales, and coordinates of which those below 2^-30 count as 0, no step is denormal or infinite.
LEAST_SCALE, LARGEST_SCALE = 2.0**-40, 2.0**40
LEAST_COORDINATE = 2.0**-30


@operator("BYTE_RESAMPLE", number=18, family="windows")
class ByteResampleDesc(OperatorDesc):
    """output = the number of thresholds that a linear interpolation reaches. DirectML has no such operator.

    An element x stands for v = f32(scale * (x - zero point)). The output in row y and column x lies at the coordinates
    that `coordinate_tensor` has for this row and this column: between row i, the coordinate cut off to an integer, and
    row j behind it, and likewise between two columns. Each step rounds to binary32, nearest even:

    - A row's weights are f32(j - coordinate) for i and coordinate - i for j; in the last row j is i, and both are 1/2.
    - Four weights are products, f32(row's weight * column's weight). The sum is f32 of the products f32(weight * v),
      one after the other: (i, i), (i, j), (j, i), (j, j), the row first.
    - The output is the type's least number, plus as many as there are thresholds that the sum reaches.

    This is the linear Resize of ONNX Runtime, of bytes (thresholds at the integers) and between DequantizeLinear and
    QuantizeLinear. DirectML's RESAMPLE2 does not say how bytes are rounded, and its coordinates, a product and two
    sums, are not those of ONNX, which divides.

    Args:
        input_tensor (TensorDesc): INT8 or UINT8; {N, C, H, W}, with at most 2^23 rows and columns.
        coordinate_tensor (TensorDesc): FLOAT32 {rows + columns of the output}: a row of the input for each row of the
            output, and then a column for each column. Those below 2^-30 count as 0, those behind the last row or column
            as that one.
        threshold_tensor (TensorDesc): FLOAT32 {255}, which do not fall. They are compared by their bits, so that a NaN
            lies beyond infinity, and 0 is -0. If they fall somewhere, the output is what a bisection finds: 128
            thresholds, then 64, and so on.
        output_tensor (TensorDesc): INT8 or UINT8; {N, C, rows, columns}, of at most 2^23 each.
        input_scale (float): From 2^-40 to 2^40; FLOAT32.
        input_zero_point (int): A number of the input's type.

    >>> desc = dmlvk.ByteResampleDesc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [1, 1, 1, 2]),
    ...     coordinate_tensor=dmlvk.TensorDesc("float32", [1 + 5]),
    ...     threshold_tensor=dmlvk.TensorDesc("float32", [255]),
    ...     output_tensor=dmlvk.TensorDesc("uint8", [1, 1, 1, 5]),
    ...     input_scale=1.0,
    ...     input_zero_point=0,
    ... )
    >>> coordinates = np.float32([0, 0, 0.25, 0.5, 0.75, 1])
    >>> integers = np.arange(1, 256, dtype=np.float32)
    >>> dmlvk.reference.run(
    ...     desc, input_tensor=np.uint8([[[[10, 21]]]]), coordinate_tensor=coordinates, threshold_tensor=integers
    ... )
    array([[[[10, 12, 15, 18, 21]]]], dtype=uint8)
    """

    input_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=4)
    coordinate_tensor: TensorDesc = source(DataType.FLOAT32, rank=1)
    threshold_tensor: TensorDesc = source(DataType.FLOAT32, rank=1)
    output_tensor: TensorDesc = result(EIGHT_BIT_TYPES, rank=4)
    input_scale: Any = element(DataType.FLOAT32, kept_as="input_scale_bytes")
    input_zero_point: int = integer(-128, 255, "must be a number of the type of input_tensor")
    input_scale_bytes: bytes = field(init=False, repr=False)

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """An output of some rows and columns, a coordinate for each, and a scale and a zero point that there are."""
        tensor = fields["input_tensor"]
        rows, columns = (choose.integer(name, 1, 40) for name in ("rows", "columns"))
        type_of_output = choose.one_of("output_tensor.data_type", EIGHT_BIT_TYPES)
        return {
            "coordinate_tensor": choose.tensor("coordinate_tensor", DataType.FLOAT32, (rows + columns,)),
            "threshold_tensor": choose.tensor("threshold_tensor", DataType.FLOAT32, (THRESHOLDS,)),
            "output_tensor": choose.tensor("output_tensor", type_of_output, (*tensor.sizes[:2], rows, columns)),
            "input_scale": choose.one_of("input_scale", (1.0, 0.0437, LEAST_SCALE, LARGEST_SCALE)),
            "input_zero_point": choose.integer("input_zero_point", *limits_of(tensor.data_type)),
        }

    def check(self) -> None:
        """Check the thresholds' number and the zero point's range."""
        if self.threshold_tensor.sizes != (THRESHOLDS,):
            rule = "must have one element between each two bytes"
            self._fail("threshold_tensor.sizes", self.threshold_tensor.sizes, rule, f"({THRESHOLDS},)")
        low, high = limits_of(self.input_tensor.data_type)
        if not low <= self.input_zero_point <= high:
            rule = f"must be a number of {self.input_tensor.data_type}, from {low} to {high}"
            self._fail("input_zero_point", self.input_zero_point, rule)

    def output_sizes(self) -> tuple[int, ...]:
        """The number of coordinates does not say how many are rows."""
        self._fail_without_output("no other field says how many rows and how many columns it has")

    def check_output(self) -> None:
        """Check the sizes against each other, and the scale."""
        sizes, given = self.output_tensor.sizes, self.input_tensor.sizes
        if sizes[:2] != given[:2]:
            self._fail("output_tensor.sizes", sizes, "must have the batch and the channels of input_tensor")
        for name, tensor in (("input_tensor", self.input_tensor), ("output_tensor", self.output_tensor)):
            if max(tensor.sizes[2:]) > MOST_SIDE:
                self._fail(f"{name}.sizes", tensor.sizes, f"must have at most {MOST_SIDE} rows and columns")
        if self.coordinate_tensor.sizes != (sum(sizes[2:]),):
            rule = "must have one element for each row and each column of output_tensor"
            self._fail("coordinate_tensor.sizes", self.coordinate_tensor.sizes, rule, f"({sum(sizes[2:])},)")
        (scale,) = struct.unpack("<f", self.input_scale_bytes)
        if not LEAST_SCALE <= scale <= LARGEST_SCALE:
            self._fail("input_scale", self.input_scale, "must be from 2^-40 to 2^40")
