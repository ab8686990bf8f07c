"""ELEMENT_WISE_DEQUANTIZE_LINEAR: 8-bit integers with a scale and a zero point become floats."""

from __future__ import annotations

from dmlvk.data_type import DataType
from dmlvk.operators.declared import operator, result, same_as, scale, source, zero_point
from dmlvk.operators.element_wise_quantize_linear import QUANTIZED_TYPES, ConversionDesc, feature_level
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc

RANK = same_as("input_tensor")


@operator("ELEMENT_WISE_DEQUANTIZE_LINEAR", number=10, family="element_wise")
class ElementWiseDequantizeLinearDesc(ConversionDesc):
    """DML_ELEMENT_WISE_DEQUANTIZE_LINEAR_OPERATOR_DESC: y = f32(f32(x - z) * scale).

    The product is rounded once, to nearest even, and keeps denormals. Every NaN has the bits 0x7FC00000.

    Args:
        input_tensor (TensorDesc): UINT8 or INT8.
        scale_tensor (TensorDesc): FLOAT32, of the input's rank: one element, or the input's sizes. One scale for each
            index along an axis is a tensor of the input's sizes whose other strides are 0.
        zero_point_tensor (TensorDesc, optional): The input's data type, in the same forms as the scale. An absent
            tensor means 0.
        output_tensor (TensorDesc, optional): FLOAT32, of the input's sizes. By default it is packed.

    Source: the page DML_ELEMENT_WISE_DEQUANTIZE_LINEAR_OPERATOR_DESC. DirectML wants scales and zero points of the
    input's sizes; one element is accepted here for all. It also takes integers of 16 and 32 bits, and FLOAT16 scales
    and outputs, whose results it does not define to the bit.

    >>> desc = dmlvk.ElementWiseDequantizeLinearDesc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [3]),
    ...     scale_tensor=dmlvk.TensorDesc("float32", [1]),
    ...     zero_point_tensor=dmlvk.TensorDesc("uint8", [1]),
    ... )
    >>> inputs = {"input_tensor": np.uint8([8, 10, 28]), "scale_tensor": np.float32([0.5])}
    >>> dmlvk.reference.run(desc, **inputs, zero_point_tensor=np.uint8([10]))
    array([-1.,  0.,  9.], dtype=float32)
    """

    input_tensor: TensorDesc = source(QUANTIZED_TYPES)
    scale_tensor: TensorDesc = scale(of="input_tensor", rank=RANK, sizes=None)
    zero_point_tensor: TensorDesc | None = zero_point(of="input_tensor", rank=RANK, sizes=None, default=None)
    output_tensor: TensorDesc = result(DataType.FLOAT32, sizes=same_as("input_tensor"), default=None)

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """1.0 for UINT8 of rank 4, 2.1 for INT8, 3.0 for other ranks, 6.2 without a zero point."""
        return feature_level(self.input_tensor, has_zero_point=self.zero_point_tensor is not None)
