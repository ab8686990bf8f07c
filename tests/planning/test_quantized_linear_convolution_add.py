"""Plans of QUANTIZED_LINEAR_CONVOLUTION_ADD."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk import DataType, TensorDesc, TensorFlags
from dmlvk.operators import QuantizedLinearConvolutionAddDesc
from dmlvk.planning import close_paths, plan
from tests import profiles

SEGMENT = 1 << 18


def example(
    data: TensorDesc,
    filter_sizes: tuple[int, ...],
    padding: tuple[int, int],
    output: TensorDesc | None = None,
    flags: TensorFlags = TensorFlags.NONE,
) -> QuantizedLinearConvolutionAddDesc:
    """flags: of what are no data."""
    output = output or data
    one = TensorDesc(DataType.FLOAT32, (1,), flags=flags)
    return QuantizedLinearConvolutionAddDesc(
        input_tensor=data,
        filter_tensor=TensorDesc(DataType.INT8, filter_sizes, flags=flags),
        addend_tensor=output,
        output_tensor=output,
        **{f"{name}_scale_tensor": one for name in ("input", "filter", "output", "addend", "sum")},
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=padding,
        end_padding=padding,
        group_count=1,
        addend_comes_first=False,
    )


@pytest.mark.parametrize("path", ["matrix", "split_k", "vectors"])
def test_both_orders_of_a_sum_share_pipelines(path: str) -> None:
    profile = profiles.load("nvidia-h200")
    desc = example(TensorDesc(DataType.INT8, (1, 64, 28, 28)), (64, 64, 1, 1), (0, 0))
    first, second = (
        plan(replace(desc, addend_comes_first=comes_first), profile, path=path).dispatches
        for comes_first in (False, True)
    )
    assert [each.specialization for each in first] == [each.specialization for each in second]
    assert [each.push_constants for each in first] != [each.push_constants for each in second]


def test_a_measurement_takes_tiles_of_sums_too() -> None:
    profile = profiles.load("nvidia-h200")
    desc = example(TensorDesc(DataType.INT8, (1, 64, 28, 28)), (64, 64, 1, 1), (0, 0))
    found = close_paths(desc, profile)
    assert found[0] == plan(desc, profile).path
    assert any(":" in path for path in found)
    assert [plan(desc, profile, path=path).path for path in found] == found


@pytest.mark.parametrize(("channels", "gives_way"), [(64, True), (128, True), (192, False)])
def test_a_large_tile_gives_way_to_addends_where_steps_are_few(channels: int, gives_way: bool) -> None:
    profile = profiles.load("nvidia-h200")
    data, output = (
        TensorDesc(DataType.INT8, (8, count, 56, 56), (count * 56 * 56, 1, count * 56, count))
        for count in (channels, 256)
    )
    desc = example(data, (256, channels, 1, 1), (0, 0), output, TensorFlags.OWNED_BY_DML)
    convolution, whole = plan(desc.convolution, profile), plan(desc, profile)
    assert convolution.path == whole.path == "matrix"
    tiles = [each.dispatches[0].specialization[10:12] for each in (convolution, whole)]
    assert tiles[0] == (128, 128)
    assert (tiles[1] != tiles[0]) == gives_way


@pytest.mark.parametrize(("channels", "path"), [(96, "integer"), (112, "integer"), (120, "integer"), (176, "direct")])
def test_no_window_lies_across_two_segments(channels: int, path: str) -> None:
    """Not that of the table either, which stands in scratch memory behind what the convolution needs."""
    device = profiles.load("nvidia-h200")
    limits = replace(device.limits, max_memory_allocation_size=SEGMENT, max_buffer_size=SEGMENT)
    profile = replace(device, limits=limits)
    desc = example(TensorDesc(DataType.INT8, (1, channels, 40, 40)), (channels, channels, 1, 3), (0, 1))
    dispatches = plan(desc, profile, path=path).dispatches
    # Where a single tap of all channels is too much, the channels are cut, not the rows to pieces of a few outputs.
    assert len(dispatches) < 3000
    for dispatch in dispatches:
        for window in dispatch.windows:
            last = window.offset + window.size - 1
            assert window.offset // profile.segment_size == last // profile.segment_size, window
