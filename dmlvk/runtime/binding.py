"""An operator with its tensors, checked once. Everything that a dispatch needs is built beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple, Protocol

from dmlvk._common.arguments import similar
from dmlvk.errors import BindingError
from dmlvk.planning.plan import CLEAN, SCRATCH, Access, Dispatch, Plan, Window
from dmlvk.runtime.copying import NotCopied
from dmlvk.runtime.device_info import another_device
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.of_device import OfDevice
from dmlvk.runtime.rows import Rows, are_apart
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import TensorDesc
from dmlvk.vulkan.allocation import Allocation
from dmlvk.vulkan.command_buffers import Batch, CommandBuffer
from dmlvk.vulkan.descriptors import BufferRange
from dmlvk.vulkan.pipelines import Pipeline
from dmlvk.vulkan.recorder import PreparedDispatch

# Each binding has a number, and no number is used twice. The device remembers lists of bindings by these numbers.
_serials = count()


class MemoryRange(NamedTuple):
    """Bytes [start, end) of an allocation, or those of them that lie in some rows."""

    memory: Allocation
    start: int
    end: int
    rows: Rows | None = None

    def overlaps(self, other: MemoryRange) -> bool:
        """Whether the two may share a byte."""
        if self.memory is not other.memory or self.start >= other.end or other.start >= self.end:
            return False
        return not are_apart(self.start, self.rows, other.start, other.rows)


class Provisional(Protocol):
    """How a binding of general kernels is bound once more, when special ones take over."""

    @property
    def is_final(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...
    def latest(self) -> Binding | None: ...


class Binding(OfDevice, NotCopied):
    """An operator bound to tensors, whose memory it holds. Made by `CompiledOperator.bind`.

    `Device.submit` runs it, alone or in a list with others, any number of times; `Device.sequence` records it.

    Attributes:
        device (Device):
        operator_name (str): "SLICE1", for people.
        plan (Plan): Its kernels and their dispatches, for people.
    """

    # What the dispatcher keeps in it:
    # dispatches : tuple of tuples of Dispatch
    #     The planned dispatches. Dispatches of one stage run in any order; each stage sees the previous stage's writes.
    # stages : tuple of tuples of PreparedDispatch
    #     The same dispatches, ready for recording.
    # seconds : tuple of tuples of float
    #     The planner's estimate for each dispatch.
    # reads, writes : tuple of (int, int, int, Rows)
    #     The memory that the work reads and writes: the allocation's id, first byte, end, and rows or None.
    # read_memory, written_memory, used_memory : frozenset of int
    #     The ids of the allocations that the work reads, writes, or either.
    # uses, written : tuple of MemoryUse
    #     The records in which the host finds the work that uses memory, and the work that writes memory; each once.
    # kept : list of object
    #     What work in flight needs of the binding: pipelines, descriptor sets, memory, the secondary command buffer.
    #     Not the device: that is closed when its users have dropped it, and closing waits for the work.
    # batch : Batch, optional
    #     The binding alone, recorded for a call of the operator.
    # secondary : CommandBuffer, optional
    #     Its dispatches, recorded to be executed as one binding of a list.
    # temporary : dict of str to Allocation
    #     The memory of intermediate results, and that which is kept clean, by name.
    # provisional : Provisional, optional
    #     How it is bound once more, when special kernels take over from general ones.

    in_place_of_a_copy = "bind the tensors once more (operator.bind)"

    def __init__(
        self,
        engine: Engine,
        operator_name: str,
        plan: Plan,
        stages: tuple[tuple[Dispatch, ...], ...],
        memory: Mapping[str, MemoryRange],
        pipeline: Callable[[Dispatch], Pipeline],
    ) -> None:
        # The binding does not keep the operator: the operator remembers the bindings of its calls, and must be
        # released when its user drops it.
        self.engine = engine
        self.operator_name = operator_name
        self.plan = plan
        self.serial = next(_serials)
        self._vulkan = engine.vulkan
        self.batch: Batch | None = None
        self.secondary: CommandBuffer | None = None
        self.provisional: Provisional | None = None
        self.temporary = {name: memory[name].memory for name in (SCRATCH, CLEAN) if name in memory}
        written = {
            window.tensor
            for stage in stages
            for dispatch in stage
            for window in dispatch.windows
            if window.access is Access.WRITE
        }
        self._memory = tuple(place.memory for place in memory.values())
        places = [(name in written, (id(m), start, end, rows)) for name, (m, start, end, rows) in memory.items()]
        self.reads = tuple([place for is_written, place in places if not is_written])
        self.writes = tuple([place for is_written, place in places if is_written])
        self.read_memory = frozenset(memory_id for memory_id, *_ in self.reads)
        self.written_memory = frozenset(memory_id for memory_id, *_ in self.writes)
        self.used_memory = self.read_memory | self.written_memory
        self.uses = tuple({allocation.access for allocation in self._memory})
        self.written = tuple({place.memory.access for name, place in memory.items() if name in written})
        self.dispatches = stages
        self.seconds = tuple(tuple(dispatch.seconds for dispatch in stage) for stage in stages)
        self.stages = tuple(
            tuple(self._prepare(pipeline(dispatch), dispatch, memory) for dispatch in stage) for stage in stages
        )
        self.kept: list[object] = [self.stages, self._memory]

    def __repr__(self) -> str:
        return f"<dmlvk.Binding {self.operator_name} ({self.plan.path}) on {self.engine.name}>"

    @property
    def seconds(self) -> tuple[tuple[float, ...], ...]:
        return self._seconds

    @seconds.setter
    def seconds(self, seconds: tuple[tuple[float, ...], ...]) -> None:
        self._seconds = seconds
        self.total_seconds = sum(map(sum, seconds))

    @property
    def is_final(self) -> bool:
        """Whether its kernels stay the same. What is recorded of it then may be kept and run again."""
        return self.provisional is None or self.provisional.is_final

    def settled(self) -> Binding:
        """A binding that stays the same: this one, or one with special kernels, if those are compiled or failed."""
        provisional = self.provisional
        return self if provisional is None else provisional.latest() or self

    def latest(self) -> Binding:
        """A binding that does not change: this one if it is final, otherwise one with the kernels that run now."""
        provisional = self.provisional
        if provisional is None:
            return self
        special = provisional.latest()
        if special is not None:
            self._vulkan.monitor.run(self._become, special)
        elif provisional.is_final:
            self.provisional = None
        if self.provisional is None:
            return self
        # What is submitted or recorded now keeps the general kernels and their memory, whatever becomes of this object.
        kept = object.__new__(Binding)
        kept.__dict__.update(self.__dict__)
        return kept

    def _become(self, other: Binding) -> None:
        self.__dict__.update(other.__dict__)

    def _prepare(self, pipeline: Pipeline, dispatch: Dispatch, memory: Mapping[str, MemoryRange]) -> PreparedDispatch:
        push_constants = list(dispatch.push_constants)
        ranges = []
        for window in dispatch.windows:
            buffer_range, distance = self._place(dispatch, window, memory[window.tensor])
            # Modulo 2^32: a start below the window's own start is a word in two's complement.
            word = push_constants[window.base_word] + distance // window.base_unit
            push_constants[window.base_word] = word & 0xFFFFFFFF
            ranges.append(buffer_range)
        return PreparedDispatch(
            dispatch.kernel,
            pipeline,
            self._vulkan.descriptors.take(ranges),
            tuple(push_constants),
            dispatch.groups,
        )

    def _place(self, dispatch: Dispatch, window: Window, place: MemoryRange) -> tuple[BufferRange, int]:
        """The storage buffer binding of a window, and the window's start in it. Only the binding is aligned."""
        pieces = place.memory.pieces(place.start + window.offset, window.size)
        if len(pieces) != 1:
            raise AssertionError(f"{dispatch.kernel}: the window {window} lies in {len(pieces)} segments of its memory")
        segment, start, size = pieces[0]
        address = segment.offset + start
        profile = self._vulkan.profile
        distance = address % profile.offset_alignment
        if size + distance > profile.limits.max_storage_buffer_range:
            raise AssertionError(f"{dispatch.kernel}: the window {window} is larger than a storage buffer may be")
        return BufferRange(segment.block.buffer, address - distance, size + distance), distance


def check_tensors(
    operator: str, fields: Mapping[str, TensorDesc], tensors: Mapping[str, object], engine: Engine
) -> dict[str, Tensor]:
    """Check the tensors against the fields of the descriptor.

    operator: for messages.
    fields: the tensors that must be bound.
    Raises BindingError: a tensor is missing or unknown. Or its data type, sizes or strides differ from its field's. Or
        it has less memory or a smaller alignment than its field needs, was freed, or belongs to another device.
    """
    unknown = [name for name in tensors if name not in fields]
    if unknown:
        takes = f"it takes {', '.join(fields) or 'none'}"
        raise BindingError(f"{operator} has no tensor named {unknown[0]}; {takes}{similar(unknown[0], fields)}")
    checked = {}
    for name, expected in fields.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise BindingError(f"{operator}: {name} is missing; it takes {', '.join(fields)}")
        if not isinstance(tensor, Tensor):
            raise BindingError(
                f"{operator}: {name} is a {type(tensor).__name__}, not a dmlvk.Tensor; device.tensor(array) makes one"
            )
        if tensor.engine is not engine:
            raise BindingError(f"{operator}: {name} is a tensor of {another_device(tensor.engine, engine)}")
        if tensor.is_freed:
            raise BindingError(f"{operator}: {name} was freed; bind another tensor")
        if tensor.desc is not expected:
            _check_desc(operator, name, tensor, expected)
        checked[name] = tensor
    return checked


def _check_desc(operator: str, name: str, tensor: Tensor, expected: TensorDesc) -> None:
    desc = tensor.desc
    if desc.data_type != expected.data_type:
        raise BindingError(
            f"{operator}: {name} has data type {desc.data_type.name}; the descriptor has {expected.data_type.name}"
        )
    if desc.sizes != expected.sizes:
        raise BindingError(f"{operator}: {name} has sizes {desc.sizes}; the descriptor has {expected.sizes}")
    # The stride of a dimension of one element is never used.
    if any(
        size > 1 and stride != wanted
        for size, stride, wanted in zip(desc.sizes, desc.element_strides, expected.element_strides, strict=True)
    ):
        raise BindingError(
            f"{operator}: {name} has strides {desc.element_strides}; the descriptor has {expected.element_strides}"
        )
    if desc.total_size_in_bytes < expected.total_size_in_bytes:
        raise BindingError(
            f"{operator}: {name} has {desc.total_size_in_bytes} bytes; the descriptor needs at least "
            f"{expected.total_size_in_bytes}"
        )
    alignment = expected.guaranteed_base_offset_alignment
    if alignment and tensor.offset % alignment:
        raise BindingError(
            f"{operator}: {name} starts {tensor.offset} bytes into its buffer; the descriptor guarantees a multiple of "
            f"{alignment}"
        )


def check_aliasing(operator: str, memory: Mapping[str, MemoryRange], outputs: tuple[str, ...]) -> None:
    """Check that no output shares a byte with an input or another output.

    Raises BindingError.
    """
    for output in outputs:
        for name, place in memory.items():
            if name != output and output in memory and memory[output].overlaps(place):
                mine = memory[output]
                raise BindingError(
                    f"{operator}: {output} (bytes {mine.start} to {mine.end} of its memory) overlaps {name} (bytes "
                    f"{place.start} to {place.end}): an output needs memory of its own"
                )
