"""QUANTIZED_LINEAR_CONVOLUTION_ADD: a quantized convolution whose output is added to another quantized tensor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dmlvk.operators.declared import (
    EIGHT_BIT_TYPES,
    Choices,
    boolean,
    operator,
    result,
    same_as,
    scale,
    source,
    zero_point,
)
from dmlvk.operators.element_wise_quantized_linear_add import ElementWiseQuantizedLinearAddDesc
from dmlvk.operators.quantized_linear_convolution import QuantizedLinearConvolutionDesc, output_size
from dmlvk.tensor_desc import TensorDesc

# The tensors of the sum that the convolution gives, by their names in ElementWiseQuantizedLinearAddDesc without "a_".
CONVOLVED = {
    "tensor": "output_tensor",
    "scale_tensor": "output_scale_tensor",
    "zero_point_tensor": "output_zero_point_tensor",
}
ADDENDS = {name: f"addend_{name}" for name in CONVOLVED}
SUM = {
    "output_scale_tensor": "sum_scale_tensor",
    "output_zero_point_tensor": "sum_zero_point_tensor",
    "output_tensor": "output_tensor",
}


@operator("QUANTIZED_LINEAR_CONVOLUTION_ADD", number=13, family="products")
class QuantizedLinearConvolutionAddDesc(QuantizedLinearConvolutionDesc):
    """An operator of dmlvk: QUANTIZED_LINEAR_CONVOLUTION, and ELEMENT_WISE_QUANTIZED_LINEAR_ADD of its output.

    The bits are those of the two operators one after the other. The convolution's own output, which has
    `output_scale_tensor`, `output_zero_point_tensor` and the output's data type, is not stored.
    The fields of QuantizedLinearConvolutionDesc have the same meaning here; these are the further ones.

    Args:
        addend_tensor (TensorDesc): INT8 or UINT8, of the sizes of the output; it broadcasts by strides of 0.
        addend_scale_tensor (TensorDesc): FLOAT32, rank 1 to 4, one element.
        sum_scale_tensor (TensorDesc): FLOAT32, rank 1 to 4, one element: the scale of `output_tensor`.
        addend_zero_point_tensor (TensorDesc, optional): One element of the data type of `addend_tensor`. An absent
            tensor means 0.
        sum_zero_point_tensor (TensorDesc, optional): One element of the data type of `output_tensor`. An absent tensor
            means 0.
        addend_comes_first (bool): Whether the addend is A of ELEMENT_WISE_QUANTIZED_LINEAR_ADD, and the convolution's
            output B. The two are not exchangeable: some sums that lie between two integers differ by 1.

    DirectML has no such operator. In a residual network the sum takes half as long as the convolution before it, nearly
    all of which is the time to store and load what lies between them.

    >>> scalar, image = dmlvk.TensorDesc("float32", [1]), dmlvk.TensorDesc("uint8", [1, 8, 14, 14])
    >>> desc = dmlvk.QuantizedLinearConvolutionAddDesc(
    ...     input_tensor=image,
    ...     input_scale_tensor=scalar,
    ...     filter_tensor=dmlvk.TensorDesc("int8", [8, 8, 3, 3]),
    ...     filter_scale_tensor=scalar,
    ...     output_scale_tensor=scalar,
    ...     addend_tensor=image,
    ...     addend_scale_tensor=scalar,
    ...     sum_scale_tensor=scalar,
    ...     addend_comes_first=False,
    ...     strides=[1, 1],
    ...     dilations=[1, 1],
    ...     start_padding=[1, 1],
    ...     end_padding=[1, 1],
    ...     group_count=1,
    ... )
    >>> desc.output_tensor
    TensorDesc('uint8', (1, 8, 14, 14))
    """

    addend_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=same_as("input_tensor"))
    addend_scale_tensor: TensorDesc = scale("addend_tensor")
    addend_zero_point_tensor: TensorDesc | None = zero_point("addend_tensor", default=None)
    sum_scale_tensor: TensorDesc = scale("output_tensor")
    sum_zero_point_tensor: TensorDesc | None = zero_point("output_tensor", default=None)
    output_tensor: TensorDesc = result(
        EIGHT_BIT_TYPES,
        rank=same_as("input_tensor"),
        type_from=("sum_zero_point_tensor", "output_zero_point_tensor", "input_tensor"),
        default=None,
    )
    addend_comes_first: bool = boolean()

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A convolution's fields, and an addend of its output's sizes."""
        tied = super().tied(choose, fields)
        sizes, taps = tied["input_tensor"].sizes, tied["filter_tensor"].sizes
        arrays = zip(
            sizes[2:],
            taps[2:],
            *(tied[name] for name in ("strides", "dilations", "start_padding", "end_padding")),
            strict=True,
        )
        spatial = (output_size(*extents) for extents in arrays)
        addend = choose.tensor("addend_tensor", fields["addend_tensor"].data_type, (sizes[0], taps[0], *spatial))
        return {**tied, "addend_tensor": addend}

    def check_output(self) -> None:
        """Check that the output has the convolution's sizes, and the addend the output's."""
        super().check_output()
        if self.addend_tensor.sizes != self.output_tensor.sizes:
            rule = "must equal the sizes of output_tensor; an input broadcasts by strides of 0"
            self._fail("addend_tensor.sizes", self.addend_tensor.sizes, rule, str(self.output_tensor.sizes))

    @cached_property
    def sum_fields(self) -> dict[str, str]:
        """The fields of `sum`, each with the field here that it is."""
        first, second = (ADDENDS, CONVOLVED) if self.addend_comes_first else (CONVOLVED, ADDENDS)
        operands = {
            f"{letter}_{name}": field for letter, of in (("a", first), ("b", second)) for name, field in of.items()
        }
        return {name: field for name, field in {**operands, **SUM}.items() if getattr(self, field) is not None}

    @cached_property
    def sum(self) -> ElementWiseQuantizedLinearAddDesc:
        """The sum, whose scales and zero points have the rank of its tensors."""
        one = (1,) * self.output_tensor.rank
        tensors = {name: getattr(self, field) for name, field in self.sum_fields.items()}
        return ElementWiseQuantizedLinearAddDesc(
            **{
                name: tensor
                if name in ("a_tensor", "b_tensor", "output_tensor")
                else TensorDesc(tensor.data_type, one, flags=tensor.flags)
                for name, tensor in tensors.items()
            }
        )

    @property
    def minimum_feature_level(self) -> None:
        """DirectML has no such operator."""
        return None
