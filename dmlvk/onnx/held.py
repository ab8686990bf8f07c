"""The values of a run, on the host and on the device, and how their elements move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlvk.onnx.graph import ShapeAndType
from dmlvk.onnx.program import Array, Value
from dmlvk.onnx.quantized_inputs import QuantizedInput
from dmlvk.runtime.tensor import Tensor
from dmlvk.vulkan.allocation import Allocation


class Held:
    """A value of a run: on the host, on the device, or on both.

    array: an array, or another kind of ONNX's values (a list), which only the host uses.
    tensor: the elements as unsigned integers of their size.
    value: shape and type of the tensor.
    is_shared: whether the array is a feed's or a constant's memory, so that no caller may have it.
    """

    def __init__(
        self, array: Any = None, tensor: Tensor | None = None, value: Value | None = None, is_shared: bool = False
    ) -> None:
        self._array = array
        self.tensor = tensor
        self._value = value
        self.is_shared = is_shared

    @property
    def is_tensor(self) -> bool:
        return self.tensor is not None or isinstance(self._array, np.ndarray)

    @property
    def kind(self) -> ShapeAndType:
        """Shape and type of a tensor."""
        if self._value is not None:
            return self._value.shape, self._value.dtype
        return self._array.shape, self._array.dtype

    @property
    def is_on_host(self) -> bool:
        """Whether the host has the value already."""
        return self._array is not None or self.tensor is None

    def host(self) -> Any:
        """The value on the host; read from the device once."""
        if self._array is None and self.tensor is not None and self._value is not None:
            self._array = self.tensor.numpy().view(self._value.dtype).reshape(self._value.shape)
        return self._array

    def reshaped(self, value: Value) -> Held:
        """The same elements in another shape, wherever they are."""
        if self.tensor is None:
            return Held(self._array.reshape(value.shape), is_shared=self.is_shared)
        return Held(None, self.tensor, value)

    def is_copied_to(self, tensor: Tensor | QuantizedInput) -> bool:
        """Whether `write_to` copies the elements on the device."""
        return isinstance(tensor, Tensor) and self.tensor is not None and self.tensor.desc.sizes == tensor.desc.sizes

    def write_to(self, tensor: Tensor | QuantizedInput) -> None:
        """Write the elements to a tensor of unsigned integers, on the device if they are there."""
        if self.is_copied_to(tensor):
            tensor.write(self.tensor)
            return
        write(tensor, np.asarray(self.host()))


def write(tensor: Tensor | QuantizedInput, array: Array) -> None:
    """Write the elements of an array to a tensor of unsigned integers of their size."""
    carrier = tensor.desc.data_type.numpy_dtype
    if array.dtype != carrier or array.shape != tensor.desc.sizes:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(tensor.desc.sizes).view(carrier)
    tensor.write(array)


def own_results(held: Sequence[Held | None], constants: Sequence[Any]) -> list[Any]:
    """The results of a run, each of which is the caller's own: it shares no memory with any other array.

    held: the values of the outputs; None for those that are constants.
    constants: their elements.
    """
    taken: set[int] = set()
    results: list[Any] = []
    for value, constant in zip(held, constants, strict=True):
        if value is None:
            results.append(np.array(constant))
            continue
        results.append(_own_value(value.host(), value.is_shared, taken))
    return results


def own(found: list[Any]) -> list[Any]:
    """Results of the host's library, each of which is the caller's own."""
    below: set[int] = set()
    for each in found:
        base = each.base if type(each) is np.ndarray else None
        if base is None or type(base) is np.ndarray:
            break
        below.add(id(base))
    # As a rule each array has an object of its own below it, which holds ONNX Runtime's memory.
    if len(below) == len(found):
        return found
    taken: set[int] = set()
    return [_own_value(each, False, taken) for each in found]


def _own_value(value: Any, is_shared: bool, taken: set[int]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_own(each, is_shared, taken) for each in value]
    return _own(value, is_shared, taken)


def _own(array: Any, is_shared: bool, taken: set[int]) -> Any:
    """An array, or a copy of it if its memory is another's too."""
    if not isinstance(array, np.ndarray):
        return array
    memory: Any = array
    while isinstance(memory, np.ndarray) and memory.base is not None:
        memory = memory.base
    if is_shared or id(memory) in taken:
        return np.array(array, order="C")
    taken.add(id(memory))
    return array


class ValueArrays:
    """Arrays that are written to tensors of one device, or read from them.

    Where the host reaches all of the memory and no tensor is large enough for several threads, they are moved in one
    visit. The views of the memory are made once, and looked at in visits alone: then the device is open, and the
    tensors hold the memory.

    values: type and shape of the array of each.
    """

    def __init__(self, tensors: Sequence[Tensor], values: Sequence[Value]) -> None:
        self._tensors = tensors
        self._values = values
        self._views: list[Array] = []
        self._memory: list[Allocation] = []
        if not tensors:
            return
        vulkan = tensors[0].engine.vulkan
        self._during, self._transfers = vulkan.visits.during, vulkan.transfers
        found = [self._during(tensor.mapped_bytes) for tensor in tensors]
        views = [view for view in found if view is not None]
        if len(views) == len(tensors):
            self._memory = list({id(memory): memory for memory in (tensor.memory() for tensor in tensors)}.values())
            self._views = [
                view[: value.size_in_bytes].view(value.dtype).reshape(value.shape)
                for view, value in zip(views, values, strict=True)
            ]

    def write(self, arrays: Sequence[Array]) -> None:
        """Write every element of each array, of any strides; after the work that uses the tensors.

        Raises DeviceError: the device is closed or lost.
        """
        if self._views:
            self._during(self._write, arrays)
            return
        for tensor, array in zip(self._tensors, arrays, strict=True):
            write(tensor, array)

    def _write(self, arrays: Sequence[Array]) -> None:
        for memory in self._memory:
            self._transfers.wait_for_uses(memory)
        for view, array in zip(self._views, arrays, strict=True):
            view[...] = array

    def read(self) -> list[Array]:
        """New arrays with the elements, after the work that writes them.

        Raises DeviceError: the device is closed or lost.
        """
        if self._views:
            return self._during(self._read)
        return [
            array if value.is_plain else array.view(value.dtype).reshape(value.shape)
            for array, value in zip((tensor.numpy() for tensor in self._tensors), self._values, strict=True)
        ]

    def _read(self) -> list[Array]:
        for memory in self._memory:
            self._transfers.wait_for_writes(memory)
        return [view.copy() for view in self._views]
