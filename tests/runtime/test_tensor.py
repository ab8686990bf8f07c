"""Tensors: writing and reading elements and bytes, whatever the layout and wherever the memory lies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlvk
from dmlvk.runtime.elements import element_view, write_elements
from tests import layouts
from tests.vulkan.variants import SMALL_SEGMENT, VARIANTS, open_variant

pytestmark = pytest.mark.every_driver


@pytest.fixture(scope="module", params=VARIANTS)
def own(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The device opened in each variant."""
    with open_variant(device, request.param) as opened:
        yield opened


@st.composite
def descs(draw: st.DrawFn, output: bool = True) -> dmlvk.TensorDesc:
    sizes = draw(layouts.sizes(draw(st.integers(1, 8))))
    strides = draw(layouts.output_strides(sizes) if output else layouts.input_strides(sizes))
    desc = dmlvk.TensorDesc(draw(layouts.DATA_TYPES), sizes, strides)
    padding = draw(st.sampled_from([0, 0, 1, 4, 1000]))
    return dmlvk.TensorDesc(desc.data_type, sizes, strides, total_size_in_bytes=desc.minimum_size_in_bytes + padding)


def random_elements(desc: dmlvk.TensorDesc, seed: int) -> np.ndarray:
    """Elements of any bits, including NaNs of every payload."""
    size = desc.element_count * desc.data_type.size_in_bytes
    return layouts.random_bytes(seed, size).view(desc.data_type.numpy_dtype).reshape(desc.sizes)


@given(desc=descs(), seed=st.integers(0, 1000), blocks=st.integers(0, 3))
@settings(max_examples=40)
def test_elements_come_back_and_gaps_keep_their_bytes(
    own: dmlvk.Device, desc: dmlvk.TensorDesc, seed: int, blocks: int
) -> None:
    before = layouts.random_bytes(seed, desc.total_size_in_bytes)
    elements = random_elements(desc, seed + 1)
    tensor = own.buffer(desc.total_size_in_bytes + 16 * blocks).tensor(desc, 16 * blocks)
    tensor.write_bytes(before)
    tensor.write(elements)
    expected = before.copy()
    element_view(desc, expected)[...] = elements
    assert tensor.read_bytes() == expected.tobytes()
    assert tensor.numpy().tobytes() == elements.tobytes()
    assert tensor.numpy().shape == desc.sizes


@given(desc=descs(output=False), seed=st.integers(0, 1000))
@settings(max_examples=40)
def test_of_elements_that_share_memory_the_last_one_stays(desc: dmlvk.TensorDesc, seed: int) -> None:
    memory = layouts.random_bytes(seed, desc.total_size_in_bytes)
    elements = random_elements(desc, seed + 1)
    one_by_one = memory.copy()
    size = desc.data_type.size_in_bytes
    view = one_by_one[: one_by_one.size // size * size].view(f"u{size}")
    bits = elements.view(f"u{size}")
    for coordinate in np.ndindex(*desc.sizes):
        place = sum(c * stride for c, stride in zip(coordinate, desc.element_strides, strict=True))
        view[place] = bits[coordinate]
    write_elements(desc, memory, elements)
    assert memory.tobytes() == one_by_one.tobytes()


def test_a_broadcast_tensor_is_written_and_read(own: dmlvk.Device) -> None:
    tensor = own.tensor(dmlvk.TensorDesc(dmlvk.DataType.INT32, (3, 4), (0, 1)))
    tensor.write(np.arange(12, dtype=np.int32).reshape(3, 4))
    np.testing.assert_array_equal(tensor.numpy(), np.tile(np.arange(8, 12), (3, 1)))


def test_a_tensor_across_segments(own: dmlvk.Device) -> None:
    count = 3 * SMALL_SEGMENT + 1234
    values = layouts.random_bytes(1, count)
    tensor = own.tensor(values)
    np.testing.assert_array_equal(tensor.numpy(), values)
    strided = own.buffer(4 * count).tensor(dmlvk.TensorDesc(dmlvk.DataType.UINT8, (count,), (3,)), SMALL_SEGMENT - 16)
    strided.write(values)
    np.testing.assert_array_equal(strided.numpy(), values)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=">i4").reshape(2, 3, 4),
        np.arange(24, dtype=np.float64).reshape(2, 3, 4)[::-1, ::2, ::-1],
        np.arange(24, dtype=np.uint16).reshape(2, 3, 4).T,
        np.broadcast_to(np.float16(1.5), (3, 5)),
        np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
    ],
    ids=["big endian", "sliced", "transposed", "broadcast", "Fortran order"],
)
def test_arrays_of_any_layout_become_packed_tensors(device: dmlvk.Device, array: np.ndarray) -> None:
    tensor = device.tensor(array)
    assert tensor.desc.strides is None
    assert tensor.desc.sizes == array.shape
    result = tensor.numpy()
    assert result.dtype.isnative
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, array)


def test_an_array_without_dimensions_has_one_element(device: dmlvk.Device) -> None:
    tensor = device.tensor(np.float32(2.5))
    assert tensor.desc.sizes == (1,)
    np.testing.assert_array_equal(tensor.numpy(), np.array([2.5], np.float32))


def test_the_result_is_a_copy(device: dmlvk.Device) -> None:
    tensor = device.tensor(np.zeros(4, np.int32))
    result = tensor.numpy()
    tensor.write(np.ones(4, np.int32))
    np.testing.assert_array_equal(result, np.zeros(4))


class TestErrors:
    def test_another_shape_is_refused_with_both_shown(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(np.zeros((2, 3), np.int32))
        with pytest.raises(dmlvk.BindingError, match=r"shape \(3, 2\).*sizes \(2, 3\)"):
            tensor.write(np.zeros((3, 2), np.int32))

    def test_another_data_type_is_refused_with_both_shown(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(np.zeros((2, 3), np.int32))
        with pytest.raises(dmlvk.BindingError, match=r"float32.*int32"):
            tensor.write(np.zeros((2, 3), np.float32))

    def test_another_number_of_bytes_is_refused_with_both_shown(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(np.zeros((2, 3), np.int32))
        with pytest.raises(dmlvk.BindingError, match=r"25 bytes.*24 bytes"):
            tensor.write_bytes(bytes(25))

    def test_a_dtype_without_a_data_type_is_refused(self, device: dmlvk.Device) -> None:
        with pytest.raises(TypeError, match="complex64"):
            device.tensor(np.zeros(3, np.complex64))

    def test_an_array_without_elements_is_refused(self, device: dmlvk.Device) -> None:
        with pytest.raises(dmlvk.DescriptorError, match="sizes"):
            device.tensor(np.zeros((2, 0), np.int32))

    def test_an_array_of_nine_dimensions_is_refused(self, device: dmlvk.Device) -> None:
        with pytest.raises(dmlvk.DescriptorError, match="dimensions"):
            device.tensor(np.zeros((1,) * 9, np.int32))

    def test_a_freed_tensor_cannot_be_used(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(np.zeros(3, np.int32))
        tensor.free()
        tensor.free()
        for use in (tensor.numpy, tensor.read_bytes, lambda: tensor.write(np.zeros(3, np.int32))):
            with pytest.raises(dmlvk.BindingError, match="was freed"):
                use()

    def test_a_freed_buffer_cannot_be_used(self, device: dmlvk.Device) -> None:
        buffer = device.buffer(64)
        tensor = buffer.tensor(dmlvk.TensorDesc(dmlvk.DataType.INT32, (4,)))
        buffer.free()
        with pytest.raises(dmlvk.BindingError, match="was freed"):
            buffer.tensor(tensor.desc)
        tensor.write(np.arange(4, dtype=np.int32))
        np.testing.assert_array_equal(tensor.numpy(), np.arange(4))

    @pytest.mark.parametrize(("offset", "message"), [(8, "multiple of 16"), (-16, "multiple of 16"), (64, "64 bytes")])
    def test_a_tensor_lies_aligned_inside_its_buffer(self, device: dmlvk.Device, offset: int, message: str) -> None:
        with pytest.raises(dmlvk.BindingError, match=message):
            device.buffer(64).tensor(dmlvk.TensorDesc(dmlvk.DataType.INT32, (4,)), offset)

    def test_a_guaranteed_alignment_is_kept(self, device: dmlvk.Device) -> None:
        desc = dmlvk.TensorDesc(dmlvk.DataType.INT32, (4,), guaranteed_base_offset_alignment=64)
        buffer = device.buffer(256)
        with pytest.raises(dmlvk.BindingError, match="offset 80 is no multiple of 64: use 64"):
            buffer.tensor(desc, 80)
        assert buffer.tensor(desc, 128).offset == 128

    def test_a_buffer_is_not_empty(self, device: dmlvk.Device) -> None:
        with pytest.raises(dmlvk.BindingError, match="1 byte or more"):
            device.buffer(0)
