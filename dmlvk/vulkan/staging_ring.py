"""Staging memory handed out in a circle, to any number of threads at once."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT
from dmlvk.vulkan.memory import Bytes, MappedBuffer
from dmlvk.vulkan.queue import Queue

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

RING_SIZE = 64 << 20
# Small enough for several threads to have two of them each, so that the device works on one while the host copies
# another; large enough for what a piece costs besides to be little.
PIECE_SIZE = RING_SIZE // 16


class Piece:
    """A part of the ring, once `StagingRing.take` has found one for it.

    Attributes
    ----------
    offset : int
        Bytes from the start of the ring's buffer.
    view : ndarray of uint8
        The host's view of it.
    """

    __slots__ = ("end", "offset", "until", "view")

    offset: int
    view: Bytes
    end: int

    def __init__(self) -> None:
        self.until: tuple[Queue, int] | None = None  # None while its taker has it


class StagingRing:
    """A ring of staging memory. A piece is free again when its taker gave it back and the device is done with it."""

    def __init__(self, device: VulkanDevice) -> None:
        self.block: MappedBuffer = device.memory.create_staging(RING_SIZE)
        self._changed = threading.Condition()
        self._head = 0  # positions count up for ever; the place in the ring is the position modulo its size
        self._tail = 0
        self._taken: deque[Piece] = deque()

    def take(self, piece: Piece, size: int) -> None:
        """Find room for a piece of at most PIECE_SIZE bytes, waiting for other threads and earlier copies if need be.

        The taker makes the piece, so that it can give it back wherever in here an interrupt comes. Who holds a piece
        must not wait for another: all who do might wait for each other.
        """
        while True:
            with self._changed:
                if self._take(piece, size):
                    return
                until = self._taken[0].until
                if until is None:
                    self._changed.wait()
            if until is not None:
                queue, value = until
                queue.wait(value)

    def _take(self, piece: Piece, size: int) -> bool:
        while self._taken:
            until = self._taken[0].until
            if until is None or until[1] > until[0].completed:
                break
            self._tail = self._taken.popleft().end
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
        self._head = head + size
        self._taken.append(piece)
        return True

    def give_back(self, piece: Piece, queue: Queue, value: int) -> None:
        """The taker is done with a piece, and the device will be when the queue's timeline reaches the value."""
        with self._changed:
            piece.until = (queue, value)
            self._changed.notify_all()
