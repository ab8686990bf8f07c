"""Reads the names and places of a SPIR-V module's push constants and specialization constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

# Opcodes, decorations and a storage class of the SPIR-V specification, version 1.6.
OP_NAME, OP_MEMBER_NAME = 5, 6
OP_TYPE_VECTOR, OP_TYPE_ARRAY, OP_TYPE_STRUCT, OP_TYPE_POINTER = 23, 28, 30, 32
OP_CONSTANT, OP_SPEC_CONSTANT_COMPOSITE = 43, 51
OP_VARIABLE, OP_DECORATE, OP_MEMBER_DECORATE = 59, 71, 72
SPEC_ID, BUILT_IN, OFFSET = 1, 11, 35
WORKGROUP_SIZE = 25
PUSH_CONSTANT = 9

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


def instructions(code: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """The opcode and the operands of each instruction."""
    found = []
    words = struct.unpack(f"<{len(code) // 4}I", code)
    position = 5
    while position < len(words):
        length, opcode = words[position] >> 16, words[position] & 0xFFFF
        found.append((opcode, words[position + 1 : position + length]))
        position += length
    return found


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

    Returns
    -------
    dict
        "push_constants": {name: [first 32-bit word, number of words]}; "specialization_constants": names in the order
        of their ids, which are 0, 1, 2, ...

    Raises
    ------
    ValueError
        An id of a specialization constant is missing, or a constant has no name.
    """
    module = _read(code)
    push_constants: dict[str, list[int]] = {}
    if module.push_constants is not None:
        for index, kind in enumerate(module.structs[module.push_constants]):
            key = module.push_constants, index
            push_constants[module.member_names[key]] = [module.member_offsets[key] // 4, module.word_count(kind)]
    names = {number: module.names.get(constant, "") for constant, number in module.specialization_ids.items()}
    if module.workgroup_size is not None:
        size_x = module.composites[module.workgroup_size][0]
        if size_x in module.specialization_ids:
            names[module.specialization_ids[size_x]] = LOCAL_SIZE_X
    ordered = [names.get(number, "") for number in range(max(names, default=-1) + 1)]
    if not all(ordered) or len(set(ordered)) != len(ordered):
        raise ValueError(f"its specialization constants have the names {ordered}: one is missing, or comes twice")
    return {"push_constants": push_constants, "specialization_constants": ordered}
