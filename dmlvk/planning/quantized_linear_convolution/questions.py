"""What the paths of QUANTIZED_LINEAR_CONVOLUTION on matrix units are asked: small convolutions.

They have several tiles of pixels and of channels, none of them whole at the end, and mostly an odd number of steps of
K. They are few, because a driver compiles a third of a second for each. On large GPUs their pipelines are those of
common layers, which then find them compiled: outputs are stored in whole vectors, and K ends with a step. But where
filter zero points are matrices too, one question has them.
"""

from __future__ import annotations

from functools import partial

from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.question import Elements, Question
from dmlvk.tensor_desc import TensorDesc, TensorFlags

# The standard deviation of uniformly distributed bytes, and the one that the output should have.
SPREAD_OF_BYTES, SPREAD_OF_OUTPUT = 74.0, 50.0


def question(desc: QuantizedLinearConvolutionDesc) -> Question:
    """Random bytes, and scales with which the output uses the range of a byte."""
    _, inside, kernel, _ = desc.filter_tensor.sizes
    spread = SPREAD_OF_BYTES**2 * (inside * kernel * kernel) ** 0.5
    elements = {
        "input_tensor": Elements(0, 256),
        "input_scale_tensor": Elements.only(1, 0.02),
        "input_zero_point_tensor": Elements.only(121),
        "filter_tensor": Elements(-128, 128),
        "filter_scale_tensor": Elements(50, 200, 1e-4),
        "filter_zero_point_tensor": Elements.only(3),
        "bias_tensor": Elements(-5000, 5000),
        "output_scale_tensor": Elements.only(1, 0.02 * 0.0125 * spread / SPREAD_OF_OUTPUT),
        "output_zero_point_tensor": Elements.only(120),
    }
    return Question(desc, {field: each for field, each in elements.items() if field in desc.tensors})


def _tensor(sizes: tuple[int, ...], is_last: bool, data_type: DataType = DataType.UINT8) -> TensorDesc:
    _, channels, height, width = sizes
    strides = (height * width * channels, 1, width * channels, channels) if is_last else None
    return TensorDesc(data_type, sizes, strides)


def convolution(
    channels: int,
    filters: int,
    kernel: int,
    stride: int,
    size: tuple[int, int],
    *,
    is_last: bool,
    is_owned: bool = False,
    is_symmetric: bool = False,
) -> QuantizedLinearConvolutionDesc:
    """A convolution with zero points, and a scale and a bias for each output channel.

    is_owned: whether all but the input and the output are given once, as by most programs.
    is_symmetric: whether the filter has no zero point, as in most models.
    """
    margin = kernel // 2
    height, width = ((length + 2 * margin - kernel) // stride + 1 for length in size)
    one, per_channel = (1, 1, 1, 1), (1, filters, 1, 1)
    given = partial(TensorDesc, flags=TensorFlags.OWNED_BY_DML if is_owned else TensorFlags.NONE)
    return QuantizedLinearConvolutionDesc(
        input_tensor=_tensor((1, channels, *size), is_last),
        input_scale_tensor=given(DataType.FLOAT32, one),
        input_zero_point_tensor=given(DataType.UINT8, one),
        filter_tensor=given(DataType.INT8, (filters, channels, kernel, kernel)),
        filter_scale_tensor=given(DataType.FLOAT32, per_channel),
        filter_zero_point_tensor=None if is_symmetric else given(DataType.INT8, one),
        bias_tensor=given(DataType.INT32, per_channel),
        output_scale_tensor=given(DataType.FLOAT32, one),
        output_zero_point_tensor=given(DataType.UINT8, one),
        output_tensor=_tensor((1, filters, height, width), is_last),
        strides=(stride, stride),
        dilations=(1, 1),
        start_padding=(margin, margin),
        end_padding=(margin, margin),
        group_count=1,
    )


HALO_QUESTIONS: tuple[Question, ...] = (question(convolution(48, 200, 3, 1, (11, 19), is_last=True)),)
MATRIX_QUESTIONS: tuple[Question, ...] = (
    question(convolution(128, 144, 3, 2, (23, 17), is_last=True, is_owned=True)),
    question(convolution(64, 144, 1, 1, (24, 22), is_last=True, is_owned=True, is_symmetric=True)),
    question(convolution(256, 136, 1, 1, (12, 22), is_last=False, is_owned=True, is_symmetric=True)),
)
SPLIT_K_QUESTIONS: tuple[Question, ...] = (
    question(convolution(144, 80, 3, 2, (15, 17), is_last=True, is_owned=True, is_symmetric=True)),
    question(convolution(320, 144, 3, 2, (23, 17), is_last=False, is_owned=True, is_symmetric=True)),
)
