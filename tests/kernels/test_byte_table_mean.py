"""BYTE_TABLE_MEAN on devices, against its reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.operators import ByteTableMeanDesc
from dmlvk.operators.byte_table_mean import LANE_COUNTS
from tests.amount import examples
from tests.kernels.element_wise import check_against_reference, owned
from tests.kernels.pooling import layouts, tensor_sizes
from tests.layouts import input_strides

EIGHT_BITS = st.sampled_from([DataType.UINT8, DataType.INT8])
SEEDS = st.integers(0, 1 << 20)


@st.composite
def descriptors(draw: st.DrawFn) -> ByteTableMeanDesc:
    sizes = draw(tensor_sizes())
    plain = (*sizes[:2], *(1,) * (len(sizes) - 2))
    return ByteTableMeanDesc(
        input_tensor=TensorDesc(draw(EIGHT_BITS), sizes, draw(layouts(tuple(sizes), is_output=False))),
        table_tensor=TensorDesc(DataType.FLOAT32, (256,), draw(input_strides((256,))), flags=draw(owned())),
        output_tensor=TensorDesc(DataType.FLOAT32, plain, draw(layouts(plain, is_output=True))),
        lane_count=draw(st.sampled_from(LANE_COUNTS)),
    )


def memory_of(desc: ByteTableMeanDesc, seed: int) -> dict[str, np.ndarray]:
    """Random bytes; values of one scale, of different sizes, or any bits at all."""
    random = np.random.default_rng(seed)
    count = desc.table_tensor.total_size_in_bytes // 4
    values = random.standard_normal(count) * 2.0 ** random.integers(-20 * (seed % 3), 20 * (seed % 3) + 1, count)
    table = random.integers(0, 1 << 32, count, np.uint32) if seed % 4 == 0 else values.astype(np.float32)
    size = desc.input_tensor.total_size_in_bytes
    return {"input_tensor": random.integers(0, 256, size, np.uint8), "table_tensor": table.view(np.uint8)}


@given(descriptors(), SEEDS)
@examples(0.4)
def test_any_layout(device: dmlvk.Device, desc: ByteTableMeanDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed)


@given(descriptors(), SEEDS)
@examples(0.2)
def test_any_layout_in_integers(device: dmlvk.Device, desc: ByteTableMeanDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed, path="integers")


@pytest.mark.parametrize("lane_count", LANE_COUNTS)
@pytest.mark.parametrize("is_last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("plane", [(1, 4), (7, 8), (5, 4), (12, 11), (6, 38)])
def test_planes_of_words(device: dmlvk.Device, lane_count: int, is_last: bool, plane: tuple[int, int]) -> None:
    """Chunks of a plane begin and end anywhere in a sector; a workgroup has more planes than are left."""
    sizes = (3, 52, *plane)
    count = plane[0] * plane[1]
    strides = (52 * count, 1, 52 * plane[1], 52) if is_last else None
    desc = ByteTableMeanDesc(
        input_tensor=TensorDesc(DataType.INT8, sizes, strides),
        table_tensor=TensorDesc(DataType.FLOAT32, (256,)),
        lane_count=lane_count,
    )
    for seed in (1, 2, 4):
        check_against_reference(device, desc, memory_of(desc, seed), seed=seed, path="words")


@pytest.mark.parametrize("lane_count", LANE_COUNTS)
@pytest.mark.parametrize("is_last", [False, True], ids=["NCHW", "NHWC"])
def test_planes_that_no_window_shows_whole(tight_device: dmlvk.Device, lane_count: int, is_last: bool) -> None:
    """Sums of lanes, and the elements that wait before and behind them, go from one dispatch to the next."""
    sizes = (1, 3, 1, 61, 97)
    strides = (0, 1, 0, 3 * 97, 3) if is_last else None
    desc = ByteTableMeanDesc(
        input_tensor=TensorDesc(DataType.UINT8, sizes, strides),
        table_tensor=TensorDesc(DataType.FLOAT32, (256,)),
        lane_count=lane_count,
    )
    check_against_reference(tight_device, desc, memory_of(desc, 1), seed=1)
