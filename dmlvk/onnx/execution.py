"""Programs in a device's memory, recorded once as a Sequence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dmlvk.onnx.graph import ShapeAndType
from dmlvk.onnx.lifetimes import StorageOffsets, storage_offsets
from dmlvk.onnx.pieces import InputInPieces, in_pieces
from dmlvk.onnx.profile import Profile
from dmlvk.onnx.program import Array, Program, Value
from dmlvk.operators.element_wise_quantize_linear import ConversionDesc
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.device import Device
from dmlvk.runtime.sequence import Sequence as DeviceSequence
from dmlvk.runtime.tensor import Buffer, Tensor
from dmlvk.tensor_desc import TensorDesc


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

    def is_copied_to(self, tensor: Tensor | InputInPieces) -> bool:
        """Whether `write_to` copies the elements on the device."""
        return isinstance(tensor, Tensor) and self.tensor is not None and self.tensor.desc.sizes == tensor.desc.sizes

    def write_to(self, tensor: Tensor | InputInPieces) -> None:
        """Write the elements to a tensor of unsigned integers, on the device if they are there."""
        if self.is_copied_to(tensor):
            tensor.write(self.tensor)
            return
        write(tensor, np.asarray(self.host()))


def write(tensor: Tensor | InputInPieces, array: Array) -> None:
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


def is_best_on_host(device: Device, program: Program, value: Value) -> bool:
    """Whether an input or output is best left in the host's memory, where the device reads or writes it over the bus.

    That is so if a single dispatch uses the value and converts it element by element: its way over the bus then takes
    no longer than a copy would, and no copy is submitted.
    """
    vulkan, size = device.vulkan, value.desc().total_size_in_bytes
    if vulkan.memory.is_direct or size >= device.profile.segment_size or value.order or value.offset:
        return False
    users = [each for each in program.operations if any(at == value.storage for at, _ in each.places.values())]
    return len(users) == 1 and isinstance(users[0].desc, ConversionDesc)


class Execution:
    """A program with its memory on a device.

    wanted: the outputs that are read after a run.
    operators: those of another execution of the program, with their weights; by default they are compiled.
    input_tensors: those that a dispatch uses.
    output_tensors: outputs that are inputs or constants have none.
    bindings: the operators with their tensors, in their order.
    """

    def __init__(
        self,
        device: Device,
        program: Program,
        wanted: Iterable[str],
        operators: Sequence[CompiledOperator[Any]] = (),
    ) -> None:
        self._device, self._plan, self._operators = device, program, operators
        self._outputs = {name: program.outputs[name] for name in wanted}
        self._sequence: DeviceSequence | None = None
        self.input_tensors: dict[str, Tensor | InputInPieces] = {}
        self.output_tensors: dict[str, Tensor] = {}
        self.bindings: tuple[Binding, ...] = ()
        given = {value.storage for value in program.inputs.values()} | program.constants.keys()
        written = {name: value for name, value in self._outputs.items() if value.storage not in given}
        on_host = {
            value.storage
            for value in (*program.inputs.values(), *written.values())
            if is_best_on_host(device, program, value)
        }
        program, divided = in_pieces(
            program, {name: value for name, value in program.inputs.items() if value.storage in on_host}
        )
        self.program = program
        on_host.update(piece.storage for pieces in divided.values() for piece in pieces)
        kept = {value.storage for value in self._outputs.values()}
        self.layout: StorageOffsets = storage_offsets(program, kept, on_host)
        if not program.operations:
            return
        used = {storage for operation in program.operations for storage, _ in operation.places.values()}
        buffers = {storage: Buffer.on_host(device.engine, program.sizes[storage]) for storage in on_host & used}
        offsets = self.layout.offsets
        block = device.buffer(max(1, self.layout.size))  # a program may have all of its memory on the host

        def tensor(desc: TensorDesc, storage: int, offset: int) -> Tensor:
            if storage in buffers:
                return buffers[storage].tensor(desc, offset)
            return block.tensor(desc, offsets[storage] + offset)

        for storage, array in program.constants.items():
            if storage in used:
                value = Value(storage, array.dtype, array.shape)
                Held(array).write_to(tensor(value.desc(), storage, 0))
        bindings: dict[int, Binding] = {}
        if not operators:
            operators = device.compile_all(operation.desc for operation in program.operations)
            for operation, compiled in zip(program.operations, operators, strict=True):
                if compiled.has_state:
                    compiled.initialize(**operation.owned)
            self._operators = operators
        for operation, compiled in zip(program.operations, operators, strict=True):
            bound = {
                field: tensor(operation.desc.tensors[field], storage, offset)
                for field, (storage, offset) in operation.places.items()
            }
            bindings[id(operation)] = compiled.bind(**bound)
        self.bindings = tuple(bindings.values())
        for name, value in written.items():
            if value.storage in used:
                self.output_tensors[name] = tensor(value.desc(), value.storage, value.offset)
        for name, value in program.inputs.items():
            if value.storage in used:
                self.input_tensors[name] = tensor(value.desc(), value.storage, value.offset)
        for name, pieces in divided.items():
            places = [(piece.index, tensor(piece.desc, piece.storage, 0)) for piece in pieces]
            sequences = [device.sequence([bindings.pop(id(piece.operation))]) for piece in pieces[:-1]]
            self.input_tensors[name] = InputInPieces(program.inputs[name].desc(), places, sequences)
        # One time for all: a timestamp behind each dispatch takes 1 us and more, for which the next one waits.
        self._sequence = DeviceSequence(device.engine, tuple(bindings.values()), device.timestamps, times_of_each=False)

    def again(self) -> Execution:
        """The same program with memory of its own and the same weights, for a run at the same time."""
        return Execution(self._device, self._plan, self._outputs, self._operators)

    def run(self, given: Mapping[str, Held], profile: Profile | None = None) -> dict[str, Held]:
        """Run the dispatches. The outputs are valid until the next run."""
        sources: dict[int, Held] = {}
        for name, value in self.program.inputs.items():
            sources[value.storage] = given[name]
            if name in self.input_tensors:
                if profile is None:
                    given[name].write_to(self.input_tensors[name])
                else:
                    profile.upload(given[name], self.input_tensors[name])
        if profile is None:
            self.submit()
        elif self._sequence is not None:
            profile.dispatch(self._sequence)
        return {name: self._output(name, value, sources) for name, value in self._outputs.items()}

    def submit(self) -> None:
        """Submit the dispatches."""
        if self._sequence is not None:
            self._sequence.submit()

    def _output(self, name: str, value: Value, sources: Mapping[int, Held]) -> Held:
        if value.storage in sources:  # a view of an input: it need not come back
            return sources[value.storage].reshaped(value)
        if value.storage in self.program.constants:
            return Held(self.program.constants[value.storage].reshape(value.shape), is_shared=True)
        return Held(None, self.output_tensors[name], value)
