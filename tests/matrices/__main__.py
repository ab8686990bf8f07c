"""Runs tests of kernels on matrix units on the CPU driver that has matrices: lavapipe of Mesa 26, fetched if need be.

    python -m tests.matrices [arguments of pytest]

Without the validation layer.
"""

from __future__ import annotations

import sys

from tools import mesa
from tools.debian import SetupError
from tools.every_driver import run_on

TESTS = ("tests/matrices", "tests/kernels/quantized_linear_convolution/test_forms_for_gpus.py")


def main(arguments: list[str]) -> int:
    """Run them. Returns the exit status."""
    release = mesa.RELEASES[-1]
    try:
        return run_on(release, "pytest", *TESTS, *arguments, DMLVK_VALIDATE="0")
    except SetupError as error:
        print(f"{release.name}: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
