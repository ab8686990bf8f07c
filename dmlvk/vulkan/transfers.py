"""Bytes between host arrays and device memory: directly where it is mapped, else through a ring of staging memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT
from dmlvk.vulkan.memory import Allocation, Bytes, MappedBuffer, Segment
from dmlvk.vulkan.recording import Recorder

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

RING_SIZE = 64 << 20
# Half a ring, so that the host fills or empties one half while the device works on the other.
PIECE_SIZE = RING_SIZE // 4


class Ring:
    """Staging memory handed out in a circle; a part is used again when the submission that uses it is done."""

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self.block: MappedBuffer = device.memory.create_staging(RING_SIZE)
        self._head = 0  # positions count up for ever; the place in the ring is the position modulo its size
        self._tail = 0
        self._taken: deque[tuple[int, int]] = deque()  # (position behind it, timeline value)

    def take(self, size: int) -> int:
        """The offset of `size` free bytes, waiting for earlier submissions where need be; at most PIECE_SIZE."""
        head = -(-self._head // LARGEST_OFFSET_ALIGNMENT) * LARGEST_OFFSET_ALIGNMENT
        if head % RING_SIZE + size > RING_SIZE:
            head += RING_SIZE - head % RING_SIZE
        while self._taken and head + size - self._tail > RING_SIZE:
            end, value = self._taken[0]
            self._device.queue.wait(value)
            self._taken.popleft()
            self._tail = end
        if not self._taken:
            self._tail = head  # what was taken for a submission that failed is free too
        self._head = head + size
        return head % RING_SIZE

    def used_until(self, value: int) -> None:
        """Everything taken so far is free again when the timeline reaches this value."""
        self._taken.append((self._head, value))


class Transfers:
    """Reads and writes of a device's allocations by the host. Used with the device's lock held."""

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self._ring: Ring | None = None

    def ring(self) -> Ring:
        """The staging ring, made when it is first needed."""
        if self._ring is None:
            self._ring = Ring(self._device)
        return self._ring

    def mapped(self, allocation: Allocation, offset: int, size: int) -> Bytes | None:
        """The host's view of bytes that lie in one mapped segment, or None. It must not outlive the device's lock."""
        if not self._device.memory.is_direct:
            return None
        pieces = allocation.pieces(offset, size)
        if len(pieces) != 1:
            return None
        return _view(*pieces[0])

    def wait_for_writes(self, allocation: Allocation) -> None:
        """Wait for the submissions that write this memory; then the host may read it."""
        self._device.queue.wait(allocation.last_write)

    def wait_for_uses(self, allocation: Allocation) -> None:
        """Wait for the submissions that read or write this memory; then the host may write it."""
        self._device.queue.wait(allocation.last_use)

    def write(self, allocation: Allocation, offset: int, data: Bytes) -> None:
        """Copy bytes to the device, after everything submitted before."""
        if self._device.memory.is_direct:
            self.wait_for_uses(allocation)
            for segment, start, length in allocation.pieces(offset, data.size):
                _view(segment, start, length)[:] = data[:length]
                data = data[length:]
            return
        ring = self.ring()
        for segment, start, length in allocation.pieces(offset, data.size):
            for begin in range(0, length, PIECE_SIZE):
                size = min(PIECE_SIZE, length - begin)
                place = ring.take(size)
                _view(Segment(ring.block, 0, RING_SIZE), place, size)[:] = data[begin : begin + size]
                value = self._copy(
                    ring.block.buffer, place, segment.block.buffer, segment.offset + start + begin, size, allocation
                )
                ring.used_until(value)
                allocation.last_write = allocation.last_use = value
            data = data[length:]

    def read(self, allocation: Allocation, offset: int, out: Bytes) -> None:
        """Copy bytes from the device, waiting for what writes them."""
        if self._device.memory.is_direct:
            self.wait_for_writes(allocation)
            for segment, start, length in allocation.pieces(offset, out.size):
                out[:length] = _view(segment, start, length)
                out = out[length:]
            return
        ring = self.ring()
        whole = Segment(ring.block, 0, RING_SIZE)
        arriving: deque[tuple[int, int, Bytes]] = deque()

        def receive() -> None:
            value, place, target = arriving.popleft()
            self._device.queue.wait(value)
            target[:] = _view(whole, place, target.size)

        for segment, start, length in allocation.pieces(offset, out.size):
            for begin in range(0, length, PIECE_SIZE):
                size = min(PIECE_SIZE, length - begin)
                if len(arriving) == 2:
                    receive()
                place = ring.take(size)
                value = self._copy(
                    segment.block.buffer, segment.offset + start + begin, ring.block.buffer, place, size, allocation
                )
                ring.used_until(value)
                allocation.last_use = value
                arriving.append((value, place, out[begin : begin + size]))
            out = out[length:]
        while arriving:
            receive()

    def copy(
        self, source: Allocation, source_offset: int, destination: Allocation, destination_offset: int, size: int
    ) -> int:
        """Copy from one allocation to another on the device; returns the timeline value that says that it is done."""
        value = self._device.queue.submitted
        for source_segment, start, length in source.pieces(source_offset, size):
            done = 0
            for segment, place, part in destination.pieces(destination_offset, length):
                value = self._copy(
                    source_segment.block.buffer,
                    source_segment.offset + start + done,
                    segment.block.buffer,
                    segment.offset + place,
                    part,
                    (source, destination),
                )
                done += part
            destination_offset += length
        source.last_use = value
        destination.last_write = destination.last_use = value
        return value

    def _copy(
        self, source: Any, source_offset: int, destination: Any, destination_offset: int, size: int, keep: Any
    ) -> int:
        queue = self._device.queue
        command_buffer = queue.acquire()
        try:
            recorder = Recorder(command_buffer)
            recorder.after_earlier_submissions()
            recorder.copy(source, source_offset, destination, destination_offset, size)
            recorder.before_host_reads()
            recorder.end()
        except BaseException:
            queue.abandon(command_buffer)
            raise
        return queue.submit(command_buffer, keep)


def _view(segment: Segment, start: int, length: int) -> Bytes:
    mapped = segment.block.mapped
    assert mapped is not None, "staging and direct memory are mapped for as long as they live"
    return mapped[segment.offset + start : segment.offset + start + length]
