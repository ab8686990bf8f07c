"""ACTIVATION_RELU: floats without the numbers below 0."""

from __future__ import annotations

from dmlvk.data_type import DataType
from dmlvk.operators.declared import OperatorDesc, operator, result, same_as, source
from dmlvk.operators.element_wise_add import feature_level_of_floats
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc


@operator("ACTIVATION_RELU", number=16, family="element_wise")
class ActivationReluDesc(OperatorDesc):
    """DML_ACTIVATION_RELU_OPERATOR_DESC: output = 0 where the input is below 0, else the input.

    So -0.0 and every NaN keep their bits.

    Args:
        input_tensor (TensorDesc): FLOAT32, rank 1 to 8.
        output_tensor (TensorDesc, optional): FLOAT32, with the sizes of the input. By default it is packed.

    Source: the page DML_ACTIVATION_RELU_OPERATOR_DESC. DirectML also takes FLOAT16 and signed integers.

    >>> desc = dmlvk.ActivationReluDesc(input_tensor=dmlvk.TensorDesc("float32", [3]))
    >>> dmlvk.reference.run(desc, input_tensor=np.float32([-1, 0.5, np.nan]))
    array([0. , 0.5, nan], dtype=float32)
    """

    input_tensor: TensorDesc = source(DataType.FLOAT32)
    output_tensor: TensorDesc = result(DataType.FLOAT32, sizes=same_as("input_tensor"), default=None)

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """1.0 for rank 4, 2.0 for rank 5, 3.0 for others."""
        return feature_level_of_floats(self.output_tensor)
