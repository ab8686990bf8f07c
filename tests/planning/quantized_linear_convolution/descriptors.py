"""Convolutions that planning is tested with, and the number of outputs that a plan writes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import output_size
from dmlvk.planning.plan import Plan
from dmlvk.tensor_desc import TensorDesc, TensorFlags

OWNED = TensorFlags.OWNED_BY_DML


def convolution(
    batch: int,
    channels: int,
    size: tuple[int, int],
    filters: int,
    kernel: tuple[int, int],
    *,
    groups: int = 1,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    input_strides: Sequence[int] | None = None,
    output_strides: Sequence[int] | None = None,
    filter_strides: Sequence[int] | None = None,
    bias_stride: int = 1,
    flags: TensorFlags = TensorFlags.NONE,
    everything_owned: bool = False,
) -> QuantizedLinearConvolutionDesc:
    """A convolution with all ten tensors. Input and output are UINT8, the filter is INT8."""
    output = [output_size(size[k], kernel[k], strides[k], dilations[k], padding[k], padding[k]) for k in range(2)]
    parameter_flags = OWNED if everything_owned else TensorFlags.NONE
    filter_flags = OWNED if everything_owned else flags

    def parameter(data_type: DataType, count: int = 1, stride: int = 1) -> TensorDesc:
        return TensorDesc(data_type, [1, count, 1, 1], [0, stride, 0, 0], flags=parameter_flags)

    return QuantizedLinearConvolutionDesc(
        input_tensor=TensorDesc(DataType.UINT8, [batch, channels, *size], input_strides, flags=parameter_flags),
        input_scale_tensor=parameter(DataType.FLOAT32),
        input_zero_point_tensor=parameter(DataType.UINT8),
        filter_tensor=TensorDesc(
            DataType.INT8, [filters, channels // groups, *kernel], filter_strides, flags=filter_flags
        ),
        filter_scale_tensor=parameter(DataType.FLOAT32, filters),
        filter_zero_point_tensor=parameter(DataType.INT8, filters),
        bias_tensor=parameter(DataType.INT32, filters, bias_stride),
        output_scale_tensor=parameter(DataType.FLOAT32),
        output_zero_point_tensor=parameter(DataType.UINT8),
        output_tensor=TensorDesc(DataType.UINT8, [batch, filters, *output], output_strides),
        strides=strides,
        dilations=dilations,
        start_padding=padding,
        end_padding=padding,
        group_count=groups,
    )


DESCRIPTORS = {
    "one of everything": convolution(1, 1, (1, 1), 1, (1, 1)),
    "odd": convolution(3, 13, (9, 7), 17, (3, 2), strides=(2, 1), dilations=(1, 2), padding=(2, 1)),
    "ResNet, 256 channels": convolution(64, 256, (14, 14), 256, (3, 3), padding=(1, 1)),
    "ResNet, 512 channels": convolution(64, 512, (28, 28), 512, (3, 3), padding=(1, 1)),
    "first layer": convolution(64, 3, (224, 224), 64, (7, 7), strides=(2, 2), padding=(3, 3)),
    "filter owned": convolution(64, 64, (56, 56), 64, (3, 3), padding=(1, 1), flags=OWNED),
    "all owned": convolution(4, 32, (28, 28), 48, (3, 3), everything_owned=True),
    "all owned, depthwise": convolution(4, 33, (28, 28), 33, (3, 3), groups=33, everything_owned=True),
    "depthwise": convolution(64, 144, (56, 56), 144, (3, 3), groups=144, padding=(1, 1)),
    "ResNeXt": convolution(8, 256, (28, 28), 256, (3, 3), groups=32, padding=(1, 1)),
    "NHWC": convolution(
        8,
        64,
        (28, 28),
        80,
        (3, 3),
        input_strides=(28 * 28 * 64, 1, 28 * 64, 64),
        output_strides=(26 * 26 * 80, 1, 26 * 80, 80),
        filter_strides=(9 * 64, 1, 3 * 64, 64),
    ),
    "broadcast input": convolution(64, 64, (112, 112), 32, (3, 3), input_strides=(0, 0, 0, 1)),
    "planes of 64 MiB": convolution(1, 6, (8192, 8192), 5, (3, 3), padding=(1, 1)),
    "tensors past 2 GiB": convolution(1, 70, (5600, 5600), 70, (2, 1), groups=70),
    "channels 1 GiB apart": convolution(
        1,
        3,
        (4, 4),
        4,
        (3, 3),
        input_strides=(0, 1 << 30, 4, 1),
        output_strides=(0, 1 << 30, 2, 1),
        bias_stride=1 << 28,
    ),
    "filter of 1 GiB": convolution(1, 1 << 14, (2, 2), 1 << 14, (2, 2)),
    "filter rows 1 GiB apart": convolution(1, 4, (5, 5), 3, (3, 3), filter_strides=(36, 9, 1 << 30, 1)),
    "more taps than 32 bits": convolution(2, 1 << 18, (2, 2), 3, (2, 2)),
    "longest row of taps": convolution(1, 1, (1, 1 << 20), 2, (1, 1 << 20)),
    "taps 2 GiB apart": convolution(1, 3, (3, 3), 2, (3, 3), input_strides=(0, 3, (1 << 31) - 1, 1)),
    "huge padding": convolution(1, 2, (3, 3), 2, (3, 3), padding=(2000, 3000)),
    "huge dilation": convolution(1, 64, (5001, 5001), 8, (2, 2), dilations=(5000, 5000)),
    "many channels": convolution(1, 4, (1, 1), 3_000_000, (1, 1)),
    "many groups": convolution(1, 200_000, (2, 2), 400_000, (1, 1), groups=100_000),
}

# For tests with the mark `quarter_by_day`: what is cut into thousands of dispatches meets fewer devices by day.
NAMES = [
    pytest.param(name, marks=pytest.mark.sixteenth_by_day)
    if name in ("filter of 1 GiB", "tensors past 2 GiB", "planes of 64 MiB")
    else name
    for name in DESCRIPTORS
]


def written_elements(plan_: Plan, desc: QuantizedLinearConvolutionDesc) -> int:
    """Number of outputs, from the operations of the dispatches. Every output takes the same number of operations."""
    taps = math.prod(desc.filter_tensor.sizes[1:])
    return sum(dispatch.operations for dispatch in plan_.dispatches) // (2 * taps)
