"""Compiles kernels/*/*.comp to archives, dmlvk/spirv/*.xz, and writes a manifest.

The manifest lists the sources, the flags, the compiler, and the names of push constants and specialization constants,
by which plans fill them. The modules have no names, which drivers ignore and which would be a sixth of them. The
archives have a twelfth of their modules' size (each module compressed by itself would have a seventh), and are
decompressed in 1 to 3 ms.

A kernel's name is its path without the ending, such as "slice1/tiles".

The kernels need glslang 15.1 or newer (integer dot product, KHR cooperative matrix). It is taken from $GLSLANG, from
the path, or from Debian 13's packages, unpacked into .drivers/glslang and run there with the C library of that release.
spirv-val checks every module. The output depends on the sources, the flags and the compiler alone.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dmlvk.runtime.kernel_modules import with_ids
from tools import spirv_archive
from tools.debian import DRIVERS, ROOT, PackageFolder, SetupError, has_apt
from tools.spirv_interface import interface, without_names

KERNELS = ROOT / "kernels"
SPIRV = ROOT / "dmlvk" / "spirv"
MANIFEST = SPIRV / "manifest.json"

TARGET = "vulkan1.2"
FLAGS = ["--target-env", TARGET, "-Ikernels"]
OLDEST_COMPILER = (15, 1)

DEBIAN_SUITE = "trixie"
DEBIAN_PACKAGES = ["glslang-tools", "spirv-tools", "libc6", "libstdc++6", "libgcc-s1"]
UNPACKED = DRIVERS / "glslang"

_INCLUDE_LINE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


@dataclass(frozen=True)
class Compiler:
    """The commands that run glslang and spirv-val, and glslang's version."""

    glslang: tuple[str, ...]
    spirv_val: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Compiled:
    """A kernel's entry in the manifest, and its SPIR-V."""

    entry: dict[str, Any]
    module: bytes


def kernel_sources(kernels: Path = KERNELS) -> dict[str, Path]:
    """The source of every kernel, by the kernel's name."""
    paths = sorted(kernels.glob("*/*.comp"))
    return {path.relative_to(kernels).with_suffix("").as_posix(): path for path in paths}


def archive_path(archive: str) -> Path:
    """Where an archive of compressed SPIR-V lies."""
    return SPIRV / f"{archive}.xz"


def source_files(source: Path) -> list[Path]:
    """A kernel's source and every file that it includes, directly or not, sorted by path."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in _INCLUDE_LINE.findall(path.read_text(encoding="utf-8")):
            candidates = [path.parent / name, source.parent.parent / name]
            existing = [candidate.resolve() for candidate in candidates if candidate.exists()]
            if not existing:
                raise SetupError(f"{path.name} includes {name}, which is neither beside it nor below kernels/")
            waiting.append(existing[0])
    return sorted(found)


def source_sha256(source: Path) -> str:
    """Hash of the names and contents of a kernel's source and every file it includes, independent of line ends."""
    digest = hashlib.sha256()
    for path in source_files(source):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        name = path.relative_to(source.parent.parent).as_posix()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def read_manifest(path: Path = MANIFEST) -> dict[str, Any]:
    """The manifest, or an empty one if there is no readable manifest."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content if isinstance(content.get("kernels"), dict) else {"kernels": {}}
    except (OSError, ValueError, AttributeError):
        return {"kernels": {}}


def read_compiled(entries: Mapping[str, dict[str, Any]]) -> dict[str, Compiled]:
    """The kernels of a manifest whose archives can be read."""
    archives = {}
    for name in {entry.get("archive", "") for entry in entries.values()}:
        with contextlib.suppress(OSError, EOFError, lzma.LZMAError):
            archives[name] = lzma.decompress(archive_path(name).read_bytes())
    return {
        kernel: Compiled(entry, with_ids(archives[entry["archive"]], entry["start"], entry["bytes"]))
        for kernel, entry in entries.items()
        if entry.get("archive") in archives
    }


def find_compiler() -> Compiler:
    """glslang 15.1 or newer with spirv-val: from $GLSLANG, from the path, or from Debian's packages."""
    named = os.environ.get("GLSLANG")
    too_old = []
    for name in [named] if named else ["glslang", "glslangValidator"]:
        path = shutil.which(name)
        version = _version((path,)) if path else None
        if path is None or version is None:
            if named:
                raise SetupError(f"$GLSLANG = {named} is not a glslang that runs")
            continue
        beside = Path(path).with_name("spirv-val" + Path(path).suffix)
        spirv_val = str(beside) if beside.exists() else shutil.which("spirv-val")
        if version[0] < OLDEST_COMPILER:
            too_old.append(f"{path} is {version[1]}")
        elif spirv_val is None:
            too_old.append(f"{path} has no spirv-val")
        else:
            return Compiler((path,), (spirv_val,), version[1])
    if named:
        raise SetupError(f"$GLSLANG cannot be used: {too_old[0]}; kernels need glslang 15.1 or newer with spirv-val")
    return _unpacked_compiler(too_old)


def _unpacked_compiler(too_old: list[str]) -> Compiler:
    unpacked = _unpacked_commands()
    if unpacked is None:
        if not has_apt() or platform.system() != "Linux":
            reasons = f" ({'; '.join(too_old)})" if too_old else ""
            raise SetupError(f"no glslang 15.1 or newer with spirv-val{reasons}: install it, or name it in $GLSLANG")
        if UNPACKED.exists():
            shutil.rmtree(UNPACKED)
        PackageFolder(DRIVERS / "packages-compiler", DEBIAN_SUITE).unpack(DEBIAN_PACKAGES, _keep, UNPACKED)
        unpacked = _unpacked_commands()
        if unpacked is None:
            raise SetupError(f"Debian's {DEBIAN_SUITE} packages hold no glslang or spirv-val for this processor")
    version = _version(unpacked["glslang"])
    if version is None:
        raise SetupError(f"glslang in {UNPACKED.relative_to(ROOT)} does not run; remove the folder to get it again")
    return Compiler(unpacked["glslang"], unpacked["spirv-val"], version[1])


def _keep(path: str) -> str | None:
    """Keep only the two programs and the shared libraries of Debian's packages, at their own paths."""
    folder, _, name = path.rpartition("/")
    if folder == "usr/bin":
        return path if name in {"glslang", "spirv-val"} else None
    return path if ".so" in name and folder.count("/") <= 2 and not name.endswith(".py") else None


def _unpacked_commands() -> dict[str, tuple[str, ...]] | None:
    """How to run the unpacked programs with the unpacked C library, which is newer than the machine's own."""
    libraries = sorted({str(path.parent) for path in UNPACKED.rglob("*.so*")})
    linkers = [path for path in sorted(UNPACKED.rglob("ld-linux*.so*")) if path.exists()]
    commands: dict[str, tuple[str, ...]] = {}
    for name in ("glslang", "spirv-val"):
        programs = [path for path in UNPACKED.rglob(name) if path.exists()]
        if not programs or not linkers:
            return None
        commands[name] = (str(linkers[0]), "--library-path", ":".join(libraries), str(programs[0]))
    return commands


def _version(command: tuple[str, ...]) -> tuple[tuple[int, ...], str] | None:
    try:
        output = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    match = re.search(r"Glslang Version:\s*(?:\d+:)?(\d+\.\d+(?:\.\d+)?)", output)
    return (tuple(int(part) for part in match[1].split(".")), match[1]) if match else None


def compile_kernel(compiler: Compiler, source: Path) -> tuple[bytes, dict[str, Any]]:
    """SPIR-V of one kernel without names, checked by spirv-val, and its interface.

    Raises:
        SetupError: It does not compile. The compiler's message.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.spv"

        def run(*command: str) -> None:
            finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            if finished.returncode != 0:
                name = source.relative_to(KERNELS).as_posix()
                raise SetupError(f"{name}:\n{finished.stdout}{finished.stderr}".strip())

        # Relative names, so that messages and debug information do not depend on the folder of the checkout.
        run(*compiler.glslang, *FLAGS, "-o", str(output), source.relative_to(ROOT).as_posix())
        named = output.read_bytes()
        module = without_names(named)
        output.write_bytes(module)
        run(*compiler.spirv_val, "--target-env", TARGET, str(output))
        return module, interface(named)


def compile_kernels(kernels: list[str], force: bool = False) -> list[str]:
    """Compile changed kernels (all with `force`), remove modules that have no source, and write the manifest.

    A kernel that fails does not stop the others; it keeps its old SPIR-V and manifest entry.

    Returns:
        list of str: The failures' messages.
    """
    sources = kernel_sources()
    unknown = sorted(set(kernels) - sources.keys())
    if unknown:
        raise SetupError(f"kernels/ has no {', '.join(unknown)}; it has {', '.join(sources)}")
    compiler = find_compiler()
    name = f"glslang {compiler.version}"
    manifest = read_manifest()
    old = read_compiled(manifest["kernels"])
    everything = force or manifest.get("compiler") != name
    SPIRV.mkdir(parents=True, exist_ok=True)

    def bring_up_to_date(kernel: str) -> Compiled | str | None:
        """The kernel as it was or is compiled, None if it never was, or the reason why it does not compile."""
        if kernels and kernel not in kernels:
            return old.get(kernel)
        try:
            source_hash = source_sha256(sources[kernel])
            if not everything and _is_current(old.get(kernel), source_hash):
                return old[kernel]
            module, constants = compile_kernel(compiler, sources[kernel])
        except SetupError as error:
            return str(error)
        print(f"{kernel}: {len(module):,} bytes", flush=True)
        entry = {
            "source_sha256": source_hash,
            "flags": FLAGS,
            "spirv_sha256": hashlib.sha256(module).hexdigest(),
            **constants,
        }
        return Compiled(entry, module)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(sources, pool.map(bring_up_to_date, sources), strict=True))
    failures = [result for result in results.values() if isinstance(result, str)]
    kept = {kernel: old.get(kernel) if isinstance(result, str) else result for kernel, result in results.items()}
    compiled = {kernel: result for kernel, result in kept.items() if result is not None}
    places = spirv_archive.places({kernel: result.module for kernel, result in compiled.items()})
    placed = {
        kernel: Compiled({**result.entry, **places[kernel]}, result.module) for kernel, result in compiled.items()
    }
    before, after = _modules_by_archive(old), _modules_by_archive(placed)
    for archive, modules in after.items():
        if modules != before.get(archive):
            _replace(archive_path(archive), spirv_archive.compressed(modules.values()))
    for path in sorted({*SPIRV.rglob("*.xz")} - {archive_path(archive) for archive in after}):
        path.unlink()
        print(f"{path.relative_to(SPIRV).as_posix()}: removed, it has no source")
    _replace(MANIFEST, manifest_text(name, {kernel: result.entry for kernel, result in placed.items()}).encode())
    print(f"{len(placed)} kernels in {SPIRV.relative_to(ROOT).as_posix()}, {name}")
    return failures


def _is_current(compiled: Compiled | None, source_hash: str) -> bool:
    """Whether a module is the one that the manifest's entry describes, and is what this program would write today."""
    if compiled is None:
        return False
    entry, module = compiled.entry, compiled.module
    return (
        (entry["source_sha256"], entry["flags"]) == (source_hash, FLAGS)
        and entry["spirv_sha256"] == hashlib.sha256(module).hexdigest()
        and module == without_names(module)
    )


def _modules_by_archive(compiled: Mapping[str, Compiled]) -> dict[str, dict[str, bytes]]:
    """The modules of each archive by their kernels' names, in the order in which it has them."""
    found: dict[str, dict[str, bytes]] = {}
    for kernel in sorted(compiled):
        found.setdefault(compiled[kernel].entry["archive"], {})[kernel] = compiled[kernel].module
    return found


def manifest_text(compiler: str, entries: dict[str, Any]) -> str:
    """The manifest as JSON, with a line for each member of a kernel's entry."""
    kernels = []
    for kernel, entry in sorted(entries.items()):
        members = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(entry.items()))
        kernels.append(f"{json.dumps(kernel)}: {{\n{members}\n}}")
    content = ",\n".join(kernels)
    return f'{{\n"compiler": {json.dumps(compiler)},\n"kernels": {{\n{content}\n}}\n}}\n'


def _replace(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile kernels/ to dmlvk/spirv.")
    parser.add_argument("kernels", nargs="*", help="names of kernels to compile; by default all that changed")
    parser.add_argument("--force", action="store_true", help="compile also what has not changed")
    arguments = parser.parse_args()
    failures = compile_kernels(arguments.kernels, arguments.force)
    if failures:
        raise SetupError("these kernels do not compile:\n" + "\n".join(failures))


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
