"""The Python code in README and in docs/: which blocks there are, where each runs, and how.

A block runs by itself, as it can be pasted, unless it is marked. The mark stands behind the language, where no reader
sees it: "continued" for a block that goes on after the one before it, and the name of what it needs, which decides
where it runs:

    (none)   make test
    torch    make test-torch
    cuda     make test-cuda
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.programs import python

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(`{3,})(\w*)([^\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
# What these import may end the process, or starts processes: such a program has a process of its own.
APART = re.compile(r"^import dmlvk\.(onnx|dask)$|^from (dmlvk\.onnx|distributed) import", re.MULTILINE)
SECONDS = 120
CONTINUED = "continued"
NEEDS = ("", "torch", "cuda")


def pages() -> list[Path]:
    """README and all pages in docs/, excluding those that are made of the sources."""
    made = ROOT / "docs" / "made"
    found = sorted(path for path in (ROOT / "docs").rglob("*.md") if made not in path.parents)
    return [ROOT / "README.md", *found]


@dataclass(frozen=True)
class Program:
    """A block with those that continue it.

    Attributes
    ----------
    path : Path
        The page.
    needs : str
        One of `NEEDS`.
    blocks : tuple of tuple of int and str
        For each, the number of lines before it, and its code.
    """

    path: Path
    needs: str
    blocks: tuple[tuple[int, str], ...]

    @property
    def name(self) -> str:
        """For people: "docs/onnx.md:16"."""
        return f"{self.path.relative_to(ROOT).as_posix()}:{self.blocks[0][0] + 1}"

    def has(self, text: str) -> bool:
        """Whether a text is in the code."""
        return any(text in code for _, code in self.blocks)

    def run(self) -> None:
        """Run the code. An exception's traceback has the page's own lines.

        Raises
        ------
        AssertionError
            A program of its own process ended with an exception, which the message has.
        """
        if any(APART.search(code) for _, code in self.blocks):
            self._run_apart()
            return
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for lines, code in self.blocks:
            exec(compile("\n" * lines + code, str(self.path), "exec"), namespace)

    def _run_apart(self) -> None:
        whole = ""
        for lines, code in self.blocks:
            whole += "\n" * (lines - whole.count("\n")) + code
        # The kernels' own tests have the validation layer.
        environment = {**os.environ, "DMLVK_VALIDATE": "0", "PYTHONPATH": str(ROOT)}
        done = python("-c", whole, env=environment, timeout=SECONDS)
        assert done.returncode == 0, f"{self.path}: {done.stderr}"


def programs_of(path: Path) -> list[Program]:
    """The programs of a page.

    Raises
    ------
    ValueError
        A mark is unknown, or there is nothing to continue.
    """
    text = path.read_text(encoding="utf-8")
    found: list[Program] = []
    for block in FENCE.finditer(text):
        if block[2] != "python":
            continue
        lines = text.count("\n", 0, block.start(4))
        mark = block[3].strip()
        if mark == CONTINUED and found:
            last = found[-1]
            found[-1] = Program(path, last.needs, (*last.blocks, (lines, block[4])))
        elif mark in NEEDS:
            found.append(Program(path, mark, ((lines, block[4]),)))
        else:
            raise ValueError(f"{path}:{lines}: {mark!r} is no mark of a block; there are {NEEDS} and {CONTINUED!r}")
    return found


def programs(needs: str = "") -> list[Program]:
    """All programs that need this."""
    return [program for path in pages() for program in programs_of(path) if program.needs == needs]
