"""The device that a call runs on, and the tensors' way to it and back."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dmlvk
import dmlvk.cuda
import dmlvk.torch
from dmlvk import DeviceError
from dmlvk.runtime.shared_devices import named_device
from dmlvk.torch import devices, operators
from tests.torch.tensors import random_tensor

ALL = {"input_window_offsets": (0, 0), "input_window_strides": (1, -1)}


def mirrored(x: Any, device: Any = None) -> Any:
    return dmlvk.torch.slice1(x, **ALL, input_window_sizes=x.shape, device=device)


def test_the_default_device_runs_calls_that_name_none(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def named_device(name: str | None) -> dmlvk.Device:
        asked.append(name)
        return device

    monkeypatch.setattr(devices, "named_device", named_device)
    assert mirrored(torch.arange(6).reshape(2, 3)).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert asked == [None]


@pytest.mark.parametrize("compiles", [False, True])
def test_a_device_may_be_named(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, compiles: bool) -> None:
    """By part of a name, or by its position in dmlvk.devices()."""
    position = next(index for index, info in enumerate(dmlvk.devices()) if info.name == device.name)
    places = []

    def noting(name: str, tensor: Any, place: dmlvk.Device) -> Any:
        places.append(place)
        return operand(name, tensor, place)

    operand = devices.operand
    monkeypatch.setattr(operators, "operand", noting)
    call = torch.compile(mirrored, fullgraph=True, backend="eager") if compiles else mirrored
    for name in (position, device.name, device.name[:6].lower()):
        assert call(torch.arange(6).reshape(2, 3), name).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert len(places) == 3 and len(set(places)) == 1 and places[0].name == device.name
    with pytest.raises(DeviceError, match="'no such GPU' matches no device"):
        mirrored(torch.arange(6).reshape(2, 3), "no such GPU")


def test_without_a_name_it_is_that_of_the_one_liners() -> None:
    assert devices.device_for(None, None) is named_device(None)


def test_memory_that_the_host_does_not_reach_is_copied(device: dmlvk.Device) -> None:
    x = random_tensor((30, 50), torch.int16)
    image = random_tensor((2, 4, 9, 9), torch.uint8).to(memory_format=torch.channels_last)
    filter = random_tensor((3, 4, 2, 2), torch.int8)
    parameters = {"input_scale": 0.1, "filter_scale": torch.rand(3), "output_scale": 5.5}
    convolution = dmlvk.torch.quantized_linear_convolution
    with dmlvk.Device(device.name, force_staging=True) as staged:
        assert mirrored(x, staged).equal(x.flip(1))
        found = convolution(image, filter=filter, **parameters, device=staged)
        assert found.equal(convolution(image, filter=filter, **parameters, device=device))
        used = staged.memory_used
    assert found.unique().numel() > 10 and used < 1 << 20


def test_a_result_lies_in_the_memory_of_the_device(device: dmlvk.Device) -> None:
    x = torch.arange(1 << 16).reshape(256, 256)
    with dmlvk.Device(device.name) as own:
        found = mirrored(x, own)
        assert own.memory_used >= x.nbytes
        del found
        assert own.memory_used < x.nbytes


def test_keys_of_devices() -> None:
    assert devices.device_key("Radeon") == "Radeon" and devices.device_key(2) == "2"
    with pytest.raises(TypeError, match="device is a bool"):
        devices.device_key(True)


def test_each_device_has_one_key(device: dmlvk.Device) -> None:
    key = devices.device_key(device)
    assert devices.device_key(device) == key and devices.device_for(key, None) is device
    with dmlvk.Device(device.name) as other:
        assert devices.device_key(other) != key


def test_threads_share_a_device(device: dmlvk.Device) -> None:
    errors: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            for size in range(3, 23):
                x = random_tensor((size, 7), torch.int32, seed)
                assert mirrored(x, device).equal(x.flip(1))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


class TestCuda:
    """What CUDA tensors need, with a stand-in for the tensor and for CUDA."""

    tensor = SimpleNamespace(device=torch.device("cuda", 3), is_cuda=True)

    @pytest.fixture(autouse=True)
    def _cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    def test_the_device_of_the_same_gpu(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dmlvk.cuda, "device_of", {3: device}.__getitem__)
        assert devices.device_for(None, self.tensor) is device

    def test_a_device_that_is_named(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dmlvk.cuda, "device_of", lambda ordinal: pytest.fail("the device is named"))
        assert devices.device_for(devices.device_key(device), self.tensor) is device

    def test_otherwise_the_host_and_a_warning(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(ordinal: int) -> None:
            raise DeviceError(f"no Vulkan device on GPU {ordinal}")

        monkeypatch.setattr(devices, "named_device", lambda _: device)
        monkeypatch.setattr(dmlvk.cuda, "device_of", refuse)
        with pytest.warns(RuntimeWarning, match="by way of the host, .*: no Vulkan device on GPU 3"):
            assert devices.device_for(None, self.tensor) is device

    def test_amd_calls_its_gpus_cuda_too(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "cuda", None)
        monkeypatch.setattr(devices, "named_device", lambda _: device)
        monkeypatch.setattr(dmlvk.cuda, "device_of", lambda ordinal: pytest.fail("it is no GPU of NVIDIA's"))
        assert devices.device_for(None, self.tensor) is device

    def test_a_graph_that_is_captured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        with pytest.raises(DeviceError, match="a CUDA graph is being captured"):
            devices.device_for(None, self.tensor)
