"""ELEMENT_WISE_QUANTIZE_LINEAR: floats become 8-bit integers with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlvk.data_type import DataType
from dmlvk.operators.declared import Choices, OperatorDesc, operator, result, same_as, scale, source, zero_point
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc

# Without a zero point that says otherwise, ONNX's QuantizeLinear makes UINT8.
QUANTIZED_TYPES = (DataType.UINT8, DataType.INT8)
RANK = same_as("input_tensor")


class ConversionDesc(OperatorDesc):
    """What the two conversions share: a scale and a zero point that each have one element, or the input's sizes."""

    input_tensor: TensorDesc

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A random scale, and a zero point if there is one."""
        sizes = fields["input_tensor"].sizes
        return {
            name: choose.tensor(
                name, fields[name].data_type, choose.one_of(f"{name}.is_per_channel", ((1,) * len(sizes), sizes))
            )
            for name in ("scale_tensor", "zero_point_tensor")
            if fields.get(name) is not None
        }

    def check(self) -> None:
        """Check the sizes of the scale and the zero point."""
        sizes, rank = self.input_tensor.sizes, self.input_tensor.rank
        for name in ("scale_tensor", "zero_point_tensor"):
            tensor: TensorDesc | None = getattr(self, name)
            if tensor is not None and tensor.element_count != 1 and tensor.sizes != sizes:
                rule = "must have one element, or the sizes of input_tensor, with strides of 0 where elements share one"
                self._fail(f"{name}.sizes", tensor.sizes, rule, f"{(1,) * rank} or {sizes}")


@operator("ELEMENT_WISE_QUANTIZE_LINEAR", number=9, family="element_wise")
class ElementWiseQuantizeLinearDesc(ConversionDesc):
    """DML_ELEMENT_WISE_QUANTIZE_LINEAR_OPERATOR_DESC: y = nearest_even(clamp(f32(x / scale), low - z, high - z)) + z.

    Halves round to even before the zero point is added; a NaN as the quotient gives the type's minimum.

    Args:
        input_tensor (TensorDesc): FLOAT32.
        scale_tensor (TensorDesc): FLOAT32, of the input's rank: one element, or the input's sizes. One scale for each
            index along an axis is a tensor of the input's sizes whose other strides are 0.
        zero_point_tensor (TensorDesc, optional): The output's data type, in the same forms as the scale. An absent
            tensor means 0.
        output_tensor (TensorDesc, optional): UINT8 or INT8, of the input's sizes. By default it has the data type of
            `zero_point_tensor`, or else UINT8, and is packed.

    Source: the page DML_ELEMENT_WISE_QUANTIZE_LINEAR_OPERATOR_DESC. DirectML wants scales and zero points of the
    input's sizes; one element is accepted here for all. It also takes FLOAT16 and INT32 inputs, whose results it does
    not define to the bit.

    >>> scalar = dmlvk.TensorDesc("float32", [1])
    >>> desc = dmlvk.ElementWiseQuantizeLinearDesc(
    ...     input_tensor=dmlvk.TensorDesc("float32", [3]),
    ...     scale_tensor=scalar,
    ...     zero_point_tensor=dmlvk.TensorDesc("uint8", [1]),
    ... )
    >>> inputs = {"input_tensor": np.float32([-1, 0.25, 9]), "scale_tensor": np.float32([0.5])}
    >>> dmlvk.reference.run(desc, **inputs, zero_point_tensor=np.uint8([10]))
    array([ 8, 10, 28], dtype=uint8)
    """

    input_tensor: TensorDesc = source(DataType.FLOAT32)
    scale_tensor: TensorDesc = scale(of="output_tensor", rank=RANK, sizes=None)
    zero_point_tensor: TensorDesc | None = zero_point(of="output_tensor", rank=RANK, sizes=None, default=None)
    output_tensor: TensorDesc = result(
        QUANTIZED_TYPES, sizes=same_as("input_tensor"), type_from=("zero_point_tensor",), default=None
    )

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """1.0 for UINT8 of rank 4, 2.1 for INT8, 3.0 for other ranks, 6.2 without a zero point."""
        return feature_level(self.output_tensor, has_zero_point=self.zero_point_tensor is not None)


def feature_level(quantized: TensorDesc, *, has_zero_point: bool) -> FeatureLevel:
    """The lowest level on which DirectML takes 8-bit tensors of such a type and rank."""
    if not has_zero_point:
        return FeatureLevel.FEATURE_LEVEL_6_2
    if quantized.rank != 4:
        return FeatureLevel.FEATURE_LEVEL_3_0
    is_unsigned = quantized.data_type is DataType.UINT8
    return FeatureLevel.FEATURE_LEVEL_1_0 if is_unsigned else FeatureLevel.FEATURE_LEVEL_2_1
