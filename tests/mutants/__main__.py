"""Breaks the kernels, one mistake at a time, and tells which case of the default set catches it.

    python -m tests.mutants [--device NAME] [PART OF A MUTANT'S NAME ...]

Ends with status 1 when a mutant that the device can run survives.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.mutants import convolution, data_movement
from tests.mutants.mutant import verdict
from tools import test_drivers

MUTANTS = (*data_movement.MUTANTS, *convolution.MUTANTS, *convolution.MATRIX_MUTANTS)


def main() -> int:
    """Run the mutants that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="parts of names; all mutants without")
    parser.add_argument("--device", default="llvmpipe", help="part of a device's name, or its index")
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if not arguments.names or any(name in m.name for name in arguments.names)]
    survivors = idle = 0
    for mutant in chosen:
        with tempfile.TemporaryDirectory() as folder:
            found = verdict(mutant, arguments.device, Path(folder))
        if found.caught_by is not None:
            text = f"caught by {found.caught_by.name} ({found.caught_by.reason})"
        elif found.was_run:
            survivors += 1
            text = f"SURVIVED {found.passed} cases"
        else:
            idle += 1
            text = "not run: plans for this device do not have the kernel"
        print(f"{mutant.name:72s} {text}", flush=True)
    print(f"{len(chosen) - survivors - idle} caught, {survivors} survived, {idle} not run")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    # Before dmlvk opens the Vulkan loader. As for the tests, devices that are named there are the machine's own.
    if "DMLVK_TEST_DEVICES" not in os.environ:
        os.environ.update(test_drivers.environment())
    sys.exit(main())
