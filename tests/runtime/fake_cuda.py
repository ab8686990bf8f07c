"""A CUDA of the tests' own, beside a CPU driver: streams are threads, and semaphores are signalled by the host.

It stands for what `dmlvk.runtime.cuda_driver` calls, so that the order between dmlvk's submissions and another API's
work is tested without an NVIDIA GPU, and under the validation layer.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.device_profile import DeviceProfile
from dmlvk.runtime import cuda_sharing
from dmlvk.runtime.cuda_driver import OrderedSignals
from dmlvk.vulkan.blocks import MemoryBlock
from dmlvk.vulkan.device import VulkanDevice
from dmlvk.vulkan.external import timeline_for_export
from dmlvk.vulkan.handles import Handle
from dmlvk.vulkan.library import check, vk

ORDINAL = 3


class Stream:
    """Work that runs in order on a thread of its own, each piece a moment late, so that races show."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __int__(self) -> int:
        return self.handle

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            time.sleep(0.0005)
            try:
                work()
            except BaseException as error:
                self.errors.append(error)

    def put(self, work: Callable[[], None]) -> None:
        """Let a piece of work run after the earlier ones."""
        self._work.put(work)

    def synchronize(self) -> None:
        """Wait for the work so far."""
        done = threading.Event()
        self.put(done.set)
        assert done.wait(60), "a stream waits for ever"
        assert not self.errors, self.errors

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(60)


class Event:
    """A place in a stream."""

    def __init__(self) -> None:
        self.reached = threading.Event()


class Timeline:
    """A timeline semaphore that a stream signals and waits for by the host's functions."""

    def __init__(self, cuda: FakeCuda, handle: int) -> None:
        self._device, self._semaphore = cuda.exported[handle]
        self.signalled: list[int] = []

    def signal(self, _: Any, value: int, stream: Stream) -> None:
        def work() -> None:
            assert value > max(self.signalled, default=0), "a timeline's value only grows"
            self.signalled.append(value)
            information = vk.ffi.new("VkSemaphoreSignalInfo*")
            information.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO
            information.semaphore = self._semaphore
            information.value = value
            # VkResult vkSignalSemaphore(VkDevice device, const VkSemaphoreSignalInfo* pSignalInfo)
            check(vk.vkSignalSemaphore(self._device, information), "vkSignalSemaphore")

        stream.put(work)

    def wait(self, _: Any, value: int, stream: Stream) -> None:
        def work() -> None:
            semaphores = vk.ffi.new("VkSemaphore[1]", [self._semaphore])
            values = vk.ffi.new("uint64_t[1]", [value])
            information = vk.ffi.new("VkSemaphoreWaitInfo*")
            information.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO
            information.semaphoreCount = 1
            information.pSemaphores = semaphores
            information.pValues = values
            # VkResult vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo* pWaitInfo, uint64_t timeout)
            check(vk.vkWaitSemaphores(self._device, information, 60_000_000_000), "vkWaitSemaphores")

        stream.put(work)


class Memory:
    """A block of memory as this CUDA sees it: at the host's addresses."""

    def __init__(self, _: Any, handle: int, size: int) -> None:
        self.address = handle
        self.size = size


class FakeCuda:
    """The driver: its streams, and the current one."""

    def __init__(self) -> None:
        self.streams = {handle: Stream(handle) for handle in (1, 2, 77)}
        self.current = [1]
        self.exported: dict[int, tuple[Any, Any]] = {}

    def CUstream(self, handle: int) -> Stream:
        return self.streams[handle]

    def cuEventDestroy(self, event: Event) -> None:
        pass

    def run(self, work: Callable[[], None]) -> None:
        """Work of the library that shares the memory, on its current stream."""
        self.streams[self.current[0]].put(work)

    def synchronize(self) -> None:
        for stream in self.streams.values():
            stream.synchronize()

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()


class Context:
    """CUDA's context, which is nothing here."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    @contextmanager
    def current(self) -> Iterator[FakeCuda]:
        yield self._cuda


def _record(_: Any, event: Event, stream: Stream) -> None:
    event.reached = reached = threading.Event()
    stream.put(reached.set)


def _wait_for_event(_: Any, event: Event, stream: Stream) -> None:
    reached = event.reached
    stream.put(lambda: None if reached.wait(60) else pytest.fail("an event is never reached"))


def install(patch: pytest.MonkeyPatch) -> FakeCuda:
    """Put a FakeCuda in the place of CUDA for the time of a test. Devices have to be opened afterwards."""
    cuda = FakeCuda()

    def export(self: VulkanDevice) -> tuple[Handle, int]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr("dmlvk.vulkan.external.OPAQUE", 0)  # CPU drivers cannot export it
            semaphore = timeline_for_export(self.context)
        number = len(cuda.exported) + 1
        cuda.exported[number] = (self.context.handle, semaphore.value)
        return semaphore, number

    def address(self: VulkanDevice, block: MemoryBlock) -> int:
        assert block.mapped is not None
        return int(block.mapped.ctypes.data)

    def copy(_: Any, destination: int, source: int, size: int, stream: Stream) -> None:
        stream.put(lambda: np.copyto(at(destination, size), at(source, size)))

    patch.setattr(VulkanDevice, "timeline_for_export", export)
    patch.setattr(VulkanDevice, "memory_handle", address)
    patch.setattr(DeviceProfile, "runs_cuda", True)
    patch.setattr(cuda_sharing, "ordinal_of", lambda uuid: ORDINAL)
    patch.setattr(cuda_sharing, "is_on_gpu_of", lambda device, ordinal: ordinal == ORDINAL)
    patch.setattr(cuda_sharing, "context_of", lambda ordinal: Context(cuda))
    patch.setattr(cuda_sharing, "current_streams", lambda ordinal: list(cuda.current))
    patch.setattr(cuda_sharing, "ImportedTimeline", lambda context, handle: Timeline(cuda, handle))
    patch.setattr(cuda_sharing, "ImportedMemory", Memory)
    patch.setattr(cuda_sharing, "new_event", lambda driver: Event())
    patch.setattr(cuda_sharing, "copy", copy)
    for module in ("cuda_sharing", "cuda_driver"):
        patch.setattr(f"dmlvk.runtime.{module}.record", _record)
        patch.setattr(f"dmlvk.runtime.{module}.wait_for_event", _wait_for_event)
    patch.setattr("dmlvk.runtime.cuda_driver.new_event", lambda driver: Event())
    patch.setattr(OrderedSignals, "__del__", lambda self: None)
    return cuda


def at(address: int, size: int) -> np.ndarray:
    """Bytes of this process."""

    return np.asarray(SimpleNamespace(__array_interface__=interface(address, size)))


def interface(address: int, size: int) -> dict[str, Any]:
    """NumPy's array interface of bytes."""
    return {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}


class Array:
    """An array of the library that shares the memory: made of a capsule, or of memory of its own."""

    def __init__(self, elements: np.ndarray, owner: object = None) -> None:
        self.elements = elements
        self.owner = owner

    @classmethod
    def from_dlpack(cls, tensor: dmlvk.Tensor, stream: int) -> Array:
        from dmlvk.runtime.dlpack import Import

        assert tensor.__dlpack_device__() == (2, ORDINAL)
        found = Import(tensor.__dlpack__(stream=stream))
        size = found.dtype.itemsize
        span = 1 + sum((n - 1) * stride for n, stride in zip(found.sizes, found.strides, strict=True))
        memory = at(found.address, span * size)
        strides = [stride * size for stride in found.strides]
        return cls(np.ndarray(found.sizes, found.dtype, memory, strides=strides), found)

    def drop(self) -> None:
        """Give the memory back."""
        self.owner.release()  # type: ignore[attr-defined]

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, ORDINAL)

    def __dlpack__(self, *, stream: int) -> Any:
        from dmlvk.runtime.dlpack import NAME, DLManagedTensor, _pointer

        capsule = self.elements.__dlpack__()
        DLManagedTensor.from_address(_pointer(capsule, NAME)).dl_tensor.device.device_type = 2
        return capsule
