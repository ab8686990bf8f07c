"""The files in the cache folder that hold what is remembered of a device: one of each kind for each device.

The start of a file's name tells its kind. What cannot be read holds nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmlvk import files
from dmlvk.device_profile import DeviceProfile
from dmlvk.file_lock import FileLock
from dmlvk.vulkan.pipeline_cache import LOCK_TIMEOUT_SECONDS, cache_folder

FORMAT = 1
NAME_END = r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]{8}\.json"


def device_file(prefix: str, profile: DeviceProfile) -> Path:
    """The file of a device, which need not exist."""
    name = hashlib.sha256(profile.name.encode()).hexdigest()[:8]
    return cache_folder() / f"{prefix}{profile.vendor_id:x}-{profile.device_id:x}-{name}.json"


def driver_of(profile: DeviceProfile) -> str:
    """A device's driver and its version: what is remembered holds for this driver alone."""
    return f"{profile.driver_name} {profile.driver_info} {profile.driver_version:x}"


def remembered_files(prefix: str) -> list[Path]:
    """The files of all devices. Entries with another kind of name, and entries that are not files, are left out."""
    names = re.compile(re.escape(prefix) + NAME_END)
    found = cache_folder().glob(f"{prefix}*.json")
    return sorted(file for file in found if names.fullmatch(file.name) and file.is_file())


def read(file: Path) -> Mapping[str, Any]:
    """What a file holds; nothing if it is of another format or cannot be read."""
    try:
        content = files.read_json(file)
    except OSError:
        return {}
    return content if isinstance(content, dict) and content.get("format") == FORMAT else {}


def device_of(file: Path) -> str:
    """The name of the device that a file is for."""
    return str(read(file).get("device", "unknown device"))


def require_place(file: Path) -> None:
    """Raise an OSError, before any work, if it can be foreseen that a file cannot be written."""
    files.require_folder_place(file.parent)
    files.require_replaceable(file)


def locked(file: Path) -> FileLock:
    """A lock that keeps other processes from changing a file. Its folder is made if it is not there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(Path(f"{file}.lock"), LOCK_TIMEOUT_SECONDS)


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Replace a file, which the caller has locked."""
    files.replace_bytes(file, files.encoded(json.dumps({"format": FORMAT, **content}, indent=1)))


def clear(file: Path) -> None:
    """Forget what a file holds."""
    with locked(file):
        file.unlink(missing_ok=True)
