"""Outputs kept beside a file of results, so that those of two devices can be compared element by element.

`dmlvk conformance --json NAME.jsonl --keep-outputs` writes the output of each case as .npy into the folder
NAME.outputs beside the results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt

from dmlvk._common import files
from dmlvk.conformance.folders import folder_name
from dmlvk.conformance.results import Result


def outputs_folder(results: Path) -> Path:
    """The folder of the outputs that belong to a file of results."""
    return results.with_suffix(".outputs")


def keep_output(folder: Path, result: Result, elements: npt.NDArray[Any]) -> None:
    """Write the output of a case.

    Raises
    ------
    OSError
    """
    folder.mkdir(parents=True, exist_ok=True)
    files.write_bytes(folder / f"{folder_name(result)}.npy", files.npy_bytes(elements))


def kept_output(folder: Path, result: Result) -> npt.NDArray[Any] | None:
    """The output of a case; None if there is none that can be read."""
    try:
        return files.read_npy(folder / f"{folder_name(result)}.npy")
    except OSError:
        return None
