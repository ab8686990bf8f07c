"""ELEMENT_WISE_QUANTIZED_LINEAR_ADD: the sum of two quantized tensors, quantized."""

from __future__ import annotations

from dmlvk.operators.declared import EIGHT_BIT_TYPES, OperatorDesc, operator, result, same_as, scale, source, zero_point
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc

RANK = same_as("a_tensor")


@operator(
    "ELEMENT_WISE_QUANTIZED_LINEAR_ADD", number=8, family="element_wise", feature_level=FeatureLevel.FEATURE_LEVEL_4_0
)
class ElementWiseQuantizedLinearAddDesc(OperatorDesc):
    """DML_ELEMENT_WISE_QUANTIZED_LINEAR_ADD_OPERATOR_DESC: dequantize A and B, add them, quantize the sum.

    ra = f32(sa / sy), rb = f32(sb / sy), k = f32(zy - fma(ra, za, f32(rb * zb))); y is the integer nearest to
    fma(a, ra, fma(b, rb, k)), clamped to the output's type. A and B are not exchangeable: some sums that lie between
    two integers differ by 1.

    Args:
        a_tensor (TensorDesc): INT8 or UINT8; it broadcasts by strides of 0.
        b_tensor (TensorDesc): INT8 or UINT8, of the sizes of A; it broadcasts by strides of 0.
        a_scale_tensor (TensorDesc): FLOAT32, one element, of the rank of A.
        b_scale_tensor (TensorDesc): FLOAT32, one element, of the rank of B.
        output_scale_tensor (TensorDesc): FLOAT32, one element, of the output's rank.
        a_zero_point_tensor (TensorDesc, optional): One element of the data type and rank of A. An absent tensor means
            0.
        b_zero_point_tensor (TensorDesc, optional): One element of the data type and rank of B. An absent tensor means
            0.
        output_zero_point_tensor (TensorDesc, optional): One element of the output's data type and rank. An absent
            tensor means 0.
        output_tensor (TensorDesc, optional): INT8 or UINT8, of the sizes of A. By default it has the data type of
            `output_zero_point_tensor`, or else of `a_tensor`, and is packed.

    Source: the page DML_ELEMENT_WISE_QUANTIZED_LINEAR_ADD_OPERATOR_DESC. It does not say how the sum is rounded. The
    arithmetic is that of ONNX Runtime's QLinearAdd on x86-64 with FMA, to the bit and on every device.

    >>> scalar, vector = dmlvk.TensorDesc("float32", [1]), dmlvk.TensorDesc("uint8", [3])
    >>> desc = dmlvk.ElementWiseQuantizedLinearAddDesc(
    ...     a_tensor=vector, b_tensor=vector, a_scale_tensor=scalar, b_scale_tensor=scalar, output_scale_tensor=scalar
    ... )
    >>> scales = {"a_scale_tensor": np.float32([1]), "b_scale_tensor": np.float32([2])}
    >>> a, b = np.uint8([0, 10, 200]), np.uint8([1, 5, 200])
    >>> dmlvk.reference.run(desc, a_tensor=a, b_tensor=b, output_scale_tensor=np.float32([2]), **scales)
    array([  1,  10, 255], dtype=uint8)
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
