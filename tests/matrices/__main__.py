"""Runs tests of kernels on matrix units on the CPU driver that has matrices: lavapipe of Mesa 26, fetched if need be.

    python -m tests.matrices [arguments of pytest]

Without the validation layer.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tools import mesa
from tools.debian import ROOT, SetupError
from tools.every_driver import only

TESTS = ("tests/matrices", "tests/kernels/quantized_linear_convolution/test_forms_for_gpus.py")


def main(arguments: list[str]) -> int:
    """Run them. Returns the exit status."""
    release = mesa.RELEASES[-1]
    try:
        mesa.get(release)
    except SetupError as error:
        print(f"{release.name}: {error}")
        return 1
    environment = {**os.environ, **only(release.description), "DMLVK_TEST_DEVICES": "llvmpipe", "DMLVK_VALIDATE": "0"}
    return subprocess.run(
        [str(release.python), "-m", "pytest", *TESTS, *arguments], cwd=ROOT, env=environment
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
