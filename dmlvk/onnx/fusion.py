"""Dispatches that become one, if nothing else reads between: tables, and a convolution and its sum or table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from dmlvk.errors import DescriptorError
from dmlvk.onnx.depths import accesses_of, by_depth
from dmlvk.onnx.program import Operation, Program
from dmlvk.operators import (
    ByteTableDesc,
    ElementWiseQuantizedLinearAddDesc,
    QuantizedLinearConvolutionAddDesc,
    QuantizedLinearConvolutionDesc,
    QuantizedLinearConvolutionTableDesc,
    Slice1Desc,
)
from dmlvk.tensor_desc import TensorDesc

LETTERS = ("a", "b")
PARAMETERS = ("scale_tensor", "zero_point_tensor")
OPERANDS, TABLE = ("input_tensor", "second_input_tensor"), "table_tensor"
Join = Callable[[Operation, Operation, str], Operation | None]


def as_run(program: Program, kept: Collection[int]) -> list[Operation]:
    """The dispatches of a planned program as a run has them: fewer, and in order of depth.

    kept: storages whose contents are read after the last dispatch.
    """
    given = {value.storage for value in program.inputs.values()} | program.constants.keys()
    # In order of depth the later of two branches is the longer one, which then takes the sum.
    operations = fused(by_depth(composed(program.operations, kept)), kept)
    return by_depth(written_in_place(operations, given.union(kept)))


def joined(
    operations: Sequence[Operation], kept: Collection[int], fields_read: Sequence[str], join: Join
) -> list[Operation]:
    """The dispatches of a program, in order, some of which are one with the dispatch that writes what they read.

    kept: storages whose contents are read after the last dispatch, or written before the first.
    fields_read: tensors of a dispatch through which it may be joined with the one that writes them.
    join: makes one of two dispatches and such a field; None if they are not one.
    """
    uses = Counter(storage for operation in operations for storage, _ in operation.places.values())
    writers: dict[tuple[int, int], int] = {}
    found: list[Operation | None] = list(operations)
    for number, operation in enumerate(operations):
        places = {field: operation.places[field] for field in fields_read if field in operation.places}
        numbers = {field: writers.get(place, -1) for field, place in places.items()}
        # Of two dispatches the later one: the other's output has to be there before it runs.
        for field in sorted(numbers, key=lambda field: -numbers[field]):
            before, second, (storage, _) = numbers[field], found[number], places[field]
            first = found[before] if before >= 0 and storage not in kept and uses[storage] == 2 else None
            both = join(first, second, field) if first is not None and second is not None else None
            if both is not None:
                found[before], found[number] = None, both
        if "output_tensor" in operation.places:
            writers[operation.places["output_tensor"]] = number
    return [operation for operation in found if operation is not None]


def composed(operations: Sequence[Operation], kept: Collection[int]) -> list[Operation]:
    """The dispatches of a program with one table in place of two that follow each other: see `joined`."""
    return joined(operations, kept, OPERANDS, _composed)


def fused(operations: Sequence[Operation], kept: Collection[int]) -> list[Operation]:
    """The dispatches of a program with sums and tables as last steps of convolutions: see `joined`."""
    return joined(operations, kept, [*(f"{letter}_tensor" for letter in LETTERS), OPERANDS[0]], _in_last_step)


def _composed(first: Operation, second: Operation, field: str) -> Operation | None:
    """A table of what the first one reads, in place of a table that reads its output as `field`; None if there is none.

    A table for each channel, of pairs, is left alone: it would take 64 KiB for each.
    """
    inner, outer = first.desc, second.desc
    if not isinstance(inner, ByteTableDesc) or not isinstance(outer, ByteTableDesc):
        return None
    between, operand = inner.output_tensor, outer.tensors[field]
    axes = {desc.axis for desc in (inner, outer)} - {None}
    if (between.sizes, between.element_strides) != (operand.sizes, operand.element_strides):
        return None
    if inner.second_input_tensor is not None or len(axes) > 1 or (axes and outer.second_input_tensor is not None):
        return None
    if not all(TABLE in operation.owned for operation in (first, second)):
        return None
    indexes = np.asarray(first.owned[TABLE]).view(np.uint8).reshape(-1, 256)
    table = np.asarray(second.owned[TABLE])
    if outer.second_input_tensor is not None:
        table = table.reshape(256, 256).take(indexes[0], OPERANDS.index(field)).reshape(-1)
    elif axes:
        rows = np.broadcast_to(table.reshape(-1, 256), (max(len(indexes), table.size // 256), 256))
        table = np.take_along_axis(rows, np.broadcast_to(indexes, rows.shape).astype(np.intp), 1)
    else:
        table = table.take(indexes[0])
    desc = replace(
        outer,
        **{field: inner.input_tensor},
        table_tensor=TensorDesc(outer.table_tensor.data_type, table.shape, flags=outer.table_tensor.flags),
        axis=next(iter(axes), None),
    )
    places = {**second.places, field: first.places["input_tensor"]}
    return Operation(desc, places, {**second.owned, TABLE: table})


def written_in_place(operations: Sequence[Operation], kept: Collection[int]) -> list[Operation]:
    """The dispatches of a program without copies to parts of other memory: what is copied is written there at once.

    All that use the value find it there. Their kernels are the same: a part of a Concat has longer rows.

    kept: storages whose contents are read after the last dispatch, or written before the first.
    """
    found = list(operations)
    number = 0
    while number < len(found):
        copy, moved = found[number], None
        if _copies_all(copy) and copy.places["input_tensor"][0] not in kept:
            others = found[:number] + found[number + 1 :]
            moved = _moved(others, copy) if _is_alone(others, copy) else None
        if moved is None:
            number += 1
        else:
            found = moved
    return found


def _copies_all(operation: Operation) -> bool:
    """Whether an operation copies a whole tensor, from the start of its memory, to the same order of dimensions."""
    desc = operation.desc
    if not isinstance(desc, Slice1Desc) or operation.places["input_tensor"][1]:
        return False
    is_plain = set(desc.input_window_strides) == {1} and not any(desc.input_window_offsets)
    if not is_plain or desc.input_tensor.sizes != desc.output_tensor.sizes or not _is_whole(desc.input_tensor):
        return False
    pairs = zip(desc.output_tensor.element_strides, desc.input_tensor.element_strides, strict=True)
    steps = sorted(pair for size, pair in zip(desc.input_tensor.sizes, pairs, strict=True) if size > 1)
    return all(before[1] < after[1] for before, after in pairwise(steps))


def _is_alone(others: Sequence[Operation], copy: Operation) -> bool:
    """Whether no other operation writes where a copy does, once its source is used: a Pad fills its output first."""
    storage, (target,) = copy.places["input_tensor"][0], [each for each in accesses_of(copy) if each.is_written]
    users = [number for number, each in enumerate(others) if any(at == storage for at, _ in each.places.values())]
    later = (access for each in others[min(users, default=0) :] for access in accesses_of(each) if access.is_written)
    return not any(access.storage == target.storage and access.depends_on(target) for access in later)


def _is_whole(desc: TensorDesc) -> bool:
    """Whether a tensor has no gaps, in any order of its dimensions."""
    size = -(-desc.element_count * desc.data_type.size_in_bytes // 4) * 4
    return desc.minimum_size_in_bytes == size and not desc.has_overlap()


def _moved(operations: Sequence[Operation], copy: Operation) -> list[Operation] | None:
    """Operations that use the target of a copy in place of its source; None if one of them cannot."""
    source, target = copy.desc.tensors["input_tensor"], copy.desc.tensors["output_tensor"]
    (storage, _), (place, start) = copy.places["input_tensor"], copy.places["output_tensor"]
    found = []
    for operation in operations:
        described, places = {}, dict(operation.places)
        for field, (used, offset) in operation.places.items():
            if used == storage:
                desc = operation.desc.tensors[field]
                strides = _strides_in(target, source, desc)
                if strides is None or not _is_in_first_row(offset, source, target):
                    return None
                described[field] = TensorDesc(desc.data_type, desc.sizes, strides, flags=desc.flags)
                places[field] = (place, start + offset)
        if described:
            try:
                operation = replace(operation, desc=replace(operation.desc, **described), places=places)
            except DescriptorError:
                return None
            if _overlaps_itself(operation):
                return None
        found.append(operation)
    return found


def _strides_in(target: TensorDesc, source: TensorDesc, desc: TensorDesc) -> tuple[int, ...] | None:
    """The strides of a tensor if the one in whose memory it lies moves to other strides; None if it has none then.

    Each of its dimensions is one of the other's, or a part of one: rows of pixels that are repeated, for example.
    """
    if desc.data_type.size_in_bytes != source.data_type.size_in_bytes:
        return None
    own = source.element_strides
    dimensions = sorted((k for k in range(source.rank) if source.sizes[k] > 1), key=lambda k: -own[k])
    left = [size - 1 for size in source.sizes]
    strides = []
    for size, stride in zip(desc.sizes, desc.element_strides, strict=True):
        if size == 1 or not stride:
            strides.append(0)
            continue
        dimension = next((k for k in dimensions if own[k] <= stride), None)
        if dimension is None or stride % own[dimension]:
            return None
        steps = stride // own[dimension]
        left[dimension] -= steps * (size - 1)
        strides.append(steps * target.element_strides[dimension])
    return tuple(strides) if min(left) >= 0 else None


def _is_in_first_row(offset: int, source: TensorDesc, target: TensorDesc) -> bool:
    """Whether bytes of a tensor lie before the first step that is another one in the target."""
    steps = zip(source.sizes, source.element_strides, target.element_strides, strict=True)
    longer = [stride for size, stride, other in steps if size > 1 and stride != other]
    return offset < min(longer, default=source.element_count) * source.data_type.size_in_bytes


def _overlaps_itself(operation: Operation) -> bool:
    """Whether an output of a dispatch may share a byte with another of its tensors."""
    pairs = combinations(accesses_of(operation), 2)
    return any(one.storage == other.storage and one.depends_on(other) for one, other in pairs)


def _in_last_step(convolution: Operation, other: Operation, field: str) -> Operation | None:
    """A convolution and the addition or table that reads its output as `field`; None if they are not one operator."""
    first, second = convolution.desc, other.desc
    if type(first) is not QuantizedLinearConvolutionDesc or not isinstance(second, tuple(LAST_STEPS)):
        return None
    between, output, operand = first.output_tensor, second.tensors["output_tensor"], second.tensors[field]
    if (between.sizes, between.element_strides) != (operand.sizes, operand.element_strides):
        return None
    if not between.data_type == operand.data_type == output.data_type:
        return None
    return LAST_STEPS[type(second)](convolution, other, field)


def _with_table(convolution: Operation, lookup: Operation, field: str) -> Operation | None:
    """A convolution and the table that follows it; None if the table has pairs, or is one of many, or may change."""
    second = lookup.desc
    if (
        not isinstance(second, ByteTableDesc)
        or second.second_input_tensor is not None
        or second.axis is not None
        or TABLE not in lookup.owned
    ):
        return None
    given: dict[str, Any] = {**_fields(convolution), "output_tensor": second.output_tensor, TABLE: second.table_tensor}
    places = {**convolution.places, "output_tensor": lookup.places["output_tensor"]}
    desc = QuantizedLinearConvolutionTableDesc(**given)
    return Operation(desc, places, {**convolution.owned, TABLE: lookup.owned[TABLE]})


def _fields(convolution: Operation) -> dict[str, Any]:
    """The fields of a convolution."""
    return {each.name: getattr(convolution.desc, each.name) for each in fields(convolution.desc) if each.init}


def _with_sum(convolution: Operation, addition: Operation, field: str) -> Operation | None:
    """A convolution and the addition of its output; None if they take it for different numbers."""
    second, letter = addition.desc, field[0]
    if not all(_are_equal(convolution, f"output_{name}", addition, f"{letter}_{name}") for name in PARAMETERS):
        return None
    (other,) = (each for each in LETTERS if each != letter)
    names = {f"{other}_{name}": f"addend_{name}" for name in ("tensor", *PARAMETERS)}
    names |= {f"output_{name}": f"sum_{name}" for name in PARAMETERS} | {"output_tensor": "output_tensor"}
    given = {**_fields(convolution), **{name: getattr(second, field) for field, name in names.items()}}
    desc = QuantizedLinearConvolutionAddDesc(**given, addend_comes_first=letter == "b")

    def both(own: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        return {**own, **{names[field]: value for field, value in more.items() if field in names}}

    return Operation(desc, both(convolution.places, addition.places), both(convolution.owned, addition.owned))


LAST_STEPS: Mapping[type, Join] = {ElementWiseQuantizedLinearAddDesc: _with_sum, ByteTableDesc: _with_table}


def _are_equal(first: Operation, field: str, second: Operation, other: str) -> bool:
    """Whether two parameters have the same number: constants, or none, which is a zero point of 0."""
    numbers = []
    for operation, name in ((first, field), (second, other)):
        if name in operation.owned:
            numbers.append(np.asarray(operation.owned[name]).reshape(-1))
        elif name in operation.places:
            return False
        else:
            numbers.append(np.zeros(1, np.int8))
    return bool(len(numbers[0]) == len(numbers[1]) == 1 and numbers[0][0] == numbers[1][0])
