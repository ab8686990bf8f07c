"""The kernels that were compiled for one chip, and what of it is over the limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dmlvk.planning.kernel_interface import kernel_interface
from tests.compilers.chips import LOOPS_OVER_K, Chip
from tests.compilers.loops import Loop, ProductCost, product_cost

# The unit of the constant STEP, in bytes.
VECTOR_SIZE = 16

# What is held to a limit, and the limit for each kernel on each chip.
LIMITS = {
    "spills": 0,  # the most registers that a pipeline keeps in memory
    "scratch": 0,  # the most bytes of private memory of a pipeline: spilled registers and arrays
    "seconds": 30,  # the longest compilation of a pipeline, of the processor's time
    "without its instruction": 0,  # the number of pipelines without the chip's instruction for their products
    "instructions a product": 60,  # the most in a loop over K for each product of matrices, where loops are found
    "not compiled": 0,  # the number of pipelines in which the compiler crashed or hung
}


@dataclass(frozen=True)
class Pipeline:
    """One pipeline. Where it has several executables, for several sizes of subgroups, the numbers are the largest.

    Attributes
    ----------
    kernel, path, descriptor : str
    is_chosen : bool
        Whether the planner took the path by itself.
    executables : tuple
        What the driver said of each executable; empty if it was not compiled.
    seconds : float
        The processor's time of the compiler.
    """

    kernel: str
    path: str
    descriptor: str
    specialization: tuple[int, ...]
    is_chosen: bool
    executables: tuple[Mapping[str, Any], ...]
    seconds: float

    def statistic(self, name: str) -> int:
        """A number by the driver's name for it.

        Raises
        ------
        KeyError
            The driver says nothing under this name. A check of nothing must not pass.
        """
        return max(int(executable["statistics"][name]) for executable in self.executables)

    def count(self, mnemonic: str) -> int:
        """How often instructions whose names begin so are in the machine code; the least of any executable."""
        return min(
            sum(count for name, count in executable["instructions"].items() if name.startswith(mnemonic))
            for executable in self.executables
        )

    def constant(self, name: str) -> int:
        """A specialization constant by name."""
        return self.specialization[kernel_interface(self.kernel).specialization_constants.index(name)]

    @property
    def has_loop_over_k(self) -> bool:
        """Whether the kernel is known to have one, and its K is long enough for one."""
        return self.kernel in LOOPS_OVER_K and self.constant("FEW_STEPS") == 0

    def product_cost(self, mnemonic: str, wait: str) -> ProductCost:
        """What the loop over K takes for each product of matrices; the largest of any executable."""
        m, n, k = (self.constant(f"MATRIX_{side}") for side in "MNK")
        matrices = self.constant("SUBGROUP_PIXELS") * self.constant("SUBGROUP_CHANNELS") // (m * n)
        products = matrices * self.constant("STEP") * VECTOR_SIZE // k
        costs = (
            product_cost([Loop(**loop) for loop in executable["loops"]], mnemonic, wait, products)
            for executable in self.executables
        )
        return max(costs, key=lambda cost: cost.instructions)


@dataclass(frozen=True)
class Compiled:
    """All pipelines of a chip.

    Attributes
    ----------
    chip : Chip
    device, driver : str
        As the driver names them.
    pipelines : tuple of Pipeline
    """

    chip: Chip
    device: str
    driver: str
    pipelines: tuple[Pipeline, ...]

    @classmethod
    def of(cls, chip: Chip, lines: Iterable[Mapping[str, Any]]) -> Compiled:
        """From the lines that `tests.compilers.executables` wrote."""
        lines = list(lines)
        device = next(line for line in lines if "device" in line)
        finished = {line["finished"]: line for line in lines if "finished" in line}
        begun = [line for line in lines if "begun" in line]
        if len(begun) != device["pipelines"] or not begun:
            raise ValueError(f"{chip.name}: {len(begun)} of {device['pipelines']} pipelines were tried")
        nothing: Mapping[str, Any] = {"executables": (), "seconds": 0.0}
        pipelines = []
        for line in begun:
            said = finished.get(line["begun"], nothing)
            names = (line["kernel"], line["path"], line["descriptor"], tuple(line["specialization"]), line["chosen"])
            pipelines.append(Pipeline(*names, tuple(said["executables"]), said["seconds"]))
        return cls(chip, device["device"], device["driver"], tuple(pipelines))

    def kernels(self) -> dict[str, tuple[Pipeline, ...]]:
        names = sorted({pipeline.kernel for pipeline in self.pipelines})
        return {name: tuple(each for each in self.pipelines if each.kernel == name) for name in names}

    def spills(self, pipeline: Pipeline) -> int:
        return sum(pipeline.statistic(name) for name in self.chip.driver.spills)

    def scratch(self, pipeline: Pipeline) -> int:
        name = self.chip.driver.scratch
        return 0 if name is None else pipeline.statistic(name)

    def lacks_instruction(self, pipeline: Pipeline) -> bool:
        mnemonic = self.chip.instructions.get(pipeline.kernel)
        return mnemonic is not None and pipeline.count(mnemonic) == 0

    def product_cost(self, pipeline: Pipeline) -> ProductCost | None:
        """What the pipeline's loop over K takes; None if it has none, or if none are found on the chip."""
        mnemonic, wait = self.chip.instructions.get(pipeline.kernel), self.chip.driver.wait
        return pipeline.product_cost(mnemonic, wait) if mnemonic and wait and pipeline.has_loop_over_k else None

    def measured(self) -> dict[tuple[str, str], int]:
        """Each kernel's numbers for each of the limits, of the pipelines that the limits are for."""
        found: dict[tuple[str, str], int] = {}
        for kernel, pipelines in self.kernels().items():
            held = [each for each in pipelines if each.is_chosen or self.chip.holds_every_path]
            done = [each for each in held if each.executables]
            found[kernel, "not compiled"] = sum(not each.executables for each in pipelines)
            if done:
                found[kernel, "spills"] = max(map(self.spills, done))
                found[kernel, "scratch"] = max(map(self.scratch, done))
                found[kernel, "seconds"] = round(max(each.seconds for each in done))
                found[kernel, "without its instruction"] = sum(map(self.lacks_instruction, done))
                costs = [cost.instructions for each in done if (cost := self.product_cost(each)) is not None]
                if costs:
                    found[kernel, "instructions a product"] = math.ceil(max(costs))
        return found

    def unchecked(self) -> Iterator[str]:
        """Instructions that were looked for in no kernel, and drivers that give no machine code."""
        for mnemonic in sorted(set(self.chip.instructions.values())):
            kernels = {kernel for kernel, wanted in self.chip.instructions.items() if wanted == mnemonic}
            if not any(each.kernel in kernels and each.executables for each in self.pipelines):
                yield f"{self.chip.name}: no kernel was compiled that should hold {mnemonic}"
        if self.chip.matrix_product and self.chip.driver.wait:
            for kernel in LOOPS_OVER_K:
                if not any(
                    each.kernel == kernel and each.executables and each.has_loop_over_k for each in self.pipelines
                ):
                    yield f"{self.chip.name}: no {kernel} with a loop over K was compiled"
        if self.chip.driver.has_machine_code:
            mute = [each for each in self.pipelines if each.executables and not each.executables[0]["instructions"]]
            if mute:
                yield f"{self.chip.name}: the driver gave no machine code of {mute[0].kernel} and {len(mute) - 1} more"
