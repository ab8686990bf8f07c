"""Bindings put into command buffers, with barriers where one depends on another; and sequences, which are replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS
from dmlvk.runtime.binding import Binding, MemoryRange
from dmlvk.runtime.submission import Submission, TimestampQueries, Timing
from dmlvk.vulkan.recording import ONE_TIME_SUBMIT, SIMULTANEOUS_USE, Recorder

if TYPE_CHECKING:
    from dmlvk.runtime.device import Device
    from dmlvk.vulkan.device import VulkanDevice


class Hazards:
    """The memory that dispatches since the last barrier have read and written."""

    def __init__(self) -> None:
        self._reads: dict[int, list[MemoryRange]] = {}
        self._writes: dict[int, list[MemoryRange]] = {}

    def needs_barrier(self, binding: Binding) -> bool:
        """Whether the binding reads or overwrites what was written, or overwrites what was read."""
        return any(self._hits(self._writes, place) for place in binding.reads) or any(
            self._hits(self._writes, place) or self._hits(self._reads, place) for place in binding.writes
        )

    @staticmethod
    def _hits(places: dict[int, list[MemoryRange]], place: MemoryRange) -> bool:
        return any(place.overlaps(other) for other in places.get(id(place.memory), ()))

    def add(self, binding: Binding) -> None:
        """Remember what the binding reads and writes."""
        for place in binding.reads:
            self._reads.setdefault(id(place.memory), []).append(place)
        for place in binding.writes:
            self._writes.setdefault(id(place.memory), []).append(place)

    def clear(self) -> None:
        """There was a barrier."""
        self._reads.clear()
        self._writes.clear()


class CommandWriter:
    """Records bindings into as many command buffers as keep each one's running time below the watchdogs' patience."""

    def __init__(self, vulkan: VulkanDevice, flags: int, queries: TimestampQueries | None) -> None:
        self._vulkan = vulkan
        self._flags = flags
        self._queries = queries
        self._recorder: Recorder | None = None
        self._seconds = 0.0
        self._query = 0
        self._hazards = Hazards()

    def write(self, bindings: Iterable[Binding], emit: Callable[[Any], None]) -> None:
        """Record all bindings; `emit` gets each command buffer as soon as it is finished."""
        for binding in bindings:
            if self._recorder is not None and self._hazards.needs_barrier(binding):
                self._recorder.between_dispatches()
                self._hazards.clear()
            for number, (stage, seconds) in enumerate(zip(binding.stages, binding.seconds, strict=True)):
                if number and self._recorder is not None:
                    self._recorder.between_dispatches()
                    self._hazards.clear()
                for prepared, estimate in zip(stage, seconds, strict=True):
                    if self._seconds and self._seconds + estimate > MAXIMUM_SUBMISSION_SECONDS:
                        self._finish(emit)
                    if self._recorder is None:
                        self._start()
                    assert self._recorder is not None
                    self._recorder.dispatch(prepared)
                    self._seconds += estimate
                    if self._queries is not None:
                        self._query += 1
                        self._recorder.timestamp(self._queries.pool.handle, self._query)
            self._hazards.add(binding)
        if self._recorder is None:
            self._start()  # an empty list is a submission too
        self._finish(emit)

    def _start(self) -> None:
        command_buffer = self._vulkan.queue.acquire()
        try:
            self._recorder = Recorder(command_buffer, self._flags)
        except BaseException:
            self._vulkan.queue.abandon(command_buffer)
            raise
        self._recorder.after_earlier_submissions()
        if self._queries is not None and self._query == 0:
            self._recorder.reset_timestamps(self._queries.pool.handle, self._queries.count)
            self._recorder.timestamp(self._queries.pool.handle, 0)

    def _finish(self, emit: Callable[[Any], None]) -> None:
        assert self._recorder is not None
        if self._vulkan.memory.is_direct:
            self._recorder.before_host_reads()
        command_buffer = self._recorder.end()
        self._recorder = None
        self._seconds = 0.0
        self._hazards.clear()  # a command buffer starts with a barrier
        emit(command_buffer)

    def abandon(self) -> None:
        """After a failure: give back the command buffer that is being recorded."""
        if self._recorder is not None:
            self._vulkan.queue.abandon(self._recorder.command_buffer)
            self._recorder = None


def dispatch_count(bindings: Iterable[Binding]) -> int:
    """Dispatches of all stages of all bindings."""
    return sum(len(stage) for binding in bindings for stage in binding.stages)


def submit_bindings(vulkan: VulkanDevice, bindings: tuple[Binding, ...], timestamps: bool) -> Submission:
    """Record and submit bindings, in order after everything earlier. Called with the device's lock held."""
    queries = TimestampQueries(vulkan, dispatch_count(bindings) + 1) if timestamps else None
    keep = (bindings, queries)
    value = vulkan.queue.submitted

    def emit(command_buffer: Any) -> None:
        nonlocal value
        value = vulkan.queue.submit(command_buffer, keep)
        # At once, not after the last: should a later one fail, memory still counts as used until this one is done.
        mark_used(bindings, value)

    writer = CommandWriter(vulkan, ONE_TIME_SUBMIT, queries)
    try:
        writer.write(bindings, emit)
    except BaseException:
        writer.abandon()
        raise
    return Submission(vulkan, value, None if queries is None else Timing(queries))


def mark_used(bindings: tuple[Binding, ...], value: int) -> None:
    """Note in all memory that bindings use which submission used it last."""
    for binding in bindings:
        for memory in binding.allocations:
            memory.last_use = value
        for memory in binding.written_allocations:
            memory.last_write = value


class Sequence:
    """Bindings recorded once and replayed with `submit`. Made by `Device.sequence`.

    The contents of its tensors may change between replays (`Tensor.write`); their memory stays the same.
    """

    def __init__(self, device: Device, bindings: tuple[Binding, ...], timestamps: bool) -> None:
        self.device = device
        self._vulkan = device.vulkan
        self._bindings = bindings
        self._command_buffers: list[Any] = []
        self._queries: TimestampQueries | None = None
        self._timing: Timing | None = None
        self._last = 0
        with self._vulkan.lock:
            if timestamps:
                self._queries = TimestampQueries(self._vulkan, dispatch_count(bindings) + 1)
            writer = CommandWriter(self._vulkan, SIMULTANEOUS_USE, self._queries)
            try:
                writer.write(bindings, self._command_buffers.append)
            except BaseException:
                writer.abandon()
                raise

    def __repr__(self) -> str:
        return f"<dmlvk.Sequence of {len(self._bindings)} bindings on {self.device.name}>"

    def submit(self) -> Submission:
        """Run everything once more, after all earlier work; does not wait.

        With timestamps it waits for its own last run, for a replay overwrites them.

        Raises
        ------
        DeviceError
            The device is closed or lost.
        """
        with self._vulkan.lock:
            self._vulkan.require_open()
            if self._timing is not None:
                self._vulkan.queue.wait(self._last)
                self._timing.times()
            if self._queries is not None:
                self._timing = Timing(self._queries)
            for command_buffer in self._command_buffers:
                self._last = self._vulkan.queue.submit(command_buffer, self, recycle=False)
                mark_used(self._bindings, self._last)
            return Submission(self._vulkan, self._last, self._timing)

    def __del__(self) -> None:
        # Nothing in flight uses them: a submission keeps its sequence alive.
        for command_buffer in getattr(self, "_command_buffers", ()):
            self._vulkan.queue.recycle(command_buffer)
