"""A ring buffer of staging memory, whose pieces any number of threads take at once."""

from __future__ import annotations

import time
from collections import deque
from threading import get_ident

from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT
from dmlvk.vulkan.blocks import Bytes
from dmlvk.vulkan.interrupts.availability import Availability
from dmlvk.vulkan.interrupts.monitor import Monitor, reentered
from dmlvk.vulkan.interrupts.visits import Visit
from dmlvk.vulkan.memory import MemoryPool
from dmlvk.vulkan.queue import Queue

RING_SIZE = 64 << 20
# Small enough that each of several threads can have two pieces, so that the device works on one while the host copies
# the other; large enough that the fixed cost of a piece is small.
PIECE_SIZE = RING_SIZE // 16
POLL_SECONDS = 50e-6


class RingPiece:
    """A part of the ring, once `StagingRing.take` has found room for it.

    visit: the piece is taken as long as the visit's lock is held, by `with` in one line: no exception leaves it taken.
    offset: bytes from the start of the ring's buffer.
    view: the host's view of it.
    queue: the queue to which the copy is submitted.
    until: the queue's value at which the device is done with the piece. If an exception kept the taker from setting it,
        the ring sets it to the queue's latest value.
    """

    __slots__ = ("end", "offset", "queue", "until", "view", "visit")

    offset: int
    view: Bytes
    end: int

    def __init__(self, queue: Queue) -> None:
        self.visit = Visit()
        self.visit.thread = get_ident()
        self.queue = queue
        self.until: int | None = None


class StagingRing:
    """A ring of staging memory. A piece is free again when its thread and the device are done with it."""

    def __init__(self, availability: Availability, memory: MemoryPool) -> None:
        self._memory = memory.allocate_on_host(RING_SIZE)
        (segment,) = self._memory.segments
        self.block = segment.block
        self._monitor = Monitor(availability, self._repair)
        self._head = 0  # positions only increase; the offset in the ring is the position modulo its size
        self._tail = 0
        self._taken: deque[RingPiece] = deque()

    @property
    def is_entered(self) -> bool:
        """Whether this thread is in the middle of taking a piece."""
        return self._monitor.is_entered

    def take(self, piece: RingPiece, size: int) -> None:
        """Find room for a piece of at most PIECE_SIZE bytes, waiting for other threads and earlier copies if necessary.

        Called with the piece's visit entered. A thread that holds a piece must not take a second one: threads that do
        might wait for each other.
        """
        while not self._monitor.run(self._take, piece, size):
            try:
                first = self._taken[0]
            except IndexError:  # another thread has freed all of them
                continue
            if first.visit.lock.locked():
                if first.visit.thread == get_ident():  # this is a handler that interrupted the taker
                    raise reentered()
                time.sleep(POLL_SECONDS)
            elif first.until is not None:
                first.queue.wait(first.until)

    def _take(self, piece: RingPiece, size: int) -> bool:
        while self._taken:
            try:
                first = self._taken[0]
            except IndexError:  # another thread has freed all of them
                continue
            if first.visit.lock.locked():
                break
            if first.until is None:
                first.until = first.queue.latest
            if first.until > first.queue.completed:
                break
            self._tail = first.end
            self._taken.popleft()
        head = -(-self._head // LARGEST_OFFSET_ALIGNMENT) * LARGEST_OFFSET_ALIGNMENT
        if head % RING_SIZE + size > RING_SIZE:
            head += RING_SIZE - head % RING_SIZE
        if not self._taken:
            self._tail = head
        if head + size - self._tail > RING_SIZE:
            return False
        piece.offset = offset = head % RING_SIZE
        piece.end = head + size
        assert self.block.mapped is not None, "staging memory is mapped for as long as it lives"
        piece.view = self.block.mapped[offset : offset + size]
        self._taken.append(piece)
        self._head = head + size
        return True

    def _repair(self) -> None:
        if self._taken:
            self._head = max(self._head, self._taken[-1].end)
