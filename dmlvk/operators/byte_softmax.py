"""BYTE_SOFTMAX: the shares of 8-bit numbers in the sum of their exponentials, in 8 bits. It is dmlvk's own operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlvk.data_type import DataType
from dmlvk.operators.byte_table import BYTES
from dmlvk.operators.declared import EIGHT_BIT_TYPES, Choices, OperatorDesc, integer, operator, result, same_as, source
from dmlvk.tensor_desc import TensorDesc

# Such a number of steps is exact in binary32, and with it are all products and quotients in binary64.
MOST_STEPS = 1 << 24


def limits_of(data_type: DataType) -> tuple[int, int]:
    """The least and the largest number of an 8-bit type."""
    return (0, 255) if data_type is DataType.UINT8 else (-128, 127)


@operator("BYTE_SOFTMAX", number=17, family="windows")
class ByteSoftmaxDesc(OperatorDesc):
    """output = clamp(nearest_even(term * steps / sum of the row's terms) + zero point). DirectML has no such operator.

    A row is what lies along the last dimension. The term of a number is table[255 - (the row's largest number - it)];
    what is negative or no number in the table counts as 0. The terms are added in binary32 from 0 on, one after the
    other, and each addition rounds to nearest even. The quotient is exact before it is rounded, and halves round to
    even; it is 0 if the sum is 0 or infinite. This is QLinearSoftmax of ONNX Runtime, whose table has exponentials.

    Args:
        input_tensor (TensorDesc): INT8 or UINT8, of 3 dimensions.
        table_tensor (TensorDesc): FLOAT32 {256}.
        output_tensor (TensorDesc, optional): Has the data type and the sizes of the input. By default it is packed.
        output_steps (int): 1 to 2^24: as many steps of the output are 1.
        output_zero_point (int): A number of the input's type.

    >>> desc = dmlvk.ByteSoftmaxDesc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [1, 1, 3]),
    ...     table_tensor=dmlvk.TensorDesc("float32", [256]),
    ...     output_steps=256,
    ...     output_zero_point=0,
    ... )
    >>> table = np.exp((np.arange(256) - 255) / 4).astype(np.float32)
    >>> dmlvk.reference.run(desc, input_tensor=np.uint8([[[7, 3, 5]]]), table_tensor=table)
    array([[[130,  48,  79]]], dtype=uint8)
    """

    input_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=3)
    table_tensor: TensorDesc = source(DataType.FLOAT32, rank=1)
    output_tensor: TensorDesc = result(same_as("input_tensor"), sizes=same_as("input_tensor"), default=None)
    output_steps: int = integer(1, MOST_STEPS, "must be from 1 to 2^24")
    output_zero_point: int = integer(-128, 255, "must be a number of the type of input_tensor")

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A table of 256 numbers, as many steps as a byte has or any number, and a zero point of the type."""
        low, high = limits_of(fields["input_tensor"].data_type)
        return {
            "table_tensor": choose.tensor("table_tensor", DataType.FLOAT32, (BYTES,)),
            "output_steps": choose.one_of("output_steps", (BYTES, 127, choose.integer("many", 1, MOST_STEPS))),
            "output_zero_point": choose.integer("output_zero_point", low, high),
        }

    def check(self) -> None:
        """Check that there is an element for each distance from the largest number, and the zero point's range."""
        if self.table_tensor.sizes != (BYTES,):
            self._fail("table_tensor.sizes", self.table_tensor.sizes, "must have one element for each byte", "(256,)")
        low, high = limits_of(self.input_tensor.data_type)
        if not low <= self.output_zero_point <= high:
            rule = f"must be a number of {self.input_tensor.data_type}, from {low} to {high}"
            self._fail("output_zero_point", self.output_zero_point, rule)
