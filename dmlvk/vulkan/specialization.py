"""Replacing the specialization constants of a SPIR-V module with plain constants, for drivers that do it too late.

A driver gets a module and the values of its specialization constants. Most drivers insert the values first, and then
remove the branches that the values rule out. SwiftShader optimizes the module without the values and inserts them last,
so that its code takes every branch, with a mask for each: a copy takes twenty times as long as with plain constants.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

HEADER_WORDS = 5
WORD = 0xFFFFFFFF

# Opcodes and a decoration of the SPIR-V specification.
OP_TYPE_BOOL = 20
OP_CONSTANT_TRUE, OP_CONSTANT_FALSE, OP_CONSTANT, OP_CONSTANT_COMPOSITE = 41, 42, 43, 44
OP_SPEC_CONSTANT_TRUE, OP_SPEC_CONSTANT_FALSE, OP_SPEC_CONSTANT, OP_SPEC_CONSTANT_COMPOSITE = 48, 49, 50, 51
OP_SPEC_CONSTANT_OP = 52
OP_FUNCTION = 54
OP_DECORATE = 71
OP_COMPOSITE_EXTRACT = 81
DECORATION_SPEC_ID = 1


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _quotient(a: int, b: int) -> int:
    """The quotient of signed numbers, rounded towards zero."""
    magnitude = abs(a) // abs(b) if b else 0
    return -magnitude if (a < 0) != (b < 0) else magnitude


def _on_signed(operation: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda a, b: operation(_signed(a), _signed(b))


# The operations of OpSpecConstantOp in modules that come from GLSL. Their arguments are unsigned words, and 0 or 1 for
# booleans. Of the result the low 32 bits count, or, for a boolean, whether it is zero. Divisions by zero and shifts by
# 32 or more are undefined in SPIR-V, and have some result here.
OPERATIONS: dict[int, Callable[..., int]] = {
    126: operator.neg,  # OpSNegate
    128: operator.add,  # OpIAdd
    130: operator.sub,  # OpISub
    132: operator.mul,  # OpIMul
    134: lambda a, b: a // b if b else 0,  # OpUDiv
    135: _on_signed(_quotient),  # OpSDiv
    137: lambda a, b: a % b if b else 0,  # OpUMod
    139: _on_signed(lambda a, b: a % b if b else 0),  # OpSMod
    164: operator.eq,  # OpLogicalEqual
    165: operator.ne,  # OpLogicalNotEqual
    166: operator.or_,  # OpLogicalOr
    167: operator.and_,  # OpLogicalAnd
    168: operator.not_,  # OpLogicalNot
    169: lambda condition, a, b: a if condition else b,  # OpSelect
    170: operator.eq,  # OpIEqual
    171: operator.ne,  # OpINotEqual
    172: operator.gt,  # OpUGreaterThan
    173: _on_signed(operator.gt),  # OpSGreaterThan
    174: operator.ge,  # OpUGreaterThanEqual
    175: _on_signed(operator.ge),  # OpSGreaterThanEqual
    176: operator.lt,  # OpULessThan
    177: _on_signed(operator.lt),  # OpSLessThan
    178: operator.le,  # OpULessThanEqual
    179: _on_signed(operator.le),  # OpSLessThanEqual
    194: lambda a, b: a >> (b & 31),  # OpShiftRightLogical
    195: lambda a, b: _signed(a) >> (b & 31),  # OpShiftRightArithmetic
    196: lambda a, b: a << (b & 31),  # OpShiftLeftLogical
    197: operator.or_,  # OpBitwiseOr
    198: operator.xor,  # OpBitwiseXor
    199: operator.and_,  # OpBitwiseAnd
    200: operator.invert,  # OpNot
}


def specialized(code: bytes, values: Sequence[int]) -> bytes:
    """The module with plain constants instead of its specialization constants.

    code: SPIR-V; its specialization constants are 32-bit numbers or booleans.
    values: 32-bit values, signed or unsigned, of the specialization constants 0, 1, 2, ... Others keep their defaults.
    Raises ValueError: the module has an OpSpecConstantOp on vectors, floats or 64-bit numbers, which no module of this
        project has.
    """
    words = struct.unpack(f"<{len(code) // 4}I", code)
    numbers: dict[int, int] = {}  # by result: its SpecId
    booleans: set[int] = set()  # the boolean types
    constants: dict[int, Any] = {}  # by result: its value, or a composite's constituents
    plain = list(words[:HEADER_WORDS])

    def declare(type_id: int, result: int, value: int) -> None:
        is_boolean = type_id in booleans
        constants[result] = value = int(value != 0) if is_boolean else value & WORD
        opcode = (OP_CONSTANT_TRUE if value else OP_CONSTANT_FALSE) if is_boolean else OP_CONSTANT
        literals = () if is_boolean else (value,)
        plain.extend((3 + len(literals) << 16 | opcode, type_id, result, *literals))

    position = HEADER_WORDS
    for opcode, operands in declarations(words):
        start, position = position, position + 1 + len(operands)
        if opcode == OP_DECORATE and operands[1] == DECORATION_SPEC_ID:
            numbers[operands[0]] = operands[2]
        elif opcode in (OP_SPEC_CONSTANT, OP_SPEC_CONSTANT_TRUE, OP_SPEC_CONSTANT_FALSE):
            type_id, result = operands[:2]
            default = operands[2] if opcode == OP_SPEC_CONSTANT else int(opcode == OP_SPEC_CONSTANT_TRUE)
            number = numbers.get(result, len(values))
            declare(type_id, result, values[number] if number < len(values) else default)
        elif opcode == OP_SPEC_CONSTANT_OP:
            type_id, result, operation, *arguments = operands
            declare(type_id, result, _evaluate(operation, arguments, constants))
        elif opcode == OP_SPEC_CONSTANT_COMPOSITE:
            constants[operands[1]] = operands[2:]
            plain.extend((words[start] - OP_SPEC_CONSTANT_COMPOSITE + OP_CONSTANT_COMPOSITE, *operands))
        else:
            if opcode == OP_TYPE_BOOL:
                booleans.add(operands[0])
            elif opcode in (OP_CONSTANT_TRUE, OP_CONSTANT_FALSE):
                constants[operands[1]] = int(opcode == OP_CONSTANT_TRUE)
            elif opcode == OP_CONSTANT and len(operands) == 3:
                constants[operands[1]] = operands[2]
            elif opcode == OP_CONSTANT_COMPOSITE:
                constants[operands[1]] = operands[2:]
            plain.extend(words[start:position])
    plain.extend(words[position:])
    return struct.pack(f"<{len(plain)}I", *plain)


def declarations(words: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Opcode and operands of each instruction before the first function; all constants are among them.

    It stops where a module is broken, and leaves the error to the driver.
    """
    position = HEADER_WORDS
    while position < len(words):
        opcode, length = words[position] & 0xFFFF, words[position] >> 16
        if opcode == OP_FUNCTION or length == 0:
            return
        yield opcode, tuple(words[position + 1 : position + length])
        position += length


def _evaluate(operation: int, arguments: Sequence[int], constants: Mapping[int, Any]) -> int:
    try:
        if operation == OP_COMPOSITE_EXTRACT:
            composite, *indices = arguments
            for index in indices:
                composite = constants[composite][index]
            return int(constants[composite])
        return int(OPERATIONS[operation](*(constants[argument] for argument in arguments)))
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"OpSpecConstantOp {operation} of {arguments}: only operations on 32-bit integers and booleans are known"
        ) from error
