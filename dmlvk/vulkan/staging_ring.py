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
# A part of the ring, so that the host fills or empties one piece while the device works on others.
PIECE_SIZE = RING_SIZE // 8


class Piece:
    """A part of the ring.

    Attributes
    ----------
    offset : int
        Bytes from the start of the ring's buffer.
    view : ndarray of uint8
        The host's view of it.
    """

    __slots__ = ("end", "offset", "until", "view")

    def __init__(self, offset: int, view: Bytes, end: int) -> None:
        self.offset = offset
        self.view = view
        self.end = end
        self.until: tuple[Queue, int] | None = None  # None while its taker has it


class StagingRing:
    """A ring of staging memory. A piece is free again when its taker gave it back and the device is done with it."""

    def __init__(self, device: VulkanDevice) -> None:
        self.block: MappedBuffer = device.memory.create_staging(RING_SIZE)
        self._changed = threading.Condition()
        self._head = 0  # positions count up for ever; the place in the ring is the position modulo its size
        self._tail = 0
        self._taken: deque[Piece] = deque()

    def take(self, size: int) -> Piece:
        """A piece of at most PIECE_SIZE bytes, waiting for other threads' and earlier copies' pieces where need be.

        Who holds a piece must not wait for another: all who do might wait for each other. See `try_take`.
        """
        while True:
            with self._changed:
                piece = self._take(size)
                if piece is not None:
                    return piece
                until = self._taken[0].until
                if until is None:
                    self._changed.wait()
            if until is not None:
                queue, value = until
                queue.wait(value)

    def try_take(self, size: int) -> Piece | None:
        """A piece, or None when there is no room at once."""
        with self._changed:
            return self._take(size)

    def _take(self, size: int) -> Piece | None:
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
            return None
        offset = head % RING_SIZE
        assert self.block.mapped is not None, "staging memory is mapped for as long as it lives"
        piece = Piece(offset, self.block.mapped[offset : offset + size], head + size)
        self._taken.append(piece)
        self._head = head + size
        return piece

    def give_back(self, piece: Piece, queue: Queue, value: int) -> None:
        """The taker is done with a piece, and the device will be when the queue's timeline reaches the value."""
        with self._changed:
            piece.until = (queue, value)
            self._changed.notify_all()
