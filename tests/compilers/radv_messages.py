"""Reads the messages that RADV prints with RADV_DEBUG=shaders,shaderstats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Printed before each kernel by tests/compilers/every_kernel.py, with the kernel's name and specialization constants.
MARK = "=== dmlvk kernel: "

_STATISTIC = re.compile(r"^\s*(?:\*\*\*\s*)?([A-Za-z ]+?):\s+(\d+)\b", re.MULTILINE)
# LLVM writes "\tv_dot4_i32_iu8 v8, ...". If its LLVM does not know the GPU, RADV writes another form:
# "\t v1: (precise)%358:v[8] = v_dot4_i32_iu8 ...".
_INSTRUCTION = re.compile(r"^\s+(?:l?[sv]\d+b?: [^\n]*? = )?([a-z][a-z0-9]*_[a-z0-9_]+)\s", re.MULTILINE)


@dataclass(frozen=True)
class Shader:
    """One compiled pipeline.

    Attributes
    ----------
    name : str
        The kernel's name and its specialization constants.
    vector_registers, spilled_vector_registers, spilled_scalar_registers : int
    scratch_bytes : int
        Private memory of an invocation: spilled registers and arrays that do not fit into registers.
    mnemonics : frozenset of str
        Names of the instructions in the machine code.
    instruction_count : int
    """

    name: str
    vector_registers: int
    spilled_vector_registers: int
    spilled_scalar_registers: int
    scratch_bytes: int
    mnemonics: frozenset[str]
    instruction_count: int

    @property
    def kernel(self) -> str:
        return self.name.partition(" ")[0]

    def holds(self, mnemonic: str) -> bool:
        return any(name.startswith(mnemonic) for name in self.mnemonics)


def shaders(messages: str) -> Iterator[Shader]:
    """The shaders in the driver's messages, in order.

    Raises
    ------
    ValueError
        A kernel has no statistics or no machine code: the driver prints them in a form that is unknown here.
    """
    for part in messages.split(MARK)[1:]:
        name, _, said = part.partition("\n")
        statistics = {key.strip().lower(): int(value) for key, value in _STATISTIC.findall(said)}
        assembly = _INSTRUCTION.findall(said.partition("disasm:")[2])
        wanted = ("vgprs", "spilled vgprs", "spilled sgprs", "scratch size", "instructions")
        absent = [key for key in wanted if key not in statistics]
        if absent or not assembly:
            what = ", ".join(absent) or "machine code"
            raise ValueError(f"RADV said nothing of {name}'s {what}; it said:\n{said[-2000:]}")
        yield Shader(
            name=name,
            vector_registers=statistics["vgprs"],
            spilled_vector_registers=statistics["spilled vgprs"],
            spilled_scalar_registers=statistics["spilled sgprs"],
            scratch_bytes=statistics["scratch size"],
            mnemonics=frozenset(assembly),
            instruction_count=statistics["instructions"],
        )
