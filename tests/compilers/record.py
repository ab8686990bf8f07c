"""docs/machine_code.md: what was compiled for each chip, written by `python -m tests.compilers --record`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import dmlvk
from tests.compilers.chips import CHIPS
from tests.compilers.compiled import Compiled, Pipeline
from tools.debian import ROOT

FILE = ROOT / "docs" / "machine_code.md"
COLUMNS = (
    "kernel",
    "pipelines",
    "instructions",
    "registers",
    "occupancy",
    "spills",
    "scratch, B",
    "with its instruction",
)

HEAD = """# Machine code, chip by chip

Written by `make test-compilers COMPILERS_ARGUMENTS=--record`, chip by chip; [the vendors' compilers](compilers.md)
says what of it matters. Nothing ran: these are statistics of the machine code that Mesa's drivers make for chips that
are not there.

A row has the pipelines of a kernel that the planner takes by itself for layers of networks and for cases at the limits
of the operators; *forced* rows have those of kernel paths that it takes only if asked. Two numbers are the least and
the most of any pipeline. *Registers* are the driver's: those of an invocation, on Intel the most that are live.
*Occupancy* is the width of dispatches (Intel), waves of a core (Adreno), warps of a multiprocessor (NVIDIA), threads
(Apple) or subgroups of a SIMD (AMD). *Spills* and *scratch* are the most of any pipeline. *With its instruction* counts
the pipelines that contain the chip's instruction for their products, and says how many instructions of the whole kernel
there are to each of these. For the matrix kernel on Intel's chips it also says how many instructions of the loop over K
there are to each; a loop inside it, over the slices of a step, counts as often as it runs. Of these, *waits* are
`sync.nop`, which only wait for registers.
"""


def rows(compiled: Compiled) -> Iterator[tuple[str, ...]]:
    """The cells of the rows of a chip's table."""
    for kernel, all_pipelines in compiled.kernels().items():
        for chosen in (True, False):
            pipelines = [each for each in all_pipelines if each.is_chosen is chosen]
            if pipelines:
                name = kernel.replace("quantized_linear_convolution/", "convolution/")
                yield (name if chosen else f"{name}, forced", *_numbers(compiled, kernel, pipelines))


def _numbers(compiled: Compiled, kernel: str, pipelines: list[Pipeline]) -> Iterator[str]:
    done = [each for each in pipelines if each.executables]
    count = len(pipelines)
    yield str(count) if len(done) == count else f"{len(done)} of {count} compiled"
    if not done:
        yield from [""] * (len(COLUMNS) - 2)
        return
    driver = compiled.chip.driver
    for name in (driver.instructions, driver.registers, driver.occupancy):
        yield _range([each.statistic(name) for each in done])
    yield f"{max(map(compiled.spills, done)):,}"
    yield "" if driver.scratch is None else f"{max(map(compiled.scratch, done)):,}"
    mnemonic = compiled.chip.instructions.get(kernel)
    if mnemonic is None:
        yield ""
        return
    counts = [(each.statistic(driver.instructions), each.count(mnemonic)) for each in done]
    ratios = [round(instructions / count) for instructions, count in counts if count]
    said = f"{mnemonic}: {len(ratios)}" + (f", 1 in {_range(ratios)}" if ratios else "")
    costs = [cost for each in done if (cost := compiled.product_cost(each)) is not None]
    if costs:
        least_to_most = _range([math.ceil(cost.instructions) for cost in costs])
        said += f", in the loop over K 1 in {least_to_most} ({_range([round(cost.waits) for cost in costs])} waits)"
    yield said


def _range(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def lines(compiled: Compiled) -> Iterator[str]:
    """A line for each pipeline."""
    driver = compiled.chip.driver
    for each in compiled.pipelines:
        said = f"{compiled.chip.name}: {each.kernel} {each.specialization}, {each.path} of {each.descriptor}: "
        if each.executables:
            said += (
                f"{each.statistic(driver.instructions):,} instructions, {each.statistic(driver.registers)} registers, "
            )
            said += f"{compiled.spills(each)} spilled, {compiled.scratch(each)} B of scratch, {each.seconds:.1f} s"
            if (cost := compiled.product_cost(each)) is not None:
                said += f"; {cost.instructions:.1f} in the loop over K for each product, {cost.waits:.1f} of them waits"
        yield said if each.executables else f"{said}not compiled"


def section(compiled: Compiled, date: str) -> str:
    """The part of the page about one chip."""
    chosen = [each for each in compiled.pipelines if each.is_chosen]
    spilling = sum(compiled.spills(each) > 0 for each in chosen if each.executables)
    slowest = max(each.seconds for each in compiled.pipelines)
    device = " ".join(compiled.device.split())
    lines = [
        f"## {compiled.chip.name}",
        "",
        f"{device}, {compiled.driver}, {date}, dmlvk {dmlvk.__version__}. {len(compiled.pipelines)} pipelines, "
        f"{len(chosen)} of them the planner's own, of which {spilling} spill; the slowest took {slowest:.1f} s.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"| --- |{' ---: |' * (len(COLUMNS) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows(compiled)),
    ]
    return "\n".join(lines) + "\n"


def page(before: str, compiled: Compiled, date: str) -> str:
    """The page with the part about one chip made anew."""
    sections = {part.partition("\n")[0]: f"## {part}" for part in re.split(r"^## ", before, flags=re.MULTILINE)[1:]}
    sections[compiled.chip.name] = section(compiled, date)
    return "\n".join([HEAD, *(sections[name].rstrip() + "\n" for name in CHIPS if name in sections)])
