"""A tensor's memory given to other libraries by DLPack: shared both ways, kept, or refused with the reason."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk.runtime.exchange import NUMPY_TAKES_VERSIONS
from tests import layouts
from tests.dlpack import from_dlpack, needs_writable_arrays
from tests.runtime.busy import keep_busy
from tests.runtime.test_lifetimes import resident_bytes
from tests.vulkan.variants import SMALL_SEGMENT, copy_desc, open_variant

HOST, VULKAN = (1, 0), (7, 0)
DESC = dmlvk.TensorDesc("int32", (64,))
VALUES = np.random.default_rng(29).integers(-(2**31), 2**31, 64).astype(np.int32)
EXPORTS = 10_000


@pytest.fixture(scope="module")
def segmented(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The device with blocks of 64 KiB."""
    with open_variant(device, "segmented") as opened:
        yield opened


@pytest.fixture(scope="module", params=["staged", "segmented-staged-copy-queue"])
def staged(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The device as if a bus lay between it and the host."""
    with open_variant(device, request.param) as opened:
        yield opened


@st.composite
def descs(draw: st.DrawFn, *, output: bool) -> dmlvk.TensorDesc:
    sizes = draw(layouts.sizes(draw(st.integers(1, 8)), 3000))
    strides = draw(layouts.output_strides(sizes) if output else layouts.input_strides(sizes))
    if strides is not None:  # a dimension of one element may have any stride
        strides = tuple(2**32 - 1 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))
    return dmlvk.TensorDesc(draw(layouts.DATA_TYPES), sizes, strides)


def bits(array: np.ndarray) -> np.ndarray:
    """The elements as unsigned integers, NaNs of every payload too, where they are."""
    return array.view(f"u{array.itemsize}")


def elements_in(memory: np.ndarray, desc: dmlvk.TensorDesc, offset: int = 0) -> np.ndarray:
    """The elements in the tensor's memory, as unsigned integers. NumPy takes no strides past the end of the memory."""
    strides = [0 if size == 1 else stride for size, stride in zip(desc.sizes, desc.element_strides, strict=True)]
    return layouts.view(memory, dmlvk.TensorDesc(desc.data_type, desc.sizes, strides), offset)


@given(desc=descs(output=False), blocks=st.integers(0, 3), seed=st.integers(0, 1000))
def test_the_consumer_sees_the_elements_of_any_layout(
    device: dmlvk.Device, desc: dmlvk.TensorDesc, blocks: int, seed: int
) -> None:
    memory = layouts.random_bytes(seed, desc.total_size_in_bytes)
    tensor = device.buffer(desc.total_size_in_bytes + 16 * blocks).tensor(desc, 16 * blocks)
    tensor.write_bytes(memory)
    shared = np.from_dlpack(tensor)
    assert (shared.shape, shared.dtype) == (desc.sizes, desc.data_type.numpy_dtype)
    steps = zip(desc.sizes, desc.element_strides, shared.strides, strict=True)
    assert all(size == 1 or stride * shared.itemsize == own for size, stride, own in steps)
    np.testing.assert_array_equal(bits(shared), elements_in(memory, desc))


@needs_writable_arrays
@given(desc=descs(output=True), blocks=st.integers(0, 3), seed=st.integers(0, 1000))
def test_what_the_consumer_writes_lies_in_the_tensor_and_nowhere_else(
    device: dmlvk.Device, desc: dmlvk.TensorDesc, blocks: int, seed: int
) -> None:
    buffer = device.buffer(desc.total_size_in_bytes + 16 * blocks + 100)
    everything = buffer.tensor(dmlvk.TensorDesc("uint8", (buffer.size_in_bytes,)))
    expected = layouts.random_bytes(seed, everything.desc.total_size_in_bytes)
    everything.write_bytes(expected)
    elements = layouts.random_bytes(seed + 1, desc.element_count * desc.data_type.size_in_bytes)
    elements = elements.view(f"u{desc.data_type.size_in_bytes}").reshape(desc.sizes)
    tensor = buffer.tensor(desc, 16 * blocks)
    bits(np.from_dlpack(tensor))[...] = elements
    elements_in(expected, desc, 16 * blocks)[...] = elements
    assert everything.read_bytes() == expected.tobytes()
    np.testing.assert_array_equal(bits(tensor.numpy()), elements)


@needs_writable_arrays
def test_memory_is_shared_both_ways(device: dmlvk.Device) -> None:
    copy = device.compile(copy_desc(DESC))
    source, target = device.tensor(VALUES), device.tensor(DESC)
    given_away, result = np.from_dlpack(source), np.from_dlpack(target)
    copy(input_tensor=source, output_tensor=target).wait()
    np.testing.assert_array_equal(result, VALUES)
    given_away[::2] = -5
    np.testing.assert_array_equal(source.numpy(), given_away)
    copy(input_tensor=source, output_tensor=target).wait()
    np.testing.assert_array_equal(result[::2], -5)
    np.testing.assert_array_equal(result[1::2], VALUES[1::2])
    source.write(VALUES + 1)
    np.testing.assert_array_equal(given_away, VALUES + 1)
    device.compile(copy_desc(DESC))(input_tensor=target, output_tensor=source).wait()
    np.testing.assert_array_equal(given_away, result)


def test_channels_come_last(device: dmlvk.Device) -> None:
    values = np.random.default_rng(1).integers(0, 256, (2, 3, 5, 7), np.uint8)
    tensor = device.tensor(dmlvk.TensorDesc("uint8", values.shape, (105, 1, 21, 3)))
    tensor.write(values)
    shared = np.from_dlpack(tensor)
    np.testing.assert_array_equal(shared, values)
    assert shared.strides == (105, 1, 21, 3)
    assert shared.transpose(0, 2, 3, 1).flags.c_contiguous


@needs_writable_arrays
def test_a_tensor_past_the_first_block_of_its_buffer(segmented: dmlvk.Device) -> None:
    buffer = segmented.buffer(3 * SMALL_SEGMENT)
    for offset in (SMALL_SEGMENT - 256, SMALL_SEGMENT, 2 * SMALL_SEGMENT + 512):
        tensor = buffer.tensor(DESC, offset)
        tensor.write(VALUES + offset)
        shared = np.from_dlpack(tensor)
        np.testing.assert_array_equal(shared, VALUES + offset)
        shared[:] = VALUES - offset
        np.testing.assert_array_equal(tensor.numpy(), VALUES - offset)


def test_a_tensor_in_several_blocks_says_so(segmented: dmlvk.Device) -> None:
    tensor = segmented.buffer(2 * SMALL_SEGMENT).tensor(DESC, SMALL_SEGMENT - 128)
    tensor.write(VALUES)
    assert tensor.__dlpack_device__() == VULKAN
    with pytest.raises(BufferError, match=r"lies in several blocks.*numpy\(\) copies, and so does copy=True"):
        np.from_dlpack(tensor)
    np.testing.assert_array_equal(from_dlpack(tensor, copy=True), VALUES)


class TestStaged:
    def test_the_reason_is_given(self, staged: dmlvk.Device) -> None:
        tensor = staged.tensor(VALUES)
        assert tensor.__dlpack_device__() == VULKAN
        uses: list[Callable[[], object]] = [
            lambda: np.from_dlpack(tensor),
            lambda: from_dlpack(tensor, copy=False),
            lambda: from_dlpack(tensor, device="cpu", copy=False),
            tensor.__dlpack__,
        ]
        for use in uses:
            with pytest.raises(BufferError, match=r"the device has memory of its own.*numpy\(\) copies"):
                use()

    def test_a_copy_is_made_where_it_is_asked_for(self, staged: dmlvk.Device) -> None:
        tensor = staged.tensor(VALUES)
        copies = [
            from_dlpack(tensor, copy=True),
            from_dlpack(tensor, device="cpu"),
            from_dlpack(tensor, device="cpu", copy=True),
        ]
        tensor.write(-VALUES)
        for copy in copies:
            np.testing.assert_array_equal(copy, VALUES)
            if copy.flags.writeable:
                copy[:] = 1
        np.testing.assert_array_equal(tensor.numpy(), -VALUES)


def capsule_name(capsule: object) -> str:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    found: bytes = name(capsule)
    return found.decode()


class TestArguments:
    @needs_writable_arrays
    def test_copy_is_true_or_false(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(VALUES)
        own, shared = (from_dlpack(tensor, copy=copy) for copy in (True, False))
        own[:] = 1
        np.testing.assert_array_equal(tensor.numpy(), VALUES)
        shared[:] = 2
        np.testing.assert_array_equal(tensor.numpy(), np.full(64, 2))

    def test_the_device_is_the_host(self, device: dmlvk.Device, staged: dmlvk.Device) -> None:
        assert device.tensor(VALUES).__dlpack_device__() == HOST
        np.testing.assert_array_equal(from_dlpack(device.tensor(VALUES), device="cpu"), VALUES)
        other: Any
        for other in (VULKAN, (2, 0), (1, 1), "cpu"):
            for tensor in (device.tensor(VALUES), staged.tensor(VALUES)):
                for copy in (None, True):
                    with pytest.raises(BufferError, match=r"is given to the host, \(1, 0\), not to the DLPack device"):
                        tensor.__dlpack__(dl_device=other, copy=copy)

    def test_the_host_has_no_streams(self, device: dmlvk.Device) -> None:
        for copy in (None, True):
            with pytest.raises(BufferError, match="stream = 1: memory of the host has no streams; pass None"):
                device.tensor(VALUES).__dlpack__(stream=1, copy=copy)

    def test_the_version_is_the_consumers(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(VALUES)
        newer = "dltensor_versioned" if NUMPY_TAKES_VERSIONS else "dltensor"
        assert capsule_name(tensor.__dlpack__(max_version=(1, 0))) == newer
        assert capsule_name(tensor.__dlpack__(max_version=(0, 8))) == "dltensor"
        assert capsule_name(tensor.__dlpack__()) == "dltensor"

    def test_an_older_consumer_passes_nothing(self, device: dmlvk.Device) -> None:
        class Consumed:
            def __init__(self, tensor: dmlvk.Tensor) -> None:
                self._tensor = tensor

            def __dlpack__(self, *, stream: None = None) -> Any:
                return self._tensor.__dlpack__(stream=stream)

        np.testing.assert_array_equal(np.from_dlpack(Consumed(device.tensor(VALUES))), VALUES)

    def test_tensors_that_are_gone_are_refused(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(VALUES)
        tensor.free()
        with open_variant(device, "direct") as other:
            closed = other.tensor(VALUES)
        for gone, error, message in ((tensor, dmlvk.BindingError, "freed"), (closed, dmlvk.DeviceError, "is closed")):
            for use in (np.from_dlpack, dmlvk.Tensor.__dlpack__, dmlvk.Tensor.__dlpack_device__):
                with pytest.raises(error, match=message):
                    use(gone)  # type: ignore[operator]


def test_work_in_flight_is_waited_for(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        other = own.tensor(VALUES)
        running, written = keep_busy(own)
        np.testing.assert_array_equal(np.from_dlpack(other), VALUES)
        assert not running.done, "work that does not use the memory is not waited for"
        shared = np.from_dlpack(written)
        assert running.done
        np.testing.assert_array_equal(shared, written.numpy())


def test_memory_is_not_given_to_another_tensor_before_its_last_view_goes(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        tensor = own.tensor(VALUES)
        views = [np.from_dlpack(tensor), np.from_dlpack(tensor)[3:7], np.from_dlpack(tensor).view(np.uint8)]
        memory = weakref.ref(tensor.memory())
        del tensor
        while views:
            others = [own.tensor(-VALUES) for _ in range(70)]  # so many that dropped ones are freed at once
            del others
            assert own.memory_used == 256
            expected = [VALUES, VALUES[3:7], VALUES.view(np.uint8)]
            for view, values in zip(reversed(views), reversed(expected), strict=False):
                np.testing.assert_array_equal(view, values)
            del view
            views.pop(0)
        gc.collect()
        assert memory() is None
        assert own.memory_used == 0


def test_a_capsule_that_nobody_takes_keeps_nothing(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        capsules = [own.tensor(VALUES).__dlpack__(max_version=version) for version in (None, (1, 0))]
        assert own.memory_used == 512
        del capsules
        assert own.memory_used == 0


def test_ten_thousand_exports_leave_nothing(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        kept = own.tensor(VALUES)
        found = []
        for number in range(EXPORTS):
            tensor = kept if number % 3 else own.tensor(VALUES)
            shared = np.from_dlpack(tensor)
            assert shared[1] == VALUES[1]
            if number in (EXPORTS // 10, EXPORTS - 1):
                del tensor, shared
                gc.collect()
                found.append((own.memory_used, len(own.vulkan._views), len(gc.get_objects()), resident_bytes()))
        (used, views, objects, memory), last = found
        assert (used, views) == last[:2] == (256, 0)
        assert last[2] < objects + 100
        assert last[3] < memory + (4 << 20)
