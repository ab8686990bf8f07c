"""Memory shared with CUDA's libraries on a real GPU: `make test-cuda`. Needs torch, CuPy and cuda-bindings."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import cupy
import numpy as np
import pytest
import torch

import dmlvk
from dmlvk.runtime.cuda_sharing import sharing_of

TYPES = ("float32", "float16", "float64", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")


@pytest.fixture(scope="module")
def gpu() -> Iterator[dmlvk.Device]:
    with dmlvk.Device("NVIDIA") as device:
        yield device


def random(seed: int, shape: tuple[int, ...], dtype: str = "int32") -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).view(dtype).reshape(shape)


def reverse(device: dmlvk.Device, desc: dmlvk.TensorDesc) -> dmlvk.CompiledOperator:
    """An operator that turns the last dimension around."""
    rank = desc.rank
    return device.compile(
        dmlvk.Slice1Desc(
            input_tensor=desc,
            output_tensor=desc,
            input_window_offsets=(0,) * rank,
            input_window_sizes=desc.sizes,
            input_window_strides=(1,) * (rank - 1) + (-1,),
        )
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_torch_and_cupy_see_a_tensor(gpu: dmlvk.Device, dtype: str) -> None:
    values = random(1, (3, 5, 7), dtype)
    tensor = gpu.tensor(values)
    assert tensor.__dlpack_device__()[0] == 2
    seen = torch.from_dlpack(tensor)
    assert seen.is_cuda and tuple(seen.shape) == (3, 5, 7)
    assert seen.cpu().numpy().tobytes() == values.tobytes()
    assert cupy.from_dlpack(tensor).get().tobytes() == values.tobytes()


def test_memory_is_shared_both_ways(gpu: dmlvk.Device) -> None:
    values = random(2, (64, 1024))
    tensor = gpu.tensor(values)
    seen = torch.from_dlpack(tensor)
    seen += 5
    assert np.array_equal(tensor.numpy(), values + 5)
    tensor.write(values * 3)
    assert np.array_equal(seen.cpu().numpy(), values * 3)
    other = cupy.from_dlpack(tensor)
    other[...] = 17
    assert (seen.cpu().numpy() == 17).all() and (tensor.numpy() == 17).all()
    assert seen.data_ptr() == other.data.ptr


def test_strides_and_offsets(gpu: dmlvk.Device) -> None:
    desc = dmlvk.TensorDesc("int16", (2, 3, 4, 5), (60, 1, 15, 3))
    values = random(3, desc.sizes, "int16")
    tensor = gpu.buffer(4096).tensor(desc, 512)
    tensor.write(values)
    seen = torch.from_dlpack(tensor)
    assert seen.stride() == (60, 1, 15, 3)
    assert np.array_equal(seen.cpu().numpy(), values)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_cuda_tensor_becomes_a_tensor_without_the_host(
    gpu: dmlvk.Device, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("through the host")

    monkeypatch.setattr(type(gpu.vulkan.transfers), "write", refuse)
    values = random(4, (6, 33), dtype)
    source = torch.from_numpy(values).cuda()
    tensors = [gpu.tensor(source), gpu.tensor(source.t()), gpu.tensor(source[:, ::2]), gpu.tensor(cupy.asarray(values))]
    for tensor, expected in zip(tensors, (values, values.T, values[:, ::2], values), strict=True):
        assert tensor.desc.is_packed and tensor.numpy().tobytes() == np.ascontiguousarray(expected).tobytes()


def test_a_pipeline_without_a_wait_on_the_host(gpu: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 rounds of torch -> dmlvk -> torch on shared memory; a race would show in the sums."""
    shape = (256, 4096)
    values = torch.from_numpy(random(5, shape)).cuda()
    source, result = (gpu.tensor(dmlvk.TensorDesc("int32", shape)) for _ in range(2))
    turned = reverse(gpu, source.desc)
    seen, back = torch.from_dlpack(source), torch.from_dlpack(result)

    def rounds(waits: bool) -> torch.Tensor:
        state = values.clone()
        for number in range(1000):
            torch.add(state, number, out=seen)
            submission = turned(input_tensor=source, output_tensor=result)
            if waits:
                submission.wait()
            torch.mul(back, 3, out=state)
            if waits:
                torch.cuda.synchronize()
        return state

    expected = rounds(waits=True).cpu()
    waited = []
    monkeypatch.setattr(type(gpu.vulkan.queue), "wait", lambda *a, **k: waited.append(a))
    found = rounds(waits=False)
    monkeypatch.undo()
    assert not waited
    assert torch.equal(found.cpu(), expected)
    model = values.cpu().numpy()
    for number in range(1000):
        model = (model + np.int32(number))[:, ::-1] * np.int32(3)
    assert np.array_equal(expected.numpy(), model)


def test_other_streams_and_fresh_exports(gpu: dmlvk.Device) -> None:
    """Each round exports, imports and drops anew, on a stream that changes."""
    shape = (128, 2048)
    state = torch.from_numpy(random(6, shape)).cuda()
    model = state.cpu().numpy()
    streams = [torch.cuda.Stream() for _ in range(3)]
    for number in range(300):
        stream = streams[number % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            tensor = gpu.tensor(state + number)
            output = gpu.tensor(tensor.desc)
            reverse(gpu, tensor.desc)(input_tensor=tensor, output_tensor=output)
            state = torch.from_dlpack(output) * 3
            del tensor, output
        torch.cuda.current_stream().wait_stream(stream)
        model = (model + np.int32(number))[:, ::-1] * np.int32(3)
    assert np.array_equal(state.cpu().numpy(), model)


def test_given_back_memory_is_not_overwritten_too_early(gpu: dmlvk.Device) -> None:
    """The consumer is dropped while its kernel still reads: the memory's next user has to wait for it."""
    shape = (2048, 4096)
    for number in range(20):
        tensor = gpu.tensor(random(number, shape))
        seen = torch.from_dlpack(tensor)
        expected = seen.clone()
        torch.cuda._sleep(20_000_000)
        copy = seen.clone()
        del seen, tensor
        gc.collect()
        other = gpu.zeros(shape, "int32")  # likely the same memory
        assert torch.equal(copy, expected)
        del other


def test_the_view_outlives_tensor_and_device() -> None:
    values = random(7, (100, 100))
    device = dmlvk.Device("NVIDIA")
    seen = torch.from_dlpack(device.tensor(values))
    device.close()
    del device
    gc.collect()
    seen += 1
    assert np.array_equal(seen.cpu().numpy(), values + 1)
    with dmlvk.Device("NVIDIA") as other:
        assert np.array_equal(other.tensor(seen).numpy(), values + 1)


def test_ten_thousand_exports_leave_nothing(gpu: dmlvk.Device) -> None:
    tensor = gpu.tensor(random(8, (1000,)))
    torch.from_dlpack(tensor)
    torch.cuda.synchronize()
    gpu.wait()
    before = gpu.memory_used
    lost: list[int] = []
    while not lost or (lost[-1] > 64 << 20 and len(lost) < 5):
        free = torch.cuda.mem_get_info()[0]
        for _ in range(10_000):
            torch.from_dlpack(tensor)
        gpu.wait()
        lost.append(free - torch.cuda.mem_get_info()[0])
    assert gpu.memory_used == before
    # The free memory is the whole GPU's, of which other processes may take some at times. A leak takes it each time.
    assert min(lost) <= 64 << 20, lost
    assert len(sharing_of(gpu.engine)._released) < 100_000


def test_other_threads_export_and_call(gpu: dmlvk.Device) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            values = random(seed, (64, 256))
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    tensor = gpu.tensor(torch.from_numpy(values).cuda())
                    output = gpu.tensor(tensor.desc)
                    reverse(gpu, tensor.desc)(input_tensor=tensor, output_tensor=output)
                    if not np.array_equal(torch.from_dlpack(output).cpu().numpy(), values[:, ::-1]):
                        raise AssertionError("wrong bits")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_bad_input(gpu: dmlvk.Device) -> None:
    tensor = gpu.tensor(random(9, (4, 4)))
    with pytest.raises(BufferError, match="0 is ambiguous"):
        tensor.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="detach"):
        gpu.tensor(torch.ones(3, device="cuda", requires_grad=True))
    for dtype in (torch.bfloat16, torch.bool):
        with pytest.raises(TypeError, match=r"bfloat16|bool"):
            gpu.tensor(torch.ones(3, device="cuda").to(dtype))
    tensor.free()
    with pytest.raises(dmlvk.BindingError, match="freed"):
        torch.from_dlpack(tensor)
    with dmlvk.Device("NVIDIA") as other:
        closed = other.tensor(random(10, (4,)))
    with pytest.raises((dmlvk.DeviceError, BufferError), match="closed"):
        torch.from_dlpack(closed)


def test_numpy_takes_a_copy_only(gpu: dmlvk.Device) -> None:
    values = random(11, (4, 4))
    tensor = gpu.tensor(values)
    assert np.array_equal(np.from_dlpack(tensor, device="cpu"), values)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(tensor)


def test_a_cuda_tensor_larger_than_a_block_of_memory(gpu: dmlvk.Device) -> None:
    """It lies in several segments, and the copy fills each; takes three times as much memory on the GPU."""
    size = gpu.profile.segment_size + (1 << 20)
    source = torch.randint(0, 256, (size // 8,), dtype=torch.int64, device="cuda")
    tensor = gpu.tensor(source)
    assert len(tensor.memory().segments) == 2
    for start in (0, gpu.profile.segment_size // 8 - 100, size // 8 - 1000):
        part = dmlvk.slice1(
            tensor, input_window_offsets=(start,), input_window_sizes=(200,), input_window_strides=(1,)
        ).numpy()
        assert np.array_equal(part, source[start : start + 200].cpu().numpy())
    with pytest.raises(BufferError, match="in several blocks"):
        tensor.__dlpack__()
