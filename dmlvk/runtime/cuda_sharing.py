"""Memory that a device shares with CUDA on the same GPU, and the order of the work of both, with no host in between.

CUDA imports the blocks of Vulkan's memory, and two timeline semaphores. CUDA signals `ready` before a submission that
uses shared memory: the submission waits for the work of the streams so far. The submission signals `done`, and the
later work of the streams waits for it. So a submission takes its place in the order of torch's current stream.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, ref

from dmlvk.data_type import DataType
from dmlvk.errors import DeviceError
from dmlvk.runtime import dlpack
from dmlvk.runtime.array_protocol import ArrayProtocol
from dmlvk.runtime.cuda_driver import (
    LEGACY_STREAM,
    CudaContext,
    ImportedMemory,
    ImportedTimeline,
    OrderedSignals,
    context_of,
    copy,
    current_streams,
    is_finalizing,
    new_event,
    ordinal_of,
    record,
    uuid_of,
    wait_for_event,
)
from dmlvk.runtime.dlpack import DL_CUDA
from dmlvk.runtime.engine import Engine
from dmlvk.tensor_desc import TensorDesc
from dmlvk.vulkan.allocation import Allocation
from dmlvk.vulkan.blocks import MemoryBlock
from dmlvk.vulkan.device import VulkanDevice
from dmlvk.vulkan.interrupts.monitor import Monitor
from dmlvk.vulkan.memory_use import Crossing, MemoryUse, SemaphoreValue

Streams: TypeAlias = tuple[Any, ...]
# A copy of an array with gaps also copies the gaps. Above this many times the elements, the other library packs first.
LARGEST_SPAN = 4


class CudaView:
    """The holder of an allocation that a CUDA library uses. While there is one, submissions take CUDA's order.

    Each export has a view of its own: a view that two threads share could be dropped by one while the other takes it.
    """

    def __init__(self, sharing: CudaSharing, memory: Allocation, block: ImportedMemory) -> None:
        self._sharing = sharing
        self._memory = memory
        self._block = block
        if memory.access.sharers is None:
            memory.access.sharers = set()
        memory.access.sharers.add(id(self))

    def __del__(self) -> None:
        if is_finalizing is None or is_finalizing():  # the process ends, and the modules with it
            return
        # CUDA's failure here has nobody to be told to; the next call that needs CUDA meets it again.
        with suppress(DeviceError):
            self._sharing.note_release()
        if self._memory.access.sharers is not None:
            self._memory.access.sharers.discard(id(self))


class CudaSharing:
    """What one device shares with CUDA. It is the device's partner: see `dmlvk.vulkan.memory_use`.

    ordinal: the number of the CUDA device on the same GPU.
    """

    def __init__(self, vulkan: VulkanDevice, ordinal: int) -> None:
        self.ordinal = ordinal
        self._vulkan = ref(vulkan)
        self._context: CudaContext = context_of(ordinal)
        self._ready, ready = vulkan.timeline_for_export()
        self._signals = OrderedSignals(self._context, ImportedTimeline(self._context, ready))
        self._done, done = vulkan.timeline_for_export()
        self._imported_done = ImportedTimeline(self._context, done)
        self._ready_value = 0
        # The latest value of `done` that a submission was given, and the latest one that surely is signalled. An
        # exception may end a submission between the two, and no value may be signalled twice.
        self._done_given = 0
        self._done_value = 0
        # By queue, the value of `ready` for which its submissions have waited.
        self._waited: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._streams: Streams = ()
        # Events after the last work on memory that CUDA has given back.
        self._released: deque[Any] = deque()
        self._blocks: WeakKeyDictionary[MemoryBlock, ImportedMemory] = WeakKeyDictionary()
        self._stream_objects: dict[int, Any] = {}

    def before_submission(self, queue: object, uses: Collection[MemoryUse]) -> Crossing | None:
        """The crossing of a submission: after the streams' work if it uses shared memory."""
        is_shared = any(access.sharers for access in uses)
        if not is_shared and not self._released and self._waited.get(queue, 0) == self._ready_value:
            return None
        with self._context.current() as driver:
            if is_shared or self._released:
                self._signal_ready(driver)
        signal: SemaphoreValue | None = None
        if is_shared:
            self._done_given += 1
            signal = SemaphoreValue(self._done.array, self._done_given)
        return Crossing(SemaphoreValue(self._ready.array, self._ready_value), signal)

    def after_submission(self, queue: object, crossing: Crossing) -> None:
        """Let the streams wait for the submission."""
        self._waited[queue] = max(self._waited.get(queue, 0), crossing.wait.value)
        if crossing.signal is None:
            return
        self._done_value = crossing.signal.value
        with self._context.current() as driver:
            for stream in self._streams:
                self._imported_done.wait(driver, self._done_value, stream)

    def _signal_ready(self, driver: Any) -> None:
        """Signal the next value of `ready` after the work of the current streams and of released memory."""
        self._streams = tuple(map(self._stream, current_streams(self.ordinal)))
        first, *others = self._streams
        for stream in others:
            event = new_event(driver)
            record(driver, event, stream)
            self._released.append(event)
        while self._released:
            event = self._released.popleft()
            wait_for_event(driver, event, first)
            # CUresult cuEventDestroy(CUevent hEvent): CUDA destroys the event when the wait is over
            driver.cuEventDestroy(event)
        self._ready_value += 1
        self._signals.signal(driver, self._ready_value, first)

    def note_release(self) -> None:
        """A consumer is done with its memory, though its streams may not be. Called by finalizers; takes no lock."""
        with self._context.current() as driver:
            for handle in current_streams(self.ordinal):
                event = new_event(driver)
                record(driver, event, driver.CUstream(handle))
                self._released.append(event)

    def _stream(self, handle: int) -> Any:
        found = self._stream_objects.get(handle)
        if found is None:
            with self._context.current() as driver:
                found = self._stream_objects[handle] = driver.CUstream(handle)
        return found

    def capsule(self, tensor: ArrayProtocol, stream: int | None) -> Any:
        """A DLPack capsule of a tensor. The later work of the consumer's stream waits for the work submitted so far."""
        memory = tensor.memory()
        vulkan = tensor.engine.vulkan
        view, address = vulkan.monitor.run(self._view, memory)
        vulkan.transfers.cross(memory)
        if stream != -1:
            vulkan.monitor.run(self._let_wait, stream or LEGACY_STREAM)
        return dlpack.capsule_of(tensor.desc, address + tensor.offset, (DL_CUDA, self.ordinal), view)

    def _let_wait(self, stream: int) -> None:
        with self._context.current() as driver:
            self._imported_done.wait(driver, self._done_value, self._stream(stream))

    def _view(self, memory: Allocation) -> tuple[CudaView, int]:
        """The view of an allocation in one segment, and its address. The device's monitor is entered."""
        (segment,) = memory.segments
        block = self._imported(segment.block)
        return CudaView(self, memory, block), block.address + segment.offset

    def _imported(self, block: MemoryBlock) -> ImportedMemory:
        """A block as CUDA sees it. From here on, submissions ask for CUDA's order."""
        vulkan = self._vulkan()
        assert vulkan is not None, "the tensor keeps its device"
        found = self._blocks.get(block)
        if found is None:
            found = ImportedMemory(self._context, vulkan.memory_handle(block), block.allocated_size)
            self._blocks[block] = found
        vulkan.join(self)
        return found

    def tensor(self, engine: Engine, values: Any) -> Any:
        """A tensor with the elements of another library's array on the same GPU; None if the host has to copy them."""
        # The copy runs on this stream, which the library makes wait for its own.
        stream = current_streams(self.ordinal)[0]
        source = dlpack.Import(values.__dlpack__(stream=stream))
        try:
            desc = _desc_of(source)
            if desc is None:
                return None
            tensor = engine.device.tensor(desc)
            engine.vulkan.monitor.run(self._copy, source.address, tensor, stream)
        finally:
            source.release()
        return tensor

    def _copy(self, source: int, tensor: ArrayProtocol, stream: int) -> None:
        memory = tensor.memory()
        size = _span(tensor.desc.sizes, tensor.desc.element_strides) * tensor.desc.data_type.size_in_bytes
        with self._context.current() as driver:
            for segment, start, length in memory.pieces(tensor.offset, size):
                place = self._imported(segment.block).address + segment.offset + start
                copy(driver, place, source, length, self._stream(stream))
                source += length
        # For later submissions, the copy is work on memory that CUDA has given back.
        self.note_release()


_monitor = Monitor()


def sharing_of(engine: Engine) -> CudaSharing:
    """The sharing of a device with CUDA, made at the first call.

    Raises DeviceError: there is none: the message says why.
    """
    return engine.cuda_sharing or _monitor.run(_share, engine)


def _share(engine: Engine) -> CudaSharing:
    found = engine.cuda_sharing
    if found is None:
        engine.require_open()
        if not engine.vulkan.context.configuration.exports_memory:
            raise DeviceError(f"{engine.name}: CUDA shares memory with NVIDIA's own driver alone")
        ordinal = ordinal_of(engine.vulkan.context.physical.uuid)
        if ordinal is None:
            raise DeviceError(f"{engine.name}: CUDA does not see this GPU: see $CUDA_VISIBLE_DEVICES")
        found = engine.cuda_sharing = CudaSharing(engine.vulkan, ordinal)
    return found


def is_on_gpu_of(engine: Engine, ordinal: int) -> bool:
    """Whether a CUDA device is the GPU of a device."""
    return uuid_of(ordinal) == engine.vulkan.context.physical.uuid


def _desc_of(source: dlpack.Import) -> TensorDesc | None:
    """The layout of an array; None if a copy of its span would be far larger than its elements, or strides are odd."""
    sizes, strides = source.sizes or (1,), source.strides or (1,)
    if any(stride < 0 for size, stride in zip(sizes, strides, strict=True) if size > 1):
        return None
    used = tuple(stride if size > 1 else 1 for size, stride in zip(sizes, strides, strict=True))
    desc = TensorDesc(DataType.from_numpy(source.dtype), sizes, used)
    return desc if _span(sizes, used) <= LARGEST_SPAN * desc.element_count else None


def _span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one in memory, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _after_fork_in_child() -> None:
    _monitor.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
