"""QUANTIZED_LINEAR_CONVOLUTION_TABLE: a quantized convolution whose output goes through a table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dmlvk.operators.byte_table import BYTES, ByteTableDesc
from dmlvk.operators.declared import EIGHT_BIT_TYPES, Choices, operator, result, same_as, source
from dmlvk.operators.quantized_linear_convolution import QuantizedLinearConvolutionDesc
from dmlvk.tensor_desc import TensorDesc


@operator("QUANTIZED_LINEAR_CONVOLUTION_TABLE", number=20, family="products")
class QuantizedLinearConvolutionTableDesc(QuantizedLinearConvolutionDesc):
    """An operator of dmlvk: QUANTIZED_LINEAR_CONVOLUTION, and BYTE_TABLE of its output.

    The bits are those of the two operators one after the other. The convolution's own output, which has
    `output_scale_tensor`, `output_zero_point_tensor` and the output's data type, is not stored.
    The fields of QuantizedLinearConvolutionDesc have the same meaning here; this is the further one.

    Args:
        table_tensor (TensorDesc): {256}, of the data type of `output_tensor`: the output for each byte that the
            convolution may give, by its bits.

    DirectML has no such operator. Any activation of quantized numbers is such a table, and so is another quantization:
    most convolutions of EfficientNet, MobileNetV3 and YOLO have one behind them.

    >>> scalar = dmlvk.TensorDesc("float32", [1])
    >>> desc = dmlvk.QuantizedLinearConvolutionTableDesc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [1, 8, 14, 14]),
    ...     input_scale_tensor=scalar,
    ...     filter_tensor=dmlvk.TensorDesc("int8", [16, 8, 1, 1]),
    ...     filter_scale_tensor=scalar,
    ...     output_scale_tensor=scalar,
    ...     table_tensor=dmlvk.TensorDesc("uint8", [256]),
    ...     strides=[1, 1],
    ...     dilations=[1, 1],
    ...     start_padding=[0, 0],
    ...     end_padding=[0, 0],
    ...     group_count=1,
    ... )
    >>> desc.output_tensor
    TensorDesc('uint8', (1, 16, 14, 14))
    """

    table_tensor: TensorDesc = source(same_as("output_tensor"), rank=(1, 1))
    output_tensor: TensorDesc = result(
        EIGHT_BIT_TYPES,
        rank=same_as("input_tensor"),
        type_from=("output_zero_point_tensor", "table_tensor"),
        default=None,
    )

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A convolution's fields, and a table of its length."""
        table = choose.tensor("table_tensor", fields["table_tensor"].data_type, (BYTES,))
        return {**super().tied(choose, fields), "table_tensor": table}

    def check(self) -> None:
        """Check the convolution, and that the table has an element for each byte."""
        super().check()
        if self.table_tensor.sizes != (BYTES,):
            self._fail(
                "table_tensor.sizes", self.table_tensor.sizes, "must have one element for each byte", f"{(BYTES,)}"
            )

    @cached_property
    def lookup(self) -> ByteTableDesc:
        """The table alone."""
        return ByteTableDesc(
            input_tensor=self.output_tensor, table_tensor=self.table_tensor, output_tensor=self.output_tensor
        )

    @property
    def minimum_feature_level(self) -> None:
        """DirectML has no such operator."""
        return None
