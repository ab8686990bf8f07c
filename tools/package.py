"""Builds the wheel and the sdist into `dist/` and checks them: `make package`.

python -m tools.package                # build and check
python -m tools.package --tag v1.0.0   # build nothing: is the tag the version's?

Checked: the wheel that is built from the sdist has the same bytes as the one from the checkout; the index can show the
description; the wheel holds the package alone, and installs into an empty environment, where an operator has the right
result if there is a device.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tools.debian import ROOT, SetupError

DIST = ROOT / "dist"
# The time of a file in an archive, so that it does not depend on the day: 1 January 2020.
SOURCE_DATE = "1577836800"
LARGEST_WHEEL = 1_641_000  # bytes; the modules in Python are three fifths, the kernels of twenty operators a sixth
FIRST_RESULT = """
import numpy as np, dmlvk
print("dmlvk", dmlvk.__version__, "installed")
if dmlvk.is_available():
    found = dmlvk.slice1(np.arange(8), input_window_offsets=[0], input_window_sizes=[8], input_window_strides=[-2])
    assert found.tolist() == [7, 5, 3, 1], found
    print("first result: right")
else:
    print("first result: no device here")
"""


def version() -> str:
    """The version, from the one place where it is written."""
    return str(runpy.run_path(str(ROOT / "dmlvk" / "version.py"))["__version__"])


def build(source: Path, folder: Path, *targets: str) -> list[Path]:
    """Build targets ("sdist", "wheel") of a source tree into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    options = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", *options, "-d", str(folder.resolve())]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": SOURCE_DATE}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SetupError(f"the build failed:\n{done.stdout}{done.stderr}")
    return sorted(set(folder.iterdir()) - before)


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist; its only folder."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    (root,) = folder.iterdir()
    return root


def require_same(wheel: Path, again: Path) -> None:
    """Compare two wheels byte by byte.

    Raises:
        SetupError: Naming the files in them that differ.
    """
    if wheel.name == again.name and wheel.read_bytes() == again.read_bytes():
        return
    contents = []
    for path in (wheel, again):
        with zipfile.ZipFile(path) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    first, second = contents
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    raise SetupError(f"the wheel from the sdist differs from that of the checkout: {', '.join(names) or 'its order'}")


def require_package_alone(wheel: Path) -> None:
    """Check what a wheel holds.

    Raises:
        SetupError: It is large, or holds something besides the package and its metadata, or lacks something that it
            needs.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    information = f"dmlvk-{version()}.dist-info/"
    others = [name for name in names if not name.startswith(("dmlvk/", information)) or name.endswith(".pyc")]
    if others:
        raise SetupError(f"{wheel.name} holds {', '.join(others[:5])}, which is not of the package")
    needed = {"dmlvk/py.typed", "dmlvk/spirv/manifest.json", "dmlvk/demo/astronaut.jpg", "dmlvk/demo/digits.onnx"}
    missing = needed - set(names)
    if missing:
        raise SetupError(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    if wheel.stat().st_size > LARGEST_WHEEL:
        raise SetupError(f"{wheel.name} has {wheel.stat().st_size:,} bytes, and should have {LARGEST_WHEEL:,} at most")


def require_installable(wheel: Path, folder: Path) -> None:
    """Install a wheel into an empty environment, away from the checkout, and run an operator there."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "environment")], check=True)
    python = folder / "environment" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True, cwd=folder)
    subprocess.run([str(python), "-c", FIRST_RESULT], check=True, cwd=folder)


def package() -> None:
    """Build and check both files."""
    if DIST.exists():
        shutil.rmtree(DIST)
    sdist, wheel = sorted(build(ROOT, DIST, "sdist", "wheel"), key=lambda path: path.suffix)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)], check=True)
    with tempfile.TemporaryDirectory(prefix="dmlvk-package-") as name:
        folder = Path(name)
        (again,) = build(unpack(sdist, folder / "sdist"), folder / "again", "wheel")
        require_same(wheel, again)
        require_package_alone(wheel)
        require_installable(wheel, folder)
    for path in (sdist, wheel):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes, sha256 {digest}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and check the wheel and the sdist.")
    parser.add_argument("--tag", help="only check that this is the version's tag")
    tag = parser.parse_args().tag
    if tag is None:
        package()
    elif tag != f"v{version()}":
        raise SetupError(f"the tag is {tag}, but dmlvk/version.py says {version()}: its tag would be v{version()}")


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"dmlvk: failed with status {error.returncode}: {' '.join(map(str, error.cmd[:5]))} ...")
