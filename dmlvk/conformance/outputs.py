"""Outputs kept beside a file of results, so that those of two devices can be compared element by element.

`dmlvk conformance --json NAME.jsonl --keep-outputs` writes the output of each case as .npy into the folder
NAME.outputs beside the results.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common import files
from dmlvk.conformance.folders import folder_name
from dmlvk.conformance.results import Result


def outputs_folder(results: Path) -> Path:
    """The folder of the outputs that belong to a file of results."""
    return results.with_suffix(".outputs")


def keep_output(folder: Path, result: Result, elements: npt.NDArray[Any]) -> None:
    """Write the output of a case.

    Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files.write_bytes(folder / f"{folder_name(result)}.npy", files.npy_bytes(elements))


def keep_both(folder: Path | None, result: Result, first: npt.NDArray[Any], found: npt.NDArray[Any]) -> Path:
    """Write two outputs of a case that should be equal, and say where: the folder, else a new temporary one.

    Raises OSError.
    """
    place = Path(tempfile.mkdtemp(prefix="dmlvk-soak-")) if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.savez(content, first=first, found=found)
    path = place / f"{folder_name(result)}.soak.npz"
    files.write_bytes(path, content.getvalue())
    return path


def kept_output(folder: Path, result: Result) -> npt.NDArray[Any] | None:
    """The output of a case; None if there is none that can be read."""
    try:
        return files.read_npy(folder / f"{folder_name(result)}.npy")
    except OSError:
        return None
