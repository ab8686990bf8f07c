"""Records bindings into command buffers, with barriers between bindings that depend on each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS
from dmlvk.runtime.rows import are_apart
from dmlvk.runtime.submission import TimestampQueries
from dmlvk.vulkan.command_buffers import Batch, CommandBuffer
from dmlvk.vulkan.device import VulkanDevice
from dmlvk.vulkan.memory_use import MemoryUse
from dmlvk.vulkan.recorder import Recorder
from dmlvk.vulkan.recorder import record_secondary as record_secondary_buffer

if TYPE_CHECKING:
    from dmlvk.runtime.binding import Binding


class Ranges:
    """A set of bytes of one allocation, as ranges that neither overlap nor touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, start: int, end: int) -> None:
        self._starts = [start]
        self._ends = [end]

    def overlaps(self, start: int, end: int) -> bool:
        """Whether a byte of [start, end) is in the set."""
        position = bisect_right(self._ends, start)
        return position < len(self._starts) and self._starts[position] < end

    def add(self, start: int, end: int) -> None:
        """Put the bytes [start, end) into the set."""
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]


Places = dict[int, Ranges]

# At most this many bindings are compared one by one; more are sorted first.
FEW = 4


def overlap(earlier: Binding, later: Binding) -> bool:
    """Whether the later binding depends on the earlier one.

    It does if it reads or overwrites bytes that the earlier one writes, or overwrites bytes that the earlier one reads.
    """
    for memory, start, end, rows in later.writes:
        for other, other_start, other_end, other_rows in earlier.reads + earlier.writes:
            is_inside = memory == other and start < other_end and other_start < end
            if is_inside and not are_apart(start, rows, other_start, other_rows):
                return True
    for memory, start, end, rows in later.reads:
        for other, other_start, other_end, other_rows in earlier.writes:
            is_inside = memory == other and start < other_end and other_start < end
            if is_inside and not are_apart(start, rows, other_start, other_rows):
                return True
    return False


class Hazards:
    """The memory that bindings since the last barrier have read and written.

    Most bindings share no allocation with earlier bindings. A comparison of two sets shows that at once. For the other
    bindings, bytes are compared.
    """

    __slots__ = ("_read_memory", "_reads", "_unsorted", "_writes", "_written_memory")

    def __init__(self) -> None:
        self._read_memory: set[int] = set()
        self._written_memory: set[int] = set()
        self._unsorted: list[Binding] = []  # bindings not yet in the two below
        self._reads: Places = {}
        self._writes: Places = {}

    def add(self, binding: Binding) -> bool:
        """Add the memory of the next binding; whether it needs a barrier before it.

        It does if it reads or overwrites bytes that were written, or overwrites bytes that were read.
        """
        read, written = self._read_memory, self._written_memory
        needs_barrier = (
            not written.isdisjoint(binding.used_memory) or not read.isdisjoint(binding.written_memory)
        ) and self._overlap(binding)
        if needs_barrier:
            self.clear()
        read |= binding.read_memory
        written |= binding.written_memory
        self._unsorted.append(binding)
        return needs_barrier

    def _overlap(self, binding: Binding) -> bool:
        reads, writes = self._reads, self._writes
        if len(self._unsorted) <= FEW and not reads and not writes:
            return any(overlap(earlier, binding) for earlier in self._unsorted)
        for earlier in self._unsorted:
            for places, ranges in ((reads, earlier.reads), (writes, earlier.writes)):
                for memory, start, end, _ in ranges:
                    if memory in places:
                        places[memory].add(start, end)
                    else:
                        places[memory] = Ranges(start, end)
        self._unsorted.clear()
        return any(
            memory in places and places[memory].overlaps(start, end)
            for places, ranges in ((writes, binding.reads), (writes, binding.writes), (reads, binding.writes))
            for memory, start, end, _ in ranges
        )

    def clear(self) -> None:
        """Forget everything: there is a barrier here."""
        for content in (self._read_memory, self._written_memory, self._reads, self._writes):
            content.clear()
        self._unsorted.clear()


class CommandWriter:
    """Records bindings into command buffers, each short enough to run within the limit of the watchdogs.

    The caller must have entered the device's monitor.

    flags: VkCommandBufferUsageFlags of the command buffers.
    queries: queries for one timestamp before the first dispatch and one after each dispatch, or after the last.
    """

    def __init__(self, vulkan: VulkanDevice, flags: int, queries: TimestampQueries | None = None) -> None:
        self._vulkan = vulkan
        self._pool = vulkan.queue.command_buffers
        self._flags = flags
        self._queries = queries
        self._recorder: Recorder | None = None
        self._seconds = 0.0
        self._query = 0
        self._hazards = Hazards()
        self._command_buffers: list[CommandBuffer] = []
        self._is_read_by_host = vulkan.memory.is_direct

    def write(self, bindings: tuple[Binding, ...]) -> Batch:
        """Record every dispatch of the bindings."""
        writes: frozenset[MemoryUse] = frozenset().union(*[binding.written for binding in bindings])
        self._is_read_by_host = self._is_read_by_host or any(use.is_direct for use in writes)
        for binding in bindings:
            self._write(binding)
        if self._recorder is None and not self._command_buffers:
            self._start()  # an empty list makes a submission too
        if self._queries is not None and not self._queries.of_each and self._recorder is not None:
            self._recorder.timestamp(self._queries.pool.handle, 1)
        self._finish()
        uses: frozenset[MemoryUse] = frozenset().union(*[binding.uses for binding in bindings])
        kept = ([binding.kept for binding in bindings], self._queries)
        return self._vulkan.queue.batch(self._command_buffers, uses, writes, kept=kept)

    def _write(self, binding: Binding) -> None:
        hazards = self._hazards
        needs_barrier = hazards.add(binding)
        for number, (stage, seconds) in enumerate(zip(binding.stages, binding.seconds, strict=True)):
            if self._recorder is not None and (number or needs_barrier):
                self._recorder.between_dispatches()
                if number:
                    hazards.clear()
                    hazards.add(binding)
            for prepared, estimate in zip(stage, seconds, strict=True):
                recorder = self._recorder_for(estimate, binding)
                recorder.dispatch(prepared)
                if self._queries is not None:
                    self._query += 1
                    if self._queries.of_each:
                        recorder.timestamp(self._queries.pool.handle, self._query)

    def compose(self, bindings: tuple[Binding, ...]) -> Batch:
        """Execute the bindings' secondary command buffers: far cheaper for the host than recording each dispatch."""
        barrier = self._vulkan.dispatch_barrier.secondary().handle
        uses = tuple(chain.from_iterable([binding.uses for binding in bindings]))
        writes = tuple(chain.from_iterable([binding.written for binding in bindings]))
        self._is_read_by_host = self._is_read_by_host or any(use.is_direct for use in writes)
        hazards = self._hazards
        secondaries: list[Any] = []
        seconds = 0.0
        for binding in bindings:
            seconds += binding.total_seconds
            if seconds > MAXIMUM_SUBMISSION_SECONDS and secondaries:
                self._compose(secondaries)
                secondaries, seconds = [], binding.total_seconds
            if hazards.add(binding):
                secondaries.append(barrier)
            secondaries.append((binding.secondary or record_secondary_inside(self._vulkan, binding)).handle)
        self._compose(secondaries)
        kept = [binding.kept for binding in bindings]
        return self._vulkan.queue.batch(self._command_buffers, uses, writes, kept=kept, registered=False)

    def _compose(self, secondaries: list[Any]) -> None:
        self._start()
        assert self._recorder is not None
        if secondaries:
            self._recorder.execute(secondaries)
        self._finish()

    def _recorder_for(self, estimate: float, binding: Binding) -> Recorder:
        """The recorder for a dispatch of this estimate: a new one if the command buffer would become too long."""
        if self._recorder is not None and self._seconds and self._seconds + estimate > MAXIMUM_SUBMISSION_SECONDS:
            self._finish()
            self._hazards.add(binding)
        if self._recorder is None:
            self._start()
        assert self._recorder is not None
        self._seconds += estimate
        return self._recorder

    def _start(self) -> None:
        self._recorder = Recorder(self._pool.acquire(), self._flags)
        self._recorder.after_earlier_submissions()
        if self._queries is not None and self._query == 0:
            self._recorder.reset_timestamps(self._queries.pool.handle, self._queries.count)
            self._recorder.timestamp(self._queries.pool.handle, 0)

    def _finish(self) -> None:
        if self._recorder is None:
            return
        if self._is_read_by_host:
            self._recorder.before_host_reads()
        self._command_buffers.append(self._recorder.end())
        self._recorder = None
        self._seconds = 0.0
        self._hazards.clear()  # a command buffer starts with a barrier


def record_secondary(vulkan: VulkanDevice, binding: Binding) -> None:
    """Record a binding's dispatches in a secondary command buffer, which the binding keeps.

    Any number of command buffers can execute it.
    """
    vulkan.monitor.run(record_secondary_inside, vulkan, binding)


def record_secondary_inside(vulkan: VulkanDevice, binding: Binding) -> CommandBuffer:
    """As `record_secondary`, with the device's monitor entered; returns the secondary command buffer."""

    def write(recorder: Recorder) -> None:
        for number, stage in enumerate(binding.stages):
            if number:
                recorder.between_dispatches()
            for prepared in stage:
                recorder.dispatch(prepared)

    if binding.secondary is None:
        binding.secondary = record_secondary_buffer(vulkan.queue.command_buffers, write)
        binding.kept.append(binding.secondary)
    return binding.secondary


def dispatch_count(bindings: Iterable[Binding]) -> int:
    """The number of dispatches in all stages of all bindings."""
    return sum(len(stage) for binding in bindings for stage in binding.stages)
