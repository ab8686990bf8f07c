"""Plans of pooling operators on recorded devices: they keep to every limit, and take the path that suits the layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmlvk import DataType, MaxPooling2Desc, QuantizedLinearAveragePoolingDesc, TensorDesc
from dmlvk.operators import OperatorDesc
from dmlvk.planning import PathError, plan
from dmlvk.planning.plan import SCRATCH
from tests import profiles
from tests.amount import THOROUGH
from tests.planning.limits import check_plan

EIGHT_BITS = (DataType.INT8, DataType.UINT8)


def fields(window: list[int], stride: int, padding: int, dilation: int = 1) -> dict[str, Any]:
    count = len(window)
    return {
        "window_size": window,
        "strides": [stride] * count,
        "start_padding": [padding] * count,
        "end_padding": [padding] * count,
        "dilations": [dilation] * count,
    }


def last(sizes: list[int]) -> list[int]:
    """Strides of channels last."""
    strides, step = [0] * len(sizes), 1
    for dimension in (1, *range(len(sizes) - 1, 1, -1), 0):
        strides[dimension] = step
        step *= sizes[dimension]
    return strides


def max_pooling(
    data_type: DataType, sizes: list[int], *, is_last: bool = False, has_indices: bool = False, **spatial: Any
) -> MaxPooling2Desc:
    pooled = list(MaxPooling2Desc(input_tensor=TensorDesc(data_type, sizes), **spatial).output_tensor.sizes)
    return MaxPooling2Desc(
        input_tensor=TensorDesc(data_type, sizes, last(sizes) if is_last else None),
        output_tensor=TensorDesc(data_type, pooled, last(pooled) if is_last else None),
        output_indices_tensor=TensorDesc(DataType.UINT32, pooled) if has_indices else None,
        **spatial,
    )


def average_pooling(
    sizes: list[int], *, is_last: bool = False, channels: int = 1, include_padding: bool = False, **spatial: Any
) -> QuantizedLinearAveragePoolingDesc:
    parameters = {
        f"{name}_{kind}_tensor": TensorDesc(data_type, (1, channels, 1, 1))
        for name in ("input", "output")
        for kind, data_type in (("scale", DataType.FLOAT32), ("zero_point", DataType.UINT8))
    }
    common: dict[str, Any] = {**parameters, **spatial, "include_padding": include_padding}
    source = TensorDesc(DataType.UINT8, sizes, last(sizes) if is_last else None)
    pooled = list(QuantizedLinearAveragePoolingDesc(input_tensor=source, **common).output_tensor.sizes)
    output = TensorDesc(DataType.UINT8, pooled, last(pooled) if is_last else None)
    return QuantizedLinearAveragePoolingDesc(input_tensor=source, output_tensor=output, **common)


# The most windows that do not fit one storage buffer are those that lie across two segments of memory.
DESCRIPTORS: dict[str, OperatorDesc] = {
    "bytes": max_pooling(DataType.UINT8, [2, 3, 9, 7], **fields([3, 3], 2, 1)),
    "volumes of 64 bits": max_pooling(DataType.INT64, [1, 3, 5, 9, 7], has_indices=True, **fields([2, 3, 3], 2, 1)),
    "5 GiB": max_pooling(DataType.UINT64, [10, 64, 1 << 10, 1 << 10], **fields([3, 3], 2, 1)),
    "1 GB of bytes, channels last": max_pooling(
        DataType.INT8, [15, 64, 1 << 10, 1 << 10], is_last=True, has_indices=True, **fields([3, 3], 2, 1)
    ),
    "rows of 256 MB": max_pooling(DataType.UINT8, [1, 1, 3, 1 << 28], **fields([3, 3], 2, 1)),
    "a window of 8 million": max_pooling(DataType.INT16, [1, 1, 1 << 11, 1 << 12], **fields([1 << 11, 1 << 12], 1, 0)),
    "a dilation of 300 million": max_pooling(
        DataType.UINT8, [1, 1, 1, 1 << 30], window_size=[1, 3], strides=[1, 1 << 20], start_padding=[0, 0],
        end_padding=[0, 0], dilations=[1, 300_000_000],
    ),
    "padding of 3 billion": max_pooling(
        DataType.UINT8, [1, 1, 1, 5], window_size=[1, 3_000_000_005], strides=[1, 3], start_padding=[0, 3_000_000_000],
        end_padding=[0, 7], dilations=[1, 1],
    ),
    "a stride of 2 billion": max_pooling(
        DataType.UINT8, [1, 1, 1, 3 << 30], window_size=[1, 1], strides=[1 << 31, 1 << 31], start_padding=[0, 0],
        end_padding=[0, 0], dilations=[(1 << 32) - 1, 1],
    ),
    "averages": average_pooling([2, 3, 9, 7], **fields([3, 3], 2, 1)),
    "averages of vectors": average_pooling([64, 64, 112, 112], is_last=True, **fields([3, 3], 2, 1)),
    "averages of 1 GB": average_pooling([15, 64, 1 << 10, 1 << 10], channels=64, **fields([2, 2], 2, 0)),
    "a plane of 12 million": average_pooling([1, 1, 3 << 10, 1 << 12], **fields([3 << 10, 1 << 12], 1, 0)),
    "a mean of a million": average_pooling([1, 2, 1 << 10, 1 << 10], **fields([1 << 10, 1 << 10], 1, 1)),
    "planes": average_pooling([64, 2048, 7, 7], **fields([7, 7], 1, 0)),
    "planes, channels last": average_pooling([64, 2048, 7, 7], is_last=True, channels=2048, **fields([7, 7], 1, 0)),
    "10 million planes": average_pooling([10_000, 1000, 7, 7], **fields([7, 7], 1, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_plans_keep_to_the_limits_of_every_recorded_device(name: str) -> None:
    """By day each descriptor has a quarter of the devices, and each device a quarter of the descriptors."""
    seen = set()
    for each in profiles.NAMES if THOROUGH else profiles.NAMES[[*DESCRIPTORS].index(name) % 4 :: 4]:
        profile = profiles.load(each)
        alike = (profile.limits, profile.device_type, profile.properties, profile.driver_id)
        if alike not in seen:
            seen.add(alike)
            check_plan(plan(DESCRIPTORS[name], profile), DESCRIPTORS[name], profile)


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_plans_keep_to_the_guaranteed_minimum(name: str) -> None:
    """A device with only the limits that Vulkan 1.2 requires: four storage buffers, 16 KiB of shared memory."""
    rich = profiles.load("swiftshader")
    poor = replace(
        rich,
        features=frozenset(),
        extensions=frozenset(),
        properties=frozenset(),
        limits=replace(
            rich.limits,
            max_storage_buffer_range=1 << 27,
            max_push_constants_size=128,
            max_per_stage_descriptor_storage_buffers=4,
            max_compute_shared_memory_size=16_384,
            max_compute_work_group_count=(65_535, 65_535, 65_535),
            max_compute_work_group_size=(128, 128, 64),
            max_compute_work_group_invocations=128,
            min_storage_buffer_offset_alignment=256,
        ),
    )
    check_plan(plan(DESCRIPTORS[name], poor), DESCRIPTORS[name], poor)


@pytest.mark.parametrize(
    ("desc", "kernel"),
    [
        (max_pooling(DataType.INT8, [64, 64, 112, 112], is_last=True, **fields([3, 3], 2, 1)), "max_pooling2/vectors"),
        (max_pooling(DataType.INT8, [64, 64, 112, 112], **fields([3, 3], 2, 1)), "max_pooling2/rows"),
        (max_pooling(DataType.INT16, [64, 64, 112, 112], **fields([2, 2], 2, 0)), "max_pooling2/rows"),
        (max_pooling(DataType.INT8, [64, 64, 55, 55], **fields([3, 3], 2, 0)), "max_pooling2/elements"),  # 27 columns
        (max_pooling(DataType.INT8, [64, 6, 56, 56], is_last=True, **fields([2, 2], 2, 0)), "max_pooling2/elements"),
        (max_pooling(DataType.INT64, [64, 64, 56, 56], is_last=True, **fields([2, 2], 2, 0)), "max_pooling2/elements"),
        (average_pooling([64, 64, 56, 56], is_last=True, **fields([2, 2], 2, 0)), "vectors_float32"),
        (average_pooling([64, 64, 56, 56], **fields([2, 2], 2, 0)), "rows_float32"),
        (average_pooling([64, 64, 55, 55], **fields([3, 3], 2, 0)), "elements_float32"),
        (average_pooling([64, 64, 56, 56], is_last=True, **fields([17, 17], 2, 0)), "elements_float32"),  # 289 taps
        (average_pooling([64, 2048, 7, 7], **fields([7, 7], 1, 0)), "planes"),
        (average_pooling([64, 2048, 7, 7], is_last=True, **fields([7, 7], 1, 0)), "planes_of_vectors"),
        (average_pooling([64, 2048, 7, 7], is_last=True, **fields([7, 7], 1, 1)), "vectors_float32"),
    ],
)
def test_the_layout_decides_the_kernel(desc: OperatorDesc, kernel: str) -> None:
    (dispatch,) = plan(desc, profiles.load("nvidia-h200")).dispatches
    assert dispatch.kernel.removeprefix("quantized_linear_average_pooling/") == kernel


def test_a_path_that_an_operator_lacks_is_refused() -> None:
    with pytest.raises(
        PathError, match="MAX_POOLING2 has no kernel path 'planes'; it has 'vectors', 'rows', 'elements'"
    ):
        plan(DESCRIPTORS["bytes"], profiles.load("swiftshader"), path="planes")


def test_whole_planes_of_one_image_keep_many_workgroups_busy() -> None:
    desc = average_pooling([1, 2048, 7, 7], is_last=True, **fields([7, 7], 1, 0))
    (dispatch,) = plan(desc, profiles.load("nvidia-h200")).dispatches
    assert dispatch.groups == (16, 1, 1)


def test_a_few_windows_across_two_segments_are_cut_by_their_taps() -> None:
    """All others are made as a whole."""
    profile = profiles.load("swiftshader")
    desc = average_pooling([1, 16, 256, 256], is_last=True, **fields([3, 3], 1, 1))
    offset = profile.segment_size - (1 << 19)
    found = plan(desc, profile, offsets={"input_tensor": offset})
    kernels = [{dispatch.kernel.rpartition("/")[2] for dispatch in stage} for stage in found.stages]
    assert kernels[0] >= {"vectors"} and kernels[1:] and all(each == {"elements"} for each in kernels[1:])
    assert len(found.dispatches) < 40
    assert found.scratch_size < 1 << 18


@pytest.mark.parametrize("is_last", [False, True])
def test_states_lie_in_one_window_in_one_segment(is_last: bool) -> None:
    """Those of outputs whose taps are cut, because two rows of the input take most of a segment."""
    recorded = profiles.load("swiftshader")
    limits = replace(recorded.limits, max_memory_allocation_size=1 << 14, max_buffer_size=1 << 14)
    profile = replace(recorded, limits=limits)
    desc = average_pooling([1, 1, 6, 9000], is_last=is_last, **fields([2, 3], 1, 0))
    windows = [window for each in plan(desc, profile).dispatches for window in each.windows if window.tensor == SCRATCH]
    assert windows
    for window in windows:
        assert window.offset // profile.segment_size == (window.offset + window.size - 1) // profile.segment_size
