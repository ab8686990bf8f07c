"""Reads the names and places of a SPIR-V module's push constants and specialization constants; removes names."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

# Opcodes, decorations and a storage class of the SPIR-V specification, version 1.6.
OP_SOURCE_EXTENSION, OP_NAME, OP_MEMBER_NAME = 4, 5, 6
OP_TYPE_VECTOR, OP_TYPE_ARRAY, OP_TYPE_STRUCT, OP_TYPE_POINTER = 23, 28, 30, 32
OP_CONSTANT, OP_SPEC_CONSTANT_COMPOSITE = 43, 51
OP_VARIABLE, OP_DECORATE, OP_MEMBER_DECORATE = 59, 71, 72
SPEC_ID, BUILT_IN, OFFSET = 1, 11, 35
WORKGROUP_SIZE = 25
PUSH_CONSTANT = 9
HEADER_WORDS = 5

# Instructions that mean nothing to a driver: names, and the extensions of GLSL that the source uses. OpSource stays,
# the language and its version: it is short, and a driver may ask for it.
FOR_READERS = {OP_SOURCE_EXTENSION, OP_NAME, OP_MEMBER_NAME}

# The name for the number of a workgroup's invocations along x: GLSL leaves this specialization constant unnamed.
LOCAL_SIZE_X = "LOCAL_SIZE_X"


@dataclass
class _Module:
    """The instructions of a module that declare its interface, by the ids that they declare."""

    names: dict[int, str] = field(default_factory=dict)
    member_names: dict[tuple[int, int], str] = field(default_factory=dict)
    member_offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    structs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    arrays: dict[int, tuple[int, int]] = field(default_factory=dict)  # the element's type, the length's id
    vectors: dict[int, tuple[int, int]] = field(default_factory=dict)  # the component's type, the count
    pointers: dict[int, tuple[int, int]] = field(default_factory=dict)  # the storage class, the type
    constants: dict[int, int] = field(default_factory=dict)
    specialization_ids: dict[int, int] = field(default_factory=dict)
    composites: dict[int, tuple[int, ...]] = field(default_factory=dict)
    workgroup_size: int | None = None
    push_constants: int | None = None  # the struct's id

    def word_count(self, kind: int) -> int:
        """32-bit words of a type whose scalars have 32 bits."""
        if kind in self.arrays:
            element, length = self.arrays[kind]
            return self.word_count(element) * self.constants[length]
        if kind in self.vectors:
            return self.vectors[kind][1]
        return 1


def words_of(code: bytes) -> tuple[int, ...]:
    """The words of a module."""
    return struct.unpack(f"<{len(code) // 4}I", code)


def instructions(code: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """The opcode and the operands of each instruction."""
    found = []
    words = words_of(code)
    position = HEADER_WORDS
    while position < len(words):
        length, opcode = words[position] >> 16, words[position] & 0xFFFF
        found.append((opcode, words[position + 1 : position + length]))
        position += length
    return found


def without_names(code: bytes) -> bytes:
    """A module without the instructions that are for readers alone. All others, and the ids, stay as they are."""
    words = words_of(code)
    kept = list(words[:HEADER_WORDS])
    for opcode, operands in instructions(code):
        if opcode not in FOR_READERS:
            kept += ((len(operands) + 1) << 16 | opcode, *operands)
    return struct.pack(f"<{len(kept)}I", *kept)


def _text(words: tuple[int, ...]) -> str:
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0].decode()


def _read(code: bytes) -> _Module:
    module = _Module()
    for opcode, operands in instructions(code):
        if opcode == OP_NAME:
            # A constant of which another one is a copy has both names, its own first.
            module.names.setdefault(operands[0], _text(operands[1:]))
        elif opcode == OP_MEMBER_NAME:
            module.member_names[operands[0], operands[1]] = _text(operands[2:])
        elif opcode == OP_MEMBER_DECORATE and operands[2] == OFFSET:
            module.member_offsets[operands[0], operands[1]] = operands[3]
        elif opcode == OP_DECORATE and operands[1] == SPEC_ID:
            module.specialization_ids[operands[0]] = operands[2]
        elif opcode == OP_DECORATE and operands[1:] == (BUILT_IN, WORKGROUP_SIZE):
            module.workgroup_size = operands[0]
        elif opcode == OP_TYPE_STRUCT:
            module.structs[operands[0]] = operands[1:]
        elif opcode == OP_TYPE_ARRAY:
            module.arrays[operands[0]] = operands[1], operands[2]
        elif opcode == OP_TYPE_VECTOR:
            module.vectors[operands[0]] = operands[1], operands[2]
        elif opcode == OP_TYPE_POINTER:
            module.pointers[operands[0]] = operands[1], operands[2]
        elif opcode == OP_CONSTANT:
            module.constants[operands[1]] = operands[2]
        elif opcode == OP_SPEC_CONSTANT_COMPOSITE:
            module.composites[operands[1]] = operands[2:]
        elif opcode == OP_VARIABLE and operands[2] == PUSH_CONSTANT:
            module.push_constants = module.pointers[operands[0]][1]
    return module


def interface(code: bytes) -> dict[str, Any]:
    """The constants that a plan fills by name, in the manifest's form.

    Returns:
        dict: "push_constants": {name: [first 32-bit word, number of words]}; "specialization_constants": names in the
            order of their ids, which are 0, 1, 2, ...

    Raises:
        ValueError: An id of a specialization constant is missing, or a constant has no name.
    """
    module = _read(code)
    push_constants = _push_constant_places(module)
    members = [module.member_names[module.push_constants or 0, index] for index in range(len(push_constants))]
    names = {number: module.names.get(constant, "") for constant, number in module.specialization_ids.items()}
    if (size_x := _local_size_x(module)) is not None:
        names[size_x] = LOCAL_SIZE_X
    ordered = [names.get(number, "") for number in range(max(names, default=-1) + 1)]
    if not all(ordered) or len(set(ordered)) != len(ordered):
        raise ValueError(f"its specialization constants have the names {ordered}: one is missing, or comes twice")
    return {
        "push_constants": dict(zip(members, push_constants, strict=True)),
        "specialization_constants": ordered,
    }


def places(code: bytes) -> dict[str, Any]:
    """What a module without names tells of its interface.

    Returns:
        dict: "push_constants": [first 32-bit word, number of words] of each; "specialization_constants": their ids in
            order; LOCAL_SIZE_X: the id of that one, or None.
    """
    module = _read(code)
    return {
        "push_constants": _push_constant_places(module),
        "specialization_constants": sorted(module.specialization_ids.values()),
        LOCAL_SIZE_X: _local_size_x(module),
    }


def _push_constant_places(module: _Module) -> list[list[int]]:
    if module.push_constants is None:
        return []
    return [
        [module.member_offsets[module.push_constants, index] // 4, module.word_count(kind)]
        for index, kind in enumerate(module.structs[module.push_constants])
    ]


def _local_size_x(module: _Module) -> int | None:
    """The id of the specialization constant for the number of a workgroup's invocations along x, if there is one."""
    if module.workgroup_size is None:
        return None
    return module.specialization_ids.get(module.composites[module.workgroup_size][0])
