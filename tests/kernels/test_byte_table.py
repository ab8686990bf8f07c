"""BYTE_TABLE on devices, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.operators import ByteTableDesc
from tests.amount import examples
from tests.kernels.element_wise import check_against_reference, inputs, memory_of, outputs, owned, shapes
from tests.kernels.element_wise import narrow_device as narrow_device
from tests.layouts import input_strides

TYPES = st.sampled_from([DataType.UINT8, DataType.INT8])
SEEDS = st.integers(0, 1 << 20)


@st.composite
def descriptors(draw: st.DrawFn, most_inputs: int = 2) -> ByteTableDesc:
    """One input or two, one table or one for each index along any axis, which may have gaps."""
    extents, table_type = draw(shapes()), draw(TYPES)
    length = draw(st.sampled_from([256, 65536][:most_inputs]))
    axis = draw(st.none() | st.integers(0, len(extents) - 1))
    if axis is not None and length > 256 and extents[axis] > 9:
        axis = None
    sizes = (length,) if axis is None else (extents[axis], length)
    return ByteTableDesc(
        input_tensor=draw(inputs(draw(TYPES), extents)),
        second_input_tensor=draw(inputs(draw(TYPES), extents)) if length > 256 else None,
        table_tensor=TensorDesc(table_type, sizes, draw(input_strides(sizes)), flags=draw(owned())),
        output_tensor=draw(outputs(table_type, extents)),
        axis=axis,
    )


@given(descriptors(), SEEDS)
@examples(0.4)
def test_any_layout(device: dmlvk.Device, desc: ByteTableDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed, 0), seed=seed)


@given(descriptors(most_inputs=1), SEEDS)
@examples(0.4)
def test_tensors_that_are_cut(tight_device: dmlvk.Device, desc: ByteTableDesc, seed: int) -> None:
    check_against_reference(tight_device, desc, memory_of(desc, seed, 0), seed=seed)


@given(descriptors(), SEEDS)
@examples(0.2)
def test_tables_of_pairs_that_are_cut(narrow_device: dmlvk.Device, desc: ByteTableDesc, seed: int) -> None:
    check_against_reference(narrow_device, desc, memory_of(desc, seed, 0), seed=seed)


@given(descriptors(), SEEDS)
@examples(0.2)
def test_plans_for_a_gpu(gpu_device: dmlvk.Device, desc: ByteTableDesc, seed: int) -> None:
    check_against_reference(gpu_device, desc, memory_of(desc, seed, 0), seed=seed)


@pytest.mark.every_driver
@pytest.mark.parametrize("path", ["shared", "buffer"])
@pytest.mark.parametrize("sizes", [(16,), (4096,), (1, 3, 7, 7), (1,), (100_003,)])
def test_one_table(device: dmlvk.Device, path: str, sizes: tuple[int, ...]) -> None:
    desc = ByteTableDesc(
        input_tensor=TensorDesc(DataType.INT8, sizes),
        table_tensor=TensorDesc(DataType.UINT8, (256,)),
        output_tensor=TensorDesc(DataType.UINT8, sizes),
    )
    check_against_reference(device, desc, memory_of(desc, 1, 0), path=path)


def test_a_table_that_is_no_single_one_is_not_shared(device: dmlvk.Device) -> None:
    tensor = TensorDesc(DataType.UINT8, (3, 4))
    tables: list[dict[str, Any]] = [
        {"second_input_tensor": tensor, "table_tensor": TensorDesc(DataType.UINT8, (65536,))},
        {"axis": 1, "table_tensor": TensorDesc(DataType.UINT8, (4, 256))},
    ]
    for more in tables:
        with pytest.raises(dmlvk.PathError, match="whole vectors of 16 bytes"):
            device.compile(ByteTableDesc(input_tensor=tensor, output_tensor=tensor, **more), path="shared")


@pytest.mark.every_driver(path=["shared"])
@pytest.mark.parametrize("path", ["shared", "buffer"])
@pytest.mark.parametrize(
    ("sizes", "axis"), [((2, 32, 7, 7), 1), ((40, 7, 7, 48), 3), ((3, 32, 8, 4), 1), ((5, 3, 80), 0)]
)
def test_a_table_for_each_channel(device: dmlvk.Device, sizes: tuple[int, ...], axis: int, path: str) -> None:
    desc = ByteTableDesc(
        input_tensor=TensorDesc(DataType.UINT8, sizes),
        table_tensor=TensorDesc(DataType.INT8, (sizes[axis], 256)),
        output_tensor=TensorDesc(DataType.INT8, sizes),
        axis=axis,
    )
    check_against_reference(device, desc, memory_of(desc, 2, 0), path=path)


def test_the_table_changes_from_call_to_call(device: dmlvk.Device) -> None:
    x = np.arange(256, dtype=np.uint8)
    for seed in range(3):
        table = np.random.default_rng(seed).permutation(256).astype(np.uint8)
        desc = ByteTableDesc(
            input_tensor=TensorDesc.of(x), table_tensor=TensorDesc.of(table), output_tensor=TensorDesc.of(x)
        )
        output = device.tensor(desc.output_tensor)
        device.compile(desc)(input_tensor=device.tensor(x), table_tensor=device.tensor(table), output_tensor=output)
        assert output.numpy().tolist() == table.tolist()
