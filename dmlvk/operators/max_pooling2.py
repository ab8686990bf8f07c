"""MAX_POOLING2: the largest element of each window of a tensor of integers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dmlvk.data_type import DataType
from dmlvk.operators.declared import operator, result, same_as, source
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.operators.pooling import Five, PoolingDesc, five_strides, spatial
from dmlvk.tensor_desc import TensorDesc

INTEGER_DATA_TYPES = tuple(data_type for data_type in DataType if not data_type.is_floating_point)


@operator("MAX_POOLING2", number=11, family="windows")
class MaxPooling2Desc(PoolingDesc):
    """DML_MAX_POOLING2_OPERATOR_DESC: the largest element of each window, and its place in the input.

    Padding has no elements: it is never the largest one.

    Args:
        input_tensor (TensorDesc): Integers of 8, 16, 32 or 64 bits; {N, C, H, W} or {N, C, D, H, W}.
        output_tensor (TensorDesc, optional): Of the input's data type; N and C are the input's, and each spatial size
            is exactly floor((input + start + end - (1 + (window - 1) * dilation)) / stride) + 1. ONNX's ceil_mode is a
            larger end padding. By default it is packed.
        output_indices_tensor (TensorDesc, optional): UINT32, of the output's sizes: where in the input each output was
            found, as the index of a packed tensor of the input's sizes. Of equal elements, the one with the smallest
            index counts.
        strides (sequence of int): How far the window moves along each spatial dimension; 1 or more.
        window_size (sequence of int): The number of taps along each spatial dimension; 1 or more.
        start_padding (sequence of int): How far the window may begin before the input, along each spatial dimension.
        end_padding (sequence of int): How far the window may end behind the input, along each spatial dimension.
        dilations (sequence of int): The distance of a window's taps along each spatial dimension; 1 for neighbours.

    Raises:
        DescriptorError: Also where a window has no element of the input. ONNX Runtime refuses a padding of a window's
            size or more, for the same reason.

    Source: the page DML_MAX_POOLING2_OPERATOR_DESC. Its formula of the output's size leaves out the dilations; they are
    in the size of the window here, as in DirectML's own helper library. Floating point numbers are refused: their NaN
    and -0.0 would need rules that the page does not give.

    >>> desc = dmlvk.MaxPooling2Desc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [1, 1, 2, 4]),
    ...     window_size=[2, 2],
    ...     strides=[2, 2],
    ...     start_padding=[0, 0],
    ...     end_padding=[0, 0],
    ...     dilations=[1, 1],
    ... )
    >>> dmlvk.reference.run(desc, input_tensor=np.arange(8, dtype=np.uint8).reshape(1, 1, 2, 4))
    array([[[[5, 7]]]], dtype=uint8)
    """

    input_tensor: TensorDesc = source(INTEGER_DATA_TYPES, rank=(4, 5))
    output_tensor: TensorDesc = result(same_as("input_tensor"), rank=same_as("input_tensor"), default=None)
    output_indices_tensor: TensorDesc | None = result(
        DataType.UINT32, rank=same_as("input_tensor"), sizes=same_as("output_tensor"), default=None
    )
    strides: Sequence[int] = spatial(1)
    window_size: Sequence[int] = spatial(1)
    start_padding: Sequence[int] = spatial(0)
    end_padding: Sequence[int] = spatial(0)
    dilations: Sequence[int] = spatial(1)

    @cached_property
    def indices_strides(self) -> Five | None:
        """Element strides of the indices in the form of rank 5; None without indices."""
        return None if self.output_indices_tensor is None else five_strides(self.output_indices_tensor)

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """2.1; 3.0 for 8 bits; 5.0 for other integers."""
        if self.input_tensor.data_type.size_in_bytes == 1:
            return FeatureLevel.FEATURE_LEVEL_3_0
        return FeatureLevel.FEATURE_LEVEL_5_0
