"""dmlvk.torch on CUDA tensors of a real GPU: on the same GPU, in the order of torch's streams, right in CUDA graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import dmlvk
import dmlvk.cuda
import dmlvk.torch
from dmlvk import BindingError, DeviceError

GENERATOR = torch.Generator().manual_seed(3)


@pytest.fixture(autouse=True)
def _no_way_by_the_host() -> Iterator[None]:
    """The warning that elements go through the host fails a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def mirrored(x: Any) -> Any:
    return dmlvk.torch.slice1(
        x,
        input_window_offsets=(0,) * x.ndim,
        input_window_sizes=x.shape,
        input_window_strides=(1,) * (x.ndim - 1) + (-1,),
    )


def bytes_of(*sizes: int, dtype: Any = torch.uint8) -> Any:
    return torch.randint(0, 256, sizes, generator=GENERATOR).to(torch.uint8).view(dtype)


def convolution(x: Any, filter: Any, scales: Any, **change: Any) -> Any:
    fields = {"input_zero_point": 128, "output_zero_point": torch.tensor(7, dtype=torch.uint8), "strides": (2, 1)}
    return dmlvk.torch.quantized_linear_convolution(x, 0.02, filter, scales, 0.9, **(fields | change))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.int32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x.mT,
        lambda x: x[:, 1:, ::2],
        lambda x: x[:1].expand(x.shape),
        lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
    ],
)
def test_elements_of_every_layout(dtype: Any, layout: Callable[[Any], Any]) -> None:
    host = bytes_of(3, 8, 64, dtype=dtype)
    found = mirrored(layout(host.cuda()))
    assert found.is_cuda and found.is_contiguous()
    expected = layout(host).flip(-1).contiguous()
    assert found.cpu().numpy().tobytes() == expected.numpy().tobytes()


def test_each_operator_gives_the_bits_of_the_cpu_tensors() -> None:
    x, filter, scales = bytes_of(2, 16, 20, 20), bytes_of(8, 16, 3, 3, dtype=torch.int8), torch.rand(8) * 0.01
    bias = torch.randint(-999, 999, (8,), dtype=torch.int32)
    expected = convolution(x, filter, scales, bias=bias)
    assert expected.unique().numel() > 10
    on_gpu = [tensor.cuda() for tensor in (x, filter, scales)]
    assert convolution(on_gpu[0], on_gpu[1], on_gpu[2], bias=bias.cuda()).cpu().equal(expected)
    last = [tensor.to(memory_format=torch.channels_last) for tensor in on_gpu[:2]]
    assert convolution(last[0], last[1], on_gpu[2], bias=bias.cuda().long()).cpu().equal(expected)
    indices, values = torch.tensor([[3], [-1], [9]]), torch.tensor([0.5, 2.5])
    found = dmlvk.torch.one_hot(indices.cuda(), values.cuda(), output_length=5, axis=1)
    assert found.cpu().equal(dmlvk.torch.one_hot(indices, values, output_length=5, axis=1))
    matrix = torch.randn(70, 50)
    found = dmlvk.torch.diagonal_matrix1(matrix.cuda(), value=0, diagonal_fill_begin=-(2**31), diagonal_fill_end=1)
    assert found.cpu().equal(torch.triu(matrix, 1))


def test_it_runs_on_the_gpu_of_the_tensor() -> None:
    for ordinal in range(torch.cuda.device_count()):
        x = torch.arange(12, device=f"cuda:{ordinal}").reshape(3, 4)
        used = dmlvk.cuda.device_of(ordinal).memory_used
        found = mirrored(x)
        assert found.device == x.device and found.equal(x.flip(1))
        assert dmlvk.cuda.device_of(ordinal).memory_used > used


def test_a_negation_that_is_left_to_do() -> None:
    numbers = torch.randn(5, 6, dtype=torch.complex64)
    pending = numbers.cuda().conj().imag
    assert pending.is_neg()
    assert mirrored(pending).cpu().equal(-numbers.imag.flip(1))
    tensor = dmlvk.cuda.device_of(0).tensor(pending)
    assert torch.from_numpy(tensor.numpy()).equal(-numbers.imag)


@pytest.mark.parametrize("own_stream", [False, True])
def test_a_pipeline_without_a_wait_on_the_host(own_stream: bool) -> None:
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    x = torch.arange(1 << 20, dtype=torch.int32, device="cuda").reshape(1024, 1024)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = x.clone()
        for number in range(200):
            y = mirrored(y * 3 + number) ^ 5
    stream.synchronize()
    expected = x.clone()
    for number in range(200):
        expected = (expected * 3 + number).flip(1) ^ 5
    assert y.equal(expected)


def test_a_result_outlives_many_others() -> None:
    """The memory of a result is not given to another one while torch's work on it is queued."""
    results, sources = [], []
    for number in range(50):
        sources.append(torch.full((256, 256), number, device="cuda"))
        results.append(mirrored(sources[-1]) + 1)
    assert all(bool((result == number + 1).all()) for number, result in enumerate(results))


def test_a_graph_that_is_captured_is_refused() -> None:
    x = torch.ones(4, 4, device="cuda")
    mirrored(x)
    with pytest.raises(DeviceError, match="a CUDA graph is being captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        mirrored(x)


def test_compiled_with_cuda_graphs() -> None:
    compiled = torch.compile(lambda x: mirrored(x * 2) + 1, mode="reduce-overhead", fullgraph=True)
    for number in range(6):
        x = torch.arange(12.0, device="cuda").reshape(3, 4) + number
        assert compiled(x).equal((x * 2).flip(1) + 1)


def test_tensors_of_two_devices() -> None:
    x, filter, scales = bytes_of(1, 2, 6, 6).cuda(), bytes_of(3, 2, 2, 2, dtype=torch.int8).cuda(), torch.rand(3)
    with pytest.raises(BindingError, match="filter_scale is on cpu, and input on cuda:0"):
        convolution(x, filter, scales)
    assert convolution(x, filter, torch.tensor(0.1)).is_cuda
