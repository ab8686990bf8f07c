"""Programs in a device's memory, recorded once as a Sequence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dmlvk.onnx.lifetimes import Layout, layout_of
from dmlvk.onnx.profile import Profile
from dmlvk.onnx.program import Array, Program, Value
from dmlvk.runtime.device import Device
from dmlvk.runtime.sequence import Sequence
from dmlvk.runtime.tensor import Tensor


class Held:
    """A value of a run: on the host, on the device, or on both.

    Parameters
    ----------
    array : object, optional
        An array, or another kind of ONNX's values (a list), which only the host uses.
    tensor : Tensor, optional
        The elements as unsigned integers of their size.
    value : Value, optional
        Shape and type of the tensor.
    """

    def __init__(self, array: Any = None, tensor: Tensor | None = None, value: Value | None = None) -> None:
        self._array = array
        self.tensor = tensor
        self._value = value

    @property
    def is_tensor(self) -> bool:
        return self.tensor is not None or isinstance(self._array, np.ndarray)

    @property
    def kind(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
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
            return Held(self._array.reshape(value.shape), None, None)
        return Held(None, self.tensor, value)

    def is_copied_to(self, tensor: Tensor) -> bool:
        """Whether `write_to` copies the elements on the device."""
        return self.tensor is not None and self.tensor.desc.sizes == tensor.desc.sizes

    def write_to(self, tensor: Tensor) -> None:
        """Write the elements to a tensor of unsigned integers, on the device if they are there."""
        if self.is_copied_to(tensor):
            tensor.write(self.tensor)
            return
        array: Array = np.asarray(self.host())
        carrier = tensor.desc.data_type.numpy_dtype
        if array.dtype != carrier or array.shape != tensor.desc.sizes:
            array = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(tensor.desc.sizes).view(carrier)
        tensor.write(array)


class Execution:
    """A program with its memory on a device.

    Parameters
    ----------
    device : Device
    program : Program
    wanted : iterable of str
        The outputs that are read after a run.

    Attributes
    ----------
    layout : Layout
    """

    def __init__(self, device: Device, program: Program, wanted: Iterable[str]) -> None:
        self._program = program
        self._outputs = {name: program.outputs[name] for name in wanted}
        self.layout: Layout = layout_of(program, {value.storage for value in self._outputs.values()})
        self._sequence: Sequence | None = None
        self._input_tensors: dict[str, Tensor] = {}
        self._output_tensors: dict[str, Tensor] = {}
        if not program.operations:
            return
        block = device.buffer(self.layout.size)
        offsets = self.layout.offsets
        for values, tensors in ((program.inputs, self._input_tensors), (self._outputs, self._output_tensors)):
            for name, value in values.items():
                if value.storage in offsets:
                    tensors[name] = block.tensor(value.desc(), offsets[value.storage] + value.offset)
        for storage, array in program.constants.items():
            if storage in offsets:
                value = Value(storage, array.dtype, array.shape)
                Held(array).write_to(block.tensor(value.desc(), offsets[storage]))
        bindings = []
        for operation in program.operations:
            compiled = device.compile(operation.desc)
            if compiled.has_state:
                compiled.initialize(**operation.owned)
            bound = {
                field: block.tensor(operation.desc.tensors[field], offsets[storage] + offset)
                for field, (storage, offset) in operation.places.items()
            }
            bindings.append(compiled.bind(**bound))
        self._sequence = device.sequence(bindings)

    def run(self, given: Mapping[str, Held], profile: Profile | None = None) -> dict[str, Held]:
        """Run the dispatches. The outputs are valid until the next run."""
        sources: dict[int, Held] = {}
        for name, value in self._program.inputs.items():
            sources[value.storage] = given[name]
            if name in self._input_tensors:
                if profile is None:
                    given[name].write_to(self._input_tensors[name])
                else:
                    profile.upload(given[name], self._input_tensors[name])
        if self._sequence is not None:
            if profile is None:
                self._sequence.submit()
            else:
                profile.dispatch(self._sequence)
        return {name: self._output(name, value, sources) for name, value in self._outputs.items()}

    def _output(self, name: str, value: Value, sources: Mapping[int, Held]) -> Held:
        if value.storage in sources:  # a view of an input: it need not come back
            return sources[value.storage].reshaped(value)
        if value.storage in self._program.constants:
            return Held(self._program.constants[value.storage].reshape(value.shape))
        return Held(None, self._output_tensors[name], value)
