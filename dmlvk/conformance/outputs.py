"""Outputs kept beside a file of results, so that those of two devices can be compared element by element.

`dmlvk conformance --json NAME.jsonl --keep-outputs` writes the output of each case as .npy into the folder
NAME.outputs beside the results.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import files
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
    memory = io.BytesIO()
    np.save(memory, elements, allow_pickle=False)
    files.write_bytes(folder / f"{folder_name(result)}.npy", memory.getbuffer())


def kept_output(folder: Path, result: Result) -> npt.NDArray[Any] | None:
    """The output of a case; None if there is none that can be read."""
    try:
        content = files.read_bytes(folder / f"{folder_name(result)}.npy")
        found = np.load(io.BytesIO(content), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if isinstance(found, np.ndarray) else None
