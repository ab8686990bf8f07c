"""BYTE_SOFTMAX on devices, against its reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.conformance.cases.byte_softmax import TABLES, table_of
from dmlvk.operators import ByteSoftmaxDesc
from dmlvk.operators.byte_softmax import MOST_STEPS, limits_of
from tests.amount import examples
from tests.kernels.element_wise import check_against_reference, owned
from tests.layouts import input_strides, output_strides
from tests.layouts import sizes as sizes_of_rank

SEEDS = st.integers(0, 1 << 20)


@st.composite
def descriptors(draw: st.DrawFn) -> ByteSoftmaxDesc:
    sizes = draw(sizes_of_rank(3, 4000))
    data_type = draw(st.sampled_from([DataType.UINT8, DataType.INT8]))
    return ByteSoftmaxDesc(
        input_tensor=TensorDesc(data_type, sizes, draw(input_strides(sizes))),
        table_tensor=TensorDesc(DataType.FLOAT32, (256,), draw(input_strides((256,))), flags=draw(owned())),
        output_tensor=TensorDesc(data_type, sizes, draw(output_strides(sizes))),
        output_steps=draw(st.sampled_from([256, 255, 127, 1]) | st.integers(1, MOST_STEPS)),
        output_zero_point=draw(st.integers(*limits_of(data_type))),
    )


def memory_of(desc: ByteSoftmaxDesc, seed: int) -> dict[str, np.ndarray]:
    """Random bytes, and a table of some kind."""
    random = np.random.default_rng(seed)
    count = desc.table_tensor.total_size_in_bytes // 4
    table = np.resize(table_of(TABLES[seed % len(TABLES)], random), count)
    size = desc.input_tensor.total_size_in_bytes
    return {"input_tensor": random.integers(0, 256, size, np.uint8), "table_tensor": table.view(np.uint8)}


@given(descriptors(), SEEDS)
@examples(0.4)
def test_any_layout(device: dmlvk.Device, desc: ByteSoftmaxDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed)


@given(descriptors(), SEEDS)
@examples(0.2)
def test_any_layout_in_integers(device: dmlvk.Device, desc: ByteSoftmaxDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed, path="integers")


@pytest.mark.half_by_day
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("strides", [None, (2 * 9001, 1, 2)], ids=["packed", "rows_side_by_side"])
def test_rows_that_no_window_shows_whole(
    tight_device: dmlvk.Device, strides: tuple[int, ...] | None, kind: str
) -> None:
    """The largest number and the sum go from one dispatch to the next."""
    sizes = (1, 2, 9001)
    desc = ByteSoftmaxDesc(
        input_tensor=TensorDesc(DataType.INT8, sizes, strides),
        table_tensor=TensorDesc(DataType.FLOAT32, (256,)),
        output_tensor=TensorDesc(DataType.INT8, sizes, strides),
        output_steps=MOST_STEPS,
        output_zero_point=-100,
    )
    check_against_reference(tight_device, desc, memory_of(desc, TABLES.index(kind)), seed=1)
