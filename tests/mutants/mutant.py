"""A kernel broken on purpose: a copy of its source is edited, compiled, and run in place of the right kernel."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.names import matches
from dmlvk.conformance.profiles import DEVICE
from dmlvk.conformance.results import Result, Status
from dmlvk.conformance.running.execution import Devices, execute
from dmlvk.runtime import implementation
from tools.compile_kernels import KERNELS, SPIRV, TARGET, find_compiler, kernel_sources, source_files


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes
    ----------
    name : str
        The mistake in a few words.
    file : str
        Path below kernels/.
    edits : tuple of (str, str)
        Text that the file holds exactly once, and its replacement.
    cases : tuple of str
        Patterns of the default cases that have to catch it.
    path : str, optional
        Only cases that force this kernel path are run. On a device without the path the mutant is not run.
    """

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    cases: tuple[str, ...]
    path: str | None = None

    def broken_source(self) -> str:
        """The file with the edits.

        Raises
        ------
        ValueError
            The file does not hold the text exactly once: the kernel has changed, and the edit has to be adapted.
        """
        source = (KERNELS / self.file).read_text(encoding="utf-8")
        for old, new in self.edits:
            if source.count(old) != 1:
                raise ValueError(
                    f"mutant {self.name!r}: kernels/{self.file} holds this text {source.count(old)} times, not once; "
                    f"write the edit anew for the kernel as it is now:\n{old}"
                )
            source = source.replace(old, new)
        return source

    def selected(self, cases: Iterable[Case]) -> list[Case]:
        """The cases that have to catch it."""
        return [
            case
            for case in cases
            if any(matches(pattern, case) for pattern in self.cases) and self.path in (None, case.path)
        ]


def compile_mutant(mutant: Mutant, folder: Path) -> Mapping[str, bytes]:
    """SPIR-V of every kernel that the edit changes, by name. The sources are copied to `folder`."""
    sources = folder / "kernels"
    shutil.copytree(KERNELS, sources)
    broken = sources / mutant.file
    broken.write_text(mutant.broken_source(), encoding="utf-8")
    compiler = find_compiler()
    compiled = {}
    for kernel, source in kernel_sources(sources).items():
        if broken.resolve() not in source_files(source):
            continue
        output = folder / "kernel.spv"
        command = [
            *compiler.glslang,
            "--target-env",
            TARGET,
            f"-I{sources}",
            "-o",
            str(output),
            str(source),
        ]
        finished = subprocess.run(command, capture_output=True, text=True)
        if finished.returncode != 0:
            raise ValueError(f"mutant {mutant.name!r} does not compile:\n{finished.stdout}{finished.stderr}")
        module = output.read_bytes()
        if module != (SPIRV / f"{kernel}.spv").read_bytes():
            compiled[kernel] = module
    return compiled


@contextmanager
def broken_kernels(compiled: Mapping[str, bytes]) -> Iterator[set[str]]:
    """Operators that are compiled inside use these kernels in place of the package's. Yields the names of used ones."""
    right = implementation.spirv
    used: set[str] = set()

    def spirv(kernel: str) -> bytes:
        if kernel not in compiled:
            return right(kernel)
        used.add(kernel)
        return compiled[kernel]

    with mock.patch.object(implementation, "spirv", spirv):
        yield used


@dataclass(frozen=True)
class Verdict:
    """The result of the suite for a mutant.

    Attributes
    ----------
    caught_by : Result, optional
        The first result that is not a pass; None if all cases passed.
    passed : int
        Number of cases that passed with the broken kernel.
    was_run : bool
        Whether any case used the broken kernel: not all devices have all kernel paths.
    """

    caught_by: Result | None
    passed: int
    was_run: bool


def verdict(mutant: Mutant, device: str, folder: Path, repeat: int = 2) -> Verdict:
    """Run the cases that have to catch a mutant until one catches it."""
    passed = 0
    compiled = compile_mutant(mutant, folder)
    # Each mutant has devices of its own, because a device keeps pipelines by the kernel's name.
    devices = Devices(device)
    try:
        with broken_kernels(compiled) as used:
            for case in mutant.selected(all_cases(default_only=True)):
                result = execute(case, devices, DEVICE, repeat)
                if result.status is Status.PASS:
                    passed += 1
                elif result.status is not Status.NOT_SUPPORTED:
                    return Verdict(result, passed, True)
            return Verdict(None, passed, bool(used))
    finally:
        devices.close()
