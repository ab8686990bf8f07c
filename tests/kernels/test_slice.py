"""SLICE on devices, against NumPy's own slicing. Its kernels are SLICE1's: see tests/planning/test_predecessors.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, SliceDesc, TensorDesc
from tests.amount import examples
from tests.kernels.harness import check, input_memory
from tests.layouts import view
from tests.planning.test_predecessors import slices


def check_against_numpy(device: dmlvk.Device, desc: SliceDesc, offset: int, seed: int) -> None:
    inputs = input_memory(desc, seed)
    cuts = tuple(
        slice(first, first + (size - 1) * step + 1, step)
        for first, size, step in zip(desc.offsets, desc.sizes, desc.strides, strict=True)
    )
    expected = view(inputs["input_tensor"], desc.input_tensor)[cuts]
    check(device, desc, expected, inputs, offset=offset, seed=seed)


@given(slices(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples()
def test_any_slice_of_any_layout(device: dmlvk.Device, desc: SliceDesc, blocks: int, seed: int) -> None:
    check_against_numpy(device, desc, 16 * blocks, seed)


@pytest.mark.parametrize("stride", [1 << 31, (1 << 32) - 3])
def test_strides_of_32_unsigned_bits_reach_a_second_element(device: dmlvk.Device, stride: int) -> None:
    desc = SliceDesc(
        input_tensor=TensorDesc(DataType.UINT16, ((1 << 32) - 1,), (0,)), offsets=(1,), sizes=(2,), strides=(stride,)
    )
    check_against_numpy(device, desc, 0, 5)


def test_a_path_that_it_does_not_have(device: dmlvk.Device) -> None:
    desc = SliceDesc(input_tensor=TensorDesc(DataType.UINT8, (3,)), offsets=(0,), sizes=(3,), strides=(1,))
    with pytest.raises(ValueError, match="SLICE has no kernel path 'integer'; it has 'blocks', 'elements', 'tiles'"):
        device.compile(desc, path="integer")
