"""The memory pool of a device: it divides blocks among allocations, and takes their memory back."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT
from dmlvk.errors import DeviceError, OutOfMemoryError
from dmlvk.vulkan.allocation import Allocation
from dmlvk.vulkan.blocks import Lease, MemoryBlock, Segment, allowed_types
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.heaps import Heaps, is_direct, size_text, staging_type, tensor_type
from dmlvk.vulkan.interrupts.monitor import Monitor, reentered
from dmlvk.vulkan.physical_device import MemoryType
from dmlvk.vulkan.queue import Queue

LARGEST_BLOCK_SIZE = 64 << 20
# Where a bus lies between the host and the device, drivers take milliseconds for hundreds of MiB. So empty blocks are
# kept for the next allocation of about their size: at most this share of the heap, and blocks at most this many times
# as large as the allocation.
KEPT_SHARE = 16
LARGEST_EXCESS = 1.125

# A dropped allocation of at least LARGE bytes is freed at once, and so are all dropped ones when DROPPED_KEPT of them
# have accumulated. Others are freed by the next allocation.
LARGE = 1 << 20
DROPPED_KEPT = 64


class MemoryPool:
    """All device memory of one device.

    The leases in the blocks' ranges say which memory belongs to whom. Everything else here follows from them, and
    `_repair` makes it anew if an exception ended a change.

    Dropped allocations are queued, not freed on the spot: the garbage collector can drop one anywhere, even in the
    middle of an allocation, so a drop must not wait for a lock.

    queue: the compute queue. Its work may hold memory until it is done.
    force_staging: treat no memory as direct; for tests.
    allowed_types: the memory types that a block may have.
    memory_type: the type that tensors live in.
    is_direct: whether the host reads and writes tensors without staging.
    block_size: bytes of a shared block.
    """

    def __init__(self, context: Context, queue: Queue, *, force_staging: bool) -> None:
        self._context = context
        self._availability = context.availability
        self._queue = queue
        self.monitor = Monitor(context.availability, self._repair)
        self._dropped: deque[tuple[tuple[Segment, ...], Lease]] = deque()
        self._blocks: dict[int, MemoryBlock] = {}  # all blocks, by id: shared ones, single segments, staging memory
        self._shared: list[MemoryBlock] = []
        self._kept: list[MemoryBlock] = []  # empty ones that are not shared, the latest last
        self._segment_size = context.profile.segment_size
        self._heaps = Heaps(context)
        self.allowed_types = allowed_types(context)
        physical = context.physical
        self.memory_type = tensor_type(
            self.allowed_types, physical.memory_heaps, physical.profile.device_type, force_staging=force_staging
        )
        self.is_direct = is_direct(self.memory_type) and not force_staging
        heap_size = physical.memory_heaps[self.memory_type.heap].size
        self._largest_kept = 0 if self.is_direct else heap_size // KEPT_SHARE
        limit = min(context.profile.segment_size, heap_size // 16, LARGEST_BLOCK_SIZE)
        self.block_size = max(limit // LARGEST_OFFSET_ALIGNMENT * LARGEST_OFFSET_ALIGNMENT, LARGEST_OFFSET_ALIGNMENT)

    def allocate_on_host(self, size: int) -> Allocation:
        """The host's own memory, which the device reaches over the bus, in a block of its own."""
        size = -(-size // LARGEST_OFFSET_ALIGNMENT) * LARGEST_OFFSET_ALIGNMENT
        allocation = Allocation(self.release, size, size, True)
        self.monitor.run(self._take_staging, allocation)
        return allocation

    def _take_staging(self, allocation: Allocation) -> None:
        block = self._create(allocation.size, staging_type(self.allowed_types), is_staging=True)
        self._take_first(allocation, block, allocation.size)

    def allocate(self, size: int) -> Allocation:
        """Memory for `size` bytes with undefined contents.

        Raises DeviceError: the memory does not fit; the message says how much was asked and how much there is.
        """
        # The object is made before it gets memory, so that all memory has a holder, which returns it.
        allocation = Allocation(self.release, size, self._segment_size, self.is_direct)
        padded = -(-size // LARGEST_OFFSET_ALIGNMENT) * LARGEST_OFFSET_ALIGNMENT
        # Monitor.run written out, because most tensors come this way.
        monitor = self.monitor
        if monitor.lock._is_owned():
            raise reentered()
        with monitor.lock: found = monitor.inside(self._take_from_block, allocation, padded)  # noqa: E701  # fmt: skip
        if not found:
            self._allocate_anew(allocation, padded)
        return allocation

    def _allocate_anew(self, allocation: Allocation, padded: int) -> None:
        # Work that is done may still hold memory that was dropped long ago.
        self._queue.look()
        try:
            return self.monitor.run(self._take, allocation, padded)
        except OutOfMemoryError:
            pass
        # Work in flight may hold dropped memory too, until it is done.
        self._queue.wait_idle()
        self.monitor.run(self._drain, 0)
        self.monitor.run(self._take, allocation, padded)

    def _take_from_block(self, allocation: Allocation, padded: int) -> bool:
        """Give the allocation a part of an existing shared block; whether one had room."""
        if self._dropped:
            self._drain()
        if padded <= self.block_size // 2:
            for block in reversed(self._shared):
                start = block.ranges.take(padded, allocation.lease)
                if start is not None:
                    allocation.segments = (Segment(block, start, padded),)
                    return True
        return False

    def _take_first(self, allocation: Allocation, block: MemoryBlock, padded: int) -> None:
        """Give the allocation the first part of an empty block, as its last segment."""
        start = block.ranges.take(padded, allocation.lease)
        assert start == 0, "the block is empty"
        allocation.segments = (*allocation.segments, Segment(block, start, padded))

    def _take(self, allocation: Allocation, padded: int) -> None:
        """Give the allocation memory from a shared block, or blocks of its own."""
        if self._take_from_block(allocation, padded):
            return
        if padded <= self.block_size // 2:
            try:
                block = self._create(self.block_size, self.memory_type, is_shared=True)
            except OutOfMemoryError:
                # A whole shared block does not fit any more, but this one allocation may.
                self._take_own(allocation, padded)
            else:
                self._shared.append(block)
                self._take_first(allocation, block, padded)
            return
        if padded > allocation.segment_size:
            # All segments, before the first is allocated.
            self._heaps.check(padded, self.memory_type, allocation.size)
        try:
            for start in range(0, padded, allocation.segment_size):
                self._take_own(allocation, min(allocation.segment_size, padded - start))
        except OutOfMemoryError:
            segments, allocation.segments = allocation.segments, ()
            self._give(segments, allocation.lease)
            raise

    def _kept_block(self, padded: int) -> MemoryBlock | None:
        """A kept block that an allocation fits; it is kept no longer."""
        fitting = [block for block in self._kept if padded <= block.size <= padded * LARGEST_EXCESS]
        if not fitting:
            return None
        block = min(fitting, key=lambda each: each.size)
        self._kept.remove(block)
        return block

    def _limit_kept(self) -> None:
        """Destroy the oldest kept blocks if they are too much."""
        size = sum(block.size for block in self._kept)
        while size > self._largest_kept:
            block = self._kept.pop(0)
            size -= block.size
            self._destroy(block)

    def _take_own(self, allocation: Allocation, padded: int) -> None:
        """Give the allocation a block that is not shared: a kept one, or a new one."""
        block = self._kept_block(padded) or self._create(padded, self.memory_type, allocation.size)
        self._take_first(allocation, block, padded)

    def _create(
        self,
        size: int,
        memory_type: MemoryType,
        asked: int | None = None,
        *,
        is_shared: bool = False,
        is_staging: bool = False,
    ) -> MemoryBlock:
        """A new block; error messages name the `asked` number of bytes, or `size` without it."""
        asked = size if asked is None else asked
        self._heaps.check(size, memory_type, asked)
        limit = self._context.profile.limits.max_memory_allocation_count
        if len(self._blocks) >= limit:
            raise OutOfMemoryError(
                f"{size_text(asked)} requested, but all {limit} memory objects that the device allows are in use"
            )
        block = MemoryBlock(size, memory_type, is_shared=is_shared, is_staging=is_staging)
        self._blocks[id(block)] = block
        self._heaps.take(memory_type, size)
        try:
            block.create(self._context)
        except OutOfMemoryError as error:
            self._destroy(block)
            raise self._heaps.out_of_memory(asked, memory_type, f"; {error}") from error
        return block

    def _destroy(self, block: MemoryBlock) -> None:
        """Return a block to the driver."""
        block.destroy()
        if self._blocks.pop(id(block), None) is not None:
            self._heaps.give(block.memory_type, block.size)

    def release(self, segments: tuple[Segment, ...], lease: Lease, size: int) -> None:
        """Queue the memory of a dropped allocation. Free much memory at once if no thread is allocating."""
        self._dropped.append((segments, lease))
        if size < LARGE and len(self._dropped) < DROPPED_KEPT:
            return  # the next allocation frees it
        # If a thread is allocating, that allocation, or the repair after it, finds the memory in the queue.
        monitor = self.monitor
        if monitor.is_whole and not monitor.is_entered and self._availability.is_usable:
            with suppress(DeviceError):  # closed just now: the memory goes with the device
                monitor.run(self._drain)

    def _drain(self, keep: int = 1) -> None:
        """Free the dropped memory, and destroy all empty shared blocks but `keep`; with 0, all kept blocks too.

        One is kept, so that a program that uses little memory does not ask the driver for it each time.
        """
        has_emptied = keep == 0
        while self._dropped:
            has_emptied |= self._give(*self._dropped[0])
            self._dropped.popleft()
        while keep == 0 and self._kept:
            self._destroy(self._kept.pop())
        if has_emptied:
            empty = [block for block in self._shared if block.ranges.is_empty]
            for block in empty[keep:]:
                self._shared.remove(block)
                self._destroy(block)

    def _give(self, segments: tuple[Segment, ...], lease: Lease) -> bool:
        """Make memory free again; whether that left a shared block empty."""
        has_emptied = has_kept = False
        for block, offset, _ in segments:
            if id(block) not in self._blocks:  # a repair found it empty and destroyed it
                continue
            block.ranges.give(offset, lease)
            if block.ranges.is_empty:
                has_emptied |= block.is_shared
                if block.is_staging:
                    self._destroy(block)
                elif not block.is_shared:
                    self._kept.append(block)
                    has_kept = True
        if has_kept:
            self._limit_kept()
        return has_emptied

    def _repair(self) -> None:
        """Take back the memory of dead leases, and make anew everything that follows from the live ones."""
        for block in list(self._blocks.values()):
            block.ranges.repair(lambda lease: lease() is not None)
            if block.ranges.is_empty:
                self._destroy(block)  # an exception may have left it half made
        self._shared = [block for block in self._blocks.values() if block.is_shared]
        self._kept = []
        self._heaps.recount((block.memory_type, block.size) for block in self._blocks.values())

    @property
    def used(self) -> int:
        """Bytes that live allocations and work in flight hold."""
        self._queue.look()
        return self.monitor.run(self._used_now)

    def _used_now(self) -> int:
        self._drain()
        return sum(block.size - block.ranges.free for block in self._blocks.values() if not block.is_staging)

    @property
    def buffer_count(self) -> int:
        """Live VkDeviceMemory objects: shared blocks, single segments and staging memory."""
        return len(self._blocks)

    def close(self) -> None:
        """Drop everything; nothing may be in flight. The Vulkan objects are destroyed with the device."""
        self._dropped.clear()
        for block in list(self._blocks.values()):
            block.mapped = None
        self._blocks.clear()
        self._shared.clear()
        self._kept.clear()
