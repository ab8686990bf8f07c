"""Which tensors may be bound to an operator, and which may not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import dmlvk
from tests.vulkan.variants import SMALL_SEGMENT, copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (4, 8))


@pytest.fixture
def operator(device: dmlvk.Device) -> dmlvk.CompiledOperator:
    return device.compile(copy_desc(DESC))


def refused(operator: dmlvk.CompiledOperator, message: str, **tensors: Any) -> None:
    with pytest.raises(dmlvk.BindingError, match=message):
        operator.bind(**tensors)
    with pytest.raises(dmlvk.BindingError, match=message):
        operator(**tensors)


def test_a_missing_tensor(device: dmlvk.Device, operator: dmlvk.CompiledOperator) -> None:
    refused(operator, "SLICE1: output_tensor is missing", input_tensor=device.tensor(DESC))
    refused(operator, "input_tensor is missing", output_tensor=device.tensor(DESC), input_tensor=None)


def test_an_unknown_tensor(device: dmlvk.Device, operator: dmlvk.CompiledOperator) -> None:
    tensors = {name: device.tensor(DESC) for name in ("input_tensor", "output_tensor", "filter_tensor")}
    refused(operator, "no tensor named filter_tensor; it takes input_tensor, output_tensor", **tensors)


def test_an_array_in_place_of_a_tensor(device: dmlvk.Device, operator: dmlvk.CompiledOperator) -> None:
    array = np.zeros(DESC.sizes, np.int32)
    refused(operator, "input_tensor is a ndarray", input_tensor=array, output_tensor=device.tensor(DESC))


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (dmlvk.TensorDesc(dmlvk.DataType.UINT32, (4, 8)), "data type UINT32; the descriptor has INT32"),
        (dmlvk.TensorDesc(dmlvk.DataType.INT32, (8, 4)), r"sizes \(8, 4\); the descriptor has \(4, 8\)"),
        (dmlvk.TensorDesc(dmlvk.DataType.INT32, (4, 8), (1, 4)), r"strides \(1, 4\); the descriptor has \(8, 1\)"),
    ],
    ids=["data type", "sizes", "strides"],
)
def test_another_desc(
    device: dmlvk.Device, operator: dmlvk.CompiledOperator, desc: dmlvk.TensorDesc, message: str
) -> None:
    refused(operator, message, input_tensor=device.tensor(desc), output_tensor=device.tensor(DESC))
    refused(operator, message, input_tensor=device.tensor(DESC), output_tensor=device.tensor(desc))


def test_less_memory_than_the_descriptor_says(device: dmlvk.Device) -> None:
    larger = dmlvk.TensorDesc(dmlvk.DataType.INT32, (4, 8), total_size_in_bytes=1000)
    operator = device.compile(copy_desc(larger, DESC))
    refused(
        operator,
        "has 128 bytes; the descriptor needs at least 1000",
        input_tensor=device.tensor(DESC),
        output_tensor=device.tensor(DESC),
    )


def test_a_place_that_is_aligned_worse_than_the_descriptor_guarantees(device: dmlvk.Device) -> None:
    aligned = dmlvk.TensorDesc(dmlvk.DataType.INT32, (4, 8), guaranteed_base_offset_alignment=64)
    operator = device.compile(copy_desc(aligned, DESC))
    source = device.buffer(1024).tensor(DESC, 80)
    refused(operator, "starts 80 bytes.*multiple of 64", input_tensor=source, output_tensor=device.tensor(DESC))


def test_packed_strides_may_be_written_out_and_strides_of_one_element_do_not_matter(device: dmlvk.Device) -> None:
    desc = dmlvk.TensorDesc(dmlvk.DataType.INT32, (1, 8))
    operator = device.compile(copy_desc(desc))
    source = device.tensor(dmlvk.TensorDesc(dmlvk.DataType.INT32, (1, 8), (77, 1)))
    source.write(np.arange(8, dtype=np.int32).reshape(1, 8))
    target = device.tensor(dmlvk.TensorDesc(dmlvk.DataType.INT32, (1, 8), (8, 1)))
    operator(input_tensor=source, output_tensor=target)
    np.testing.assert_array_equal(target.numpy(), source.numpy())


def test_a_tensor_of_another_device(device: dmlvk.Device, operator: dmlvk.CompiledOperator) -> None:
    with open_variant(device, "direct") as other:
        foreign = other.tensor(DESC)
        refused(operator, "of another Device", input_tensor=foreign, output_tensor=device.tensor(DESC))
        binding = other.compile(copy_desc(DESC)).bind(input_tensor=foreign, output_tensor=other.tensor(DESC))
        with pytest.raises(dmlvk.BindingError, match="bindings\\[0\\] is of another Device"):
            device.submit([binding])
        with pytest.raises(dmlvk.BindingError, match="bindings\\[0\\] is of another Device"):
            device.sequence([binding])


def test_a_freed_tensor(device: dmlvk.Device, operator: dmlvk.CompiledOperator) -> None:
    source = device.tensor(DESC)
    source.free()
    refused(operator, "input_tensor was freed", input_tensor=source, output_tensor=device.tensor(DESC))


def test_a_binding_keeps_the_memory_of_tensors_freed_after_it(
    device: dmlvk.Device, operator: dmlvk.CompiledOperator
) -> None:
    values = np.arange(32, dtype=np.int32).reshape(4, 8)
    source, target = device.tensor(values), device.tensor(DESC)
    binding = operator.bind(input_tensor=source, output_tensor=target)
    source.free()
    device.submit([binding])
    np.testing.assert_array_equal(target.numpy(), values)


def test_an_output_that_shares_memory_with_an_input(device: dmlvk.Device, operator: dmlvk.CompiledOperator) -> None:
    same = device.tensor(DESC)
    refused(operator, r"output_tensor \(bytes 0 to 128.*overlaps input_tensor", input_tensor=same, output_tensor=same)
    buffer = device.buffer(512)
    source, overlapping, neighbour = (buffer.tensor(DESC, offset) for offset in (0, 112, 128))
    refused(operator, "overlaps input_tensor", input_tensor=source, output_tensor=overlapping)
    values = np.arange(32, dtype=np.int32).reshape(4, 8)
    source.write(values)
    operator(input_tensor=source, output_tensor=neighbour)
    np.testing.assert_array_equal(neighbour.numpy(), values)


def test_outputs_that_share_memory(device: dmlvk.Device) -> None:
    image, indices = dmlvk.TensorDesc("uint8", (1, 1, 2, 2)), dmlvk.TensorDesc("uint32", (1, 1, 2, 2))
    one = dict.fromkeys(("strides", "window_size", "dilations"), (1, 1))
    none = dict.fromkeys(("start_padding", "end_padding"), (0, 0))
    desc = dmlvk.MaxPooling2Desc(input_tensor=image, output_tensor=image, output_indices_tensor=indices, **one, **none)
    buffer = device.buffer(64)
    refused(
        device.compile(desc),
        r"output_tensor \(bytes 0 to 4 of its memory\) overlaps output_indices_tensor \(bytes 0 to 16\)",
        input_tensor=device.tensor(image),
        output_tensor=buffer.tensor(image),
        output_indices_tensor=buffer.tensor(indices),
    )


def test_other_things_in_a_list_of_bindings(device: dmlvk.Device) -> None:
    with pytest.raises(TypeError, match=r"bindings\[0\] is a str"):
        device.submit(["binding"])  # type: ignore[list-item]


@pytest.mark.parametrize("path", ["blocks", "tiles", "boxes"])
def test_tensors_at_every_offset_in_a_buffer(device: dmlvk.Device, path: str) -> None:
    """Bindings are aligned to up to 256 bytes, tensors to 16: the push constants hold the remaining offset."""
    limits = dataclasses.replace(device.profile.limits, min_storage_buffer_offset_alignment=256)
    values = np.arange(32, dtype=np.int32).reshape(4, 8)
    with dmlvk.Device(device.name, profile=dataclasses.replace(device.profile, limits=limits)) as own:
        operator = own.compile(copy_desc(DESC), path=path)
        buffer = own.buffer(4096)
        everything = buffer.tensor(dmlvk.TensorDesc(dmlvk.DataType.UINT8, (4096,)))
        for step in range(0, 272, 16):
            expected = np.full(4096, 0xA5, np.uint8)
            everything.write(expected)
            source, target = buffer.tensor(DESC, step), buffer.tensor(DESC, 2048 - step)
            source.write(values + step)
            operator(input_tensor=source, output_tensor=target)
            for place in (step, 2048 - step):
                expected[place : place + 128] = (values + step).reshape(-1).view(np.uint8)
            np.testing.assert_array_equal(everything.numpy(), expected)


@pytest.mark.parametrize("variant", ["segmented", "segmented-staged"])
@pytest.mark.parametrize("offset", [0, 16, SMALL_SEGMENT - 16, SMALL_SEGMENT, SMALL_SEGMENT + 4096])
def test_tensors_across_segments_of_their_memory(device: dmlvk.Device, variant: str, offset: int) -> None:
    count = 3 * SMALL_SEGMENT // 2 + 77
    desc = dmlvk.TensorDesc(dmlvk.DataType.INT16, (count,))
    values = np.arange(count, dtype=np.int16)
    with open_variant(device, variant) as own:
        source = own.buffer(6 * SMALL_SEGMENT).tensor(desc, offset)
        source.write(values)
        target = own.buffer(6 * SMALL_SEGMENT).tensor(desc, 2 * SMALL_SEGMENT - offset)
        own.compile(copy_desc(desc))(input_tensor=source, output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), values)
