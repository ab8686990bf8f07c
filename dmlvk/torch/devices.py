"""The Vulkan device of a call, and the tensors' way to it and back."""

from __future__ import annotations

import itertools
import warnings
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy.typing as npt
import torch

from dmlvk import cuda
from dmlvk._common.arguments import integer_of
from dmlvk.errors import DeviceError
from dmlvk.runtime.device import Device
from dmlvk.runtime.device_info import DeviceInfo
from dmlvk.runtime.exchange import DL_VULKAN
from dmlvk.runtime.shared_devices import DeviceName, named_device
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import TensorDesc
from dmlvk.torch.arguments import data_type_of

# A custom operator takes text, and no object of Python's: open devices go by these names, as long as they live.
KEY_START = "dmlvk.Device number "
# A compiler that has seen two positions takes the next one for a symbol. As an index it becomes a constant again.
POSITIONS = tuple(str(position) for position in range(64))
_numbers = itertools.count(1)
_devices: WeakValueDictionary[str, Device] = WeakValueDictionary()
_keys: WeakKeyDictionary[Device, str] = WeakKeyDictionary()


def _device_key(device: DeviceName) -> str:
    """The `device` argument of a custom operator: text that names an open Device, an index or part of a name.

    Raises TypeError: the argument is none of these.
    """
    if isinstance(device, str):
        return device
    position = device.here if isinstance(device, DeviceInfo) else integer_of(device)
    if position is not None:
        return str(position)
    if not isinstance(device, Device):
        raise TypeError(
            f"device is a {type(device).__name__}: pass None, a dmlvk.Device, an index or an element of "
            "dmlvk.devices(), or part of a name"
        )
    key = _keys.get(device)
    if key is None:
        key = f"{KEY_START}{next(_numbers)}"
        _devices[key] = device
        _keys[device] = key
    return key


# A compiler calls this while it traces, and puts the text into the program.
_constant_device_key = torch.compiler.assume_constant_result(_device_key)


def device_key(device: DeviceName) -> str | None:
    """As `_device_key`, and traced by compilers; None for None."""
    if device is None:
        return None
    if type(device) is int and 0 <= device < len(POSITIONS):
        return POSITIONS[device]
    return _constant_device_key(device)


def device_for(key: str | None, tensor: torch.Tensor | None) -> Device:
    """The device that a custom operator runs on: the one with the key, else the tensor's GPU, else the default one.

    Raises DeviceError: the Device with this key is gone, none has such a name, or CUDA is capturing a graph.
    """
    if tensor is not None and tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        raise DeviceError(
            "a CUDA graph is being captured, and cannot hold Vulkan's work: run dmlvk's operators outside of the graph"
        )
    if key is None:
        gpu = None if tensor is None else _gpu_of(tensor)
        return named_device(None) if gpu is None else gpu
    if not key.startswith(KEY_START):
        return named_device(key)
    device = _devices.get(key)
    if device is None:
        raise DeviceError(
            f"{key}, which was given when this program was compiled or exported, is gone, or belongs to another "
            "process: keep the Device while the program is used, or leave device out and set $DMLVK_DEVICE"
        )
    return device


def _gpu_of(tensor: torch.Tensor) -> Device | None:
    """The Vulkan device of the GPU in whose memory a tensor lies; None if the elements go through the host."""
    if not _is_on_cuda(tensor):
        return None
    try:
        return cuda.device_of(tensor.device.index)
    except DeviceError as error:
        message = f"dmlvk.torch copies CUDA tensors by way of the host, to {named_device(None)}: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None


def _is_on_cuda(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cuda" and torch.version.cuda is not None  # AMD's torch says "cuda" too


def operand(name: str, tensor: torch.Tensor, device: Device) -> Tensor:
    """A tensor's elements on the device, copied.

    Memory without gaps is copied as it lies, with its dimensions in any order (channels_last), because kernels read
    any strides. Other tensors are packed. A tensor without dimensions is one element in one dimension.
    """
    data_type = data_type_of(name, tensor.dtype)
    tensor = torch.atleast_1d(tensor.detach())
    if not tensor.is_cpu and not (_is_on_cuda(tensor) and device.profile.runs_cuda):
        tensor = tensor.cpu()
    order = None if tensor.is_contiguous() else _memory_order(tensor)
    if order is None:
        return _copied(tensor, device)
    packed = _copied(tensor.permute(order), device)
    return Tensor(device.engine, TensorDesc(data_type, tensor.shape, tensor.stride()), packed.memory(), packed.offset)


def _copied(tensor: torch.Tensor, device: Device) -> Tensor:
    if tensor.is_cpu:
        return device.tensor(tensor.numpy())
    with torch.cuda.device(tensor.device):  # torch shares the memory of its current GPU alone
        return device.tensor(tensor)


def _memory_order(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions from the widest stride to the narrowest; None if the memory has gaps or overlaps."""
    strides, expected = tensor.stride(), 1
    order = sorted(range(tensor.ndim), key=strides.__getitem__)
    for dimension in order:
        if tensor.shape[dimension] > 1 and strides[dimension] != expected:
            return None
        expected *= tensor.shape[dimension]
    return order[::-1]


def on_host(name: str, tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's elements as a NumPy array, without a copy where they lie on the host."""
    data_type_of(name, tensor.dtype)
    array: npt.NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def result(output: Tensor, target: torch.device) -> torch.Tensor:
    """The elements of an output as a torch tensor on a torch device: without a copy if it can share the memory."""
    kind, _ = output.__dlpack_device__()
    shared = torch.from_numpy(output.numpy()) if kind == DL_VULKAN else torch.from_dlpack(output)
    if 1 in shared.shape:  # for sizes of 1 NumPy gives strides of 0; torch's own packed tensors have others
        shared = shared.view(-1).view(shared.shape)
    return shared.to(target)
