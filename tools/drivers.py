"""Gets the drivers lavapipe and SwiftShader and the Khronos validation layer, which the test suite needs.

Those that the machine has are used. The others come from Debian's or Ubuntu's packages: lavapipe is installed (it needs
LLVM), SwiftShader and the layer are unpacked into .drivers/ of the checkout.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from pathlib import Path

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.debian import DRIVERS, PackageFolder, SetupError, has_apt, install

COMMAND = "make drivers"  # named in messages about a missing driver

SWIFTSHADER = DRIVERS / "swiftshader"
VALIDATION = DRIVERS / "validation"
RADV = DRIVERS / "radv"
RADV_FILE = RADV / "radeon_icd.json"
# The versions of Mesa whose RADV knows all generations up to RDNA 4 and makes devices of absent GPUs (26 does not), and
# the suites that have these versions for a Debian release that lacks them.
RADV_VERSIONS = ("25.0", "25.1", "25.2", "25.3")
RADV_SUITES = {"bookworm": ("bookworm-backports",)}
LAYER_FILE = "VkLayer_khronos_validation.json"

# The folders in which loaders look for driver and layer files on Linux. On Windows the registry lists these files.
DATA_FOLDERS = [
    Path(folder) / "vulkan"
    for folder in ("/etc", "/usr/local/etc", "/usr/local/share", "/usr/share", os.path.expanduser("~/.local/share"))
]

# Programs that bring SwiftShader with them.
SWIFTSHADER_PLACES = [
    *(Path(folder) for folder in ("/usr/lib/chromium", "/usr/lib64/chromium-browser", "/opt/google/chrome")),
    *Path(os.environ.get("PROGRAMFILES", "/nonexistent")).glob("Google/Chrome/Application/*"),
]


def find_lavapipe() -> Path | None:
    """lavapipe's driver file, whatever the processor's name in it."""
    found = [path for folder in DATA_FOLDERS for path in sorted((folder / "icd.d").glob("lvp_icd*.json"))]
    return found[0] if found else None


def find_swiftshader() -> Path | None:
    """SwiftShader's driver file: in .drivers/, or with a browser."""
    for folder in (SWIFTSHADER, *(folder / "icd.d" for folder in DATA_FOLDERS), *SWIFTSHADER_PLACES):
        path = folder / "vk_swiftshader_icd.json"
        if path.exists():
            return path
    return None


def find_validation_layer() -> Path | None:
    """The validation layer's file, in .drivers/ or where the loader looks by itself."""
    for folder in (VALIDATION, *(folder / "explicit_layer.d" for folder in DATA_FOLDERS)):
        if (folder / LAYER_FILE).exists():
            return folder / LAYER_FILE
    return None


def find_radv() -> Path | None:
    """Driver file of a RADV that compiles for absent GPUs: in .drivers/, or the machine's own."""
    for folder in (RADV, *(folder / "icd.d" for folder in DATA_FOLDERS)):
        for path in sorted(folder.glob("radeon_icd*.json")):
            library = path.parent / json.loads(path.read_text())["ICD"]["library_path"]
            if library.exists():
                match = re.search(rb"Mesa (\d+\.\d+)\.", library.read_bytes())
                if match and match[1].decode() in RADV_VERSIONS:
                    return path
    return None


def get_radv() -> Path:
    """RADV's driver file; unpacked from Debian's packages if the machine has no suitable one."""
    if find_radv() is None:
        what = f"RADV of Mesa {' or '.join(RADV_VERSIONS)}"
        _require_apt(what, "its libvulkan_radeon.so with its ICD file in .drivers/radv")
        get_lavapipe()  # its packages bring the libraries that RADV needs

        def keep(path: str) -> str | None:
            name = path.rsplit("/", 1)[-1]
            if name.startswith("radeon_icd"):
                return RADV_FILE.name
            return name if name == "libvulkan_radeon.so" else None

        suites = RADV_SUITES.get(platform.freedesktop_os_release().get("VERSION_CODENAME", ""), ())
        PackageFolder(DRIVERS / "packages-radv", *suites).unpack(["mesa-vulkan-drivers"], keep, RADV)
        point_beside(RADV_FILE, "ICD")
    driver = find_radv()
    if driver is None:
        raise SetupError(f"this system's packages hold no {what}: put one in .drivers/radv, with its ICD file")
    return driver


def get_lavapipe() -> None:
    if find_lavapipe() is None and not install(["libvulkan1", "mesa-vulkan-drivers"]):
        raise SetupError("lavapipe is missing: install Mesa's Vulkan drivers (Debian, Ubuntu: mesa-vulkan-drivers)")


def get_swiftshader() -> None:
    if find_swiftshader() is not None:
        return
    _require_apt("SwiftShader", "a Chromium browser's libvk_swiftshader and its ICD file in .drivers/swiftshader")
    names = {"libvk_swiftshader.so", "vk_swiftshader_icd.json"}
    _unpack("chromium-common", names, SWIFTSHADER / "vk_swiftshader_icd.json", "ICD")


def get_validation_layer() -> None:
    if find_validation_layer() is not None:
        return
    _require_apt("the Khronos validation layer", "it (the Vulkan SDK has it) where the Vulkan loader looks for layers")
    names = {"libVkLayer_khronos_validation.so", LAYER_FILE}
    _unpack("vulkan-validationlayers", names, VALIDATION / LAYER_FILE, "layer")


def _require_apt(what: str, remedy: str) -> None:
    if not has_apt():
        raise SetupError(f"{what} is missing, and there is no apt-get to get it with: put {remedy}")


def _unpack(package: str, names: set[str], description: Path, key: str) -> None:
    """Unpack the named files of a package into one folder; the loader's description then names the library in it."""

    def keep(path: str) -> str | None:
        name = path.rsplit("/", 1)[-1]
        return name if name in names else None

    written = PackageFolder(DRIVERS / "packages").unpack([package], keep, description.parent)
    missing = names - {path.name for path in written}
    if missing:
        raise SetupError(f"Debian's package {package} holds no {', '.join(sorted(missing))}")
    point_beside(description, key)


def point_beside(description: Path, key: str) -> None:
    """Make the loader's description of a driver ("ICD") or a layer name the library in its own folder."""
    content = json.loads(description.read_text())
    library = content[key]["library_path"]
    # A path with a slash in it is relative to the folder of the description.
    content[key]["library_path"] = "./" + library.replace("\\", "/").rsplit("/", 1)[-1]
    description.write_text(json.dumps(content, indent=4) + "\n")


def environment() -> dict[str, str]:
    """The environment variables that lead the Vulkan loader to the test drivers and to the validation layer.

    Variables that the user has set already are left out.
    """
    variables = {}
    drivers = [str(path) for path in (find_lavapipe(), find_swiftshader()) if path is not None]
    if drivers and not {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} & os.environ.keys():
        # Loaders older than 1.3.207 know only the second name.
        variables["VK_DRIVER_FILES"] = variables["VK_ICD_FILENAMES"] = os.pathsep.join(drivers)
    return variables | layer_environment()


def layer_environment() -> dict[str, str]:
    """The environment variable that leads the loader to a validation layer in .drivers/, unless the user has set it."""
    layer = find_validation_layer()
    is_ours = layer is not None and layer.parent == VALIDATION
    return {"VK_LAYER_PATH": str(VALIDATION)} if is_ours and "VK_LAYER_PATH" not in os.environ else {}


def main() -> None:
    if names := os.environ.get("DMLVK_TEST_DEVICES"):
        print(f"Test devices: {names} (DMLVK_TEST_DEVICES); no drivers are fetched")
        try:
            get_validation_layer()
        except SetupError as error:  # the loader may know one by other ways, and the tests say so if it does not
            print(f"dmlvk: {error}")
        return
    get_lavapipe()
    get_swiftshader()
    get_validation_layer()
    print("Test drivers:", find_lavapipe(), find_swiftshader(), find_validation_layer(), sep="\n  ")


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
