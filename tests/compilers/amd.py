"""Compile every kernel for six generations of AMD GPUs and check the machine code. No AMD GPU is needed.

    python -m tests.compilers.amd [--generation navi31]... [--kernel NAME]... [--path matrix]

RADV, Mesa's driver, offers the device of any AMD GPU that RADV_FORCE_FAMILY names. The device compiles, and does not
run. Many descriptors are planned in every kernel path that the planner has for the device. All kernels of these plans
are compiled with their specialization constants. The table has a row for each kernel and generation. The exit status is
1 if

- a kernel keeps registers in memory (spills), or
- a kernel that multiplies on matrix units or by packed dot products does not contain the GPU's instruction for it.

The driver is the one that `python -m tools.drivers --radv` finds or fetches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

from tests.compilers.radv_messages import MARK, Shader, shaders
from tools.drivers import get_radv

# RADV_FORCE_FAMILY's names, oldest first: GCN 4, GCN 5, RDNA 1, 2, 3 and 4.
GENERATIONS = ("polaris10", "vega10", "navi10", "navi21", "navi31", "gfx1201")


@dataclass(frozen=True)
class Instruction:
    """An instruction that a kernel has to contain.

    Attributes
    ----------
    kernels : tuple of str
        Names of the kernels. Only those that were compiled for the generation are checked.
    mnemonic : str
        The beginning of the instruction's name.
    generations : tuple of str
        GPUs that have the instruction.
    extension : str
        The extension that a driver offers if kernels can use the instruction; empty if every driver has it.
    generations_of_later_drivers : tuple of str
        GPUs for which older releases of RADV do not offer the extension.
    """

    kernels: tuple[str, ...]
    mnemonic: str
    generations: tuple[str, ...]
    extension: str = ""
    generations_of_later_drivers: tuple[str, ...] = ()


INSTRUCTIONS = (
    Instruction(
        ("quantized_linear_convolution/matrix", "quantized_linear_convolution/halo"),
        "v_wmma_",
        ("navi31", "gfx1201"),
        "VK_KHR_cooperative_matrix",
        ("gfx1201",),  # RADV 25.0 has matrices on RDNA 3 only
    ),
    Instruction(
        ("quantized_linear_convolution/registers_dot4", "quantized_linear_convolution/tile_dot4"),
        "v_dot4",  # RDNA 2 also has v_dot4c_, which accumulates into its destination
        ("navi21", "navi31", "gfx1201"),
    ),
)


@dataclass(frozen=True)
class Row:
    """A kernel on one generation. Registers, spills, scratch and instructions are the largest of any variant."""

    generation: str
    kernel: str
    variants: tuple[Shader, ...]

    @property
    def vector_registers(self) -> int:
        return max(shader.vector_registers for shader in self.variants)

    @property
    def spilled(self) -> int:
        return max(shader.spilled_vector_registers + shader.spilled_scalar_registers for shader in self.variants)

    @property
    def scratch(self) -> int:
        return max(shader.scratch_bytes for shader in self.variants)

    @property
    def largest(self) -> int:
        return max(shader.instruction_count for shader in self.variants)

    @property
    def accelerated(self) -> int | None:
        """Number of variants that contain the required instructions; None if no instruction is required."""
        wanted = [i.mnemonic for i in INSTRUCTIONS if self.kernel in i.kernels and self.generation in i.generations]
        if not wanted:
            return None
        return sum(all(shader.holds(mnemonic) for mnemonic in wanted) for shader in self.variants)

    @property
    def faults(self) -> Iterator[str]:
        for shader in self.variants:
            spilled = shader.spilled_vector_registers + shader.spilled_scalar_registers
            if spilled:
                yield f"{self.generation}: {shader.name} spills {spilled} registers"
            elif shader.scratch_bytes:
                yield f"{self.generation}: {shader.name} keeps an array of {shader.scratch_bytes} bytes in memory"
            for instruction in INSTRUCTIONS:
                applies = self.kernel in instruction.kernels and self.generation in instruction.generations
                if applies and not shader.holds(instruction.mnemonic):
                    yield f"{self.generation}: {shader.name} holds no {instruction.mnemonic}"


def rows(generation: str, found: Iterable[Shader]) -> list[Row]:
    """One row for each kernel."""
    by_kernel: dict[str, list[Shader]] = {}
    for shader in found:
        by_kernel.setdefault(shader.kernel, []).append(shader)
    return [Row(generation, kernel, tuple(variants)) for kernel, variants in sorted(by_kernel.items())]


def missing(found: Iterable[Row], offered: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Instructions that were checked in no kernel of a generation: a check of nothing must not pass.

    `offered` holds the driver's extensions for each generation that was compiled for.
    """
    compiled = {(row.generation, row.kernel) for row in found}
    for generation, extensions in offered.items():
        for instruction in INSTRUCTIONS:
            if generation not in instruction.generations or _is_left_out(instruction, generation, extensions):
                continue
            if not any((generation, kernel) in compiled for kernel in instruction.kernels):
                yield f"{generation}: no kernel was compiled that should hold {instruction.mnemonic}"


def left_out(offered: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Instructions that were checked in no kernel because the driver is too old for them."""
    for generation, extensions in offered.items():
        for instruction in INSTRUCTIONS:
            if _is_left_out(instruction, generation, extensions):
                yield f"{generation}: this RADV offers no {instruction.extension}, so that no kernel can hold " + (
                    instruction.mnemonic
                )


def _is_left_out(instruction: Instruction, generation: str, extensions: Collection[str]) -> bool:
    return generation in instruction.generations_of_later_drivers and instruction.extension not in extensions


def compile_generation(generation: str, kernels: tuple[str, ...], path: str | None) -> tuple[list[Shader], list[str]]:
    """All kernels for one generation, and the driver's extensions for it.

    It runs in a process of its own because the driver reads its environment variables once.
    """
    driver = str(get_radv())
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "RADV_FORCE_FAMILY": generation,
            "RADV_DEBUG": "shaders,shaderstats,nocache",
            "MESA_SHADER_CACHE_DISABLE": "true",
            "VK_DRIVER_FILES": driver,
            "VK_ICD_FILENAMES": driver,
            "DMLVK_CACHE_DIR": cache,
        }
        arguments = [*(f"--kernel={name}" for name in kernels), *([f"--path={path}"] if path else [])]
        command = [sys.executable, "-m", "tests.compilers.every_kernel", *arguments]
        finished = subprocess.run(command, env=environment, capture_output=True)
    messages = finished.stderr.decode(errors="replace")
    if finished.returncode != 0:
        said = messages.rpartition(MARK)[2] if MARK in messages else messages
        raise SystemExit(f"{generation}: the driver failed in its last kernel:\n{said[-4000:]}")
    return list(shaders(messages)), json.loads(finished.stdout)


@click.command(help=__doc__)
@click.option(
    "--generation", "generations", multiple=True, type=click.Choice(GENERATIONS), help="Default: all of them."
)
@click.option("--kernel", "kernels", multiple=True, help="Only these kernels, and no look for missing ones.")
@click.option("--path", default=None, help="Only this kernel path.")
@click.option("--variants", is_flag=True, help="A line for each variant as well.")
def main(generations: tuple[str, ...], kernels: tuple[str, ...], path: str | None, variants: bool) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    columns = ("generation", "kernel", "variants", "instructions", "VGPRs", "spilled", "scratch bytes", "accelerated")
    table = Table(*columns, title="Kernels compiled for AMD by RADV; the most of any variant")
    found: list[Row] = []
    offered: dict[str, list[str]] = {}
    generations = generations or GENERATIONS
    for generation in generations:
        with console.status(f"compiling for {generation}"):
            compiled, offered[generation] = compile_generation(generation, kernels, path)
            of_generation = rows(generation, compiled)
        found += of_generation
        for row in of_generation:
            accelerated = "" if row.accelerated is None else f"{row.accelerated} of {len(row.variants)}"
            numbers = (len(row.variants), row.largest, row.vector_registers, row.spilled, row.scratch)
            table.add_row(generation, row.kernel, *map(str, numbers), accelerated)
            if variants:
                for shader in row.variants:
                    said = f"{shader.instruction_count} instructions, {shader.vector_registers} VGPRs"
                    console.print(f"{generation}: {shader.name}: {said}", soft_wrap=True, highlight=False)
        table.add_section()
    console.print(table)
    faults = [fault for row in found for fault in row.faults]
    if not found:
        faults.append("no kernel was compiled: none of these names is in a plan")
    if not kernels and path is None:
        faults += missing(found, offered)
        for line in left_out(offered):
            console.print(line, soft_wrap=True, highlight=False)
    for fault in faults:
        console.print(fault, soft_wrap=True, highlight=False)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
