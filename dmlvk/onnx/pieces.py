"""Inputs in pieces: the device converts one, over the bus, while the host copies the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dmlvk.onnx.program import Operation, Program, Value
from dmlvk.runtime.sequence import Sequence as DeviceSequence
from dmlvk.runtime.tensor import TENSOR_ALIGNMENT, Tensor, write_in_turn
from dmlvk.tensor_desc import TensorDesc

# The bytes that a bus carries while the host makes a submission: 16 us, at 48 GB/s.
BYTES_OF_A_SUBMISSION = 768 << 10


@dataclass(frozen=True)
class Piece:
    """A part of an input that a dispatch of its own converts.

    index: its place in the input's array.
    operation: reads the piece from a storage of its own.
    """

    index: tuple[slice, ...]
    operation: Operation

    @property
    def desc(self) -> TensorDesc:
        """The piece by itself."""
        return self.operation.desc.tensors["input_tensor"]

    @property
    def storage(self) -> int:
        """The piece's memory."""
        return self.operation.places["input_tensor"][0]


def in_pieces(program: Program, inputs: Mapping[str, Value]) -> tuple[Program, dict[str, list[Piece]]]:
    """A program that begins with the conversions of some inputs in pieces, and the pieces of those that have some.

    After the host's last copy the device still has the last piece to read, and each piece costs the host a submission.
    Both together are least if the number of pieces is the square root of the bytes over those of a submission.

    inputs: inputs that a single dispatch uses, which converts them element by element.
    """
    sizes = list(program.sizes)
    divided: dict[str, list[Piece]] = {}
    operations = list(program.operations)
    for name, value in inputs.items():
        (whole,) = (each for each in operations if value.storage in {at for at, _ in each.places.values()})
        axis = _outermost(whole)
        bounds = _bounds(whole, value, axis, round(math.sqrt(value.size_in_bytes / BYTES_OF_A_SUBMISSION)))
        for start, stop in pairwise(bounds):
            sizes.append(value.size_in_bytes // value.sizes[axis] * (stop - start))
            index = (slice(None),) * axis + (slice(start, stop),)
            divided.setdefault(name, []).append(Piece(index, _operation(whole, axis, start, stop, len(sizes) - 1)))
        if bounds:
            operations.remove(whole)
    first = [piece.operation for pieces in divided.values() for piece in pieces]
    return replace(program, operations=first + operations, sizes=sizes), divided


def _outermost(operation: Operation) -> int:
    """The dimension along which pieces of the output lie one after the other in memory."""
    output: TensorDesc = operation.desc.tensors["output_tensor"]
    sizes, strides = output.sizes, output.element_strides
    return max(range(len(sizes)), key=lambda k: (sizes[k] > 1, strides[k]))


def _bounds(operation: Operation, value: Value, axis: int, count: int) -> Sequence[int]:
    """Where pieces begin and end along a dimension; none if there are to be no pieces, or cannot be any."""
    tensors = operation.desc.tensors
    source, output = tensors["input_tensor"], tensors["output_tensor"]
    varies = any(
        desc.sizes[axis] > 1 and desc.element_strides[axis]
        for field, desc in tensors.items()
        if field not in ("input_tensor", "output_tensor")
    )
    if count < 2 or varies or not source.is_packed or source.sizes != value.sizes:
        return ()
    distance = output.element_strides[axis] * output.data_type.size_in_bytes
    # Each piece of the output is a tensor, too.
    step = TENSOR_ALIGNMENT // math.gcd(TENSOR_ALIGNMENT, distance)
    size = source.sizes[axis]
    largest = -(-size // (count * step)) * step
    return (*range(0, size, largest), size) if largest < size else ()


def _operation(whole: Operation, axis: int, start: int, stop: int, storage: int) -> Operation:
    """The dispatch of a piece, whose input is packed in a storage of its own."""
    output: TensorDesc = whole.desc.tensors["output_tensor"]
    described = {}
    for field, desc in whole.desc.tensors.items():
        if desc.sizes[axis] > 1:
            sizes = [stop - start if k == axis else size for k, size in enumerate(desc.sizes)]
            strides = None if field == "input_tensor" else desc.element_strides
            described[field] = TensorDesc(desc.data_type, sizes, strides, flags=desc.flags)
    target, offset = whole.places["output_tensor"]
    offset += start * output.element_strides[axis] * output.data_type.size_in_bytes
    places = {**whole.places, "input_tensor": (storage, 0), "output_tensor": (target, offset)}
    return replace(whole, desc=replace(whole.desc, **described), places=places)


class InputInPieces:
    """An input in the host's memory, each piece of which is submitted as soon as it is copied.

    desc: the whole input.
    pieces: sequence of (tuple of slice, Tensor). Their places in an array, and their memory.
    sequences: the dispatches of all pieces except the last, which belongs to the submission that follows.
    """

    def __init__(
        self,
        desc: TensorDesc,
        pieces: Sequence[tuple[tuple[slice, ...], Tensor]],
        sequences: Sequence[DeviceSequence],
    ) -> None:
        self.desc = desc
        self._indexes = [index for index, _ in pieces]
        self._tensors = [tensor for _, tensor in pieces]
        self._sequences = sequences

    def write(self, array: Any) -> None:
        """Copy an array of the whole input's sizes and data type, and submit the pieces' dispatches on the way."""
        elements = np.asarray(array)
        write_in_turn(self._tensors, [elements[index] for index in self._indexes], self._submit)

    def _submit(self, number: int) -> None:
        if number < len(self._sequences):
            self._sequences[number].submit()
