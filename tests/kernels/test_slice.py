"""SLICE on devices, against NumPy's own slicing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, SliceDesc, TensorDesc
from dmlvk.planning import KERNEL_PATHS
from tests.kernels.harness import check, input_memory
from tests.layouts import DATA_TYPES, input_strides, output_strides, sizes, view


@st.composite
def descriptors(draw: st.DrawFn) -> SliceDesc:
    data_type = draw(DATA_TYPES)
    extents = draw(sizes(draw(st.integers(1, 8))))
    offsets, lengths, steps = [], [], []
    for extent in extents:
        offsets.append(draw(st.integers(0, extent - 1)))
        steps.append(draw(st.sampled_from([1, 1, 1, 2, 3, (1 << 31) - 1, (1 << 32) - 1])))
        most = 1 + (extent - 1 - offsets[-1]) // steps[-1]
        lengths.append(draw(st.one_of(st.just(most), st.integers(1, most))))
    return SliceDesc(
        input_tensor=TensorDesc(data_type, extents, draw(input_strides(extents))),
        output_tensor=TensorDesc(data_type, lengths, draw(output_strides(tuple(lengths)))),
        offsets=offsets,
        sizes=lengths,
        strides=steps,
    )


def check_against_numpy(device: dmlvk.Device, desc: SliceDesc, offset: int, seed: int, path: str | None = None) -> None:
    inputs = input_memory(desc, seed)
    cuts = tuple(
        slice(first, first + (size - 1) * step + 1, step)
        for first, size, step in zip(desc.offsets, desc.sizes, desc.strides, strict=True)
    )
    expected = view(inputs["input_tensor"], desc.input_tensor)[cuts]
    check(device, desc, expected, inputs, offset=offset, seed=seed, path=path)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
def test_any_slice_of_any_layout(device: dmlvk.Device, desc: SliceDesc, blocks: int, seed: int) -> None:
    check_against_numpy(device, desc, 16 * blocks, seed)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
def test_a_slice_across_cuts_in_memory(tight_device: dmlvk.Device, desc: SliceDesc, blocks: int, seed: int) -> None:
    check_against_numpy(tight_device, desc, 16 * blocks, seed)


@pytest.mark.parametrize("path", KERNEL_PATHS[SliceDesc])
@pytest.mark.parametrize("data_type", DataType)
def test_every_type_and_path(gpu_device: dmlvk.Device, data_type: DataType, path: str) -> None:
    for strides in (None, (90 * 70, 1, 90)):  # the second is a transposition
        desc = SliceDesc(
            input_tensor=TensorDesc(data_type, (2, 90, 70), strides),
            offsets=(0, 1, 2),
            sizes=(2, 44, 68),
            strides=(1, 2, 1),
        )
        check_against_numpy(gpu_device, desc, 16, 3, path)


@pytest.mark.parametrize("stride", [1 << 31, (1 << 32) - 3])
def test_strides_of_32_unsigned_bits_reach_a_second_element(device: dmlvk.Device, stride: int) -> None:
    desc = SliceDesc(
        input_tensor=TensorDesc(DataType.UINT16, ((1 << 32) - 1,), (0,)), offsets=(1,), sizes=(2,), strides=(stride,)
    )
    check_against_numpy(device, desc, 0, 5)


def test_a_path_that_it_does_not_have(device: dmlvk.Device) -> None:
    desc = SliceDesc(input_tensor=TensorDesc(DataType.UINT8, (3,)), offsets=(0,), sizes=(3,), strides=(1,))
    with pytest.raises(ValueError, match="SLICE has no kernel path 'integer'; it has 'blocks', 'tiles'"):
        device.compile(desc, path="integer")
