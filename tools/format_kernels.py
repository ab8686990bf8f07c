"""Formats the kernels as `.clang-format` says, with the clang-format of the virtual environment.

python -m tools.format_kernels            # format all files under kernels/
python -m tools.format_kernels --check    # change nothing; end with status 1 where a file would change
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from clang_format import get_executable

from tools.compile_kernels import KERNELS
from tools.debian import ROOT

STYLE = ROOT / ".clang-format"


def kernel_files(folder: Path = KERNELS) -> list[Path]:
    """Every GLSL file in a folder, in an order that does not change."""
    return sorted(path for ending in ("comp", "glsl") for path in folder.rglob(f"*.{ending}"))


def run_clang_format(files: list[Path], *, check: bool) -> int:
    """Format files in place, or check them.

    Args:
        files (list of Path):
        check (bool): Change nothing, and print each place where a file differs from its format.

    Returns:
        int: The exit status of clang-format: not 0 where a checked file differs.
    """
    action = ["--dry-run", "--Werror"] if check else ["-i"]
    command = [get_executable("clang-format"), f"--style=file:{STYLE}", *action, *map(str, files)]
    return subprocess.run(command).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Format the kernels.")
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 where a file would change")
    arguments = parser.parse_args()
    status = run_clang_format(kernel_files(), check=arguments.check)
    if status and arguments.check:
        print("run `make format`, then `make kernels`, and commit both", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
