"""Mesa's DRM shims, built of Debian's source package of Mesa: libraries that stand in for a GPU's part of the kernel.

A driver that runs with a shim preloaded finds the chip that an environment variable names. It compiles for that chip.
All else succeeds and does nothing, so nothing that it reads back means anything.

The shims are Mesa's own. The files *.c beside this one include them, and change what newer releases of the drivers and
newer chips need. Only a C compiler is needed besides Debian's packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tools.debian import DRIVERS, PackageFolder, SetupError, has_apt

FOLDER = DRIVERS / "drm-shims"
# The release whose shims the files beside this one change. Its drivers may be of any later release.
SOURCE_SUITE = "trixie"
# asahi's interface is in the headers of Linux 6.16 and later only.
HEADERS_SUITE = "sid"

SHIMS = ("intel", "freedreno", "nouveau", "asahi")

# Parts of Mesa's source that the shims are made of.
_PARTS = (
    "include src/c11 src/compiler src/drm-shim src/freedreno/drm-shim src/gallium/drivers/nouveau src/gallium/include "
    "src/intel src/nouveau src/util"
)

_DEFINITIONS = (
    "_GNU_SOURCE HAVE_PTHREAD HAVE_STRUCT_TIMESPEC _FILE_OFFSET_BITS=64 HAVE_LIBDRM MAJOR_IN_SYSMACROS HAVE_DLFCN_H "
    "HAVE___BUILTIN_EXPECT HAVE___BUILTIN_CLZ HAVE___BUILTIN_CLZLL HAVE___BUILTIN_CTZ HAVE___BUILTIN_FFS "
    "HAVE___BUILTIN_FFSLL HAVE___BUILTIN_POPCOUNT HAVE___BUILTIN_POPCOUNTLL HAVE___BUILTIN_UNREACHABLE HAVE_ENDIAN_H "
    "HAVE_FUNC_ATTRIBUTE_UNUSED HAVE_SECURE_GETENV HAVE_PROGRAM_INVOCATION_NAME HAVE_FLOCK HAVE_REALLOCARRAY "
    "HAVE_MEMFD_CREATE HAVE_MKOSTEMP HAVE_TIMESPEC_GET HAVE_POSIX_FALLOCATE USE_GCC_ATOMIC_BUILTINS NDEBUG "
    "SUPPORT_INTEL_INTEGRATED_GPUS"
)

_COMMON = (
    "drm-shim/drm_shim drm-shim/device c11/impl/threads_posix c11/impl/time util/anon_file util/bitscan "
    "util/hash_table util/log util/memstream util/mesa-sha1 util/os_file util/os_misc util/ralloc util/rb_tree "
    "util/set util/sha1/sha1 util/simple_mtx util/strtod util/u_call_once util/u_cpu_detect util/u_debug "
    "util/u_math util/u_printf util/u_process util/vma"
)
_INTEL = (
    "intel/common/intel_engine intel/common/intel_gem intel/common/i915/intel_engine intel/common/i915/intel_gem "
    "intel/common/xe/intel_engine intel/common/xe/intel_gem intel/dev/intel_debug intel/dev/intel_device_info "
    "intel/dev/intel_hwconfig intel/dev/intel_kmd intel/dev/i915/intel_device_info intel/dev/xe/intel_device_info "
    "util/parson"
)

# Intel's tables of chips are written as Python and become C by these programs of Mesa's.
_MADE = {
    "gen_wa_helpers.py": ("mesa_defs.json", "intel_wa.h", "intel_wa.c"),
    "intel_device_info_gen_h.py": ("intel_device_info_gen.h",),
    "intel_device_info_serialize_gen_c.py": ("intel_device_info_serialize_gen.c",),
}


def library(shim: str) -> Path:
    """The library to preload."""
    return FOLDER / f"lib{shim}_drm_shim.so"


def get(shim: str) -> Path:
    """The library to preload; built unless it is there and newer than the files of this folder.

    Raises:
        SetupError: Packages, a C compiler or a part of Mesa's source is missing.
    """
    made = library(shim)
    sources = (Path(__file__), Path(__file__).with_name(f"{shim}.c"))
    if made.exists() and all(path.stat().st_mtime < made.stat().st_mtime for path in sources):
        return made
    if not has_apt():
        raise SetupError("the DRM shims are built of Debian's packages: use a machine or a container of Debian")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SetupError("the DRM shims need a C compiler, and there is neither cc nor gcc: install gcc")
    source = _source()
    print(f"Building the DRM shim of {shim}", flush=True)
    if shim == "intel":
        _make_tables(source)
    _build(compiler, shim, source)
    return made


def _source() -> Path:
    """The folder of Mesa's source, with the headers and Mako beside it."""
    folder = FOLDER / "source"
    if not folder.exists():
        unpacked = FOLDER / "source.part"
        shutil.rmtree(unpacked, ignore_errors=True)
        packages = PackageFolder(FOLDER / "packages-source", SOURCE_SUITE)
        parts = tuple(f"{part}/" for part in _PARTS.split())
        with packages.source("mesa") as archive, tarfile.open(archive) as files:
            for member in files:
                path = member.name.partition("/")[2]
                content = files.extractfile(member) if path.startswith(parts) and member.isfile() else None
                if content is not None:
                    target = unpacked / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())

        def keep(path: str) -> str | None:
            if path.startswith("usr/include/"):
                path = path.removeprefix("usr/include/")
                kept = path.startswith(("libdrm/", "xf86drm")) or path == "drm/asahi_drm.h"
                return f"headers/{path}" if kept else None
            _, found, path = path.partition("/dist-packages/mako/")
            return f"python/mako/{path}" if found else None

        packages = PackageFolder(FOLDER / "packages-headers", HEADERS_SUITE)
        packages.unpack(["libdrm-dev", "linux-libc-dev", "python3-mako"], keep, unpacked)
        unpacked.rename(folder)
    return folder


def _make_tables(source: Path) -> None:
    folder = source / "src/intel/dev"
    environment = {**os.environ, "PYTHONPATH": str(source / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    for program, files in _MADE.items():
        _run([sys.executable, *(str(folder / name) for name in (program, *files))], "Intel's tables", environment)


def _build(compiler: str, shim: str, source: Path) -> None:
    src = source / "src"
    included = [src, source / "include", src / "util", src / "gallium/include", src / "nouveau"]
    included += [src / "nouveau/headers", src / "intel", src / "intel/dev", src / "intel/common"]
    included += [source / "headers", source / "headers/libdrm"]
    files = [Path(__file__).with_name(f"{shim}.c"), *(src / f"{name}.c" for name in _COMMON.split())]
    if shim == "intel":
        files += [*(src / f"{name}.c" for name in _INTEL.split()), src / "intel/dev/intel_wa.c"]
        files += [src / "intel/dev/intel_device_info_serialize_gen.c"]
    part = library(shim).with_suffix(".part")
    command = [compiler, "-w", "-O1", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden"]
    command += ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-Wl,-z,defs"]
    command += [*(f"-D{name}" for name in _DEFINITIONS.split()), *(f"-I{path}" for path in included), *map(str, files)]
    _run([*command, "-o", str(part), "-ldl", "-lpthread", "-lm"], f"the DRM shim of {shim}", None)
    part.rename(library(shim))


def _run(command: list[str], what: str, environment: dict[str, str] | None) -> None:
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    if finished.returncode != 0:
        raise SetupError(f"{what} could not be built: {finished.stderr.strip()[-1500:]}")
