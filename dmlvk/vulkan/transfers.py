"""Bytes between host arrays and device memory: directly where it is mapped, else through a ring of staging memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from dmlvk.vulkan.host_threads import Calls, for_each
from dmlvk.vulkan.memory import Allocation, Bytes, Segment
from dmlvk.vulkan.monitor import Monitor, reentered
from dmlvk.vulkan.queue import Queue
from dmlvk.vulkan.recorder import Recorder
from dmlvk.vulkan.staging_ring import PIECE_SIZE, Piece, StagingRing

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

# From this many bytes on, a copy is worth a queue of its own: two queues waiting for each other cost some 10 us.
LARGE = 1 << 20


class Part(NamedTuple):
    """Bytes of a transfer that pass through one piece of the ring.

    Attributes
    ----------
    position : int
        The first of them, of the host's.
    size : int
    buffer : VkBuffer
    place : int
        Where they are on the device.
    """

    position: int
    size: int
    buffer: Any
    place: int


def _parts(allocation: Allocation, offset: int, size: int) -> Iterator[Part]:
    position = 0
    for segment, start, length in allocation.pieces(offset, size):
        for begin in range(0, length, PIECE_SIZE):
            part = min(PIECE_SIZE, length - begin)
            yield Part(position + begin, part, segment.block.buffer, segment.offset + start + begin)
        position += length


class Transfers:
    """Reads and writes of a device's allocations by the host, from any thread, in order with the work submitted.

    Attributes
    ----------
    copy_queue : Queue or None
        A queue beside the compute queue, on which large copies run next to kernels; None where there is none.
    """

    def __init__(self, device: VulkanDevice, copy_queue: Queue | None) -> None:
        self._device = device
        self.copy_queue = copy_queue
        self.monitor = Monitor(device)
        self._ring: StagingRing | None = None
        # By thread, what its transfers have under way on others: one that an exception ended may leave some.
        self._calls: dict[int, Calls] = {}

    def ring(self) -> StagingRing:
        """The staging ring, made when it is first needed."""
        return self._ring or self.monitor.run(self._make_ring)

    def _make_ring(self) -> StagingRing:
        if self._ring is None:
            self._ring = StagingRing(self._device)
        return self._ring

    def mapped(self, allocation: Allocation, offset: int, size: int) -> Bytes | None:
        """The host's view of bytes that lie in one mapped segment, or None. It must not outlive its user's visit."""
        if not self._device.memory.is_direct:
            return None
        pieces = allocation.pieces(offset, size)
        if len(pieces) != 1:
            return None
        return _view(*pieces[0])

    def wait_for_writes(self, allocation: Allocation) -> None:
        """Wait for the submissions that write this memory; then the host may read it."""
        self._device.queue.wait(allocation.access.last_write)

    def wait_for_uses(self, allocation: Allocation) -> None:
        """Wait for the submissions that read or write this memory; then the host may write it."""
        self._device.queue.wait(allocation.access.last_use)

    def write(self, allocation: Allocation, offset: int, data: Bytes) -> None:
        """Copy bytes to the device, after everything submitted before."""
        direct = self._device.memory.is_direct
        self._device.visits.during(self._write_mapped if direct else self._write_staged, allocation, offset, data)

    def _write_mapped(self, allocation: Allocation, offset: int, data: Bytes) -> None:
        self.wait_for_uses(allocation)
        for segment, start, length in allocation.pieces(offset, data.size):
            _view(segment, start, length)[:] = data[:length]
            data = data[length:]

    def _write_staged(self, allocation: Allocation, offset: int, data: Bytes) -> None:
        ring = self.ring()
        queue = self._device.queue
        if self.copy_queue is not None and data.size >= LARGE:
            queue = self.copy_queue
            self._require(queue, allocation.access.last_use)

        def write(part: Part, piece: Piece) -> None:
            ring.take(piece, part.size)
            piece.view[:] = data[part.position : part.position + part.size]
            piece.until = self._copy(
                queue, ring.block.buffer, piece.offset, part.buffer, part.place, part.size, None, allocation
            )

        self._for_each_part(queue, _parts(allocation, offset, data.size), write)

    def _for_each_part(self, queue: Queue, parts: Iterator[Part], use: Callable[[Part, Piece], None]) -> None:
        """Do something with each part and a piece of the ring, on several threads."""
        if self._device.monitor.is_entered or self.ring().is_entered:
            raise reentered()  # the other threads would wait for what this thread is in the middle of

        def move(part: Part) -> None:
            self._device.visits.during(move_visiting, part)

        def move_visiting(part: Part) -> None:
            piece = Piece(queue)
            with piece.visit.lock: use(part, piece)  # noqa: E701  # fmt: skip

        for_each(parts, move, self._calls.setdefault(get_ident(), set()))

    def _require(self, queue: Queue, value: int) -> None:
        """Let the copy queue go on when the compute queue has come to a value."""
        compute = self._device.queue
        if value > compute.completed:
            self._device.monitor.run(queue.require, compute, value)

    def read(self, allocation: Allocation, offset: int, out: Bytes) -> None:
        """Copy bytes from the device, waiting for the work that writes them."""
        direct = self._device.memory.is_direct
        self._device.visits.during(self._read_mapped if direct else self._read_staged, allocation, offset, out)

    def _read_mapped(self, allocation: Allocation, offset: int, out: Bytes) -> None:
        self.wait_for_writes(allocation)
        for segment, start, length in allocation.pieces(offset, out.size):
            out[:length] = _view(segment, start, length)
            out = out[length:]

    def _read_staged(self, allocation: Allocation, offset: int, out: Bytes) -> None:
        ring = self.ring()
        queue = self._device.queue
        # Behind work that does not write this memory a read would wait for nothing.
        if self.copy_queue is not None and (out.size >= LARGE or allocation.access.last_write < queue.submitted):
            queue = self.copy_queue
            self._require(queue, allocation.access.last_write)

        def read(part: Part, piece: Piece) -> None:
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
        """Copy from one allocation to another on the device; returns the timeline value that says that it is done."""
        value = self._device.queue.submitted
        for source_segment, start, length in source.pieces(source_offset, size):
            done = 0
            for segment, place, part in destination.pieces(destination_offset, length):
                value = self._copy(
                    self._device.queue,
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

    def _copy(self, *copy: Any) -> int:
        return self._device.monitor.run(self._copy_inside, *copy)

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
        copies_only = queue is self.copy_queue
        recorder = Recorder(queue.command_buffers.acquire())
        recorder.after_earlier_submissions(copies_only=copies_only)
        recorder.copy(source, source_offset, destination, destination_offset, size)
        recorder.before_host_reads(copies_only=copies_only)
        command_buffer = recorder.end()
        if copies_only and written is not None:
            # Before it is submitted: whatever strikes in between, later kernels come after it.
            self._device.queue.require(queue, None)
        # What the compute queue's timeline says of memory is about the compute queue; see `require` for the other.
        writes = [written.access] if written is not None and not copies_only else []
        uses = [*writes, read.access] if read is not None and not copies_only else writes
        batch = queue.batch([command_buffer], uses, writes)
        return queue.submit_inside(batch, (batch, read, written))


def _view(segment: Segment, start: int, length: int) -> Bytes:
    mapped = segment.block.mapped
    assert mapped is not None, "staging and direct memory are mapped for as long as they live"
    return mapped[segment.offset + start : segment.offset + start + length]
