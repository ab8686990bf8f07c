"""Layouts of host arrays, and transfers that turn one layout into another on the device.

An array whose elements fill its memory crosses the bus as it lies, and SLICE1's kernels put the elements where the
tensor wants them: a host turns layouts at a fraction of the bus's speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dmlvk.data_type import DataType
from dmlvk.errors import OutOfMemoryError
from dmlvk.operators import Slice1Desc
from dmlvk.operators.slice1 import copy_desc
from dmlvk.runtime.array_protocol import ArrayProtocol
from dmlvk.runtime.elements import Array, Bytes
from dmlvk.tensor_desc import TensorDesc

# Smaller tensors are turned by the host: a dispatch costs more than the host saves.
LEAST_SIZE_TURNED_ON_DEVICE = 1 << 20
# Smaller tensors are turned by the host until the kernel for their layouts is compiled. A driver takes 30 to 40 ms for
# that, in which NumPy turns this size at worst: 0.2 GB/s, element by element.
LEAST_SIZE_THAT_WAITS_FOR_COMPILER = 8 << 20


@dataclass(frozen=True)
class HostLayout:
    """The layout of a host array whose elements fill its memory, in any order of the dimensions.

    desc: a tensor with the same layout.
    memory: the array's memory, in the order of the addresses.
    """

    desc: TensorDesc
    memory: Bytes

    @classmethod
    def of(cls, array: Array) -> HostLayout | None:
        """The layout of an array in the host's byte order; None if its elements do not fill its memory."""
        # Dimensions of size 1 may have any stride.
        order = sorted(range(array.ndim), key=lambda k: (array.shape[k] > 1, -array.strides[k]))
        in_order = array.transpose(order)
        if not in_order.flags.c_contiguous or not array.dtype.isnative:
            return None
        strides = tuple(
            stride // array.itemsize if size > 1 else 1 for size, stride in zip(array.shape, array.strides, strict=True)
        )
        return cls(_desc(array.dtype, array.shape, strides), in_order.reshape(-1).view(np.uint8))

    @classmethod
    def require(cls, array: Array) -> HostLayout:
        """The layout of an array, or else of a packed copy of the array."""
        found = cls.of(array)
        if found is None:
            found = cls.of(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))
            assert found is not None, "a packed array fills its memory"
        return found

    def is_layout_of(self, desc: TensorDesc) -> bool:
        """Whether a tensor has this layout, without gaps."""
        layouts = zip(desc.sizes, desc.element_strides, self.desc.element_strides, strict=True)
        return all(size == 1 or stride == own for size, stride, own in layouts)


def write_turned(tensor: ArrayProtocol, elements: Array) -> bool:
    """Write elements of any layout by way of the device; whether that was possible."""
    desc = tensor.desc
    if desc.has_overlap():
        return False  # SLICE1 promises no order for elements that share memory
    layout = HostLayout.require(elements)
    if layout.is_layout_of(desc):
        tensor.engine.vulkan.transfers.write(tensor.memory(), tensor.offset, layout.memory)
        return True
    if not _is_turned_at_once(tensor.device, layout.desc, desc):
        return False
    try:
        staged = tensor.device.tensor(layout.desc)
        tensor.engine.vulkan.transfers.write(staged.memory(), 0, layout.memory)
        turn(staged, tensor)
    except OutOfMemoryError:  # the device has too little; the host can still do it
        return False
    return True


def read_turned(tensor: ArrayProtocol, out: Array) -> bool:
    """Read the elements into an array by way of the device; whether that was possible."""
    layout = HostLayout.of(out)
    if layout is None:
        return False
    if layout.is_layout_of(tensor.desc):
        tensor.engine.vulkan.transfers.read(tensor.memory(), tensor.offset, layout.memory)
        return True
    if not _is_turned_at_once(tensor.device, tensor.desc, layout.desc):
        return False
    try:
        staged = tensor.device.tensor(layout.desc)
        turn(tensor, staged)
        tensor.engine.vulkan.transfers.read(staged.memory(), 0, layout.memory)
    except OutOfMemoryError:  # the device has too little; the host can still do it
        return False
    return True


def turn(source: ArrayProtocol, destination: ArrayProtocol) -> None:
    """Copy all elements from one tensor to another of the same sizes and type, on their device; does not wait."""
    operator: Any = source.device.compile(_whole(source.desc, destination.desc))
    operator(input_tensor=source, output_tensor=destination)


def _is_turned_at_once(device: Any, source: TensorDesc, destination: TensorDesc) -> bool:
    """Whether the kernel that turns a layout is there, or worth waiting for; if not, the next time finds it."""
    size = source.total_size_in_bytes
    return size >= LEAST_SIZE_THAT_WAITS_FOR_COMPILER or device.is_ready(_whole(source, destination))


# A program moves arrays of few layouts, and making a descriptor costs as much as a dispatch.
@lru_cache(maxsize=256)
def _desc(dtype: np.dtype[Any], sizes: tuple[int, ...], strides: tuple[int, ...]) -> TensorDesc:
    return TensorDesc(DataType.from_numpy(dtype), sizes, strides)


@lru_cache(maxsize=256)
def _whole(source: TensorDesc, destination: TensorDesc) -> Slice1Desc:
    return copy_desc(plain(source), plain(destination))


def plain(desc: TensorDesc) -> TensorDesc:
    """The layout of a tensor alone: without its flags and its alignment."""
    return TensorDesc(desc.data_type, desc.sizes, desc.strides, total_size_in_bytes=desc.total_size_in_bytes)
