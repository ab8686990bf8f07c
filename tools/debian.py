"""Debian packages: installed if that is allowed, or unpacked into the checkout, which needs no rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DRIVERS = ROOT / ".drivers"


class SetupError(Exception):
    """Only the user can supply a missing part. The message is one line that says what to do."""


def has_apt() -> bool:
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


def root_prefix() -> list[str] | None:
    """The words before a command that run it as root without a password; None if that is not possible."""
    if os.name != "posix":
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def install(packages: Iterable[str]) -> bool:
    """Install packages with apt-get. False without apt-get or the right to use it; SetupError if it fails."""
    packages = list(packages)
    prefix = root_prefix()
    if not has_apt() or prefix is None:
        return False
    print(f"Installing {' '.join(packages)} with apt-get", flush=True)
    command = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    # A list that cannot be refreshed may still be good enough, so only a failed installation is an error.
    subprocess.run([*command, "update"], stdin=subprocess.DEVNULL)
    installation = [*command, "install", "--yes", "--no-install-recommends", *packages]
    finished = subprocess.run(installation, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if finished.returncode != 0:
        last_lines = "\n".join(finished.stdout.decode(errors="replace").splitlines()[-15:])
        raise SetupError(f"apt-get could not install {' '.join(packages)}:\n{last_lines}")
    return True


class PackageFolder:
    """Downloads Debian packages with an apt-get that keeps all of its state in a folder of its own.

    It uses the machine's configured mirrors and keys, needs no root, and leaves the machine's own lists alone.

    Args:
        folder (Path): The folder of apt-get's lists and the packages; made if absent.
        *suites (str): The Debian releases to take packages from, such as "trixie". The last one has precedence over the
            others. By default the releases that the machine is configured for.
    """

    def __init__(self, folder: Path, *suites: str) -> None:
        self.folder = folder
        self.options = ["-qq", "-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"]
        (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (folder / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        if suites:
            source = folder / "sources.list"
            site, signed_by = _debian_mirror()
            options = f"[signed-by={signed_by}] " if signed_by else ""
            source.write_text("".join(f"deb {options}{site} {suite} main\n" for suite in suites))
            self.options += ["-o", f"Dir::Etc::SourceList={source}", "-o", "Dir::Etc::SourceParts=/dev/null"]
            self.options += ["--target-release", suites[-1], *self._without_installed()]

    def unpack(self, packages: Iterable[str], keep: Callable[[str], str | None], destination: Path) -> list[Path]:
        """Download packages and unpack files: `keep` maps a path in a package to one under `destination` or to None."""
        return self._unpack(["download"], list(packages), self.folder, keep, destination)

    def unpack_with_dependencies(
        self, packages: Iterable[str], keep: Callable[[str], str | None], destination: Path
    ) -> list[Path]:
        """Like `unpack`, with all dependencies of the packages, including the C library."""
        command = ["install", "--download-only", "--no-install-recommends", "--yes", "-o", "Debug::NoLocking=1"]
        command += self._without_installed()
        return self._unpack(command, list(packages), self.folder / "cache" / "archives", keep, destination)

    def _without_installed(self) -> list[str]:
        """Options with which no package counts as installed: apt-get prefers an installed version that is newer."""
        installed = self.folder / "installed"
        installed.touch()
        return ["-o", f"Dir::State::Status={installed}", "-o", f"Dir::State::Extended_States={installed}.extended"]

    @contextmanager
    def source(self, package: str) -> Iterator[Path]:
        """The archive of the upstream source of a package, without Debian's changes. It is deleted afterwards.

        Only for a folder of named suites: those that a machine is configured for often hold no sources.
        """
        sources = self.folder / "sources.list"
        sources.write_text(sources.read_text().replace("deb ", "deb-src "))
        self._download(["source", "--download-only"], [package])
        archives = sorted(self.folder.glob(f"{package}_*.orig.tar.*z*"))
        archives = [path for path in archives if path.suffix != ".asc"]
        if len(archives) != 1:
            raise SetupError(f"Debian's source package {package} holds {len(archives)} archives: one was expected")
        yield archives[0]
        shutil.rmtree(self.folder)

    def _unpack(
        self,
        command: list[str],
        packages: list[str],
        archives: Path,
        keep: Callable[[str], str | None],
        destination: Path,
    ) -> list[Path]:
        for old in archives.glob("*.deb"):
            old.unlink()
        self._download(command, packages)
        written: list[Path] = []
        for archive in sorted(archives.glob("*.deb")):
            written += _unpack(archive, keep, destination)
        shutil.rmtree(self.folder)
        return written

    def _download(self, command: list[str], packages: list[str]) -> None:
        names = " ".join(packages)
        print(f"Downloading {names} (unpacked into the checkout, not installed)", flush=True)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        subprocess.run(["apt-get", *self.options, "update"], **quiet)  # type: ignore[call-overload]
        command = ["apt-get", *self.options, *command, *packages]
        finished = subprocess.run(command, cwd=self.folder, **quiet)  # type: ignore[call-overload]
        if finished.returncode != 0:
            raise SetupError(f"apt-get could not download {names}: {finished.stdout.decode().strip()}")


def _unpack(archive: Path, keep: Callable[[str], str | None], destination: Path) -> list[Path]:
    written = []
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as process:  # noqa: SIM117
        with tarfile.open(fileobj=process.stdout, mode="r|") as files:
            for member in files:
                name = keep(member.name.removeprefix("./"))
                if name is None or not (member.isfile() or member.issym()):
                    continue
                target = destination / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                if member.issym():
                    target.symlink_to(member.linkname)
                else:
                    content = files.extractfile(member)
                    assert content is not None
                    with target.open("wb") as output:
                        shutil.copyfileobj(content, output)
                    target.chmod(member.mode & 0o755)
                written.append(target)
    if process.returncode != 0:
        raise SetupError(f"dpkg-deb could not read {archive.name}")
    return written


def _debian_mirror() -> tuple[str, str]:
    """The Debian mirror that this machine is configured for, and the file of its keys ("" for apt's keys)."""
    template = "$(COMPONENT)|$(RELEASE)|$(REPO_URI)|$(TARGET_OF)"
    command = ["apt-get", "indextargets", "--format", template, "Created-By: Packages"]
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        component, release, site, kind = line.split("|")
        if component == "main" and release.isalpha() and kind == "deb" and site.rstrip("/").endswith("/debian"):
            return site, str(keyring) if keyring.exists() else ""
    raise SetupError("no Debian mirror is among apt's sources on this machine: add one, or use a container of Debian")
