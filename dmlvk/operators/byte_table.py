"""BYTE_TABLE: any function of one 8-bit number, or of two, as a table. It is dmlvk's own operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlvk.operators.declared import EIGHT_BIT_TYPES, Choices, OperatorDesc, axis, operator, result, same_as, source
from dmlvk.tensor_desc import TensorDesc

# Elements of a table: one for each byte, or for each pair of bytes.
BYTES, PAIRS = 1 << 8, 1 << 16
# The most elements of the tables of a random descriptor.
MOST_DRAWN = 1 << 21


@operator("BYTE_TABLE", number=7, family="element_wise")
class ByteTableDesc(OperatorDesc):
    """output = table[input], or table[256 * input + second input]. DirectML has no such operator.

    A byte is an index by its bits, so that -1 in INT8 is 255: the table's last element, as in NumPy. Any function of
    one or two 8-bit numbers is exact as a table.

    Args:
        input_tensor (TensorDesc): INT8 or UINT8.
        second_input_tensor (TensorDesc, optional): INT8 or UINT8, with the sizes of `input_tensor`; it broadcasts by
            strides of 0.
        table_tensor (TensorDesc): INT8 or UINT8: {256}, or {65536} with a second input. With an axis, a row of that
            length for each index along it: {n, 256} or {n, 65536}.
        output_tensor (TensorDesc, optional): The sizes of `input_tensor`, the data type of `table_tensor`. By default
            it is packed.
        axis (int, optional): The dimension of `input_tensor` along which tables change.

    >>> desc = dmlvk.ByteTableDesc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [3]), table_tensor=dmlvk.TensorDesc("uint8", [256])
    ... )
    >>> negative = np.arange(255, -1, -1, dtype=np.uint8)
    >>> dmlvk.reference.run(desc, input_tensor=np.array([0, 1, 255], dtype=np.uint8), table_tensor=negative)
    array([255, 254,   0], dtype=uint8)
    """

    input_tensor: TensorDesc = source(EIGHT_BIT_TYPES)
    second_input_tensor: TensorDesc | None = source(EIGHT_BIT_TYPES, sizes=same_as("input_tensor"), default=None)
    table_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=(1, 2))
    output_tensor: TensorDesc = result(same_as("table_tensor"), sizes=same_as("input_tensor"), default=None)
    axis: int | None = axis(of="input_tensor", default=None)

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Tables of the length and number that the inputs and the axis ask for, of at most some megabytes."""
        length = BYTES if fields.get("second_input_tensor") is None else PAIRS
        axis, sizes = fields.get("axis"), fields["input_tensor"].sizes
        if axis is not None and sizes[axis] * length > MOST_DRAWN:
            axis = None
        tables = (length,) if axis is None else (sizes[axis], length)
        return {"table_tensor": choose.tensor("table_tensor", fields["table_tensor"].data_type, tables), "axis": axis}

    def check(self) -> None:
        """Check that there is an element for each byte or pair of bytes, in a table for each index along the axis."""
        expected = self.table_sizes
        if self.table_tensor.sizes != expected:
            what = "byte" if self.second_input_tensor is None else "pair of bytes"
            where = "" if self.axis is None else f", in a row for each index along dimension {self.axis}"
            rule = f"must have one element for each {what}{where}"
            self._fail("table_tensor.sizes", self.table_tensor.sizes, rule, str(expected))

    @property
    def table_length(self) -> int:
        """Elements of a table."""
        return BYTES if self.second_input_tensor is None else PAIRS

    @property
    def table_sizes(self) -> tuple[int, ...]:
        """The sizes that `table_tensor` must have."""
        length = self.table_length
        return (length,) if self.axis is None else (self.input_tensor.sizes[self.axis], length)
