"""Modules with plain constants in place of specialization constants."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, Slice1Desc, TensorDesc
from dmlvk.runtime.kernel_modules import spirv
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.specialization import OPERATIONS, specialized
from tools.compile_kernels import kernel_sources
from tools.spirv_interface import instructions

pytestmark = pytest.mark.every_driver

KERNELS = sorted(kernel_sources())
EDGES = [0, 1, 2, 3, 7, 31, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFD, 0xFFFFFFFF]

OP_DECORATE, SPEC_ID = 71, 1
TYPE_BOOL, TYPE_UINT, TYPE_INT, TYPE_PAIR, A, B, TRUTH, UNTRUTH, RESULT = range(1, 10)
HEADER = (0x07230203, 0x00010500, 0, 100, 0)


def unsigned(*values: int) -> list[Any]:
    return [np.array(value & 0xFFFFFFFF, np.uint32) for value in values]


def signed(*values: int) -> list[Any]:
    return [np.array(value & 0xFFFFFFFF, np.uint32).view(np.int32) for value in values]


def signed_numbers(a: int, b: int) -> tuple[int, int]:
    """The operands as Python integers, for NumPy types that can hold the result of INT32_MIN / -1."""
    return int(signed(a)[0]), int(signed(b)[0])


# Each operation on two words in NumPy. None means that the result is undefined.
TRUTHS: dict[int, Callable[[int, int], Any]] = {
    126: lambda a, _: np.negative(*signed(a)),
    128: lambda a, b: np.add(*unsigned(a, b)),
    130: lambda a, b: np.subtract(*unsigned(a, b)),
    132: lambda a, b: np.multiply(*unsigned(a, b)),
    134: lambda a, b: np.floor_divide(*unsigned(a, b)) if b else None,
    135: lambda a, b: np.trunc(np.divide(*np.array(signed_numbers(a, b), np.float64))) if b else None,
    137: lambda a, b: np.remainder(*unsigned(a, b)) if b else None,
    139: lambda a, b: np.remainder(*np.array(signed_numbers(a, b), np.int64)) if b else None,
    170: lambda a, b: np.equal(*unsigned(a, b)),
    171: lambda a, b: np.not_equal(*unsigned(a, b)),
    172: lambda a, b: np.greater(*unsigned(a, b)),
    173: lambda a, b: np.greater(*signed(a, b)),
    174: lambda a, b: np.greater_equal(*unsigned(a, b)),
    175: lambda a, b: np.greater_equal(*signed(a, b)),
    176: lambda a, b: np.less(*unsigned(a, b)),
    177: lambda a, b: np.less(*signed(a, b)),
    178: lambda a, b: np.less_equal(*unsigned(a, b)),
    179: lambda a, b: np.less_equal(*signed(a, b)),
    194: lambda a, b: np.right_shift(*unsigned(a, b)) if b < 32 else None,
    195: lambda a, b: np.right_shift(*signed(a, b)) if b < 32 else None,
    196: lambda a, b: np.left_shift(*unsigned(a, b)) if b < 32 else None,
    197: lambda a, b: np.bitwise_or(*unsigned(a, b)),
    198: lambda a, b: np.bitwise_xor(*unsigned(a, b)),
    199: lambda a, b: np.bitwise_and(*unsigned(a, b)),
    200: lambda a, _: np.invert(*unsigned(a)),
}
LOGICAL_TRUTHS: dict[int, Callable[[bool, bool], bool]] = {
    164: lambda a, b: a is b,
    165: lambda a, b: a is not b,
    166: lambda a, b: bool(np.logical_or(a, b)),
    167: lambda a, b: bool(np.logical_and(a, b)),
    168: lambda a, _: bool(np.logical_not(a)),
}
ONE_OPERAND = {126, 168, 200}
GIVES_BOOLEAN = set(range(164, 169)) | set(range(170, 180))


def instruction(opcode: int, *operands: int) -> tuple[int, ...]:
    return (1 + len(operands) << 16 | opcode, *operands)


def module(*instructions: tuple[int, ...]) -> bytes:
    """A module with two numbers (SpecId 0 and 1), two booleans (2 is true, 3 is false) and further instructions."""
    words = [*HEADER]
    for number, result in enumerate((A, B, TRUTH, UNTRUTH)):
        words += instruction(OP_DECORATE, result, SPEC_ID, number)
    words += instruction(20, TYPE_BOOL)
    words += instruction(21, TYPE_UINT, 32, 0)
    words += instruction(21, TYPE_INT, 32, 1)
    words += instruction(23, TYPE_PAIR, TYPE_UINT, 2)
    words += instruction(50, TYPE_UINT, A, 11)
    words += instruction(50, TYPE_UINT, B, 22)
    words += instruction(48, TYPE_BOOL, TRUTH)
    words += instruction(49, TYPE_BOOL, UNTRUTH)
    for added in instructions:
        words += added
    words += instruction(54, 1, 2, 3, 4)  # OpFunction: everything after it stays as it is
    words += instruction(50, TYPE_UINT, 99, 5)
    return struct.pack(f"<{len(words)}I", *words)


def constants(code: bytes) -> dict[int, Any]:
    """Values of plain constants, by their result ids."""
    found: dict[int, Any] = {}
    for opcode, operands in instructions(code):
        if opcode in (41, 42):
            found[operands[1]] = opcode == 41
        elif opcode == 43:
            found[operands[1]] = operands[2]
        elif opcode == 44:
            found[operands[1]] = operands[2:]
    return found


def test_numpy_has_a_word_on_each_operation() -> None:
    assert {*TRUTHS, *LOGICAL_TRUTHS, 169} == set(OPERATIONS)


@pytest.mark.parametrize("operation", TRUTHS)
def test_numbers(operation: int) -> None:
    type_id = TYPE_BOOL if operation in GIVES_BOOLEAN else TYPE_UINT
    operands = (A,) if operation in ONE_OPERAND else (A, B)
    code = module(instruction(52, type_id, RESULT, operation, *operands))
    for a in EDGES:
        for b in EDGES:
            truth = TRUTHS[operation](a, b)
            if truth is None:
                specialized(code, (a, b))  # any result is right
                continue
            found = constants(specialized(code, (a, b)))[RESULT]
            assert found == (bool(truth) if type_id == TYPE_BOOL else int(truth) & 0xFFFFFFFF), (a, b)


@pytest.mark.parametrize("operation", LOGICAL_TRUTHS)
def test_booleans(operation: int) -> None:
    operands = (TRUTH,) if operation in ONE_OPERAND else (TRUTH, UNTRUTH)
    code = module(instruction(52, TYPE_BOOL, RESULT, operation, *operands))
    for a in (False, True):
        for b in (False, True):
            assert constants(specialized(code, (0, 0, a, b)))[RESULT] is LOGICAL_TRUTHS[operation](a, b)


@pytest.mark.parametrize(("condition", "chosen"), [(0, 22), (1, 11), (5, 11)])
def test_a_selection(condition: int, chosen: int) -> None:
    code = module(instruction(52, TYPE_UINT, RESULT, 169, TRUTH, A, B))
    assert constants(specialized(code, (11, 22, condition)))[RESULT] == chosen


def test_values_signs_and_defaults() -> None:
    assert constants(specialized(module(), ())) == {A: 11, B: 22, TRUTH: True, UNTRUTH: False}
    assert constants(specialized(module(), (-1,))) == {A: 0xFFFFFFFF, B: 22, TRUTH: True, UNTRUTH: False}
    assert constants(specialized(module(), (7, 8, 0, 9))) == {A: 7, B: 8, TRUTH: False, UNTRUTH: True}


def test_composites_and_what_is_made_of_their_parts() -> None:
    """Like gl_WorkGroupSize and its component x."""
    code = module(
        instruction(51, TYPE_PAIR, RESULT, A, B),
        instruction(52, TYPE_UINT, RESULT + 1, 81, RESULT, 1),
        instruction(52, TYPE_UINT, RESULT + 2, 128, RESULT + 1, A),
    )
    found = constants(specialized(code, (7, 8)))
    assert (found[RESULT], found[RESULT + 1], found[RESULT + 2]) == ((A, B), 8, 15)


def test_what_lies_behind_the_declarations_stays() -> None:
    assert specialized(module(), (1, 2)).endswith(module()[-4 * 9 :])


@pytest.mark.parametrize(
    "operands",
    [
        (TYPE_UINT, RESULT, 129, A, B),  # OpFAdd
        (TYPE_UINT, RESULT, 128, A, 77),  # an operand that is no known constant
        (TYPE_UINT, RESULT, 81, A, 0),  # a component of a number
    ],
)
def test_what_is_not_known_is_told(operands: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"OpSpecConstantOp {operands[2]} of \[.*only operations on 32-bit"):
        specialized(module(instruction(52, *operands)), (1, 2))


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_keep_no_specialization_constant(kernel: str) -> None:
    """Only the SpecId decorations are removed; the number of other instructions stays."""
    code = spirv(kernel)
    before = [opcode for opcode, _ in instructions(code)]
    spec_ids = [operands for opcode, operands in instructions(code) if opcode == OP_DECORATE and operands[1] == SPEC_ID]
    after = specialized(code, (64, 1, 2, 2))
    opcodes = [opcode for opcode, _ in instructions(after)]
    assert spec_ids
    assert set(range(48, 53)) & set(before)
    assert not set(range(48, 53)) & set(opcodes)
    assert len(opcodes) == len(before) - len(spec_ids)
    assert specialized(after, ()) == after


def test_swiftshader_alone_is_handed_plain_constants(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    modules: list[bytes] = []
    create = vk.vkCreateShaderModule

    def kept(handle: Any, information: Any, *rest: Any) -> Any:
        modules.append(bytes(vk.ffi.buffer(information.pCode, information.codeSize)))
        return create(handle, information, *rest)

    monkeypatch.setattr(vk, "vkCreateShaderModule", kept)
    tensor = TensorDesc(DataType.UINT8, [40, 64])
    desc = Slice1Desc(
        input_tensor=tensor,
        output_tensor=tensor,
        input_window_offsets=[0, 0],
        input_window_sizes=[40, 64],
        input_window_strides=[1, -1],
    )
    with dmlvk.Device(device.name) as fresh:
        fresh.compile(desc)
    (module,) = modules
    has_specialization_constants = any(opcode in range(48, 53) for opcode, _ in instructions(module))
    assert has_specialization_constants == ("SwiftShader" not in device.name)
