"""torch and dmlvk see the same memory by DLPack, and `device.tensor` takes torch tensors of all kinds."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dmlvk
import dmlvk.torch
from dmlvk import DataType, TensorDesc
from tests.torch.tensors import DTYPES, LAYOUTS, random_tensor

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_change_on_one_side_is_seen_on_the_other(device: dmlvk.Device, dtype: Any) -> None:
    first, second = random_tensor((3, 5), dtype, 1), random_tensor((3, 5), dtype, 2)
    tensor = device.tensor(first)
    shared = torch.from_dlpack(tensor)
    assert (shared.dtype, shared.shape, shared.device.type) == (dtype, (3, 5), "cpu")
    assert shared.numpy().tobytes() == first.numpy().tobytes()
    tensor.write(second)
    assert shared.numpy().tobytes() == second.numpy().tobytes()
    shared[1:, ::2] = first[1:, ::2]
    second[1:, ::2] = first[1:, ::2]
    assert tensor.numpy().tobytes() == second.numpy().tobytes()


def test_two_views_are_one_memory(device: dmlvk.Device) -> None:
    tensor = device.tensor(torch.zeros(4))
    one, two = torch.from_dlpack(tensor), torch.from_dlpack(tensor)
    one += 3
    assert two.tolist() == [3.0] * 4 and one.data_ptr() == two.data_ptr()


@pytest.mark.parametrize("strides", [(20, 1, 5), (1, 20, 4), (40, 8, 2), (20, 0, 1)])
def test_strides_and_offsets(device: dmlvk.Device, strides: tuple[int, ...]) -> None:
    desc = TensorDesc(DataType.INT16, (2, 4, 5), strides)
    buffer = device.buffer(4096)
    before = np.random.default_rng(3).integers(0, 256, 4096, np.uint8)
    buffer.tensor(TensorDesc(DataType.UINT8, (4096,))).write(before)
    tensor = buffer.tensor(desc, offset=48)
    shared = torch.from_dlpack(tensor)
    assert shared.shape == (2, 4, 5) and shared.stride() == strides
    expected = torch.from_numpy(before[48:].view(np.int16)).as_strided((2, 4, 5), strides)
    assert shared.equal(expected)
    tensor.write(torch.arange(40, dtype=torch.int16).reshape(2, 4, 5))
    assert shared[1, 3].tolist() == [35, 36, 37, 38, 39]
    shared[0, 3, 4] = -9
    expected[:, : 4 if strides[1] else 1] = shared[:, : 4 if strides[1] else 1]
    assert buffer.tensor(TensorDesc(DataType.UINT8, (4096,))).read_bytes() == before.tobytes()


def test_the_results_of_a_later_dispatch_are_seen(device: dmlvk.Device) -> None:
    desc = dmlvk.DiagonalMatrix1Desc(
        output_tensor=TensorDesc(DataType.FLOAT32, (3, 4)), value=2.5, diagonal_fill_begin=0, diagonal_fill_end=1
    )
    output = device.tensor(torch.full((3, 4), float("nan")))
    shared = torch.from_dlpack(output)
    device.compile(desc)(output_tensor=output).wait()
    assert shared.equal(torch.eye(3, 4) * 2.5)


def test_a_view_keeps_the_memory(device: dmlvk.Device) -> None:
    tensor = device.tensor(torch.arange(1000))
    shared = torch.from_dlpack(tensor)
    part = shared[500:]
    gc.collect()
    used, gone = device.memory_used, weakref.ref(tensor)
    del tensor, shared
    gc.collect()
    assert gone() is None and device.memory_used == used
    others = [device.tensor(torch.full((1000,), -1)) for _ in range(8)]
    assert part.equal(torch.arange(500, 1000))
    del part, others
    gc.collect()
    assert device.memory_used < used


def test_a_view_outlives_a_closed_device(device: dmlvk.Device) -> None:
    with dmlvk.Device(device.name) as other:
        shared = torch.from_dlpack(other.tensor(torch.arange(1000)))
        result = dmlvk.torch.slice1(
            shared,
            input_window_offsets=(0,),
            input_window_sizes=(1000,),
            input_window_strides=(-1,),
            device=other,
        )
    gc.collect()
    with dmlvk.Device(device.name) as other:  # which would get the memory, if it were free
        filler = [other.tensor(torch.full((1000,), -1)) for _ in range(8)]
        shared += 1
        assert shared.equal(torch.arange(1, 1001)) and result.equal(torch.arange(1000).flip(0))
        assert all(tensor.numpy().max() == -1 for tensor in filler)


def test_a_view_at_the_end_of_the_process(device: dmlvk.Device) -> None:
    program = (
        "import torch, dmlvk\n"
        f"device = dmlvk.Device({device.name!r})\n"
        "shared = torch.from_dlpack(device.tensor(torch.arange(9)))\n"
        "print(int(shared.sum()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "36\n", "")


def test_memory_that_the_host_does_not_reach(device: dmlvk.Device) -> None:
    with dmlvk.Device(device.name, force_staging=True) as staged:
        tensor = staged.tensor(torch.arange(6))
        with pytest.raises(BufferError, match="cannot be shared"):
            torch.from_dlpack(tensor)
        assert torch.from_numpy(tensor.numpy()).equal(torch.arange(6))


class TestTensorOfTorch:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_type_and_layout(self, device: dmlvk.Device, dtype: Any, layout: str) -> None:
        source = LAYOUTS[layout](random_tensor((3, 4, 5), dtype))
        tensor = device.tensor(source)
        assert tensor.desc == TensorDesc(str(dtype).removeprefix("torch."), (3, 4, 5))
        assert tensor.numpy().tobytes() == source.contiguous().numpy().tobytes()

    def test_it_is_a_copy(self, device: dmlvk.Device) -> None:
        source = torch.arange(6)
        tensor = device.tensor(source)
        source += 1
        assert tensor.tolist() == [0, 1, 2, 3, 4, 5]

    def test_a_copy_of_what_dmlvk_shares(self, device: dmlvk.Device) -> None:
        first = device.tensor(torch.arange(6))
        second = device.tensor(torch.from_dlpack(first)[::2])
        first.write(torch.zeros(6, dtype=torch.int64))
        assert second.tolist() == [0, 2, 4]

    def test_a_number(self, device: dmlvk.Device) -> None:
        assert device.tensor(torch.tensor(2.5)).tolist() == [2.5]

    def test_a_negation_that_is_left_to_do(self, device: dmlvk.Device) -> None:
        numbers = torch.randn(7, dtype=torch.complex64)
        pending = numbers.conj().imag
        assert pending.is_neg()
        np.testing.assert_array_equal(device.tensor(pending).numpy(), -numbers.numpy().imag)
        tensor = device.empty((7,))
        tensor.write(pending)
        np.testing.assert_array_equal(tensor.numpy(), -numbers.numpy().imag)

    def test_dtype_converts(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(torch.tensor([True, False]), dtype=DataType.UINT8)
        assert (tensor.desc.data_type, tensor.tolist()) == (DataType.UINT8, [1, 0])

    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda x: x > 0, TypeError, "bool has no DirectML data type"),
            (lambda x: x.bfloat16(), TypeError, r"bfloat16 .*x.float\(\)"),
            (lambda x: x.to(torch.complex64), TypeError, "complex64 has no DirectML data type"),
            (lambda x: x.to(torch.complex64).conj(), BufferError, "conjugate bit"),
            (lambda x: x.requires_grad_(), BufferError, r"require gradient, use tensor.detach\(\)"),
            (lambda x: x.to_sparse(), BufferError, "layout other than torch.strided"),
            (lambda x: x.to("meta"), (BufferError, TypeError, ValueError, RuntimeError), "meta"),
            (lambda x: x[:0], dmlvk.DescriptorError, r"sizes\[0\] = 0"),
            (lambda x: x[(None,) * 7], dmlvk.DescriptorError, "1 to 8 dimensions"),
        ],
    )
    def test_what_no_tensor_can_hold(self, device: dmlvk.Device, make: Any, error: Any, message: str) -> None:
        used = device.memory_used
        with pytest.raises(error, match=message):
            device.tensor(make(torch.randn(3, 4)))
        assert device.memory_used == used

    def test_write_takes_them_too(self, device: dmlvk.Device) -> None:
        tensor = device.tensor(TensorDesc(DataType.FLOAT64, (4, 3), strides=(1, 5)))
        source = torch.randn(3, 4, dtype=torch.float64).mT
        tensor.write(source)
        assert torch.from_dlpack(tensor).equal(source)
        with pytest.raises(dmlvk.BindingError, match="float32"):
            tensor.write(source.float())
        with pytest.raises(dmlvk.BindingError, match="shape"):
            tensor.write(source.mT)

    def test_the_one_liners_take_such_tensors(self, device: dmlvk.Device) -> None:
        source = random_tensor((3, 4), torch.uint16)
        output = dmlvk.slice1(
            device.tensor(source), input_window_offsets=(0, 0), input_window_sizes=(3, 4), input_window_strides=(-1, 1)
        )
        np.testing.assert_array_equal(torch.from_dlpack(output).numpy(), source.numpy()[::-1])
