"""Programs in a device's memory, recorded once as a Sequence. Storages share memory by their lifetimes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np

from dmlvk.errors import OutOfMemoryError
from dmlvk.onnx.depths import depths
from dmlvk.onnx.held import Held, ValueArrays
from dmlvk.onnx.profile import Profile
from dmlvk.onnx.program import Array, Program, Value
from dmlvk.onnx.quantized_inputs import QuantizedInput, quantized_on_host
from dmlvk.operators.element_wise_quantize_linear import ConversionDesc
from dmlvk.runtime import tuning
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.device import Device
from dmlvk.runtime.exchange import host_elements
from dmlvk.runtime.sequence import Sequence as DeviceSequence
from dmlvk.runtime.tensor import Buffer, Tensor
from dmlvk.tensor_desc import TensorDesc
from dmlvk.vulkan.heaps import HOST_CACHED

# Enough for every device's alignment of buffer offsets.
ALIGNMENT = 256
# Bytes of an output that any dispatch writes over the bus while a copy is submitted and waited for, 0.2 ms: at worst
# each byte takes 32 of the bus, at 25 GB/s.
SMALL = 1 << 17
# A caller that has one run's outputs while the next run goes on has two.
LENT = 2


@dataclass(frozen=True)
class StorageOffsets:
    """Offsets in a block of memory.

    offsets: by storage. Storages that no dispatch uses have no place.
    size: bytes of the block: the peak.
    sum: bytes that all storages would take beside each other.
    """

    offsets: Mapping[int, int]
    size: int
    sum: int


def storage_offsets(program: Program, kept: set[int], elsewhere: Collection[int] = ()) -> StorageOffsets:
    """Place the storages of a program. Two share memory only if a barrier lies between their dispatches.

    kept: storages that are read after the last dispatch.
    elsewhere: storages with memory of their own, which get no place.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for depth, operation in zip(depths(program.operations), program.operations, strict=True):
        for storage, _ in operation.places.values():
            if storage not in elsewhere:
                first[storage] = min(first.get(storage, depth), depth)
                last[storage] = max(last.get(storage, depth), depth)
    given = {value.storage for value in program.inputs.values()} | program.constants.keys()
    end = len(program.operations)
    for storage in first:
        if storage in given:
            first[storage] = -1
        if storage in kept or storage in program.constants:  # constants are there for the next run too
            last[storage] = end
    sizes = {storage: -(-program.sizes[storage] // ALIGNMENT) * ALIGNMENT for storage in first}
    offsets: dict[int, int] = {}
    # The largest first: small ones fit into the gaps between them.
    for storage in sorted(first, key=lambda s: (-sizes[s], s)):
        taken = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in offsets
            if first[other] <= last[storage] and first[storage] <= last[other]
        )
        offset = 0
        for begin, stop in taken:
            if offset + sizes[storage] <= begin:
                break
            offset = max(offset, stop)
        offsets[storage] = offset
    size = max((offsets[storage] + sizes[storage] for storage in offsets), default=0)
    return StorageOffsets(offsets, size, sum(sizes.values()))


def is_best_on_host(device: Device, program: Program, value: Value) -> bool:
    """Whether an input or output is best left in the host's memory, where the device reads or writes it over the bus.

    That is so if a single dispatch uses the value and converts it element by element: its way over the bus then takes
    no longer than a copy would, and no copy is submitted. A small output may come from any single dispatch.
    """
    vulkan, size = device.vulkan, value.desc().total_size_in_bytes
    if vulkan.memory.is_direct or size >= device.profile.segment_size or value.order or value.offset:
        return False
    users = [each for each in program.operations if any(at == value.storage for at, _ in each.places.values())]
    is_small_output = size <= SMALL and all(value.storage != each.storage for each in program.inputs.values())
    return len(users) == 1 and (is_small_output or isinstance(users[0].desc, ConversionDesc))


def _used_storages(program: Program) -> set[int]:
    """Those that a dispatch uses."""
    return {storage for operation in program.operations for storage, _ in operation.places.values()}


class Execution:
    """A program with its memory on a device.

    wanted: the outputs that are read after a run.
    operators: those of another execution of the program, with their weights; by default they are compiled.
    threads: that quantize a large input on the host; 0 for as many as there are processors.
    uses_host: whether inputs and outputs may lie in the host's memory, and the host quantize.
    input_tensors: those that a dispatch uses.
    output_tensors: outputs that are inputs or constants have none.
    bindings: the operators with their tensors, in their order.
    """

    def __init__(
        self,
        device: Device,
        plan: Program,
        wanted: Iterable[str],
        operators: Sequence[CompiledOperator[Any]] = (),
        threads: int = 0,
        uses_host: bool = True,
    ) -> None:
        self._device, self._plan, self._operators, self._threads = device, plan, operators, threads
        self._outputs = {name: plan.outputs[name] for name in wanted}
        self._sequence: DeviceSequence | None = None
        self.input_tensors: dict[str, Tensor | QuantizedInput] = {}
        self.output_tensors: dict[str, Tensor] = {}
        self.bindings: tuple[Binding, ...] = ()
        self._places: list[dict[str, Tensor]] = []
        self._lent: list[Lent] = []
        self._lent_names: list[str] = []
        self._most_lent = 0
        given = {value.storage for value in plan.inputs.values()} | plan.constants.keys()
        written = {name: value for name, value in self._outputs.items() if value.storage not in given}
        on_host = {
            value.storage
            for value in (*plan.inputs.values(), *written.values())
            if uses_host and is_best_on_host(device, plan, value)
        }
        program, quantized = quantized_on_host(
            plan, {name: value for name, value in plan.inputs.items() if value.storage in on_host}
        )
        on_host.update(each.storage for each in quantized.values())
        used = _used_storages(program)
        try:
            buffers = {storage: Buffer.on_host(device.engine, program.sizes[storage]) for storage in on_host & used}
        except OutOfMemoryError:  # the device may have more; a further run waits for its turn
            if operators:
                raise
            program, quantized, on_host, buffers = plan, {}, set(), {}
            used = _used_storages(program)
        self.program = program
        kept = {value.storage for value in self._outputs.values()}
        self.layout: StorageOffsets = storage_offsets(program, kept, on_host)
        if not program.operations:
            return
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
        bindings: list[Binding] = []
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
            self._places.append(bound)
            bindings.append(compiled.bind(**bound))
        self.bindings = tuple(bindings)
        for name, value in written.items():
            if value.storage in used:
                self.output_tensors[name] = tensor(value.desc(), value.storage, value.offset)
        for name, value in program.inputs.items():
            if value.storage in used:
                self.input_tensors[name] = tensor(value.desc(), value.storage, value.offset)
        for name, made in quantized.items():
            levels = tensor(made.levels, made.storage, 0)
            self.input_tensors[name] = QuantizedInput(program.inputs[name].desc(), levels, made, threads)
        # One time for all: a timestamp behind each dispatch takes 1 us and more, for which the next one waits.
        self._sequence = DeviceSequence(device.engine, self.bindings, device.timestamps, times_of_each=False)

    def again(self) -> Execution:
        """The same program with memory of its own and the same weights, for a run at the same time."""
        return Execution(self._device, self._plan, self._outputs, self._operators, self._threads)

    def free_outputs(self, names: list[str]) -> Lent | None:
        """The same dispatches with memory for large outputs that no caller has; None if outputs are to be copied.

        names: the outputs that are read. They are copied, too, if one is named twice or memory is short.
        """
        if self._lent_names != names:
            self._lent_names, self._lent, self._most_lent = list(names), [], LENT
        for lent in self._lent:
            if lent.is_free:
                return lent
        made = self._new_outputs(names) if len(self._lent) < self._most_lent else None
        if made is None:
            self._most_lent = len(self._lent)
        else:
            self._lent.append(made)
        return made

    def _new_outputs(self, names: Sequence[str]) -> Lent | None:
        storages = [self.program.outputs[name].storage for name in names]
        lent = [name for name in names if self.is_lendable(self.output_tensors[name])]
        if not lent or len(storages) > len(set(storages)):
            return None
        tensors, bindings = dict(self.output_tensors), list(self.bindings)
        for name in lent:
            desc, storage = tensors[name].desc, self.program.outputs[name].storage
            try:
                buffer = Buffer.on_host(self._device.engine, desc.total_size_in_bytes)
            except OutOfMemoryError:
                return None
            tensors[name] = buffer.tensor(desc)
            for number, operation in enumerate(self.program.operations):
                other = {
                    field: buffer.tensor(operation.desc.tensors[field], offset)
                    for field, (used, offset) in operation.places.items()
                    if used == storage
                }
                if other:
                    bindings[number] = self._operators[number].bind(**(self._places[number] | other))
        sequence = DeviceSequence(self._device.engine, tuple(bindings), self._device.timestamps, times_of_each=False)
        return Lent(sequence, [(tensors[name], self.program.outputs[name], name in lent) for name in names])

    def is_lendable(self, tensor: Tensor) -> bool:
        """Whether a large output lies in the host's memory, beside a bus, and a caller reads it there at full speed."""
        memory = tensor.memory()
        if self._device.vulkan.memory.is_direct or not memory.access.is_direct:
            return False
        is_cached = memory.segments[0].block.memory_type.flags & HOST_CACHED
        return bool(is_cached) and tensor.desc.total_size_in_bytes > SMALL

    def in_device_memory(self) -> Execution:
        """The same program with inputs, outputs and weights of its own, all of them in the device's memory."""
        return Execution(self._device, self._plan, self._outputs, uses_host=False)

    def tune(self) -> None:
        """Measure by which kernel paths all dispatches together take the least time: see `tuning.tune_together`.

        Of an execution `in_device_memory`: the time of the bus varies more than that of a path.
        """
        if not self.bindings:
            return
        operations = self.program.operations

        def bound(number: int, operator: CompiledOperator[Any]) -> Binding:
            if operator.has_state:
                operator.initialize(**operations[number].owned)
            return operator.bind(**self._places[number])

        device = self._device
        whole = tuning.WholeSequence(device.engine, self._operators, self.bindings, bound)
        tuning.tune_together(device.engine, device.compile, whole, device.compile_progress)
        device.compile_all(whole.descs, tune=True)  # by the remembered paths, also operators that were kept

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


class Lent:
    """Dispatches whose large outputs a caller gets where the device has written them, without a copy.

    The arrays keep that memory, past the closing of the device, too.

    outputs: each as its tensor, its type and shape, and whether it is given away; others are copied.
    submit: for a time when `is_free`.
    """

    def __init__(self, sequence: DeviceSequence, outputs: Sequence[tuple[Tensor, Value, bool]]) -> None:
        self.submit = sequence.submit
        self._outputs = outputs
        copied = [(tensor, value) for tensor, value, is_lent in outputs if not is_lent]
        self._copied = ValueArrays([tensor for tensor, _ in copied], [value for _, value in copied])
        self._given: list[ref[Array]] = []

    @property
    def is_free(self) -> bool:
        """Whether no array of the memory is left."""
        return all(given() is None for given in self._given)

    def read(self) -> list[Array]:
        """The outputs of the last submission, each of them once."""
        copied = iter(self._copied.read())
        self._given, found = [], []
        for tensor, value, is_lent in self._outputs:
            if not is_lent:
                found.append(next(copied))
                continue
            array = host_elements(tensor)
            whole = array
            while isinstance(whole.base, np.ndarray):
                whole = whole.base  # which each array of this memory keeps
            self._given.append(ref(whole))
            found.append(array.view(value.dtype).reshape(value.shape))
        return found
