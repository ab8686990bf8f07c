"""Transfers between host arrays and device memory: direct if the memory is mapped, else through a staging ring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any, NamedTuple

from dmlvk.vulkan.allocation import Allocation
from dmlvk.vulkan.blocks import Bytes
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.host_threads import ForEachCalls, for_each, thread_count
from dmlvk.vulkan.interrupts.monitor import Monitor, reentered
from dmlvk.vulkan.memory import MemoryPool
from dmlvk.vulkan.queue import Queue
from dmlvk.vulkan.recorder import Recorder
from dmlvk.vulkan.staging_ring import PIECE_SIZE, RingPiece, StagingRing

# A copy of at least this many bytes goes to the copy queue: two queues that wait for each other cost some 10 us.
LARGE = 1 << 20
# The fewest bytes that one of several threads copies where the host reaches the memory: between two copies a thread
# waits for the interpreter, some 70 us and more, in which it would copy a good part of as many.
LEAST_SHARE = 2 << 20
PAGE = 4096


class StagedPart(NamedTuple):
    """Bytes of a transfer that pass through one piece of the ring.

    position: the first byte on the host, from the start of the transfer.
    buffer: VkBuffer.
    place: the first byte on the device, from the start of the buffer.
    """

    position: int
    size: int
    buffer: Any
    place: int


class CopyShare(NamedTuple):
    """Bytes of a transfer that one thread copies, where the host reaches the memory.

    position: the first byte on the host, from the start of the transfer.
    memory: the device's memory.
    """

    position: int
    memory: Bytes


def _shares(allocation: Allocation, offset: int, size: int) -> Iterator[CopyShare]:
    """The whole, or a share in whole pages for each thread if the whole is large."""
    largest = size
    if size >= LARGE:
        largest = max(LEAST_SHARE, -(-size // (thread_count() * PAGE)) * PAGE)
    position = 0
    for segment, start, length in allocation.pieces(offset, size):
        for begin in range(0, length, largest):
            end = min(length, begin + largest)
            yield CopyShare(position + begin, segment.mapped[start + begin : start + end])
        position += length


def _parts(allocation: Allocation, offset: int, size: int) -> Iterator[StagedPart]:
    position = 0
    for segment, start, length in allocation.pieces(offset, size):
        for begin in range(0, length, PIECE_SIZE):
            part = min(PIECE_SIZE, length - begin)
            yield StagedPart(position + begin, part, segment.block.buffer, segment.offset + start + begin)
        position += length


class Transfers:
    """Reads and writes of a device's allocations by the host, from any thread, in order with the work submitted.

    queue: the compute queue.
    copy_queue: a second queue, on which large copies run beside kernels.
    """

    def __init__(self, context: Context, queue: Queue, copy_queue: Queue | None, memory: MemoryPool) -> None:
        self._context = context
        self._visits = context.visits
        self._queue = queue
        self._copy_queue = copy_queue
        self._memory = memory
        self.monitor = Monitor(context.availability)
        self._ring: StagingRing | None = None
        # By thread, the calls that still run on other threads: a transfer that an exception ended may leave some.
        self._calls: dict[int, ForEachCalls] = {}

    def ring(self) -> StagingRing:
        """The staging ring, made at the first call."""
        return self._ring or self.monitor.run(self._make_ring)

    def _make_ring(self) -> StagingRing:
        if self._ring is None:
            self._ring = StagingRing(self._context.availability, self._memory)
        return self._ring

    def mapped(self, allocation: Allocation, offset: int, size: int) -> Bytes | None:
        """The host's view of bytes that lie in one mapped segment, or None. The view must not outlive a visit."""
        if not allocation.access.is_direct:
            return None
        pieces = allocation.pieces(offset, size)
        if len(pieces) != 1:
            return None
        segment, start, length = pieces[0]
        return segment.mapped[start : start + length]

    def wait_for_writes(self, allocation: Allocation) -> None:
        """Wait for the submissions that write this memory; then the host may read it."""
        self._queue.wait(allocation.access.last_write)

    def wait_for_uses(self, allocation: Allocation) -> None:
        """Wait for the submissions that read or write this memory; then the host may write it."""
        self._queue.wait(allocation.access.last_use)

    def write(self, allocation: Allocation, offset: int, data: Bytes) -> None:
        """Copy bytes to the device, after everything submitted before."""
        direct = allocation.access.is_direct
        self._visits.during(self._write_mapped if direct else self._write_staged, allocation, offset, data)

    def _write_mapped(self, allocation: Allocation, offset: int, data: Bytes) -> None:
        self.wait_for_uses(allocation)

        def write(share: CopyShare) -> None:
            share.memory[:] = data[share.position : share.position + share.memory.size]

        self._on_threads(_shares(allocation, offset, data.size), write)

    def _write_staged(self, allocation: Allocation, offset: int, data: Bytes) -> None:
        ring = self.ring()
        queue = self._queue
        # The compute queue alone knows which memory it shares with another API.
        is_shared = allocation.access.is_shared
        if self._copy_queue is not None and data.size >= LARGE and not is_shared:
            queue = self._copy_queue
            self._require(queue, allocation.access.last_use)

        def write(part: StagedPart, piece: RingPiece) -> None:
            ring.take(piece, part.size)
            piece.view[:] = data[part.position : part.position + part.size]
            piece.until = self._copy(
                queue, ring.block.buffer, piece.offset, part.buffer, part.place, part.size, None, allocation
            )

        self._for_each_part(queue, _parts(allocation, offset, data.size), write)

    def _for_each_part(
        self, queue: Queue, parts: Iterator[StagedPart], use: Callable[[StagedPart, RingPiece], None]
    ) -> None:
        """Call a function with each part and a piece of the ring, on several threads."""
        if self._context.monitor.is_entered or self.ring().is_entered:
            raise reentered()  # the other threads would wait for the change that this thread is in the middle of

        def move(part: StagedPart) -> None:
            piece = RingPiece(queue)
            with piece.visit.lock: use(part, piece)  # noqa: E701  # fmt: skip

        self._on_threads(parts, move)

    def _on_threads(self, parts: Iterable[Any], move: Callable[[Any], None]) -> None:
        """Call a function with each part, on several threads, each of which is a visitor meanwhile."""
        # A finalizer in the middle of a release: other threads would wait for that.
        is_releasing = self._queue.is_releasing or (self._copy_queue is not None and self._copy_queue.is_releasing)
        # Transfers at the same time have two threads each: more would wait for one another and for the interpreter.
        is_busy = any(list(self._calls.values()))
        threads = 1 if is_releasing else 2 if is_busy else None
        calls = self._calls.setdefault(get_ident(), set())
        for_each(parts, lambda part: self._visits.during(move, part), calls, threads=threads)

    def _require(self, queue: Queue, value: int) -> None:
        """Make the copy queue wait until the compute queue has reached a value."""
        compute = self._queue
        if value > compute.completed:
            self._context.monitor.run(queue.require, compute, value)

    def read(self, allocation: Allocation, offset: int, out: Bytes) -> None:
        """Copy bytes from the device, waiting for the work that writes them."""
        direct = allocation.access.is_direct
        self._visits.during(self._read_mapped if direct else self._read_staged, allocation, offset, out)

    def _read_mapped(self, allocation: Allocation, offset: int, out: Bytes) -> None:
        self.wait_for_writes(allocation)

        def read(share: CopyShare) -> None:
            out[share.position : share.position + share.memory.size] = share.memory

        self._on_threads(_shares(allocation, offset, out.size), read)

    def _read_staged(self, allocation: Allocation, offset: int, out: Bytes) -> None:
        ring = self.ring()
        queue = self._queue
        # On the compute queue, the read would also wait for later work that does not write this memory.
        is_apart = out.size >= LARGE or allocation.access.last_write < queue.submitted
        if self._copy_queue is not None and is_apart and not allocation.access.is_shared:
            queue = self._copy_queue
            self._require(queue, allocation.access.last_write)

        def read(part: StagedPart, piece: RingPiece) -> None:
            ring.take(piece, part.size)
            piece.until = self._copy(
                queue, part.buffer, part.place, ring.block.buffer, piece.offset, part.size, allocation, None
            )
            queue.wait(piece.until)
            out[part.position : part.position + part.size] = piece.view

        self._for_each_part(queue, _parts(allocation, offset, out.size), read)

    def copy(
        self, source: Allocation, source_offset: int, destination: Allocation, destination_offset: int, size: int
    ) -> int:
        """Copy from one allocation to another on the device; returns the timeline value at which the copy is done."""
        value = self._queue.submitted
        for source_segment, start, length in source.pieces(source_offset, size):
            done = 0
            for segment, place, part in destination.pieces(destination_offset, length):
                value = self._copy(
                    self._queue,
                    source_segment.block.buffer,
                    source_segment.offset + start + done,
                    segment.block.buffer,
                    segment.offset + place,
                    part,
                    source,
                    destination,
                )
                done += part
            destination_offset += length
        return value

    def clear(self, allocation: Allocation, offset: int, size: int) -> None:
        """Fill bytes with zeros, after everything submitted before; offset and size are multiples of 4."""
        clear = self._clear_mapped if allocation.access.is_direct else self._clear_filled
        self._visits.during(clear, allocation, offset, size)

    def _clear_mapped(self, allocation: Allocation, offset: int, size: int) -> None:
        self.wait_for_uses(allocation)
        for segment, start, length in allocation.pieces(offset, size):
            segment.mapped[start : start + length][:] = 0

    def _clear_filled(self, allocation: Allocation, offset: int, size: int) -> None:
        for segment, start, length in allocation.pieces(offset, size):
            self._context.monitor.run(
                self._fill_inside, segment.block.buffer, segment.offset + start, length, allocation
            )

    def _fill_inside(self, buffer: Any, offset: int, size: int, written: Allocation) -> None:
        queue = self._queue
        recorder = Recorder(queue.command_buffers.acquire())
        recorder.after_earlier_submissions()
        recorder.clear(buffer, offset, size)
        recorder.before_host_reads()
        batch = queue.batch([recorder.end()], [written.access], [written.access], kept=written)
        queue.submit_inside(batch)

    def cross(self, allocation: Allocation) -> None:
        """Submit no work that uses shared memory: the API that shares it waits for the work submitted so far."""
        self._context.monitor.run(self._cross_inside, allocation)

    def _cross_inside(self, allocation: Allocation) -> None:
        recorder = Recorder(self._queue.command_buffers.acquire())
        batch = self._queue.batch([recorder.end()], [allocation.access], [], kept=allocation)
        self._queue.submit_inside(batch)

    def _copy(self, *copy: Any) -> int:
        return self._context.monitor.run(self._copy_inside, *copy)

    def _copy_inside(
        self,
        queue: Queue,
        source: Any,
        source_offset: int,
        destination: Any,
        destination_offset: int,
        size: int,
        read: Allocation | None,
        written: Allocation | None,
    ) -> int:
        copies_only = queue is self._copy_queue
        recorder = Recorder(queue.command_buffers.acquire())
        recorder.after_earlier_submissions(copies_only=copies_only)
        recorder.copy(source, source_offset, destination, destination_offset, size)
        recorder.before_host_reads(copies_only=copies_only)
        command_buffer = recorder.end()
        if copies_only and written is not None:
            # Before the submission: later kernels then wait for the copy even if an exception strikes in between.
            self._queue.require(queue, None)
        # Memory notes values of the compute queue's timeline only; `require` orders the queues.
        writes = [written.access] if written is not None and not copies_only else []
        uses = [*writes, read.access] if read is not None and not copies_only else writes
        return queue.submit_inside(queue.batch([command_buffer], uses, writes, kept=(read, written)))
