"""ELEMENT_WISE_ADD: a sum of floats."""

from __future__ import annotations

from dmlvk.data_type import DataType
from dmlvk.operators.declared import OperatorDesc, operator, result, same_as, source
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc


def feature_level_of_floats(tensor: TensorDesc) -> FeatureLevel:
    """The lowest level on which DirectML's operators on each element by itself take FLOAT32 of such a rank."""
    levels = {4: FeatureLevel.FEATURE_LEVEL_1_0, 5: FeatureLevel.FEATURE_LEVEL_2_0}
    return levels.get(tensor.rank, FeatureLevel.FEATURE_LEVEL_3_0)


@operator("ELEMENT_WISE_ADD", number=15, family="element_wise")
class ElementWiseAddDesc(OperatorDesc):
    """DML_ELEMENT_WISE_ADD_OPERATOR_DESC: output = f32(a + b).

    A sum rounds once, to nearest even, and keeps denormals. What is no number has the bits of x86-64: those of B if B
    is a NaN, else those of A, made quiet; infinity less infinity is 0xFFC00000.

    Args:
        a_tensor (TensorDesc): FLOAT32, rank 1 to 8.
        b_tensor (TensorDesc): FLOAT32, with the sizes of A; either broadcasts by strides of 0.
        output_tensor (TensorDesc, optional): FLOAT32, with the sizes of A. By default it is packed.

    Source: the page DML_ELEMENT_WISE_ADD_OPERATOR_DESC. DirectML also takes FLOAT16 and integers.

    >>> row = dmlvk.TensorDesc("float32", [3])
    >>> desc = dmlvk.ElementWiseAddDesc(a_tensor=row, b_tensor=row)
    >>> dmlvk.reference.run(desc, a_tensor=np.float32([1, 2, 3]), b_tensor=np.float32([0.5, -2, 2**-30]))
    array([1.5, 0. , 3. ], dtype=float32)
    """

    a_tensor: TensorDesc = source(DataType.FLOAT32)
    b_tensor: TensorDesc = source(DataType.FLOAT32, sizes=same_as("a_tensor"))
    output_tensor: TensorDesc = result(DataType.FLOAT32, sizes=same_as("a_tensor"), default=None)

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """1.0 for rank 4, 2.0 for rank 5, 3.0 for others."""
        return feature_level_of_floats(self.output_tensor)
