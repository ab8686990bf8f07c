"""The fastest kernel paths that `dmlvk tune` has found, remembered for each device in the cache folder.

A choice applies to exactly one descriptor on exactly one device, driver and set of kernels. Planning knows nothing of
these choices: the runtime asks for a plan by the remembered path. A file, or a part of one, that cannot be read is
ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import filelock

from dmlvk import files
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import OperatorDesc
from dmlvk.operators.serialization import serialize
from dmlvk.vulkan.pipeline_cache import LOCK_TIMEOUT_SECONDS, cache_folder

FORMAT = 1
PREFIX = "choices-"
FILE_NAME = re.compile(PREFIX + r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]{8}\.json")
# Each line of the file that $DMLVK_RECORD names begins with this.
RECORD_START = b'{"operator": "'


@dataclass(frozen=True)
class TunedPath:
    """The result of tuning one descriptor.

    Attributes
    ----------
    descriptor : mapping
        Its record: see `dmlvk.operators.serialization`.
    driver, kernels : str
        The driver and kernels of the measurement; other drivers and other kernels do not use the choice.
    path : str, optional
        The fastest kernel path; None if it is the planner's own choice.
    seconds : mapping of str to float
        Median seconds of each measured path; "planner" is the planner's choice.
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

    Attributes
    ----------
    file : Path
    device, driver, kernels : str
        A choice must be for this device, driver and set of kernels.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self.device = profile.name
        self.driver = f"{profile.driver_name} {profile.driver_info} {profile.driver_version:x}"
        self.kernels = kernels_hash()
        name = hashlib.sha256(profile.name.encode()).hexdigest()[:8]
        self.file = cache_folder() / f"{PREFIX}{profile.vendor_id:x}-{profile.device_id:x}-{name}.json"
        self._paths: dict[str, str] | None = None

    def path(self, desc: OperatorDesc) -> str | None:
        """The kernel path remembered for a descriptor; None if the planner must choose."""
        paths = self._paths
        if paths is None:  # several threads may get here; they read the same
            current = (choice for choice in read(self.file) if self.is_current(choice) and choice.path is not None)
            paths = self._paths = {key_of(choice.descriptor): str(choice.path) for choice in current}
        return paths.get(key_of(serialize(desc))) if paths else None

    def is_current(self, choice: TunedPath) -> bool:
        """Whether a choice was made with this driver and these kernels."""
        return (choice.driver, choice.kernels) == (self.driver, self.kernels)

    def require_place(self) -> None:
        """Raise an OSError, before any work, if it can be foreseen that the file cannot be written."""
        files.require_folder_place(self.file.parent)
        files.require_replaceable(self.file)

    def remember(self, desc: OperatorDesc, path: str | None, seconds: Mapping[str, float]) -> None:
        """Write a descriptor's result in place of its earlier one, and drop results that are out of date.

        Raises
        ------
        OSError
            The folder cannot be written; the file's path is taken by something other than a file; or another process
            holds the file for too long.
        """
        made = TunedPath(serialize(desc), self.driver, self.kernels, path, seconds)
        key = key_of(made.descriptor)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.file):
            kept = [each for each in read(self.file) if self.is_current(each) and key_of(each.descriptor) != key]
            _write(self.file, self.device, [*kept, made])
        self._paths = None


@cache
def kernels_hash() -> str:
    """A hash over all compiled kernels."""
    return hashlib.sha256(resources.files("dmlvk").joinpath("spirv", "manifest.json").read_bytes()).hexdigest()[:16]


def key_of(record: Mapping[str, Any]) -> str:
    """A key that equal descriptors share: the record without the fill value, which makes no plan faster."""
    return json.dumps({name: value for name, value in record.items() if name != "value"}, sort_keys=True)


def remembered_files() -> list[Path]:
    """The files of all devices. Entries with another kind of name, and entries that are not files, are left out."""
    found = cache_folder().glob(f"{PREFIX}*.json")
    return sorted(file for file in found if FILE_NAME.fullmatch(file.name) and file.is_file())


def device_of(file: Path) -> str:
    """The name of the device that a file is for."""
    content = _content(file)
    return str(content.get("device", "unknown device"))


def read(file: Path) -> Iterator[TunedPath]:
    """The choices in a file, as far as they can be read."""
    entries = _content(file).get("choices")
    for entry in entries if isinstance(entries, list) else ():
        choice = TunedPath.from_json(entry)
        if choice is not None:
            yield choice


def clear(file: Path) -> None:
    """Forget a device's choices."""
    with _locked(file):
        file.unlink(missing_ok=True)


def record_descriptor(desc: OperatorDesc) -> None:
    """Add a descriptor, as a line of JSON, to the file that $DMLVK_RECORD names. `dmlvk tune --descriptors` reads it.

    Raises
    ------
    OSError
        The file cannot be written, or holds something other than descriptors.
    """
    path = record_file()
    if path is not None:
        with files.open_to_write(path, append=True) as file:
            file.write(files.encoded(json.dumps(serialize(desc)) + "\n"))


def record_file() -> Path | None:
    """The file that $DMLVK_RECORD names; None if the variable is not set.

    Raises
    ------
    OSError
        The file cannot be written, or holds something other than descriptors.
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


def _content(file: Path) -> Mapping[str, Any]:
    try:
        content = files.read_json(file)
    except OSError:
        return {}
    return content if isinstance(content, dict) and content.get("format") == FORMAT else {}


def _locked(file: Path) -> filelock.BaseFileLock:
    return filelock.FileLock(f"{file}.lock", timeout=LOCK_TIMEOUT_SECONDS)


def _write(file: Path, device: str, choices: list[TunedPath]) -> None:
    content = {"format": FORMAT, "device": device, "choices": [choice.to_json() for choice in choices]}
    files.replace_bytes(file, files.encoded(json.dumps(content, indent=1)))
