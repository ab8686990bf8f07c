"""The arrays of a program's inputs or outputs, for work that is run again and again: moved in few steps."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.onnx.execution import write
from dmlvk.onnx.program import Array, Value
from dmlvk.runtime.tensor import Tensor
from dmlvk.vulkan.allocation import Allocation


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
