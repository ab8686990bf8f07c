"""The files in the cache folder that hold what is remembered of a device: one of each kind for each device.

The start of a file's name tells its kind. What cannot be read holds nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dmlvk._common import files
from dmlvk._common.file_lock import FileLock
from dmlvk.device_profile import DeviceProfile
from dmlvk.vulkan.pipeline_cache import LOCK_TIMEOUT_SECONDS, SIZE_WITHOUT_PIPELINES, cache_folder

FORMAT = 1
NAME_END = r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]{8}\.json"


def device_file(prefix: str, profile: DeviceProfile) -> Path | None:
    """The file of a device, which need not exist; None if the cache is switched off."""
    folder = cache_folder()
    name = hashlib.sha256(files.encoded(profile.name)).hexdigest()[:8]
    return None if folder is None else folder / f"{prefix}{profile.vendor_id:x}-{profile.device_id:x}-{name}.json"


def cached() -> tuple[int, int]:
    """How many files of the cache folder hold something, and their bytes. Locks, and drivers' bare headers, do not."""
    folder = cache_folder()
    sizes = []
    with suppress(OSError):
        for file in () if folder is None else folder.iterdir():
            size = file.stat().st_size if file.is_file() and file.suffix in (".bin", ".json") else 0
            if size > (SIZE_WITHOUT_PIPELINES if file.suffix == ".bin" else 0):
                sizes.append(size)
    return len(sizes), sum(sizes)


def driver_of(profile: DeviceProfile) -> str:
    """A device's driver and its version: what is remembered holds for this driver alone."""
    return f"{profile.driver_name} {profile.driver_info} {profile.driver_version:x}"


def remembered_files(prefix: str) -> list[Path]:
    """The files of all devices. Entries with another kind of name, and entries that are not files, are left out."""
    names = re.compile(re.escape(prefix) + NAME_END)
    folder = cache_folder()
    found = () if folder is None else folder.glob(f"{prefix}*.json")
    return sorted(file for file in found if names.fullmatch(file.name) and file.is_file())


def read(file: Path | None) -> Mapping[str, Any]:
    """What a file holds; nothing if it is of another format or cannot be read, or there is none."""
    if file is None:
        return {}
    try:
        content = files.read_json(file)
    except OSError:
        return {}
    return content if isinstance(content, dict) and content.get("format") == FORMAT else {}


def device_of(file: Path) -> str:
    """The name of the device that a file is for."""
    return str(read(file).get("device", "unknown device"))


def require_place(file: Path | None) -> Path:
    """The file; raises an OSError, before any work, if it can be foreseen that it cannot be written."""
    if file is None:
        raise files.FileError("nothing can be remembered: the cache is switched off by DMLVK_CACHE_DIR")
    files.require_folder_place(file.parent)
    files.require_replaceable(file)
    return file


def locked(file: Path) -> FileLock:
    """A lock that keeps other processes from changing a file. Its folder is made if it is not there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(Path(f"{file}.lock"), LOCK_TIMEOUT_SECONDS)


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Replace a file, which the caller has locked."""
    files.replace_bytes(file, files.encoded(files.json_text({"format": FORMAT, **content}, 1)))


def clear(file: Path) -> None:
    """Forget what a file holds."""
    with locked(file):
        file.unlink(missing_ok=True)
