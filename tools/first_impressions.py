"""How long a new user waits, and what is said where something is missing: `make first-impressions`.

python -m tools.first_impressions                     # an empty virtual environment, and a clone
python -m tools.first_impressions debian:bookworm     # a fresh Debian: as root, with debootstrap
python -m tools.first_impressions windows             # Windows' form under Wine, as in `make test-windows`

Timed: from `pip install` of the wheel to the first right result, and from `git clone` to the demo's picture. Then the
same with something missing: a driver, a loader, a compiler, a new pip, a new Python. Each of these has to end in one
line that helps. Prints tables of Markdown.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools import drivers, package
from tools.debian import ROOT, SetupError

FIRST_RESULT = (
    "import numpy as np, dmlvk; "
    "found = dmlvk.slice1(np.arange(8), input_window_offsets=[0], input_window_sizes=[8], input_window_strides=[-2]); "
    "assert found.tolist() == [7, 5, 3, 1], found"
)
# A pip that came with distributions of 2021, the oldest that runs on each Python that dmlvk supports.
OLD_PIP = "pip==21.2.4"
OLD_PYTHONS = ("python3.9", "python3.8", "python3.7")
LOADER_AND_DRIVER = ("libvulkan1", "mesa-vulkan-drivers")
MOST_SECONDS = 1800
WENT_ON = "NOTHING: it went on with status 0"


@dataclass
class Place:
    """Where commands run: on this host, or in a folder with a system of its own.

    Attributes:
        name (str):
        folder (Path): Where the environment and the wheel are, as this host sees it.
        prefix (sequence of str): Words before each command.
        root (Path, optional): The folder that the commands see as the root.
        variables (mapping of str to str): Of the environment, besides the host's.
    """

    name: str
    folder: Path
    prefix: Sequence[str] = ()
    root: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def path(self, path: Path) -> str:
        """A path as the commands see it."""
        return str(path) if self.root is None else f"/{path.relative_to(self.root).as_posix()}"

    def run(self, *words: str, **variables: str) -> tuple[int, str]:
        """The status of a command, and all that it prints."""
        environment = {**os.environ, **self.variables, **variables}
        done = subprocess.run(
            [*self.prefix, *words],
            cwd=self.folder if self.root is None else None,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=MOST_SECONDS,
        )
        return done.returncode, done.stdout.decode(errors="replace")


@dataclass(frozen=True)
class Timed:
    """A step that a user waits for."""

    place: str
    what: str
    seconds: float


@dataclass(frozen=True)
class Said:
    """What is said where something is missing. It helps if it names the remedy."""

    place: str
    missing: str
    line: str
    remedy: str

    @property
    def helps(self) -> bool:
        return self.remedy in self.line and not self.line.startswith(WENT_ON)


class Session:
    """The steps of one run, printed as they come."""

    def __init__(self) -> None:
        self.times: list[Timed] = []
        self.messages: list[Said] = []

    def timed(self, place: Place, what: str, *words: str, **variables: str) -> None:
        """Run a step and keep its time.

        Raises:
            SetupError: It failed.
        """
        start = time.perf_counter()
        status, output = place.run(*words, **variables)
        seconds = time.perf_counter() - start
        if status:
            raise SetupError(f"{place.name}: {what} failed with status {status}:\n{output[-3000:]}")
        self.times.append(Timed(place.name, what, seconds))
        print(f"{place.name}: {what}: {seconds:.1f} s", flush=True)

    def refused(self, place: Place, missing: str, remedy: str, *words: str, **variables: str) -> None:
        """Run a step that has to fail, and keep its last line."""
        status, output = place.run(*words, **variables)
        line = last_line(output) if status else f"{WENT_ON}: {last_line(output)}"
        self.messages.append(Said(place.name, missing, line, remedy))
        print(f"{place.name}: without {missing}: {line}", flush=True)

    def tables(self) -> str:
        """Both tables."""
        lines = ["| where | what | seconds |", "|---|---|---:|"]
        lines += [f"| {step.place} | {step.what} | {step.seconds:.1f} |" for step in self.times]
        lines += ["", "| where | without | last line | names the remedy |", "|---|---|---|---|"]
        lines += [
            f"| {said.place} | {said.missing} | {said.line.replace('|', '/')} | {'yes' if said.helps else 'NO'} |"
            for said in self.messages
        ]
        return "\n".join(lines)


def last_line(output: str) -> str:
    """The last line of an output, without those in which make and pip speak of themselves."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    kept = [
        line for line in lines if not line.startswith(("make: ", "make[", "[notice]", "WARNING: You are using pip"))
    ]
    return kept[-1] if kept else ""


def install_and_ask(session: Session, place: Place, python: str, wheel: Path) -> str:
    """From an empty environment to the first right result; the environment's Python."""
    environment = place.folder / "environment"
    inside = place.path(environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    session.timed(place, "python -m venv", python, "-m", "venv", place.path(environment))
    session.timed(place, "pip install of the wheel", inside, "-m", "pip", "install", "--quiet", place.path(wheel))
    cache = place.path(place.folder / "cache")
    for what in ("first result, first process", "first result, next process"):
        session.timed(place, what, inside, "-c", FIRST_RESULT, DMLVK_CACHE_DIR=cache)
    return inside


def missing_parts(session: Session, place: Place, inside: str, wheel: Path) -> None:
    """What is said without a driver, with an old pip and with an old Python."""
    nowhere = {"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"}
    session.refused(place, "a driver", "VK_DRIVER_FILES", inside, "-c", FIRST_RESULT, **nowhere)
    session.refused(place, "a driver (dmlvk devices)", "VK_DRIVER_FILES", inside, "-m", "dmlvk", "devices", **nowhere)
    old = place.folder / "old"
    session.timed(place, "python -m venv, for an old pip", inside, "-m", "venv", place.path(old))
    python = place.path(old / "bin" / "python")
    session.timed(place, f"{OLD_PIP} in place of its pip", python, "-m", "pip", "install", "--quiet", OLD_PIP)
    session.timed(place, "pip install of the wheel by it", python, "-m", "pip", "install", "--quiet", place.path(wheel))
    session.timed(place, "first result, installed by it", python, "-c", FIRST_RESULT)


def old_python(session: Session, place: Place, wheel: Path) -> None:
    """What pip and `make` say to a Python that is too old; nothing where there is none."""
    for name in OLD_PYTHONS:
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            arguments = ("make", "-C", str(ROOT), "run", f"PYTHON={found}")
            session.refused(place, f"a new Python ({name}, make)", "make PYTHON=", *arguments)
            environment = place.folder / name
            session.timed(place, f"{name} -m venv", found, "-m", "venv", str(environment))
            pip = (str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel))
            session.refused(place, f"a new Python ({name}, pip)", ">=3.10", *pip)
            return


def clone_and_run(session: Session, place: Place, source: str) -> None:
    """From a clone to the demo's picture."""
    clone = place.folder / "clone"
    session.timed(place, "git clone", "git", "clone", "--quiet", source, str(clone))
    session.timed(place, "make run, to the demo's picture", "make", "-C", str(clone), "run")
    if not (clone / "dmlvk-demo.png").exists():
        raise SetupError("make run wrote no dmlvk-demo.png")
    session.timed(place, "make run again", "make", "-C", str(clone), "run")


def debian(session: Session, suite: str, folder: Path, wheel: Path) -> None:
    """A fresh Debian: Python, then the wheel without a loader, without a driver, and with both."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise SetupError("a fresh Debian needs root, and debootstrap: sudo apt-get install debootstrap")
    root = folder / suite
    host = Place(f"Debian {suite}", folder)
    session.timed(host, "debootstrap", "debootstrap", "--variant=minbase", suite, str(root))
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    work = root / "newcomer"
    work.mkdir()
    inside_wheel = Path(shutil.copy(wheel, work))
    names = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}
    # What this host trusts, so that pip reaches what it reaches here.
    if certificates := ssl.get_default_verify_paths().cafile:
        shutil.copy(certificates, work / "certificates.pem")
        names |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), "/newcomer/certificates.pem")
    place = Place(f"Debian {suite}", work, ("chroot", str(root)), root, names)
    apt = ("apt-get", "install", "--yes", "--no-install-recommends")
    with mounted(root):
        session.timed(place, "apt-get update", "apt-get", "update")
        session.timed(place, "apt-get install of Python", *apt, "python3", "python3-venv")
        environment, python = work / "bare", "/newcomer/bare/bin/python"
        session.timed(place, "python -m venv, before a loader", "python3", "-m", "venv", place.path(environment))
        pip = (python, "-m", "pip", "install", "--quiet", place.path(inside_wheel))
        session.timed(place, "pip install of the wheel, without a compiler", *pip)
        session.refused(place, "a loader", "apt install libvulkan1", python, "-c", FIRST_RESULT)
        session.refused(place, "a loader (dmlvk devices)", "apt install libvulkan1", python, "-m", "dmlvk", "devices")
        session.timed(place, "apt-get install of a loader", *apt, LOADER_AND_DRIVER[0])
        session.refused(place, "a driver, with a loader", "mesa-vulkan-drivers", python, "-c", FIRST_RESULT)
        session.timed(place, "apt-get install of Mesa's drivers", *apt, *LOADER_AND_DRIVER)
        inside = install_and_ask(session, place, "python3", inside_wheel)
        missing_parts(session, place, inside, inside_wheel)


@contextmanager
def mounted(root: Path) -> Iterator[None]:
    """/proc, which programs in another root need, for the time of a `with` statement."""
    point = str(root / "proc")
    subprocess.run(["mount", "-t", "proc", "proc", point], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", point], check=True)


def windows_form(session: Session, wheel: Path) -> None:
    """A Windows Python under Wine, from the wheel to the first result."""
    from tools.windows import PIP_TARGET, PROGRAM, REQUIREMENTS, get_python, started_wine

    place = Place("Windows' form", ROOT)
    with started_wine() as wine, tempfile.TemporaryDirectory(prefix="dmlvk-windows-") as name:
        get_python()
        target = Path(name, "site")
        numpy = [each for each in REQUIREMENTS if each.startswith(("numpy", "colorama"))]
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(target))
        session.timed(place, "pip install of the wheel", *pip, *PIP_TARGET, str(wheel), *numpy)
        program = f"import sys; sys.path.insert(0, sys.argv[1]); {FIRST_RESULT}"
        # Without what `make test-windows` installed: -I and -S leave Python's own modules, and the new folder.
        place.prefix = (wine.program, str(PROGRAM / "python.exe"), "-I", "-S")
        place.variables = wine.variables
        for what in ("first result, first process", "first result, next process"):
            session.timed(place, what, "-c", program, f"Z:{target}")


def step_of(part: str, source: str, session: Session, folder: Path, wheel: Path) -> Callable[[], None]:
    """What a part of the run does.

    Raises:
        SetupError: There is no such part.
    """

    def environment() -> None:
        version = ".".join(map(str, sys.version_info[:2]))
        here = Place(f"Python {version}", folder, variables=drivers.environment())
        inside = install_and_ask(session, here, sys.executable, wheel)
        missing_parts(session, here, inside, wheel)
        old_python(session, here, wheel)

    name, _, suite = part.partition(":")
    steps: dict[str, Callable[[], None]] = {
        "environment": environment,
        "clone": lambda: clone_and_run(session, Place("a clone", folder), source),
        "windows": lambda: windows_form(session, wheel),
    }
    if name == "debian" and suite:
        return lambda: debian(session, suite, folder, wheel)
    if part not in steps:
        raise SetupError(f"there is no part {part!r}; there are {', '.join(steps)} and debian:SUITE")
    return steps[part]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time what a new user waits for.")
    parser.add_argument("parts", nargs="*", default=["environment", "clone"], help="what is done; see above")
    parser.add_argument("--source", default=str(ROOT), help="what is cloned; this checkout by default")
    arguments = parser.parse_args()
    session = Session()
    with tempfile.TemporaryDirectory(prefix="dmlvk-first-") as name:
        folder = Path(name)
        (wheel,) = package.build(ROOT, folder / "dist", "wheel")
        for step in [step_of(part, arguments.source, session, folder, wheel) for part in arguments.parts]:
            step()
    print(f"\n{datetime.datetime.now(datetime.timezone.utc).date()}, {os.cpu_count()} processors\n\n{session.tables()}")
    if not all(said.helps for said in session.messages):
        raise SetupError("a message does not name its remedy; see the table")


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
