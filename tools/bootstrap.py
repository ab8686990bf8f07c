"""Set-up for `make`: the virtual environment, and a Vulkan loader with at least one driver.

Runs on the machine's own Python with nothing installed, so it uses the standard library only.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036 - the one place that an older Python reaches
    sys.exit(f"dmlvk needs Python 3.10 or newer; this is {platform.python_version()}: name another, make PYTHON=...")

from tools.debian import DRIVERS, ROOT, SetupError, has_apt, install, root_prefix
from tools.models import MODELS

ENVIRONMENT = ROOT / ".venv"
ENVIRONMENT_PYTHON = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

HELP = """\
make run            set up, then run the demo: the operators on a photograph, a network on digits, all checked
make bench          set up, then measure the operators beside other libraries: a table, JSON and a picture
make test           set up with the test drivers, then all of make lint and the whole test suite
make test-large     tensors past 4 GiB: on a device with 16 GiB of memory and a host with 32
make test-cuda      memory shared with CUDA, torch and CuPy: on an NVIDIA GPU
make test-thorough  every test on both drivers, 1,000 random examples, every Vulkan call failing in every way: hours
make test-torch     dmlvk.torch and memory shared with torch, which it installs where it is missing
make test-models    published ONNX networks, quantized and compared with ONNX Runtime; the example trained anew
make test-matrices  kernels on matrix units, on the CPU driver that has matrices (lavapipe of Mesa 26, fetched)
make test-mutants   kernels broken on purpose in eighty ways: each has to be caught by the conformance suite
make test-pages     the pages of HTML in a browser, which it fetches where there is none: filters, widths, colours
make fuzz           100,000 random calls on each test driver, with numbers of all kinds: half an hour on two cores
make test-windows   Windows' form, under Wine: a selection of the tests in 40 minutes, all with WINDOWS_ARGUMENTS=--all
make test-minimal   the tests with the oldest version of each dependency
make bench-checkouts  this checkout beside another one, call by call on a CPU driver: BEFORE=../before
make package        the wheel and the sdist, checked, in dist/
make first-impressions  how long a new user waits: from nothing to the first result, from a clone to the demo's picture
make docs           the documentation as pages of HTML, in build/docs; warnings are errors
make conformance    the conformance suite on every driver that is found or can be fetched: an hour on two cores
make test-compilers kernels compiled for 22 GPUs that are not there; fails on spilled registers: CHIPS="intel-dg2"
make lint           the checks alone: ruff, the formats of Python and GLSL, the order of imports, mypy, pyright
make format         format Python and GLSL
make drivers        get the drivers that the tests run on (lavapipe, SwiftShader, the validation layer)
make kernels        compile kernels/ to dmlvk/spirv/ (finds or downloads glslang)
make clean          remove the virtual environment, the test drivers and what was built
"""


def make_environment(extras: str, optional: str, stamp: Path) -> None:
    """Make .venv if it is not there or broken, install dmlvk and its dependencies into it, and touch the stamp file.

    Optional extras are left out, with one line that says so, where pip cannot install them: ONNX Runtime is not built
    for every Python and every processor.
    """
    if not _runs(ENVIRONMENT_PYTHON):
        if ENVIRONMENT.exists():
            shutil.rmtree(ENVIRONMENT)
        _ensure_venv_module()
        print(f"Making the virtual environment {ENVIRONMENT.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    if optional and _pip_installs(f"{extras},{optional}"):
        stamp.touch()
        return
    if optional:
        print(f"dmlvk: goes on without the extra {optional}; what needs it will say so", flush=True)
    if not _pip_installs(extras):
        raise SetupError("pip could not install dmlvk; its message is above")
    stamp.touch()


def _pip_installs(extras: str) -> bool:
    print(f"Installing dmlvk[{extras}] into {ENVIRONMENT.relative_to(ROOT)}", flush=True)
    pip = [str(ENVIRONMENT_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return subprocess.run([*pip, "--editable", f"{ROOT}[{extras}]"], stdin=subprocess.DEVNULL).returncode == 0


def _runs(python: Path) -> bool:
    try:
        return subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True).returncode == 0
    except OSError:
        return False


def _ensure_venv_module() -> None:
    """Install `venv` and `ensurepip` if absent: Debian and Ubuntu have them in a package apart from Python."""
    check = [sys.executable, "-c", "import venv, ensurepip"]
    if subprocess.run(check, capture_output=True).returncode == 0:
        return
    package = f"python3.{sys.version_info.minor}-venv"
    if not install([package]) or subprocess.run(check, capture_output=True).returncode != 0:
        how = f"sudo apt-get install {package}" if has_apt() else "install your system's package with Python's venv"
        raise SetupError(f"this Python cannot make virtual environments: {how}, then run make again")


def ensure_vulkan() -> None:
    """Make sure that a Vulkan loader and at least one device are there; on Debian and Ubuntu install them if allowed.

    Raises:
        SetupError: With one line that says what to install.
    """
    if _device_count() > 0:
        return
    if install(["libvulkan1", "mesa-vulkan-drivers"]) and _device_count() > 0:
        return
    raise SetupError(f"no Vulkan device found: {_what_to_install()}, then run make again")


def _what_to_install() -> str:
    if sys.platform == "win32":
        return "install your graphics card's driver, or Mesa's lavapipe from github.com/pal1000/mesa-dist-win,"
    if sys.platform == "darwin":
        return "brew install vulkan-loader molten-vk"
    if has_apt():
        extra = "" if root_prefix() is None else " (it was, and still no device answers: see VK_DRIVER_FILES)"
        return f"sudo apt-get install libvulkan1 mesa-vulkan-drivers{extra}"
    for program, packages in (
        ("dnf", "sudo dnf install vulkan-loader mesa-vulkan-drivers"),
        ("pacman", "sudo pacman -S vulkan-icd-loader vulkan-swrast"),
        ("zypper", "sudo zypper install libvulkan1 libvulkan_lvp"),
        ("apk", "sudo apk add vulkan-loader mesa-vulkan-swrast"),
    ):
        if shutil.which(program):
            return packages
    return "install a Vulkan loader and a driver (Mesa's lavapipe works without a graphics card)"


def _device_count() -> int:
    """Number of Vulkan devices, counted in another process, because a faulty driver may crash its process."""
    command = [sys.executable, "-m", "tools.bootstrap", "count-devices"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return int(finished.stdout) if finished.returncode == 0 else 0


class _InstanceCreateInfo(ctypes.Structure):
    """VkInstanceCreateInfo."""

    _fields_ = (
        ("sType", ctypes.c_int),
        ("pNext", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("pApplicationInfo", ctypes.c_void_p),
        ("enabledLayerCount", ctypes.c_uint32),
        ("ppEnabledLayerNames", ctypes.c_void_p),
        ("enabledExtensionCount", ctypes.c_uint32),
        ("ppEnabledExtensionNames", ctypes.POINTER(ctypes.c_char_p)),
    )


def count_devices() -> int:
    """Ask the Vulkan loader itself for the number of physical devices; 0 without a loader or without a driver."""
    try:
        if sys.platform == "win32":
            vulkan = ctypes.WinDLL("vulkan-1.dll")
        else:
            vulkan = ctypes.CDLL("libvulkan.dylib" if sys.platform == "darwin" else "libvulkan.so.1")
    except OSError:
        return 0
    create_info = _InstanceCreateInfo(sType=1)  # VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
    if sys.platform == "darwin":
        # MoltenVK is not fully conformant. The loader hides such drivers unless this flag asks for them.
        create_info.flags = 1  # VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
        create_info.enabledExtensionCount = 1
        create_info.ppEnabledExtensionNames = (ctypes.c_char_p * 1)(b"VK_KHR_portability_enumeration")
    instance, count = ctypes.c_void_p(), ctypes.c_uint32()
    if vulkan.vkCreateInstance(ctypes.byref(create_info), None, ctypes.byref(instance)) != 0:
        return 0
    if vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None) != 0:
        return 0
    return count.value


def clean() -> None:
    """Remove everything that `make` created."""
    names = [".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "build", "dist"]
    names += ["dmlvk-demo.png", "dmlvk-bench.json", "dmlvk-bench.png"]
    for path in (ENVIRONMENT, DRIVERS, MODELS, ROOT / "docs" / "made", *(ROOT / name for name in names)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for folder in ("dmlvk", "kernels", "tools", "tests", "bench", "examples"):
        for cache in list((ROOT / folder).rglob("__pycache__")):
            shutil.rmtree(cache)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    environment = commands.add_parser("environment", help="make the virtual environment")
    environment.add_argument("--extras", required=True, help="pyproject.toml's optional dependencies, with commas")
    environment.add_argument("--optional", default="", help="extras that are left out if pip cannot install them")
    environment.add_argument("--stamp", required=True, type=Path, help="file to touch when all is installed")
    commands.add_parser("vulkan", help="make sure that there is a Vulkan device")
    commands.add_parser("count-devices", help="print the number of Vulkan devices")
    commands.add_parser("clean", help="remove everything that make made")
    commands.add_parser("help", help="list make's targets")
    arguments = parser.parse_args()
    if arguments.command == "environment":
        make_environment(arguments.extras, arguments.optional, arguments.stamp)
    elif arguments.command == "vulkan":
        ensure_vulkan()
    elif arguments.command == "count-devices":
        print(count_devices())
    elif arguments.command == "clean":
        clean()
    else:
        print(HELP, end="")


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
