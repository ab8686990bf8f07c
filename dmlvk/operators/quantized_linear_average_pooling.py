"""QUANTIZED_LINEAR_AVERAGE_POOLING: the mean of each window of an 8-bit tensor that has a scale and a zero point."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.operators.declared import (
    EIGHT_BIT_TYPES,
    boolean,
    one_a_channel,
    operator,
    result,
    same_as,
    scale,
    source,
    zero_point,
)
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.operators.pooling import PoolingDesc, spatial
from dmlvk.tensor_desc import TensorDesc

PARAMETER_FIELDS = (
    "input_scale_tensor",
    "input_zero_point_tensor",
    "output_scale_tensor",
    "output_zero_point_tensor",
)
PER_CHANNEL = one_a_channel("input_tensor")


@operator("QUANTIZED_LINEAR_AVERAGE_POOLING", number=12, family="windows", feature_level=FeatureLevel.FEATURE_LEVEL_6_2)
class QuantizedLinearAveragePoolingDesc(PoolingDesc):
    """DML_QUANTIZED_LINEAR_AVERAGE_POOLING_OPERATOR_DESC: dequantize, take the mean of each window, quantize.

    The arithmetic is that of ONNX Runtime, to the bit. It has two operators, and so there are two formulas:

    - QLinearAveragePool. d = f32(sx * (x - zx)) of each tap inside the input; t, the binary32 sum of these, one after
      the other in the order of the window's rows; y = clamp(nearest_even(f32(f32(f32(t / n) / sy) + zy))). n is the
      number of taps inside the input, or of all taps with `include_padding`.
    - QLinearGlobalAveragePool: y = clamp(nearest_even(f32(f32(sum(x - zx)) * m)) + zy) with m = f32(sx / f32(sy * n)).
      A window that is the whole of all spatial dimensions, without any padding, has this formula, whatever the strides
      are. ONNX Runtime's QLinearAveragePool does the same: for such a window, its two operators agree.

    Args:
        input_tensor (TensorDesc): INT8 or UINT8; {N, C, H, W} or {N, C, D, H, W}.
        output_tensor (TensorDesc, optional): INT8 or UINT8; N and C are the input's, and each spatial size is exactly
            floor((input + start + end - (1 + (window - 1) * dilation)) / stride) + 1. By default it has the data type
            of output_zero_point_tensor, or else of input_tensor, and is packed.
        input_scale_tensor (TensorDesc): FLOAT32, one element of rank 1 to 5, or one a channel: {C}, {1, C}, {1, C, 1}
            and so on.
        output_scale_tensor (TensorDesc): FLOAT32, in the forms of `input_scale_tensor`.
        input_zero_point_tensor (TensorDesc, optional): The input's data type, in the forms of `input_scale_tensor`. An
            absent tensor means 0.
        output_zero_point_tensor (TensorDesc, optional): The output's data type, in the forms of `input_scale_tensor`.
            An absent tensor means 0.
        strides (sequence of int): How far the window moves along each spatial dimension; 1 or more.
        window_size (sequence of int): The number of taps along each spatial dimension; 1 or more.
        start_padding (sequence of int): How far the window may begin before the input, along each spatial dimension.
        end_padding (sequence of int): How far the window may end behind the input, along each spatial dimension.
        dilations (sequence of int): The distance of a window's taps along each spatial dimension; 1 for neighbours.
        include_padding (bool): Whether taps on padding count in the mean, as real zeros.

    Raises:
        DescriptorError: Also where a window has no element of the input.

    Source: the page DML_QUANTIZED_LINEAR_AVERAGE_POOLING_OPERATOR_DESC; of the arithmetic, ONNX Runtime. A scale for
    each channel and dilations have no counterpart there; here they mean what they mean for DirectML.

    >>> scalar = dmlvk.TensorDesc("float32", [1])
    >>> desc = dmlvk.QuantizedLinearAveragePoolingDesc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [1, 1, 2, 4]),
    ...     input_scale_tensor=scalar,
    ...     output_scale_tensor=scalar,
    ...     window_size=[2, 2],
    ...     strides=[2, 2],
    ...     start_padding=[0, 0],
    ...     end_padding=[0, 0],
    ...     dilations=[1, 1],
    ...     include_padding=False,
    ... )
    >>> scales = {"input_scale_tensor": np.float32([1]), "output_scale_tensor": np.float32([0.5])}
    >>> dmlvk.reference.run(desc, input_tensor=np.arange(8, dtype=np.uint8).reshape(1, 1, 2, 4), **scales)
    array([[[[5, 9]]]], dtype=uint8)
    """

    input_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=(4, 5))
    input_scale_tensor: TensorDesc = scale(of="input_tensor", rank=(1, 5), sizes=PER_CHANNEL)
    input_zero_point_tensor: TensorDesc | None = zero_point(
        of="input_tensor", rank=(1, 5), sizes=PER_CHANNEL, default=None
    )
    output_scale_tensor: TensorDesc = scale(of="output_tensor", rank=(1, 5), sizes=PER_CHANNEL)
    output_zero_point_tensor: TensorDesc | None = zero_point(
        of="output_tensor", rank=(1, 5), sizes=PER_CHANNEL, default=None
    )
    output_tensor: TensorDesc = result(
        EIGHT_BIT_TYPES,
        rank=same_as("input_tensor"),
        type_from=("output_zero_point_tensor", "input_tensor"),
        default=None,
    )
    strides: Sequence[int] = spatial(1)
    window_size: Sequence[int] = spatial(1)
    start_padding: Sequence[int] = spatial(0)
    end_padding: Sequence[int] = spatial(0)
    dilations: Sequence[int] = spatial(1)
    include_padding: bool = boolean()

    @property
    def is_global(self) -> bool:
        """Whether the formula is that of QLinearGlobalAveragePool."""
        is_whole = tuple(self.window_size) == self.input_tensor.sizes[2:]
        return is_whole and not any((*self.start_padding, *self.end_padding))

    def channel_stride(self, field: str) -> int:
        """Elements from one channel's entry to the next in a scale or zero point; 0 if all channels share one.

        Args:
            field (str): Such as "input_scale_tensor"; the tensor must be there.
        """
        tensor: TensorDesc = getattr(self, field)
        return 0 if tensor.element_count == 1 else tensor.element_strides[min(1, tensor.rank - 1)]
