"""The order between submissions and the work of an API that shares memory: on a CUDA of the tests' own."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS
from dmlvk.vulkan.library import vk
from tests.dlpack import from_dlpack
from tests.runtime import fake_cuda
from tests.runtime.fake_cuda import Array, FakeCuda
from tests.vulkan.variants import copy_desc, open_variant

SHAPE = (8, 32)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    cuda = fake_cuda.install(monkeypatch)
    yield cuda
    cuda.close()


@pytest.fixture(params=[False, True], ids=["one queue", "copy queue"])
def own(request: pytest.FixtureRequest, cuda: FakeCuda, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The device, whose memory counts as out of the host's reach."""
    with dmlvk.Device(device.name, force_staging=True, force_copy_queue=request.param) as opened:
        object.__setattr__(opened.vulkan.context.configuration, "exports_memory", True)
        yield opened
        cuda.synchronize()


def random(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, shape, np.int64).astype(np.int32)


def test_submissions_take_their_place_in_the_stream(cuda: FakeCuda, own: dmlvk.Device) -> None:
    """50 rounds of stream -> dmlvk -> stream. Each piece of the stream's work is late, so a race gives wrong sums."""
    state = random(1)
    model = state.copy()
    source, result = own.tensor(state * 0), own.tensor(state * 0)
    seen, back = Array.from_dlpack(source, 1).elements, Array.from_dlpack(result, 1).elements
    desc = dmlvk.Slice1Desc(
        input_tensor=source.desc,
        output_tensor=source.desc,
        input_window_offsets=(0, 0),
        input_window_sizes=SHAPE,
        input_window_strides=(1, -1),
    )
    reverse = own.compile(desc)
    for number in range(50):
        cuda.run(lambda number=number: np.add(state, number, out=seen))  # type: ignore[misc]
        reverse(input_tensor=source, output_tensor=result)
        cuda.run(lambda: np.multiply(back, 3, out=state))
        model = (model + np.int32(number))[:, ::-1] * np.int32(3)
    cuda.synchronize()
    assert np.array_equal(state, model)


def test_reads_and_writes_of_the_host_take_their_place_too(cuda: FakeCuda, own: dmlvk.Device) -> None:
    values = random(2)
    tensor = own.tensor(values)
    seen = Array.from_dlpack(tensor, 1).elements
    cuda.run(lambda: np.add(seen, 5, out=seen))
    assert np.array_equal(tensor.numpy(), values + 5)
    found = np.empty_like(values)
    tensor.write(values * 7)
    cuda.run(lambda: np.copyto(found, seen))
    cuda.synchronize()
    assert np.array_equal(found, values * 7)
    # So much goes to the copy queue, unless it is shared.
    many = random(12, (1024, 1024))
    large = own.tensor(many)
    view = Array.from_dlpack(large, 1).elements
    for number in range(3):
        cuda.run(lambda number=number: np.add(many, number, out=view))  # type: ignore[misc]
        assert np.array_equal(large.numpy(), many + number)
        cuda.run(lambda: np.add(view, 1, out=view))
        large.write(many * 3)
    cuda.synchronize()
    assert np.array_equal(view, many * 3)


@pytest.mark.parametrize("is_split", [False, True])
def test_lists_and_sequences_cross_too(cuda: FakeCuda, own: dmlvk.Device, is_split: bool) -> None:
    values = random(3)
    source, middle, result = own.tensor(values), own.tensor(values * 0), own.tensor(values * 0)
    copy = own.compile(copy_desc(source.desc))
    bindings = [
        copy.bind(input_tensor=source, output_tensor=middle),
        copy.bind(input_tensor=middle, output_tensor=result),
    ]
    if is_split:  # into a command buffer for each: the stream waits for the last of them
        for binding in bindings:
            binding.seconds = ((0.6 * MAXIMUM_SUBMISSION_SECONDS,),)
    sequence = own.sequence(bindings)
    seen, back = Array.from_dlpack(source, 1).elements, Array.from_dlpack(result, 1).elements
    for number, submit in enumerate([lambda: own.submit(bindings), sequence.submit, sequence.submit]):
        found = np.empty_like(values)
        cuda.run(lambda number=number: np.add(values, number, out=seen))  # type: ignore[misc]
        submit()
        cuda.run(lambda found=found: np.copyto(found, back))  # type: ignore[misc]
        cuda.synchronize()
        assert np.array_equal(found, values + number)


def test_streams_may_change(cuda: FakeCuda, own: dmlvk.Device) -> None:
    """The values of `ready` grow although other streams signal them: the fake asserts it."""
    values = random(4)
    source, result = own.tensor(values), own.tensor(values * 0)
    copy = own.compile(copy_desc(source.desc))
    seen, back = Array.from_dlpack(source, 1).elements, Array.from_dlpack(result, 1).elements
    for number in range(12):
        cuda.current[:] = [(1, 2, 77)[number % 3]]
        found = np.empty_like(values)
        cuda.run(lambda number=number: np.add(values, number, out=seen))  # type: ignore[misc]
        copy(input_tensor=source, output_tensor=result)
        cuda.run(lambda found=found: np.copyto(found, back))  # type: ignore[misc]
        cuda.synchronize()
        assert np.array_equal(found, values + number)
    cuda.current[:] = [2, 77]  # two libraries
    cuda.streams[2].put(lambda: np.add(values, 100, out=seen))
    copy(input_tensor=source, output_tensor=result)
    cuda.streams[77].put(lambda: np.copyto(found, back))
    cuda.synchronize()
    assert np.array_equal(found, values + 100)


def test_signals_of_several_streams_keep_their_order(cuda: FakeCuda, own: dmlvk.Device) -> None:
    """The first stream is held up; the second one signals a higher value, and the fake asserts that it comes later."""
    values = random(13)
    source, result = own.tensor(values), own.tensor(values * 0)
    copy = own.compile(copy_desc(source.desc))
    view = Array.from_dlpack(source, 1)
    own.wait()
    goes_on = threading.Event()
    cuda.run(lambda: None if goes_on.wait(60) else pytest.fail("nobody lets the stream go on"))
    copy(input_tensor=source, output_tensor=result)
    cuda.current[:] = [2]
    submission = copy(input_tensor=source, output_tensor=result)
    with pytest.raises(TimeoutError):
        submission.wait(0.05)
    goes_on.set()
    submission.wait()
    cuda.synchronize()
    assert np.array_equal(result.numpy(), view.elements)


def test_memory_that_is_given_back_is_used_anew_after_the_stream(cuda: FakeCuda, own: dmlvk.Device) -> None:
    values = random(5)
    tensor = own.tensor(values)
    place = tensor.memory().segments[0]
    array = Array.from_dlpack(tensor, 1)
    found = np.empty_like(values)
    own.wait()  # a submission in flight would hold the memory too
    goes_on = threading.Event()
    cuda.run(lambda: None if goes_on.wait(60) else pytest.fail("nobody lets the stream go on"))
    cuda.run(lambda elements=array.elements: np.copyto(found, elements))  # type: ignore[misc]
    array.drop()
    del array, tensor
    gc.collect()
    other = own.tensor(values * 3)
    assert other.memory().segments[0] == place, "the test is about the same memory"
    goes_on.set()
    cuda.synchronize()
    assert np.array_equal(found, values)
    assert np.array_equal(other.numpy(), values * 3)


@pytest.mark.parametrize("turned", [False, True])
def test_an_array_is_copied_without_the_host(
    cuda: FakeCuda, own: dmlvk.Device, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("through the host")

    monkeypatch.setattr(type(own.vulkan.transfers), "write", refuse)
    values = random(6)
    elements = np.zeros_like(values)
    cuda.run(lambda: np.copyto(elements, values))
    tensor = own.tensor(Array(elements.T if turned else elements))
    expected = values.T if turned else values
    assert tensor.desc.is_packed and tensor.numpy().tobytes() == expected.tobytes()


def test_a_view_outlives_its_tensor(cuda: FakeCuda, own: dmlvk.Device) -> None:
    values = random(7)
    before = own.memory_used
    array = Array.from_dlpack(own.tensor(values), 1)
    gc.collect()
    others = [own.tensor(values * 0) for _ in range(20)]
    cuda.synchronize()
    assert np.array_equal(array.elements, values)
    array.drop()
    del array, others
    gc.collect()
    assert own.memory_used == before


def test_what_a_stream_may_be(cuda: FakeCuda, own: dmlvk.Device) -> None:
    tensor = own.tensor(random(8))
    for wrong in (0, -2, "one", 1.5):
        with pytest.raises(BufferError, match="0 is ambiguous"):
            tensor.__dlpack__(stream=wrong)
    for right in (None, -1, 1, 77):
        tensor.__dlpack__(stream=right)
    with pytest.raises(BufferError, match="not to the DLPack device"):
        tensor.__dlpack__(dl_device=(2, ORDINAL_OF_ANOTHER))
    assert np.array_equal(from_dlpack(tensor, device="cpu"), tensor.numpy())


ORDINAL_OF_ANOTHER = fake_cuda.ORDINAL + 1


def test_a_copy_fills_every_segment(cuda: FakeCuda, device: dmlvk.Device) -> None:
    """A tensor that is larger than a block of the device's memory: each of its segments is imported by itself."""
    values = random(21, (4, 64, 1024))
    with open_variant(device, "segmented-staged") as own:
        object.__setattr__(own.vulkan.context.configuration, "exports_memory", True)
        tensor = own.tensor(Array(values))
        assert len(tensor.memory().segments) > 1
        assert np.array_equal(tensor.numpy(), values)
        cuda.synchronize()


@pytest.mark.parametrize("reaches_driver", [False, True])
def test_a_submission_that_an_exception_ended(
    cuda: FakeCuda, own: dmlvk.Device, reaches_driver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next submission signals a value of its own: a timeline's value only grows, or the driver is lost."""
    values = random(22)
    source, result = own.tensor(values), own.tensor(values * 0)
    copy = own.compile(copy_desc(source.desc))
    seen, back = Array.from_dlpack(source, 1).elements, Array.from_dlpack(result, 1).elements
    copy(input_tensor=source, output_tensor=result)
    submit = vk.vkQueueSubmit
    signalled: list[int] = []

    def ending(*arguments: Any) -> int:
        if reaches_driver:
            noted(*arguments)
        raise KeyboardInterrupt

    def noted(queue: Any, count: int, array: Any, fence: Any) -> Any:
        last = array[count - 1]
        if last.signalSemaphoreCount > 1:
            timeline = vk.ffi.cast("VkTimelineSemaphoreSubmitInfo*", last.pNext)
            signalled.append(timeline.pSignalSemaphoreValues[1])
        return submit(queue, count, array, fence)

    with monkeypatch.context() as patch:
        patch.setattr(vk, "vkQueueSubmit", ending)
        with pytest.raises(KeyboardInterrupt):
            copy(input_tensor=source, output_tensor=result)
    monkeypatch.setattr(vk, "vkQueueSubmit", noted)
    found = np.empty_like(values)
    cuda.run(lambda: np.add(values, 9, out=seen))
    copy(input_tensor=source, output_tensor=result)
    cuda.run(lambda: np.copyto(found, back))
    cuda.synchronize()
    assert np.array_equal(found, values + 9)
    assert signalled == sorted(set(signalled)) and len(signalled) == 1 + reaches_driver
