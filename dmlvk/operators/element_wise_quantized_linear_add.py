"""ELEMENT_WISE_QUANTIZED_LINEAR_ADD: the sum of two quantized tensors, quantized."""

from __future__ import annotations

from dmlvk.operators.declared import (
    EIGHT_BIT_TYPES,
    OperatorDesc,
    operator,
    result,
    same_as,
    scale,
    source,
    zero_point,
)
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc

RANK = same_as("a_tensor")


@operator("ELEMENT_WISE_QUANTIZED_LINEAR_ADD", number=8, family="element_wise")
class ElementWiseQuantizedLinearAddDesc(OperatorDesc):
    """DML_ELEMENT_WISE_QUANTIZED_LINEAR_ADD_OPERATOR_DESC: dequantize A and B, add them, quantize the sum.

    ra = f32(sa / sy), rb = f32(sb / sy), k = f32(zy - fma(ra, za, f32(rb * zb))); y is the integer nearest to
    fma(a, ra, fma(b, rb, k)), clamped to the output's type. A and B are not exchangeable: some sums that lie between
    two integers differ by 1.

    Parameters
    ----------
    a_tensor, b_tensor : TensorDesc
        INT8 or UINT8, each its own, of equal sizes; they broadcast by strides of 0.
    a_scale_tensor, b_scale_tensor, output_scale_tensor : TensorDesc
        FLOAT32, one element, of the tensors' rank.
    a_zero_point_tensor, b_zero_point_tensor, output_zero_point_tensor : TensorDesc, optional
        One element of the data type of the tensor they belong to, of the tensors' rank. An absent tensor means 0.
    output_tensor : TensorDesc, optional
        INT8 or UINT8, of the sizes of A. By default it has the data type of `output_zero_point_tensor`, or else of
        `a_tensor`, and is packed.

    Raises
    ------
    DescriptorError

    Notes
    -----
    Source: the page DML_ELEMENT_WISE_QUANTIZED_LINEAR_ADD_OPERATOR_DESC. It does not say how the sum is rounded. The
    arithmetic is that of ONNX Runtime's QLinearAdd on x86-64 with FMA, to the bit and on every device.
    """

    a_tensor: TensorDesc = source(EIGHT_BIT_TYPES)
    a_scale_tensor: TensorDesc = scale(of="a_tensor", rank=RANK)
    a_zero_point_tensor: TensorDesc | None = zero_point(of="a_tensor", rank=RANK, default=None)
    b_tensor: TensorDesc = source(EIGHT_BIT_TYPES, sizes=same_as("a_tensor"))
    b_scale_tensor: TensorDesc = scale(of="b_tensor", rank=RANK)
    b_zero_point_tensor: TensorDesc | None = zero_point(of="b_tensor", rank=RANK, default=None)
    output_scale_tensor: TensorDesc = scale(of="output_tensor", rank=RANK)
    output_zero_point_tensor: TensorDesc | None = zero_point(of="output_tensor", rank=RANK, default=None)
    output_tensor: TensorDesc = result(
        EIGHT_BIT_TYPES, sizes=same_as("a_tensor"), type_from=("output_zero_point_tensor", "a_tensor"), default=None
    )

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """4.0, in which the operator came."""
        return FeatureLevel.FEATURE_LEVEL_4_0
