"""Writes archives of SPIR-V modules that `dmlvk.runtime.kernel_modules` reads."""

from __future__ import annotations

import fnmatch
import lzma
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from dmlvk.runtime.kernel_modules import DEFINED, USED
from tools.spirv_interface import HEADER_WORDS, words_of

# The dictionary is larger than any archive, and small beside the 64 MiB that a reader of the preset's would reserve.
# Words have four bytes, which the filter's two bits of position tell apart.
FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20, "lc": 0, "lp": 2, "pb": 2}
]

# The kernels of an operator are in one archive. Those of a convolution are many, of which a call needs few: by a
# pattern of the kernel's name, what the archive's name adds to the operator's.
FAMILIES = {
    "*_convolution*/matrix": "_matrices",
    "*_convolution*/matrix_few_registers": "_matrices",
    "*_convolution*/split_k": "_matrices",
    "*_convolution*/halo": "_matrices",
    "*_convolution*/vectors_*": "_vectors",
    "*_convolution*/depthwise_*": "_depthwise",
}

# Operators whose kernels are few and have most of their code in common: their archive, by a pattern of the kernel's
# name.
TOGETHER = {
    "element_wise_*/*": "element_wise",
    "activation_relu/*": "element_wise",
    "byte_layer_normalization/*": "windows",
    "byte_resample/*": "windows",
    "byte_softmax/*": "windows",
    "byte_table/*": "element_wise",
    "byte_table_mean/*": "windows",
    "*_average_pooling/*": "windows",
    "max_pooling2/*": "windows",
    "diagonal_matrix1/*": "data_movement",
    "one_hot/*": "data_movement",
    "slice1/*": "data_movement",
}

LARGEST_ID = 1 << 22  # a distance and its sign have three bytes

# What is known of SPIR-V's instructions. What is wrong or missing here costs bytes of the archive, not a module's bits.
OP_FUNCTION = 54
OP_EXT_INST = 12  # type, result, set of instructions, number of the instruction, operands
# The result is the first operand: OpTypeVoid to OpTypePipe, OpTypeCooperativeMatrixKHR, OpLabel.
TYPES_AND_LABELS = {*range(19, 40), 4456, 248}
# Instructions of functions that define no id: OpStore, OpCooperativeMatrixStoreKHR, barriers, OpAtomicStore, merges,
# branches, returns, OpFunctionEnd.
WITHOUT_RESULT = {56, 62, 4458, 224, 225, 228, 246, 247, *range(249, 256)}
# How many operands behind the result are ids, where not all are: loads and stores, whose last are flags of memory;
# parts of composites, whose last are indices; merges; and constants.
IDS_OF = {61: 1, 62: 2, 79: 2, 81: 1, 82: 2, 246: 2, 247: 1, 43: 0, 50: 0, 52: 0, OP_FUNCTION: 0, 59: 0}
# Instructions before functions that define no id: extensions, modes, names and decorations.
DECLARATIONS = {3, 5, 6, 10, 11, 14, 15, 16, 17, 71, 72}


def archive_of(kernel: str) -> str:
    """The name of the archive that has a kernel."""
    for pattern, archive in TOGETHER.items():
        if fnmatch.fnmatchcase(kernel, pattern):
            return archive
    families = (family for pattern, family in FAMILIES.items() if fnmatch.fnmatchcase(kernel, pattern))
    return kernel.split("/")[0] + next(families, "")


def places(modules: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Where the archives have each of these modules: members of the manifest's entries."""
    found = {}
    sizes: dict[str, int] = {}
    for kernel in sorted(modules):
        archive = archive_of(kernel)
        start = sizes.get(archive, 0)
        found[kernel] = {"archive": archive, "start": start, "bytes": len(modules[kernel])}
        sizes[archive] = start + len(modules[kernel])
    return found


def compressed(modules: Iterable[bytes]) -> bytes:
    """An archive of modules."""
    return lzma.compress(b"".join(map(with_distances, modules)), filters=FILTERS)


def with_distances(module: bytes) -> bytes:
    """A module whose ids are distances, where functions define them.

    Raises:
        ValueError: A word of the module begins as a distance does. Both need other bytes then.
    """
    words = list(words_of(module))
    if any(word >> 24 in (DEFINED, USED) for word in words):
        raise ValueError("a word of this module begins as distances do: give DEFINED and USED other values")
    instructions = list(_instructions(words))
    in_functions = False
    local = set()
    for _, opcode, result, _ in instructions:
        in_functions |= opcode == OP_FUNCTION
        if in_functions and result:
            local.add(words[result])
    coded, last = words.copy(), 0
    for position, opcode, result, end in instructions:
        if result:
            coded[result] = DEFINED << 24 | _unsigned(words[result] - last)
            last = words[result]
        if opcode in TYPES_AND_LABELS or opcode in DECLARATIONS:
            continue
        first = (result or position) + (3 if opcode == OP_EXT_INST else 1)
        for index in range(first, min(end, first + IDS_OF.get(opcode, end))):
            if words[index] in local:
                coded[index] = USED << 24 | _unsigned(last - words[index])
    return struct.pack(f"<{len(coded)}I", *coded)


def _instructions(words: list[int]) -> Iterable[tuple[int, int, int, int]]:
    """Of each instruction the position, the opcode, where the id is that it defines (0 if it defines none), the end."""
    position = HEADER_WORDS
    while position < len(words):
        opcode, end = words[position] & 0xFFFF, position + (words[position] >> 16)
        result = 0
        if opcode not in DECLARATIONS | WITHOUT_RESULT:
            result = position + (1 if opcode in TYPES_AND_LABELS else 2)
        yield position, opcode, result if result < end and words[result] < LARGEST_ID else 0, end
        position = end


def _unsigned(distance: int) -> int:
    """A distance with its sign as the lowest bit."""
    return 2 * distance if distance >= 0 else -2 * distance - 1
