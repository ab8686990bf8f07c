"""Which GPU a tensor lies on, on a machine with one NVIDIA GPU or several: `make test-cuda`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dmlvk
import dmlvk.cuda

ORDINALS = range(torch.cuda.device_count())


def random(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, (64, 64), np.int64).astype(np.int32)


@pytest.mark.parametrize("ordinal", ORDINALS)
def test_a_device_is_found_by_its_uuid(ordinal: int) -> None:
    device = dmlvk.cuda.device_of(ordinal)
    assert dmlvk.cuda.obstacle(device) is None
    assert dmlvk.cuda.device_of(ordinal) is device
    values = random(ordinal)
    tensor = device.tensor(values)
    assert tensor.__dlpack_device__() == (2, ordinal)
    seen = torch.from_dlpack(tensor)
    assert seen.device == torch.device("cuda", ordinal)
    assert np.array_equal(seen.cpu().numpy(), values)
    seen += 1
    assert np.array_equal(tensor.numpy(), values + 1)


@pytest.mark.parametrize("ordinal", ORDINALS)
@pytest.mark.parametrize("other", ORDINALS)
def test_a_tensor_of_any_gpu_becomes_a_tensor_of_this_one(ordinal: int, other: int) -> None:
    """On the same GPU it is copied there, from another GPU by way of the host."""
    values = random(10 + ordinal)
    source = torch.from_numpy(values).to(f"cuda:{other}")
    tensor = dmlvk.cuda.device_of(ordinal).tensor(source)
    assert np.array_equal(tensor.numpy(), values)
    assert torch.from_dlpack(tensor).device.index == ordinal


def test_devices_of_two_gpus_work_at_the_same_time() -> None:
    results = []
    for ordinal in ORDINALS:
        device = dmlvk.cuda.device_of(ordinal)
        values = torch.from_numpy(random(20 + ordinal)).to(f"cuda:{ordinal}")
        tensor = device.tensor(values * 3)
        turned = dmlvk.slice1(
            tensor, input_window_offsets=(0, 0), input_window_sizes=(64, 64), input_window_strides=(1, -1)
        )
        results.append(torch.from_dlpack(turned) + 1)
    for ordinal, result in enumerate(results):
        with np.errstate(over="ignore"):
            expected = (random(20 + ordinal) * np.int32(3))[:, ::-1] + np.int32(1)
        assert np.array_equal(result.cpu().numpy(), expected)


def test_a_number_that_is_no_gpu() -> None:
    with pytest.raises(dmlvk.DeviceError, match="cuDeviceGet returned CUDA_ERROR_INVALID_DEVICE"):
        dmlvk.cuda.device_of(len(ORDINALS) + 5)
