"""The shared memory that a kernel declares, as its SPIR-V has it with the constants of a dispatch."""

from __future__ import annotations

import struct

from dmlvk.planning import Dispatch
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.last_step import HAS_TABLE
from dmlvk.runtime.kernel_modules import spirv
from dmlvk.vulkan.specialization import declarations, specialized

# Opcodes of the SPIR-V specification, and a storage class.
OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_VECTOR, OP_TYPE_ARRAY, OP_TYPE_POINTER = 21, 22, 23, 28, 32
OP_CONSTANT, OP_VARIABLE = 43, 59
WORKGROUP = 4


def shared_bytes(dispatch: Dispatch) -> int:
    """Bytes of all variables of a workgroup, with a table: the planner leaves room for one."""
    names = kernel_interface(dispatch.kernel).specialization_constants
    with_table = [int(name == HAS_TABLE) or given for name, given in zip(names, dispatch.specialization, strict=True)]
    code = specialized(spirv(dispatch.kernel), with_table)
    sizes: dict[int, int] = {}  # not of booleans, matrices and structures, which no such variable is made of
    constants: dict[int, int] = {}
    pointed: dict[int, int] = {}
    total = 0
    for opcode, operands in declarations(struct.unpack(f"<{len(code) // 4}I", code)):
        if opcode in (OP_TYPE_INT, OP_TYPE_FLOAT):
            sizes[operands[0]] = operands[1] // 8
        elif opcode == OP_CONSTANT:
            constants[operands[1]] = operands[2]
        elif opcode == OP_TYPE_VECTOR and operands[1] in sizes:
            sizes[operands[0]] = sizes[operands[1]] * operands[2]
        elif opcode == OP_TYPE_ARRAY and operands[1] in sizes:
            sizes[operands[0]] = sizes[operands[1]] * constants[operands[2]]
        elif opcode == OP_TYPE_POINTER:
            pointed[operands[0]] = operands[2]
        elif opcode == OP_VARIABLE and operands[2] == WORKGROUP:
            total += sizes[pointed[operands[0]]]
    return total
