"""Drivers of Debian releases other than the machine's own, each run with the C library that it was built for.

A driver needs a C library at least as new as the one that it was built for, and a process has only one C library. So a
release's driver is unpacked with all its dependencies, and the checkout's Python runs on these libraries: an older
Python runs on a newer C library. No rights are needed, nothing is installed, and Python, NumPy and dmlvk are the same
for every driver.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.debian import DRIVERS, PackageFolder, SetupError, has_apt
from tools.drivers import point_beside


@dataclass(frozen=True)
class Release:
    """A release of Mesa, and the Debian releases that have it.

    Attributes:
        name (str): The beginning of the version text that the driver reports.
        suites (tuple of str): The last one has Mesa; its dependencies may come from the others.
        drivers (tuple of str): The drivers to unpack, as their libraries are called.
    """

    name: str
    suites: tuple[str, ...]
    drivers: tuple[str, ...] = ("lvp",)

    @property
    def folder(self) -> Path:
        """The folder into which the release is unpacked."""
        folder = self.name.lower().replace(" ", "-")
        return DRIVERS / (folder if self.drivers == ("lvp",) else f"{folder}-compilers")

    @property
    def python(self) -> Path:
        """A program that runs this Python on the release's libraries, also in the processes that it starts."""
        return self.folder / "bin" / "python"

    @property
    def description(self) -> Path:
        """The first driver's file for the Vulkan loader."""
        return self.description_of(self.drivers[0])

    def description_of(self, driver: str) -> Path:
        return self.folder / "libraries" / f"{driver}_icd.json"


RELEASES = [
    Release("Mesa 22.3", ("bookworm",)),
    Release("Mesa 25.0", ("bookworm", "bookworm-backports")),
    Release("Mesa 26", ("sid",)),  # the first release with matrix units
]

# The drivers of GPUs, for the machine code that they make: see tools/drm_shims/build.py.
COMPILERS = Release("Mesa 26", ("sid",), ("intel", "freedreno", "nouveau", "asahi"))


def get(release: Release) -> None:
    """Unpack a release unless it is there, and make its Python.

    Raises:
        SetupError: The release is not available on this machine.
    """
    if not release.description.exists():
        if not has_apt():
            raise SetupError(
                f"it comes from the packages of Debian {release.suites[-1]}, and there is no apt-get to get them with: "
                "use a machine or a container of Debian, or a machine that has that driver"
            )
        if release.folder.exists():
            shutil.rmtree(release.folder)
        unpacked = release.folder.with_name(release.folder.name + ".part")
        packages = PackageFolder(DRIVERS / f"packages-{release.folder.name}", *release.suites)
        libraries = unpacked / "libraries"
        packages.unpack_with_dependencies(["mesa-vulkan-drivers", "libvulkan1"], partial(_keep, release), libraries)
        for driver in release.drivers:
            point_beside(libraries / f"{driver}_icd.json", "ICD")
        unpacked.rename(release.folder)
    _make_python(release)
    finished = subprocess.run([str(release.python), "-c", "import numpy"], capture_output=True, text=True)
    if finished.returncode != 0:
        last_line = finished.stderr.strip().rsplit("\n", 1)[-1]
        raise SetupError(
            f"{release.name} of Debian {release.suites[-1]} does not run under this machine's Python, which is built "
            f"for a newer C library ({last_line}): use a machine or a container of Debian {release.suites[0]}"
        )


def _keep(release: Release, path: str) -> str | None:
    """Keep only shared libraries, and of Mesa's drivers the release's, all in one folder."""
    folder, _, name = path.rpartition("/")
    description = re.fullmatch(r"([a-z]+)_icd.*\.json", name)
    if description:
        return f"{description[1]}_icd.json" if description[1] in release.drivers else None
    if not re.fullmatch(r"(usr/)?lib/[a-z0-9_]+-linux-gnu\w*", folder) or ".so" not in name:
        return None
    driver = re.fullmatch(r"libvulkan_(\w+)\.so", name)
    return name if driver is None or driver[1] in release.drivers else None


def _make_python(release: Release) -> None:
    """Make a virtual environment that shares the packages of the running one but starts Python with other libraries."""
    libraries = release.folder / "libraries"
    linkers = sorted(libraries.glob("ld-linux*.so*"))
    if not linkers:
        raise SetupError(f"Debian's packages of {release.name} hold no dynamic linker for this processor")
    command = [str(linkers[0]), "--library-path", str(libraries), "--argv0"]
    release.python.parent.mkdir(exist_ok=True)
    # Python takes the script that started it for its own program, and looks for its environment beside the script.
    script = f'#!/bin/sh\nexec {shlex.join(command)} "$0" {shlex.quote(sys.executable)} "$@"\n'
    release.python.write_text(script)
    release.python.chmod(0o755)
    shutil.copyfile(Path(sys.prefix) / "pyvenv.cfg", release.folder / "pyvenv.cfg")
    packages = release.folder / "lib"
    packages.unlink(missing_ok=True)
    packages.symlink_to(Path(sys.prefix) / "lib")
