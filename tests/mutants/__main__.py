"""Breaks the kernels, one mistake at a time, and prints the case of the default set that catches it.

    python -m tests.mutants [--device NAME] [--fetch | --must-run] [PART OF A MUTANT'S NAME ...]

The exit status is 1 if a mutant that the device can run survives. No device has all kernels. With --fetch, mutants that
this device does not run are run on SwiftShader. Mutants that SwiftShader does not run either are run on lavapipe of the
newest Mesa, which has matrix units. If a mutant is run nowhere, the exit status is 1 too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import dmlvk
from tests.mutants import convolution, cut_and_joined, data_movement, element_wise, split_k, take_over, windows
from tests.mutants.mutant import Mutant, verdict
from tools import drivers, mesa
from tools.debian import SetupError
from tools.every_driver import run_on

# It declares no properties of float arithmetic, so its plans take kernels that other devices do not need.
POOR_DEVICE = "SwiftShader"
MUTANTS = (
    *data_movement.MUTANTS,
    *element_wise.MUTANTS,
    *convolution.MUTANTS,
    *convolution.MATRIX_MUTANTS,
    *cut_and_joined.MUTANTS,
    *split_k.MUTANTS,
    *take_over.MUTANTS,
    *windows.MUTANTS,
)


def main() -> int:
    """Run the mutants that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="parts of names; all mutants without")
    parser.add_argument("--device", default="llvmpipe", help="part of a device's name, or its index")
    beyond = parser.add_mutually_exclusive_group()
    beyond.add_argument("--fetch", action="store_true", help="run on another driver what the device does not run")
    beyond.add_argument("--must-run", action="store_true", help="status 1 for what the device does not run")
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if not arguments.names or any(name in m.name for name in arguments.names)]
    survivors, idle = judge(chosen, arguments.device)
    if arguments.fetch and idle and any(POOR_DEVICE in info.name for info in dmlvk.devices()):
        print(f"Those on {POOR_DEVICE}:", flush=True)
        others, idle = judge(idle, POOR_DEVICE)
        survivors += others
    if arguments.fetch and idle:
        return max(run_elsewhere([mutant.name for mutant in idle]), 1 if survivors else 0)
    return 1 if survivors or not chosen or (arguments.must_run and idle) else 0


def judge(mutants: list[Mutant], device: str) -> tuple[int, list[Mutant]]:
    """Run mutants on a device. Returns the number of survivors, and the mutants that the device does not run."""
    survivors = 0
    idle: list[Mutant] = []
    for mutant in mutants:
        with tempfile.TemporaryDirectory() as folder:
            found = verdict(mutant, device, Path(folder))
        if found.caught_by is not None:
            text = f"caught by {found.caught_by.name} ({found.caught_by.reason})"
        elif found.was_run:
            survivors += 1
            text = f"SURVIVED {found.passed} cases"
        else:
            idle.append(mutant)
            text = "not run: plans for this device do not have the kernel"
        print(f"{mutant.name:72s} {text}", flush=True)
    print(f"{len(mutants) - survivors - len(idle)} caught, {survivors} survived, {len(idle)} not run", flush=True)
    return survivors, idle


def run_elsewhere(names: list[str]) -> int:
    """Run mutants on a driver that has the kernels that most devices lack. Returns the exit status."""
    release = mesa.RELEASES[-1]
    print(f"Those on lavapipe of {release.name}:", flush=True)
    try:
        return run_on(release, "tests.mutants", "--device", "llvmpipe", "--must-run", *names)
    except SetupError as error:
        print(f"Not run anywhere: {'; '.join(names)}. {release.name}: {error}")
        return 1


if __name__ == "__main__":
    # Before dmlvk opens the Vulkan loader. As in the tests, DMLVK_TEST_DEVICES selects devices of this machine instead.
    if "DMLVK_TEST_DEVICES" not in os.environ:
        os.environ.update(drivers.environment())
    sys.exit(main())
