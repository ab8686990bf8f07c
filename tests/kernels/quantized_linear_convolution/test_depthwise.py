"""The path `depthwise` against the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, TensorDesc
from tests.kernels.quantized_linear_convolution.arrays import describe, last, special_case
from tests.kernels.quantized_linear_convolution.paths import run


@pytest.mark.parametrize(
    ("channels", "multiplier", "is_last", "gap", "attributes"),
    [
        (12, 1, True, 0, {"kernel": (3, 3), "start_padding": (1, 1), "end_padding": (1, 1)}),
        (7, 1, True, 1, {"kernel": (2, 5), "strides": (2, 1), "dilations": (2, 1), "start_padding": (0, 3)}),
        (5, 1, False, 0, {"kernel": (3, 3), "start_padding": (1, 1), "end_padding": (1, 1)}),
        (3, 2, False, 3, {"kernel": (3, 4), "strides": (1, 2), "dilations": (1, 2), "start_padding": (2, 5)}),
    ],
)
def test_depthwise_by_words(
    device: dmlvk.Device,
    gpu_device: dmlvk.Device,
    channels: int,
    multiplier: int,
    is_last: bool,
    gap: int,
    attributes: dict[str, Any],
) -> None:
    """Channels or columns in words, with partial words, rows that begin anywhere, and borders on all sides."""
    # With the plan for a CPU, and with the plan for a GPU, which has larger batches of rows.
    for seed, x_type, planned_for in ((channels, "u8", device), (channels + 1, "s8", gpu_device)):
        arrays, others = special_case(seed, x_type, channels, channels, channels * multiplier, (19, 13), **attributes)
        desc = describe(arrays, np.int8, others)
        sizes, output_sizes = desc.input_tensor.sizes, desc.output_tensor.sizes
        width = sizes[3] + gap
        strides = last(sizes, gap) if is_last else [channels * 19 * width, 19 * width, width, 1]
        desc = replace(
            desc,
            input_tensor=TensorDesc(desc.input_tensor.data_type, sizes, strides),
            output_tensor=TensorDesc(DataType.INT8, output_sizes, last(output_sizes) if is_last else None),
        )
        run(planned_for, desc, arrays, dmlvk.reference.run(desc, **arrays), "depthwise", seed)
