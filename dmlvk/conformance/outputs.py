"""The outputs of cases, kept in files, and names for a case's files and folders, which any file system takes."""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common import files
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


def require_own(folder: Path, name: str, members: Set[str], what: str) -> None:
    """Raise an error unless a folder is new, empty, or an earlier export: no other files are overwritten.

    name, members: the JSON file of an export, and the members by which it is known.
    what: an export, in words.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        record = files.read_json(folder / name)
    except OSError:
        record = None
    if not isinstance(record, dict) or not members <= record.keys():
        raise files.FileError(f"{folder} is left as it is: it holds something other than {what}")


# Longer names make trouble in folders within folders on Windows.
LONGEST_NAME = 100


def folder_name(result: Result) -> str:
    """A name for a case's folder on any file system."""
    return file_system_name(result.name if result.profile == "device" else f"{result.profile}.{result.name}")


def file_system_name(name: str) -> str:
    """A case's name for any file system. If it is cut short, a hash keeps it distinct."""
    folder = re.sub(r"[^A-Za-z0-9.=,_-]+", "_", name)
    if len(folder) <= LONGEST_NAME:
        return folder
    mark = "." + hashlib.sha256(name.encode()).hexdigest()[:8]
    return folder[: LONGEST_NAME - len(mark)] + mark
