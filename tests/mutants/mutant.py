"""A kernel broken on purpose: a copy of its source is edited, compiled, and run in place of the right kernel.

So may a method of the runtime be that kernels take one another's place by.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, ClassVar
from unittest import mock

from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.names import matches
from dmlvk.conformance.profiles import DEVICE
from dmlvk.conformance.results import Result, Status
from dmlvk.conformance.running.execution import Devices, execute
from dmlvk.runtime import implementation, kernel_modules
from tools.compile_kernels import KERNELS, SPIRV, TARGET, find_compiler, kernel_sources, source_files
from tools.spirv_interface import without_names

PACKAGE = SPIRV.parent


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes
    ----------
    name : str
        The mistake in a few words.
    file : str
        Path below `folder`.
    edits : tuple of (str, str)
        Text that the file holds exactly once, and its replacement.
    cases : tuple of str
        Patterns of the default cases that have to catch it.
    path : str, optional
        Only cases that force this kernel path are run. On a device without the path the mutant is not run.
    folder : Path
        The kernels' sources.
    """

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    cases: tuple[str, ...]
    path: str | None = None

    folder: ClassVar[Path] = KERNELS

    def broken_source(self) -> str:
        """The file with the edits.

        Raises
        ------
        ValueError
            The file does not hold the text exactly once: the kernel has changed, and the edit has to be adapted.
        """
        source = (self.folder / self.file).read_text(encoding="utf-8")
        for old, new in self.edits:
            if source.count(old) != 1:
                raise ValueError(
                    f"mutant {self.name!r}: {self.folder.name}/{self.file} holds this text {source.count(old)} times, "
                    f"not once; write the edit anew for the file as it is now:\n{old}"
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

    @contextmanager
    def in_place(self, folder: Path) -> Iterator[set[str]]:
        """Work inside runs with the mistake. Yields the names of what is broken, once it is used.

        Parameters
        ----------
        folder : Path
            An empty folder for files on the way.
        """
        with broken_kernels(compile_mutant(self, folder)) as used:
            yield used


@dataclass(frozen=True)
class HostMutant(Mutant):
    """One mistake in the host's part; `file` is a path below dmlvk/.

    Attributes
    ----------
    function : str
        The method with the mistake, such as "Binding.latest".
    """

    function: str = ""

    folder: ClassVar[Path] = PACKAGE

    @contextmanager
    def in_place(self, folder: Path) -> Iterator[set[str]]:
        """As of a mutant of a kernel."""
        class_name, _, name = self.function.rpartition(".")
        module = import_module(".".join(("dmlvk", *Path(self.file).with_suffix("").parts)))
        owner = getattr(module, class_name)
        right = getattr(owner, name)
        code = reduce(_inner, (class_name, name), compile(self.broken_source(), self.file, "exec"))
        wrong = FunctionType(code, right.__globals__, name, right.__defaults__, right.__closure__)
        wrong.__kwdefaults__ = right.__kwdefaults__
        used: set[str] = set()

        def function(*arguments: Any, **named: Any) -> Any:
            used.add(self.function)
            return wrong(*arguments, **named)

        with mock.patch.object(owner, name, function):
            yield used


def _inner(code: CodeType, name: str) -> CodeType:
    """The code of a class or function that other code defines."""
    (found,) = (each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)
    return found


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
        module = without_names(output.read_bytes())
        if module != kernel_modules.spirv(kernel):
            compiled[kernel] = module
    return compiled


@contextmanager
def broken_kernels(compiled: Mapping[str, bytes]) -> Iterator[set[str]]:
    """Operators that are compiled inside use these kernels in place of the package's. Yields the names of used ones."""
    right = kernel_modules.spirv
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
        Number of cases that passed with the mistake.
    was_run : bool
        Whether any case used what is broken: not all devices have all kernel paths.
    """

    caught_by: Result | None
    passed: int
    was_run: bool


def verdict(mutant: Mutant, device: str, folder: Path, repeat: int = 2) -> Verdict:
    """Run the cases that have to catch a mutant until one catches it."""
    passed = 0
    # Each mutant has devices of its own, because a device keeps pipelines by the kernel's name.
    devices = Devices(device)
    try:
        with mutant.in_place(folder) as used:
            for case in mutant.selected(all_cases(default_only=True)):
                result = execute(case, devices, DEVICE, repeat)
                if result.status is Status.PASS:
                    passed += 1
                elif result.status is not Status.NOT_SUPPORTED:
                    return Verdict(result, passed, True)
            return Verdict(None, passed, bool(used))
    finally:
        devices.close()
