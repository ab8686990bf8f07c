"""Programs: dispatches on values in memory that is not there yet. Planned for given sizes, without a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Graph, Node, ShapeAndType
from dmlvk.operators import OperatorDesc, Slice1Desc
from dmlvk.tensor_desc import MAXIMUM_RANK, TensorDesc, packed_strides

Array = npt.NDArray[Any]
# Elements that are only moved are integers of their size.
CARRIERS = {1: DataType.UINT8, 2: DataType.UINT16, 4: DataType.UINT32, 8: DataType.UINT64}


@dataclass(frozen=True)
class Value:
    """A tensor on the device, without gaps.

    storage: the number of its memory in the program. Views share one.
    shape: as ONNX has it: () for a scalar.
    order: the dimensions from the outermost to the innermost in memory; () for ONNX's own order.
    offset: bytes from the start of the storage.
    """

    storage: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...] = ()
    offset: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape with one dimension at least, as a tensor on the device has it."""
        return self.shape or (1,)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each dimension of `sizes`."""
        order = self.order or range(len(self.sizes))
        by_place = dict(zip(order, packed_strides([self.sizes[k] for k in order]), strict=True))
        return tuple(by_place[k] for k in range(len(self.sizes)))

    @property
    def is_plain(self) -> bool:
        """Whether an array of the value is an array of the tensor: of an unsigned type, and no scalar."""
        return bool(self.shape) and self.carrier.numpy_dtype == self.dtype

    @property
    def size_in_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def carrier(self) -> DataType:
        """The unsigned integer of the size of an element."""
        return CARRIERS[self.dtype.itemsize]

    def desc(self, sizes: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None) -> TensorDesc:
        """The elements as unsigned integers, in other sizes and strides on demand."""
        if sizes is None and strides is None and self.order:
            strides = self.strides
        return TensorDesc(self.carrier, self.sizes if sizes is None else sizes, strides)


def shortest_order(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """An order of dimensions; () if it is ONNX's own, apart from dimensions of one element."""
    moving = [k for k in order if shape[k] != 1]
    return () if moving == sorted(moving) else order


@dataclass(frozen=True)
class Operation:
    """A dispatch.

    places: by field, the storage and the offset in bytes.
    owned: the contents of the fields that are OWNED_BY_DML.
    """

    desc: OperatorDesc
    places: Mapping[str, tuple[int, int]]
    owned: Mapping[str, Array]


@dataclass
class Program:
    """The dispatches of nodes for given sizes.

    sizes: bytes of each storage.
    inputs: values that the host or another program gives.
    constants: by storage, contents that are written once.
    outputs: all values that the nodes define.
    """

    operations: list[Operation] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    inputs: dict[str, Value] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)


class ProgramBuilder:
    """Plans nodes one after the other.

    given: mapping of str to (tuple of int, dtype). Shape and type of each value from outside.
    parameters: values that decide about sizes, from the host.
    channels_last: values whose channels lie innermost in memory.
    """

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, ShapeAndType],
        parameters: Mapping[str, Array],
        channels_last: Collection[str] = (),
    ) -> None:
        self.program = Program()
        self.channels_last = channels_last
        self._packed: dict[Value, Value] = {}
        self.graph = graph
        self._given = given
        self._parameters = parameters
        self._constants: dict[str, Value] = {}

    def plan(self, planner: Callable[[Node, ProgramBuilder], None], node: Node) -> None:
        """Plan a node.

        Raises NotOnDeviceError: with the reason.
        """
        try:
            planner(node, self)
        except DescriptorError as error:
            raise NotOnDeviceError(str(error)) from error

    def kind(self, name: str) -> ShapeAndType:
        """Shape and type of a value. The value need not come to the device for that."""
        constant = self.graph.constant(name)
        if constant is not None:
            return constant.shape, constant.dtype
        found = self.program.outputs.get(name) or self.program.inputs.get(name)
        return (found.shape, found.dtype) if found is not None else self._given[name]

    def constant(self, name: str) -> Array | None:
        """The elements of a constant of the graph; None for other values."""
        return self.graph.constant(name)

    def parameter(self, name: str) -> Array:
        """The elements of a value that decides about sizes.

        Raises NotOnDeviceError: they are not known before the dispatch.
        """
        found = self.graph.constant(name)
        found = self._parameters.get(name) if found is None else found
        if found is None:
            raise NotOnDeviceError(f"its input {name!r} is not known before the run")
        return found

    def integers(self, name: str, ranks: Collection[int] = (1,)) -> list[int]:
        """A parameter as a list of integers.

        Raises NotOnDeviceError: it is not known before the dispatch, has no integers, or another rank.
        """
        found = np.asarray(self.parameter(name))
        if found.dtype.kind != "i" or found.ndim not in ranks:
            raise NotOnDeviceError(f"its input {name!r} has elements of {found.dtype.name} and the shape {found.shape}")
        return [int(element) for element in found.reshape(-1)]

    def packed(self, name: str) -> Value:
        """A value as a tensor on the device, in ONNX's own order of dimensions."""
        return self.in_own_order(self.value(name))

    def in_own_order(self, value: Value) -> Value:
        """A value in ONNX's own order of dimensions; a copy if it lies in another."""
        if not value.order:
            return value
        if value not in self._packed:
            turned = self._packed[value] = self.new(value.dtype, value.shape)
            self.copy(value, value.desc(), turned, turned.desc())
        return self._packed[value]

    def value(self, name: str) -> Value:
        """A value as a tensor on the device, in whatever order its dimensions lie."""
        found = self.program.outputs.get(name) or self.program.inputs.get(name) or self._constants.get(name)
        if found is not None:
            return found
        constant = self.graph.constant(name)
        if constant is not None:
            found = self._constants[name] = self.new(constant.dtype, constant.shape)
            self.program.constants[found.storage] = constant
        else:
            shape, dtype = self._given[name]
            found = self.program.inputs[name] = self.new(dtype, shape)
        return found

    def new(self, dtype: np.dtype[Any], shape: tuple[int, ...], order: tuple[int, ...] = ()) -> Value:
        """A value with memory of its own, its dimensions in an order from the outermost.

        Raises NotOnDeviceError: a tensor on the device has no such type, rank or sizes.
        """
        dtype = np.dtype(dtype)
        if not is_movable(dtype):
            raise NotOnDeviceError(f"the device has no tensors of {dtype.name}")
        if len(shape) > MAXIMUM_RANK:
            raise NotOnDeviceError(f"a tensor has rank {len(shape)}; on the device it has at most {MAXIMUM_RANK}")
        if 0 in shape:
            raise NotOnDeviceError(f"a tensor has no elements, {shape}")
        value = Value(self._storage(0), dtype, tuple(shape), shortest_order(shape, order))
        self.program.sizes[value.storage] = value.desc().total_size_in_bytes
        return value

    def scratch(self, size_in_bytes: int) -> int:
        """A storage for the time between two dispatches."""
        return self._storage(size_in_bytes)

    def _storage(self, size_in_bytes: int) -> int:
        self.program.sizes.append(size_in_bytes)
        return len(self.program.sizes) - 1

    def set(self, name: str, value: Value) -> None:
        """Say what a node's output is."""
        if name:
            self.program.outputs[name] = value

    def view(self, name: str, source: Value, shape: tuple[int, ...]) -> None:
        """An output that is another value's memory in another shape. The source lies in ONNX's own order."""
        if len(shape) > MAXIMUM_RANK:
            raise NotOnDeviceError(f"a tensor has rank {len(shape)}; on the device it has at most {MAXIMUM_RANK}")
        self.set(name, replace(source, shape=tuple(shape)))

    def dispatch(
        self,
        desc: OperatorDesc,
        places: Mapping[str, Value | tuple[int, int]],
        owned: Mapping[str, Array] | None = None,
    ) -> None:
        """Add a dispatch. A place is a value, or a storage and an offset in bytes."""
        located = {name: (at.storage, at.offset) if isinstance(at, Value) else at for name, at in places.items()}
        self.program.operations.append(Operation(desc, located, owned or {}))

    def copy(
        self,
        source: Value | tuple[int, int],
        source_desc: TensorDesc,
        target: Value | tuple[int, int],
        target_desc: TensorDesc,
    ) -> None:
        """Copy all elements from one layout to another of the same sizes."""
        desc = Slice1Desc(
            input_tensor=source_desc,
            output_tensor=target_desc,
            input_window_offsets=(0,) * source_desc.rank,
            input_window_sizes=source_desc.sizes,
            input_window_strides=(1,) * source_desc.rank,
        )
        self.dispatch(desc, {"input_tensor": source, "output_tensor": target})

    def expanded(self, source: Value, shape: tuple[int, ...]) -> Value:
        """A value repeated along its dimensions of size 1, and along those that it lacks, by a copy from strides of 0.

        It lies in ONNX's own order.
        """
        own = (1,) * (len(shape) - len(source.shape)) + source.shape
        if shape == own:
            return replace(source, shape=shape)
        strides = tuple(0 if size == 1 else step for size, step in zip(own, packed_strides(own), strict=True))
        output = self.new(source.dtype, shape)
        self.copy(source, source.desc(shape, strides), output, output.desc())
        return output

    def move_into(self, source: Value, storage: int, offset: int) -> bool:
        """Move a value to another storage, where its dispatch then writes it; whether that was possible.

        The offset is one at which a tensor may begin.
        """
        given = {value.storage for value in self.program.inputs.values()} | self.program.constants.keys()
        is_whole = source.offset == 0 and source.desc().total_size_in_bytes == self.program.sizes[source.storage]
        if source.storage in given or source.storage == storage or not is_whole:
            return False

        def moved(value: Value) -> Value:
            if value.storage != source.storage:
                return value
            return replace(value, storage=storage, offset=offset + value.offset)

        program = self.program
        program.outputs = {name: moved(value) for name, value in program.outputs.items()}
        self._packed = {moved(value): moved(packed) for value, packed in self._packed.items()}
        for number, operation in enumerate(program.operations):
            places = {
                name: (storage, offset + at) if place == source.storage else (place, at)
                for name, (place, at) in operation.places.items()
            }
            program.operations[number] = replace(operation, places=places)
        return True

    def finish(self, wanted: Iterable[str]) -> Program:
        """The program, with outputs that can be read: in ONNX's own order, and no parts of what was given."""
        program = self.program
        whole = {value.storage: value.size_in_bytes for value in program.inputs.values()}
        whole |= {storage: array.nbytes for storage, array in program.constants.items()}
        for name in wanted:
            value = program.outputs[name] = self.in_own_order(program.outputs[name])
            if value.size_in_bytes != whole.get(value.storage, value.size_in_bytes):
                own = program.outputs[name] = self.new(value.dtype, value.shape)
                self.copy(value, value.desc(), own, own.desc())
        return program


def type_name(element: int) -> str:
    """The name of an element type that TensorProto numbers."""
    known = element in TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(element).lower()) if known else f"the type {element}"


def is_movable(dtype: np.dtype[Any]) -> bool:
    """Whether elements of a type can lie in tensors on the device: numbers of 8 to 64 bits, and bool."""
    return dtype.name == "bool" or dtype.name.upper() in DataType.__members__


# Of all types of elements, as TensorProto numbers them, those that are movable.
MOVABLE_ELEMENTS = frozenset(
    element
    for element in TensorProto.DataType.values()
    if element != TensorProto.UNDEFINED and is_movable(np.dtype(helper.tensor_dtype_to_np_dtype(element)))
)
