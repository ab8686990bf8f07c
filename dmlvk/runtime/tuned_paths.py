"""The fastest kernel paths that `dmlvk tune` has found, remembered for each device in the cache folder.

A choice applies to exactly one descriptor on exactly one device, driver and set of kernels. Planning knows nothing of
these choices: the runtime asks for a plan by the remembered path. A file, or a part of one, that cannot be read is
ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dmlvk._common import files
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import OperatorDesc
from dmlvk.operators.serialization import serialize
from dmlvk.runtime import device_files

PREFIX = "choices-"
# Each line of the file that $DMLVK_RECORD names begins with this.
RECORD_START = b'{"operator": "'


@dataclass(frozen=True)
class TunedPath:
    """The result of tuning one descriptor.

    descriptor: its record: see `dmlvk.operators.serialization`.
    driver, kernels: the driver and kernels of the measurement; other drivers and other kernels do not use the choice.
    path: the fastest kernel path; None if it is the planner's own choice.
    seconds: of each measured path; "planner" is the planner's choice.
    """

    descriptor: Mapping[str, Any]
    driver: str
    kernels: str
    path: str | None
    seconds: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The entry for the file."""
        return {
            "descriptor": self.descriptor,
            "driver": self.driver,
            "kernels": self.kernels,
            "path": self.path,
            "seconds": dict(self.seconds),
        }

    @classmethod
    def from_json(cls, entry: Any) -> TunedPath | None:
        """Read an entry of the file; None if it is not a valid entry."""
        try:
            seconds = {name: float(value) for name, value in entry["seconds"].items()}
            choice = cls(entry["descriptor"], entry["driver"], entry["kernels"], entry["path"], seconds)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            return None
        texts = isinstance(choice.driver, str) and isinstance(choice.kernels, str)
        output = choice.descriptor.get("output_tensor") if isinstance(choice.descriptor, dict) else None
        sizes = output.get("sizes") if isinstance(output, dict) else None
        return choice if texts and isinstance(choice.path, (str, type(None))) and isinstance(sizes, list) else None


class TunedPaths:
    """The choices for one device. The file is read once, at the first request.

    device, driver, kernels: a choice must be for this device, driver and set of kernels.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self.device = profile.name
        self.driver = device_files.driver_of(profile)
        self.kernels = kernels_hash()
        self.file = device_files.device_file(PREFIX, profile)
        self._paths: dict[str, str | None] | None = None

    def path(self, desc: OperatorDesc) -> str | None:
        """The kernel path remembered for a descriptor; None if the planner must choose."""
        paths = self._known()
        return paths.get(key_of(serialize(desc))) if paths else None

    def has(self, desc: OperatorDesc) -> bool:
        """Whether a descriptor was measured, also where the planner's choice was the fastest."""
        return key_of(serialize(desc)) in self._known()

    def _known(self) -> dict[str, str | None]:
        paths = self._paths
        if paths is None:  # several threads may get here; they read the same
            current = (choice for choice in read(self.file) if self.is_current(choice))
            paths = self._paths = {key_of(choice.descriptor): choice.path for choice in current}
        return paths

    def is_current(self, choice: TunedPath) -> bool:
        """Whether a choice was made with this driver and these kernels."""
        return (choice.driver, choice.kernels) == (self.driver, self.kernels)

    def remember(self, desc: OperatorDesc, path: str | None, seconds: Mapping[str, float]) -> None:
        """Write a descriptor's result in place of its earlier one, and drop results that are out of date.

        Raises OSError: the folder cannot be written; the file's path is taken by something other than a file; or
            another process holds the file for too long.
        """
        made = TunedPath(serialize(desc), self.driver, self.kernels, path, seconds)
        key = key_of(made.descriptor)
        file = device_files.require_place(self.file)
        with device_files.locked(file):
            kept = [each for each in read(file) if self.is_current(each) and key_of(each.descriptor) != key]
            choices = [choice.to_json() for choice in (*kept, made)]
            device_files.write(file, {"device": self.device, "choices": choices})
        self._paths = None


@cache
def kernels_hash() -> str:
    """A hash over all compiled kernels."""
    return hashlib.sha256(files.packaged_bytes("dmlvk", "spirv/manifest.json")).hexdigest()[:16]


def key_of(record: Mapping[str, Any]) -> str:
    """A key that equal descriptors share: the record without the fill value, which makes no plan faster."""
    return json.dumps({name: value for name, value in record.items() if name != "value"}, sort_keys=True)


def read(file: Path | None) -> Iterator[TunedPath]:
    """The choices in a file, as far as they can be read."""
    entries = device_files.read(file).get("choices")
    for entry in entries if isinstance(entries, list) else ():
        choice = TunedPath.from_json(entry)
        if choice is not None:
            yield choice


def record_descriptor(desc: OperatorDesc) -> None:
    """Add a descriptor, as a line of JSON, to the file that $DMLVK_RECORD names. `dmlvk tune --descriptors` reads it.

    Raises OSError: the file cannot be written, or holds something other than descriptors.
    """
    path = record_file()
    if path is not None:
        with files.open_to_write(path, append=True) as file:
            file.write(files.encoded(json.dumps(serialize(desc)) + "\n"))


def record_file() -> Path | None:
    """The file that $DMLVK_RECORD names; None if the variable is not set.

    Raises OSError: the file cannot be written, or holds something other than descriptors.
    """
    name = os.environ.get("DMLVK_RECORD")
    if not name:
        return None
    path = Path(name)
    try:
        files.require_own(path, _require_descriptors)
    except OSError as error:
        raise files.FileError(f"DMLVK_RECORD: {error}") from error
    return path


def _require_descriptors(path: Path) -> None:
    if not files.first_bytes(path, len(RECORD_START)).startswith(RECORD_START):
        raise files.FileError("it holds something other than descriptors")
