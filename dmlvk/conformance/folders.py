"""Names of folders and files for cases, which any file system takes."""

from __future__ import annotations

import hashlib
import re

from dmlvk.conformance.results import Result

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
