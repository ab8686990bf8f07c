"""Plans of QUANTIZED_LINEAR_CONVOLUTION_ADD."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk import DataType, TensorDesc
from dmlvk.operators import QuantizedLinearConvolutionAddDesc
from dmlvk.planning import plan
from tests import profiles

SEGMENT = 1 << 18


@pytest.mark.parametrize(("channels", "path"), [(96, "integer"), (112, "integer"), (120, "integer"), (176, "direct")])
def test_no_window_lies_across_two_segments(channels: int, path: str) -> None:
    """Not that of the table either, which stands in scratch memory behind what the convolution needs."""
    device = profiles.load("nvidia-h200")
    limits = replace(device.limits, max_memory_allocation_size=SEGMENT, max_buffer_size=SEGMENT)
    profile = replace(device, limits=limits)
    one, data = TensorDesc(DataType.FLOAT32, (1,)), TensorDesc(DataType.INT8, (1, channels, 40, 40))
    desc = QuantizedLinearConvolutionAddDesc(
        input_tensor=data,
        filter_tensor=TensorDesc(DataType.INT8, (channels, channels, 1, 3)),
        addend_tensor=data,
        output_tensor=data,
        **{f"{name}_scale_tensor": one for name in ("input", "filter", "output", "addend", "sum")},
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 1),
        end_padding=(0, 1),
        group_count=1,
        addend_comes_first=False,
    )
    for dispatch in plan(desc, profile, path=path).dispatches:
        for window in dispatch.windows:
            last = window.offset + window.size - 1
            assert window.offset // profile.segment_size == last // profile.segment_size, window
