"""Claims on the devices of a host: each device belongs to at most one worker of a cluster.

A claim is a locked file. The operating system releases the lock when the process ends, however it ends, so a worker
that takes the place of a dead one finds the device free, and no two processes can hold it.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dmlvk.errors import DeviceError
from dmlvk.runtime.device_info import DeviceInfo, best_devices, chosen, devices
from dmlvk.vulkan.physical_device import physical_devices

ALL, BEST = "all", "best"
# The age at which a cluster's locks are removed, if nobody holds one.
SWEPT_SECONDS = 24 * 3600.0


class Claim:
    """A device that belongs to this process until it is released.

    name: by which all processes of the host know the device.
    """

    def __init__(self, info: DeviceInfo, name: str, lock: FileLock) -> None:
        self.info = info
        self.name = name
        self._lock = lock

    def release(self) -> None:
        """Let another process have the device. May be repeated."""
        self._lock.release()


def wanted(request: str | Sequence[int | str | DeviceInfo] | None) -> list[DeviceInfo]:
    """The devices of this host that a cluster is to use, in the order in which workers take them.

    request: "best", "all", sequence of int, str or DeviceInfo, or None. "best" is each device of the best kind: see
        `best_devices`. A sequence has selectors, as `Device` takes them; those that this host lacks are passed over.
        None is $DMLVK_DEVICE, or "best" if that is not set.
    Raises DeviceError: the host has none of them; the message says what it has.
    """
    if request == ALL:
        return devices() or best_devices()
    if request == BEST or (request is None and not os.environ.get("DMLVK_DEVICE")):
        return best_devices()
    found: dict[int, DeviceInfo] = {}
    failure: DeviceError | None = None
    known = devices()
    handles = [device.handle for device in physical_devices()]
    for selector in [None] if request is None else request:
        try:
            index = handles.index(chosen(selector).handle)
        except DeviceError as error:
            failure = error
        else:
            found[index] = known[index]
    if failure is not None and not found:
        raise failure
    return list(found.values())


def claim(infos: Sequence[DeviceInfo], cluster: str) -> Claim | None:
    """The first of some devices that no other worker of a cluster has, claimed for this one; None if all are taken.

    cluster: identifies the cluster: workers of two clusters on one host may have the same device.
    Raises OSError: the locks cannot be written.
    """
    folder = lock_folder(cluster)
    for info, name in zip(infos, _names(infos), strict=True):
        lock = FileLock(folder / f"{name}.lock", timeout=0, thread_local=False)
        with suppress(Timeout):
            lock.acquire()
            return Claim(info, name, lock)
    return None


def _names(infos: Sequence[DeviceInfo]) -> list[str]:
    """Names by which all processes of the host know the devices, even those that see only a part of them."""
    physical = physical_devices()
    seen: Counter[str] = Counter()
    names = []
    for info in infos:
        facts = f"{physical[info.index].uuid.hex()} {info.name} {info.driver}"
        name = hashlib.sha256(facts.encode()).hexdigest()[:24]
        names.append(f"{name}-{seen[name]}")
        seen[name] += 1
    return names


def lock_folder(cluster: str) -> Path:
    """A folder of this user's for the locks of a cluster, on a file system of this host."""
    user = hashlib.sha256(getpass.getuser().encode()).hexdigest()[:8] if os.name == "nt" else str(os.getuid())
    own = Path(tempfile.gettempdir()) / f"dmlvk-{user}"
    own.mkdir(mode=0o700, exist_ok=True)
    if os.name != "nt":
        status = own.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{own} belongs to another user: the locks of devices cannot be kept there")
    folder = own / f"cluster-{hashlib.sha256(cluster.encode()).hexdigest()[:24]}"
    if not folder.exists():
        _sweep(own)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _sweep(own: Path) -> None:
    """Remove the locks of clusters that ended long ago."""
    latest = time.time() - SWEPT_SECONDS
    for folder in own.glob("cluster-*"):
        # A cluster that still runs holds a lock. What another process removes at the same time is no error.
        with suppress(OSError, Timeout), ExitStack() as held:
            if folder.stat().st_mtime < latest:
                paths = list(folder.glob("*.lock"))
                for path in paths:
                    held.enter_context(FileLock(path, timeout=0))
                for path in paths:
                    path.unlink()
                folder.rmdir()
