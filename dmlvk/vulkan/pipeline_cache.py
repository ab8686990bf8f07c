"""The pipeline cache on disk: one file for each device and driver. It is checked before use, and processes share it.

Modules that only the writing needs are imported when the file is written. A process that finds its pipelines in the
file never writes.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from pathlib import Path
from typing import Any

from dmlvk._common import files
from dmlvk._common.file_lock import FileLock
from dmlvk.errors import DeviceError, ValidationError
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.handles import Handle
from dmlvk.vulkan.interrupts.locks import RLock
from dmlvk.vulkan.library import VK_SUCCESS, structure, vk

# Values of $DMLVK_CACHE_DIR that are no folder: nothing is read or written. A folder of this name is "./off".
OFF = ("off", "none", "no", "false", "0")

# Magic, format version, vendor, device, driver version, pipelineCacheUUID; length and SHA-256 of the driver's data.
HEADER = struct.Struct("<8sIIII16sQ32s")
# A driver that keeps no pipelines, as those of CPUs, gives Vulkan's own header alone.
SIZE_WITHOUT_PIPELINES = HEADER.size + 32
MAGIC = b"dmlvk-pc"
FORMAT_VERSION = 1
LOCK_TIMEOUT_SECONDS = 5.0
# A cache that has grown beyond this number of bytes is saved, and an empty one takes its place; the same holds for the
# file. It takes thousands of different shapes.
LARGEST_SIZE = 64 << 20
# The number of pipelines after which the driver is asked for the cache's size.
SIZE_INTERVAL = 1024
# A pipeline that took less than this did not need the driver's compiler, so that there is nothing new to save.
SECONDS_OF_A_COMPILER = 0.01
# While pipelines are built, saving takes at most one part in this number of the time.
SAVING_SHARE = 10


def cache_folder() -> Path | None:
    """$DMLVK_CACHE_DIR, else the user's cache folder for dmlvk; None if the variable switches the cache off."""
    override = os.environ.get("DMLVK_CACHE_DIR", "").strip()
    if override.lower() in OFF:
        return None
    if override:
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_cache_dir("dmlvk", appauthor=False))


class CacheObject:
    """A VkPipelineCache, destroyed when nobody uses it any more.

    handle: VkPipelineCache. NULL after the device is destroyed.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Handle) -> None:
        self._owner = owner

    @property
    def handle(self) -> Any:
        return self._owner.value

    def __del__(self) -> None:
        self._owner.destroy()


class PipelineCache:
    """A VkPipelineCache that starts from the file of its device, and is merged into it.

    It is saved when a pipeline was compiled, unless saving would take much of the time, and when the device is closed.
    So a process that is ended loses at most what was compiled just before.

    Some drivers crash on caches of other versions or with flipped bits. So the driver gets the file's data only if the
    identity and the checksum in the header are right. Otherwise, and after any failure of the file system, the cache
    starts empty.

    loaded: the driver's data from the file.
    added: the number of pipelines built since the device was opened.
    """

    def __init__(self, context: Context) -> None:
        profile = context.physical.profile
        self._context = context
        self._uuid = context.physical.pipeline_cache_uuid
        self._identity = (profile.vendor_id, profile.device_id, profile.driver_version)
        stem = "-".join(f"{number:x}" for number in self._identity)
        folder = cache_folder()
        self.path = None if folder is None else folder / f"pipelines-{stem}-{self._uuid.hex()}.bin"
        self.added = 0
        self.loaded = self._read_file()
        self._current = CacheObject(self._create(self.loaded))
        # Those whose place `_current` took in `add`: other threads may have gone on building pipelines in them.
        self._earlier: list[CacheObject] = []
        # What the file holds, as far as this process knows, and how many of the pipelines were built before that.
        self._saved = self.loaded
        self._added_before_save = 0
        self._lock = RLock()
        self._next_save = 0.0

    @property
    def current(self) -> CacheObject:
        """The cache in use; whoever builds a pipeline keeps it alive meanwhile."""
        return self._current

    def _create(self, data: bytes) -> Handle:
        ffi = vk.ffi
        initial = ffi.from_buffer(data)
        information = structure("PipelineCacheCreateInfo", initialDataSize=len(data), pInitialData=initial)
        try:
            return self._context.handles.create("PipelineCache", information)
        except DeviceError:
            if not data:
                raise
            return self._create(b"")

    def _read_file(self) -> bytes:
        """The driver's data from the file; empty without a file, or if the file is damaged or another driver's."""
        if self.path is None:
            return b""
        try:
            content = files.read_bytes(self.path)
        except OSError:
            return b""
        if len(content) < HEADER.size:
            return b""
        magic, version, vendor, device, driver, uuid, length, digest = HEADER.unpack_from(content)
        data = content[HEADER.size :]
        if (
            (magic, version, uuid) != (MAGIC, FORMAT_VERSION, self._uuid)
            or (vendor, device, driver) != self._identity
            or length != len(data)
            or digest != hashlib.sha256(data).digest()
        ):
            return b""
        return data

    def data(self) -> bytes:
        """The driver's data of all pipelines built so far; empty if the driver has none to give."""
        with self._lock: return self._data_of_all()  # noqa: E701  # fmt: skip

    def _data_of_all(self) -> bytes:
        current = self._current
        if current.handle == vk.ffi.NULL or self._context.availability.is_lost:
            return b""
        try:
            return self._merged(b"", [current, *self._earlier]) if self._earlier else self._data(current.handle)
        except ValidationError:
            raise
        except DeviceError:
            return b""

    def add(self, data: bytes) -> None:
        """Add another Device's pipelines, of the same driver: see `data`. Nothing happens if the driver fails.

        Vulkan adds to a cache only while no thread uses it, so a new one takes the place of the current one.
        """
        if not data:
            return
        with self._lock:
            current = self._current
            if current.handle == vk.ffi.NULL or self._context.availability.is_lost:
                return
            try:
                target = CacheObject(self._create(data))
            except ValidationError:
                raise
            except DeviceError:
                return
            self._merge(target, [current, *self._earlier])
            self._earlier.append(current)
            self._current = target

    def count_addition(self) -> None:
        """Count a pipeline that was built. Called by one thread at a time."""
        self.added += 1
        if self.added % SIZE_INTERVAL == 0 and self._size(self._current.handle) > LARGEST_SIZE:
            self.save()
            self._saved = b""
            self._current, self._earlier = CacheObject(self._create(b"")), []

    def save_soon(self, build_seconds: float) -> None:
        """Save what was just compiled, unless that happened a moment ago. Called while the device stays open."""
        start = time.monotonic()
        if build_seconds < SECONDS_OF_A_COMPILER or start < self._next_save:
            return
        self.save(timeout=0)
        self._next_save = start + SAVING_SHARE * (time.monotonic() - start)

    def _size(self, cache: Any) -> int:
        size = vk.ffi.new("size_t*")
        # VkResult vkGetPipelineCacheData(VkDevice device, VkPipelineCache pipelineCache, size_t* pDataSize, void*
        #     pData)
        result = vk.vkGetPipelineCacheData(self._context.handle, cache, size, vk.ffi.NULL)
        return size[0] if result == VK_SUCCESS else 0

    def _data(self, cache: Any) -> bytes:
        ffi = vk.ffi
        size = ffi.new("size_t*", self._size(cache))
        if not size[0]:
            return b""
        data = ffi.new("char[]", max(1, size[0]))
        if vk.vkGetPipelineCacheData(self._context.handle, cache, size, data) != VK_SUCCESS:
            return b""
        return bytes(ffi.buffer(data, size[0]))

    def save(self, timeout: float = LOCK_TIMEOUT_SECONDS) -> None:
        """Merge the new pipelines into the file. Nothing happens without a writable folder, or if the driver fails.

        timeout: seconds to wait for other processes that write the file.
        """
        with self._lock: self._save(timeout)  # noqa: E701  # fmt: skip

    def _save(self, timeout: float) -> None:
        added, current = self.added, self._current
        # The handle is empty if an exception ended an earlier attempt to close the device.
        is_new = added != self._added_before_save
        if not is_new or current.handle == vk.ffi.NULL or self._context.availability.is_lost or self.path is None:
            return
        caches = [current, *self._earlier]
        try:
            data = self._merged(b"", caches) if self._earlier else self._data(current.handle)
        except ValidationError:
            raise
        except DeviceError:
            return
        if data in (b"", self._saved):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(Path(f"{self.path}.lock"), timeout):
                there = self._read_file()
                if there not in (b"", self._saved) and len(there) <= LARGEST_SIZE:
                    data = self._merged(there, caches)
                if data:
                    self._write_file(self.path, data)
                    self._saved = data
        except ValidationError:
            raise
        except (OSError, NotImplementedError, DeviceError):
            return
        self._added_before_save = added

    def _merged(self, other: bytes, caches: list[CacheObject]) -> bytes:
        """The caches' data with those that another process has written, merged in a cache that no thread uses."""
        target = CacheObject(self._create(other))
        self._merge(target, caches)
        return self._data(target.handle)

    def _merge(self, target: CacheObject, caches: list[CacheObject]) -> None:
        # VkResult vkMergePipelineCaches(VkDevice device, VkPipelineCache dstCache, uint32_t srcCacheCount, const
        #     VkPipelineCache* pSrcCaches)
        handles = [cache.handle for cache in caches]
        vk.vkMergePipelineCaches(self._context.handle, target.handle, len(handles), handles)

    def _write_file(self, path: Path, data: bytes) -> None:
        digest = hashlib.sha256(data).digest()
        header = HEADER.pack(MAGIC, FORMAT_VERSION, *self._identity, self._uuid, len(data), digest)
        files.replace_bytes(path, header + data)
