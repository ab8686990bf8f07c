"""BYTE_TABLE_MEAN: the mean of a function of 8-bit numbers over a plane, in floats. It is dmlvk's own operator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dmlvk.data_type import DataType
from dmlvk.operators.byte_table import BYTES
from dmlvk.operators.declared import EIGHT_BIT_TYPES, Choices, OperatorDesc, integer, operator, result, same_as, source
from dmlvk.operators.pooling import PoolingGeometry, five_strides
from dmlvk.tensor_desc import TensorDesc

# The numbers of sums that are made side by side.
LANE_COUNTS = (1, 4, 8)
# With 8 sums, the first elements of planes that these divide have places of their own.
ALIGNMENT = 4


@operator("BYTE_TABLE_MEAN", number=14, family="windows")
class ByteTableMeanDesc(OperatorDesc):
    """output = sum(table[input]) / n over the n elements of a plane, in binary32. DirectML has no such operator.

    A sum of floats depends on the order. Each of these orders is that of an operator of ONNX Runtime on x86-64, so that
    the mean has its bits. All sums begin at 0, and each addition and the division round to nearest even.

    - 1 lane: the elements are added one after the other. This is ReduceMean over the first dimensions of a tensor.
    - 4 lanes: element i is added to sum i % 4, as far as groups of 4 are whole; these sums are added as
      (0 + 2) + (1 + 3), and then the rest is added one after the other. This is GlobalAveragePool.
    - 8 lanes: planes are taken to lie one after the other in memory that begins at a multiple of 4 elements. The first
      elements of plane p, up to a multiple of 4, wait: (-p * n) % 4 of them. Of the others, groups of 8 are added to 8
      sums; sum i + 4 is added to sum i; if 4 elements or more are left, the first 4 of these are added to the 4 sums.
      The sums are added as (0 + 2) + (1 + 3), then those that waited one after the other, then the rest. This is
      ReduceMean over the last dimensions of a tensor.

    Args:
        input_tensor (TensorDesc): INT8 or UINT8; {N, C, H, W} or {N, C, D, H, W}. A plane has the elements of all but
            the first two dimensions, in the order of these dimensions, whatever the strides are.
        table_tensor (TensorDesc): FLOAT32 {256}. A byte is an index by its bits, so that -1 in INT8 is 255.
        output_tensor (TensorDesc, optional): FLOAT32, with N and C of the input and 1 elsewhere. By default it is
            packed. What is no number is 0x7FC00000.
        lane_count (int): 1, 4 or 8.

    >>> desc = dmlvk.ByteTableMeanDesc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [1, 1, 2, 2]),
    ...     table_tensor=dmlvk.TensorDesc("float32", [256]),
    ...     lane_count=4,
    ... )
    >>> values = np.arange(256, dtype=np.float32) / 2
    >>> dmlvk.reference.run(desc, input_tensor=np.uint8([[[[1, 2], [3, 5]]]]), table_tensor=values)
    array([[[[1.375]]]], dtype=float32)
    """

    input_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=(4, 5))
    table_tensor: TensorDesc = source(DataType.FLOAT32, rank=1)
    output_tensor: TensorDesc = result(DataType.FLOAT32, rank=same_as("input_tensor"), default=None)
    lane_count: int = integer(1, LANE_COUNTS[-1], "must be 1, 4 or 8")

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A table of 256 numbers, and an order that there is."""
        table = choose.tensor("table_tensor", DataType.FLOAT32, (BYTES,))
        return {"table_tensor": table, "lane_count": choose.one_of("lane_count", LANE_COUNTS)}

    def check(self) -> None:
        """Check that there is an element for each byte, and that the order is one of those."""
        if self.table_tensor.sizes != (BYTES,):
            self._fail("table_tensor.sizes", self.table_tensor.sizes, "must have one element for each byte", "(256,)")
        if self.lane_count not in LANE_COUNTS:
            self._fail("lane_count", self.lane_count, "must be 1, 4 or 8")

    def output_sizes(self) -> tuple[int, ...]:
        """An element for each plane."""
        return (*self.input_tensor.sizes[:2], *(1,) * (self.input_tensor.rank - 2))

    def check_output(self) -> None:
        """Check that the output has an element for each plane."""
        if self.output_tensor.sizes != self.output_sizes():
            rule = "must be the batch and the channels of input_tensor, and 1 in each other dimension"
            self._fail("output_tensor.sizes", self.output_tensor.sizes, rule, str(self.output_sizes()))

    @cached_property
    def geometry(self) -> PoolingGeometry:
        """Planes as windows that are the whole of all spatial dimensions."""
        sizes = self.input_tensor.sizes
        depth, height, width = (1, *sizes[2:]) if len(sizes) == 4 else sizes[2:]
        return PoolingGeometry(
            batch=sizes[0],
            channels=sizes[1],
            input_size=(depth, height, width),
            output_size=(1, 1, 1),
            window=(depth, height, width),
            strides=(1, 1, 1),
            dilations=(1, 1, 1),
            start_padding=(0, 0, 0),
            input_strides=five_strides(self.input_tensor),
            output_strides=five_strides(self.output_tensor),
        )
