"""The few calls of CUDA's driver that sharing memory takes, by NVIDIA's package cuda-bindings (extra `cuda`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from typing import Any

from dmlvk.errors import DeviceError

ON_WINDOWS = sys.platform == "win32"
# Kept here: as the process ends, a finalizer may find no modules any more.
is_finalizing = sys.is_finalizing
INSTALL_HINT = 'CUDA is reached through NVIDIA\'s package cuda-bindings: pip install "dmlvk[cuda]"'
# The stream that programs use without naming one, as CUDA's arguments name it: CU_STREAM_LEGACY.
LEGACY_STREAM = 1
EVENT_WITHOUT_TIME = 2  # CU_EVENT_DISABLE_TIMING


@lru_cache(maxsize=1)
def cuda() -> Any:
    """The module cuda.bindings.driver, with CUDA initialized.

    Raises DeviceError: the package is missing, or CUDA has no driver or no device.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(INSTALL_HINT) from error
    # CUresult cuInit(unsigned int Flags)
    check("cuInit", driver.cuInit(0))
    return driver


def check(name: str, result: tuple[Any, ...]) -> Any:
    """The value of a call of CUDA's driver; cuda-bindings returns the CUresult before it.

    Raises DeviceError: the call failed.
    """
    if int(result[0]) != 0:
        raise DeviceError(f"CUDA: {name} returned {result[0].name}")
    return result[1] if len(result) == 2 else result[1:]


def ordinal_of(uuid: bytes) -> int | None:
    """The number of the CUDA device with a UUID; None if this process sees no such device ($CUDA_VISIBLE_DEVICES)."""
    driver = cuda()
    # CUresult cuDeviceGetCount(int* count)
    for ordinal in range(check("cuDeviceGetCount", driver.cuDeviceGetCount())):
        if uuid_of(ordinal) == uuid:
            return ordinal
    return None


def uuid_of(ordinal: int) -> bytes:
    """The UUID of a CUDA device."""
    driver = cuda()
    # CUresult cuDeviceGet(CUdevice* device, int ordinal)
    device = check("cuDeviceGet", driver.cuDeviceGet(ordinal))
    # CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev)
    return bytes(check("cuDeviceGetUuid", driver.cuDeviceGetUuid(device)).bytes)


class CudaContext:
    """The context of a CUDA device that torch, CuPy and CUDA's runtime use too: its primary one."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self._driver = driver = cuda()
        device = check("cuDeviceGet", driver.cuDeviceGet(ordinal))
        # CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev): kept until the process ends
        self._context = check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(device))

    @contextmanager
    def current(self) -> Iterator[Any]:
        """CUDA's driver with this context as the thread's own."""
        driver = self._driver
        # CUresult cuCtxPushCurrent(CUcontext ctx)
        check("cuCtxPushCurrent", driver.cuCtxPushCurrent(self._context))
        try:
            yield driver
        finally:
            # CUresult cuCtxPopCurrent(CUcontext* pctx)
            driver.cuCtxPopCurrent()


@cache
def context_of(ordinal: int) -> CudaContext:
    """The context of a CUDA device."""
    return CudaContext(ordinal)


@contextmanager
def _given_back_on_failure(handle: int) -> Iterator[None]:
    """Close a file descriptor that CUDA did not come to own."""
    try:
        yield
    except DeviceError:
        if not ON_WINDOWS:
            os.close(handle)
        raise


class ImportedMemory:
    """A block of Vulkan's memory as CUDA sees it. CUDA keeps the memory, whatever Vulkan frees.

    address: as CUDA counts addresses.
    """

    def __init__(self, context: CudaContext, handle: int, size: int) -> None:
        self._context = context
        self._memory: Any = None
        self.address = 0
        with context.current() as driver:
            kinds = driver.CUexternalMemoryHandleType
            description = driver.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
            description.size = size
            if ON_WINDOWS:
                description.type = kinds.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32
                description.handle.win32.handle = handle
            else:
                description.type = kinds.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
                description.handle.fd = handle  # CUDA owns it from here on
            # CUresult cuImportExternalMemory(CUexternalMemory* extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*
            #     memHandleDesc)
            with _given_back_on_failure(handle):
                self._memory = check("cuImportExternalMemory", driver.cuImportExternalMemory(description))
            buffer = driver.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
            buffer.size = size
            # CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* devPtr, CUexternalMemory extMem, const
            #     CUDA_EXTERNAL_MEMORY_BUFFER_DESC* bufferDesc)
            pointer = driver.cuExternalMemoryGetMappedBuffer(self._memory, buffer)
            self.address = int(check("cuExternalMemoryGetMappedBuffer", pointer))

    def __del__(self) -> None:
        # In a forked child, where CUDA does not work, there is nothing to give back.
        if is_finalizing is None or is_finalizing() or self._memory is None:
            return
        with suppress(DeviceError), self._context.current() as driver:
            if self.address:
                # CUresult cuMemFree(CUdeviceptr dptr)
                driver.cuMemFree(self.address)
            # CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
            driver.cuDestroyExternalMemory(self._memory)


class ImportedTimeline:
    """A timeline semaphore of Vulkan's as CUDA sees it."""

    def __init__(self, context: CudaContext, handle: int) -> None:
        self._context = context
        self._semaphore: Any = None
        with context.current() as driver:
            kinds = driver.CUexternalSemaphoreHandleType
            description = driver.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
            if ON_WINDOWS:
                description.type = kinds.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32
                description.handle.win32.handle = handle
            else:
                description.type = kinds.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
                description.handle.fd = handle  # CUDA owns it from here on
            # CUresult cuImportExternalSemaphore(CUexternalSemaphore* extSem_out, const
            #     CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* semHandleDesc)
            with _given_back_on_failure(handle):
                self._semaphore = check("cuImportExternalSemaphore", driver.cuImportExternalSemaphore(description))
            self._signal = driver.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()
            self._wait = driver.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()

    def signal(self, driver: Any, value: int, stream: Any) -> None:
        """Signal a value when the work of a stream so far is done."""
        self._signal.params.fence.value = value
        # CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore* extSemArray, const
        #     CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* paramsArray, unsigned int numExtSems, CUstream stream)
        done = driver.cuSignalExternalSemaphoresAsync([self._semaphore], [self._signal], 1, stream)
        check("cuSignalExternalSemaphoresAsync", done)

    def wait(self, driver: Any, value: int, stream: Any) -> None:
        """Let the later work of a stream wait for a value."""
        self._wait.params.fence.value = value
        # CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore* extSemArray, const
        #     CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* paramsArray, unsigned int numExtSems, CUstream stream)
        done = driver.cuWaitExternalSemaphoresAsync([self._semaphore], [self._wait], 1, stream)
        check("cuWaitExternalSemaphoresAsync", done)

    def __del__(self) -> None:
        if is_finalizing is None or is_finalizing() or self._semaphore is None:
            return
        with suppress(DeviceError), self._context.current() as driver:
            # CUresult cuDestroyExternalSemaphore(CUexternalSemaphore extSem)
            driver.cuDestroyExternalSemaphore(self._semaphore)


class OrderedSignals:
    """Signals of one timeline by any streams, in the order of their values: a timeline's value may only grow."""

    def __init__(self, context: CudaContext, timeline: ImportedTimeline) -> None:
        self._context = context
        self._timeline = timeline
        self._last: int | None = None
        with context.current() as driver:
            # The event after the latest signal. Its stream may be gone.
            self._signalled = new_event(driver)

    def signal(self, driver: Any, value: int, stream: Any) -> None:
        """Signal a value when the work of a stream so far, and the signal before, are done."""
        if self._last not in (None, int(stream)):
            wait_for_event(driver, self._signalled, stream)
        self._timeline.signal(driver, value, stream)
        record(driver, self._signalled, stream)
        self._last = int(stream)

    def __del__(self) -> None:
        if is_finalizing is None or is_finalizing() or not hasattr(self, "_signalled"):
            return
        with suppress(DeviceError), self._context.current() as driver:
            # CUresult cuEventDestroy(CUevent hEvent)
            driver.cuEventDestroy(self._signalled)


def new_event(driver: Any) -> Any:
    """An event that marks a place in a stream."""
    # CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags)
    return check("cuEventCreate", driver.cuEventCreate(EVENT_WITHOUT_TIME))


def record(driver: Any, event: Any, stream: Any) -> None:
    """Put an event after the work of a stream so far."""
    # CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
    check("cuEventRecord", driver.cuEventRecord(event, stream))


def wait_for_event(driver: Any, event: Any, stream: Any) -> None:
    """Let the later work of a stream wait for an event."""
    # CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
    check("cuStreamWaitEvent", driver.cuStreamWaitEvent(stream, event, 0))


def copy(driver: Any, destination: int, source: int, size: int, stream: Any) -> None:
    """Copy bytes from one address of the GPU to another, in the order of a stream."""
    # CUresult cuMemcpyDtoDAsync(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
    check("cuMemcpyDtoDAsync", driver.cuMemcpyDtoDAsync(destination, source, size, stream))


@contextmanager
def library_device(ordinal: int) -> Iterator[None]:
    """Make a CUDA device the current one of torch, which gives away memory of its current device alone."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or ordinal >= torch.cuda.device_count():
        yield
    else:
        with torch.cuda.device(ordinal):
            yield


def current_streams(ordinal: int) -> list[int]:
    """The streams on which the libraries of this process work now, by their handles: torch's and CuPy's current ones.

    A library that was not imported is not asked. With neither, it is CUDA's default stream.
    """
    found: list[int] = []
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        found.append(int(torch.cuda.current_stream(ordinal).cuda_stream))
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        with cupy.cuda.Device(ordinal):
            found.append(int(cupy.cuda.get_current_stream().ptr))
    # Both libraries call the default stream 0.
    return list(dict.fromkeys(stream or LEGACY_STREAM for stream in found)) or [LEGACY_STREAM]
