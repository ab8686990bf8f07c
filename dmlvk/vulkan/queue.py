"""A queue: batches go in, a timeline semaphore says what is done."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Collection, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from dmlvk.errors import DeviceError
from dmlvk.vulkan.command_buffers import Batch, CommandBuffer, CommandBuffers, fill_submit_information
from dmlvk.vulkan.library import VK_SUCCESS, vk
from dmlvk.vulkan.memory_use import MemoryUse, mark
from dmlvk.vulkan.monitor import reentered
from dmlvk.vulkan.timeline import Timeline, Waiter

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

# Submissions after which the queue looks what is done, so that what they keep alive does not pile up unseen.
POLL_INTERVAL = 64
# What stands before the next submission where it is not one in doubt.
OBSTACLE = object()


class Queue:
    """A VkQueue whose submissions run one after the other and count up one timeline semaphore.

    Attributes
    ----------
    lock : RLock
        The device's monitor's, held during `submit_inside`.
    timeline : Timeline
        What the submissions signal.
    submitted : int
        Timeline value of the latest submission.
    completed : int
        Highest timeline value that was seen to be reached.
    """

    # The first call after a wait finds little in the processor's caches: the fewer steps to a value, the better.
    __slots__ = (
        "_attempted",
        "_device",
        "_handle",
        "_in_flight",
        "_monitor",
        "_nothing",
        "_null_fence",
        "_obstacle",
        "_passed_by",
        "_poll_at",
        "_release_lock",
        "_required",
        "_required_at",
        "_signal",
        "_signal_value",
        "_waiting_parts",
        "command_buffers",
        "completed",
        "lock",
        "submitted",
        "timeline",
    )

    def __init__(self, device: VulkanDevice, family: int, index: int = 0) -> None:
        ffi = vk.ffi
        self._device = device
        self._monitor = device.monitor
        self.lock = device.monitor.lock
        self.submitted = 0
        self.completed = 0
        self._poll_at = POLL_INTERVAL
        # What its submissions keep alive, with the batch, and the value of the submission at which it was put here.
        self._in_flight: deque[tuple[int, Batch | None, Any]] = deque()
        # An RLock, for it knows whose it is. Submissions come in at one end of what is in flight; this is about the
        # other.
        self._release_lock: Any = threading.RLock()
        # Usually None. What is being submitted, or was when an interrupt came: it may have reached the driver, or not.
        # OBSTACLE where the device is closed or lost, or another queue has to be waited for.
        self._obstacle: Any = None
        self._attempted = 0
        # For a value that may never be signalled, the one after it that will: the validation layer waits for each that
        # is waited for, and does not see that a later one passes it.
        self._passed_by: dict[int, int] = {}
        # What `require` was given, for the submission after this one.
        self._required: tuple[Queue, int | None] | None = None
        self._required_at = -1
        self._waiting_parts: tuple[Any, ...] = ()
        handle = ffi.new("VkQueue*")
        # void vkGetDeviceQueue(VkDevice device, uint32_t queueFamilyIndex, uint32_t queueIndex, VkQueue* pQueue)
        vk.vkGetDeviceQueue(device.handle, family, index, handle)
        self._handle = handle[0]
        self.command_buffers = CommandBuffers(device, family)
        self.timeline = Timeline(device)
        # Built once: a submission only sets the value to signal.
        signal_value = ffi.new("uint64_t[1]")
        # A view of it, through which it is set in half the time.
        self._signal_value = memoryview(ffi.buffer(signal_value)).cast("Q")
        self._signal = ffi.new("VkTimelineSemaphoreSubmitInfo*")
        self._signal.sType = vk.VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO
        self._signal.signalSemaphoreValueCount = 1
        self._signal.pSignalSemaphoreValues = signal_value
        self._nothing = ffi.new("VkSubmitInfo*")
        fill_submit_information(self._nothing, self._signal, self.timeline.semaphore, None)
        self._null_fence = ffi.NULL

    @property
    def latest(self) -> int:
        """The value at which everything is done that may have been submitted so far, what is in doubt included."""
        return self.submitted + self._is_in_doubt

    @property
    def _is_in_doubt(self) -> bool:
        return self._obstacle is not None and self._obstacle is not OBSTACLE

    def obstruct(self) -> None:
        """Let the next submission look: the device is closed or lost, or another queue has to be waited for."""
        if self._obstacle is None:
            self._obstacle = OBSTACLE

    def batch(
        self,
        command_buffers: Sequence[CommandBuffer],
        uses: Collection[MemoryUse],
        writes: Collection[MemoryUse],
        *,
        registered: bool = True,
    ) -> Batch:
        """Prepare recorded command buffers for any number of submissions.

        Parameters
        ----------
        command_buffers : sequence of CommandBuffer
            Primary ones of `command_buffers`, to run in this order.
        uses, writes : collection of MemoryUse
            The memory that they read or write, and of that, what they write.
        registered : bool
            Whether that memory is to know it: for what is submitted often, or uses little memory.
        """
        return Batch(command_buffers, self._signal, self.timeline.semaphore, uses, writes, registered=registered)

    def submit(self, batch: Batch, keep: Any) -> int:
        """Submit a batch, to run after all earlier ones.

        Parameters
        ----------
        batch : Batch
        keep : object
            Kept alive until the work is done: the batch itself, or what holds it. The same each time, or as good.

        Returns
        -------
        int
            The timeline value that says that it is done.
        """
        with self.lock: return self.submit_inside(batch, keep)  # noqa: E701  # fmt: skip

    def submit_inside(self, batch: Batch, keep: Any) -> int:
        """As `submit`, with the device's monitor entered, or its lock held.

        The path of every call: it does without Monitor.run. A signal handler's call in the middle of another submission
        finds that one's obstacle, and is refused in `_prepare`.
        """
        information = batch.information
        if self._obstacle is not None:
            information = self._prepare(batch)
        # An exception may strike between any two steps. The order is such that the work then counts as running when it
        # may be, and everything that it uses is kept.
        self._obstacle = keep
        self._signal_value[0] = batch.run.last = value = self.submitted + 1
        count = batch.count
        if count != 1:
            self._attempted = batch.run.last = value = self.submitted + count
            batch.number(value)
        if not batch.is_registered:
            mark(value, batch.uses, batch.writes)
        # VkResult vkQueueSubmit(VkQueue queue, uint32_t submitCount, const VkSubmitInfo* pSubmits, VkFence fence)
        result = vk.vkQueueSubmit(self._handle, count, information, self._null_fence)
        if result:  # not VK_SUCCESS
            batch.run.last = self.submitted  # or sooner
            self._obstacle = OBSTACLE
            raise self._device.failure(result, "vkQueueSubmit")
        if not batch.is_kept:  # else it is among what is in flight, and stays there until its latest run is done
            self._in_flight.append((value, batch, keep))
            batch.is_kept = True
        self.submitted = value
        self._obstacle = None
        if value >= self._poll_at:
            self.look()
        return value

    def _prepare(self, batch: Batch) -> Any:
        """Before a submission that is not like any other; returns the VkSubmitInfo[] for it."""
        self._device.require_open()
        if self._is_in_doubt:
            self._refuse_if_nested()
            self._settle()
        return self._waiting(batch) if self._required_at == self.submitted else batch.information

    def _refuse_if_nested(self) -> None:
        """Raise a DeviceError where the submission in doubt is not one that an exception ended, but still under way."""
        frame = sys._getframe(2).f_back  # of what called `submit_inside`
        while frame is not None:
            if frame.f_code in UNDER_WAY and frame.f_locals["self"]._device is self._device:
                raise reentered()
            frame = frame.f_back

    def _settle(self) -> None:
        """After an exception inside `submit`: make the timeline pass the values that may never be signalled."""
        # Another one each time: an exception may strike here as well, and no value may be signalled twice.
        self._attempted = value = max(self._attempted, self.submitted + 1) + 1
        self._in_flight.append((value, None, self._obstacle))
        self._signal_value[0] = value
        result = vk.vkQueueSubmit(self._handle, 1, self._nothing, self._null_fence)
        if result != VK_SUCCESS:
            raise self._device.failure(result, "vkQueueSubmit")
        self._passed_by = {passed: by for passed, by in self._passed_by.items() if by > self.completed}
        self._passed_by.update(dict.fromkeys(range(self.submitted + 1, value), value))
        if self._required_at == self.submitted:
            self._required_at = value
        self.submitted = value
        self._obstacle = OBSTACLE

    def submit_nothing(self) -> None:
        """Give the driver occasion to do what it does at a submission."""
        self._monitor.run(self._settle)

    def require(self, other: Queue, value: int | None) -> None:
        """Make the next submission wait for another queue. Called with the device's monitor entered.

        Parameters
        ----------
        other : Queue
        value : int or None
            The value that its timeline is to reach; None for everything that is submitted there by then.
        """
        if self._required is not None and self._required_at == self.submitted:
            earlier = self._required[1]
            value = None if value is None or earlier is None else max(earlier, value)
        self._required = (other, value)
        self._required_at = self.submitted
        self.obstruct()

    def _waiting(self, batch: Batch) -> Any:
        """A VkSubmitInfo[] that also waits for what `require` was given; kept until as many others were made."""
        ffi = vk.ffi
        assert self._required is not None
        other, value = self._required
        settled = other._settled()
        value = settled if value is None else min(other._passed_by.get(value, value), settled)
        if value <= other.completed:
            return batch.information
        values = ffi.new("uint64_t[1]", [value])
        stages = ffi.new("VkPipelineStageFlags[1]", [0x10000])  # VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
        waiting = ffi.new("VkSubmitInfo[]", batch.count)
        ffi.memmove(waiting, batch.information, ffi.sizeof(waiting))
        first = ffi.cast("VkTimelineSemaphoreSubmitInfo*", waiting[0].pNext)
        signal = ffi.new("VkTimelineSemaphoreSubmitInfo*", first[0])
        signal.waitSemaphoreValueCount = 1
        signal.pWaitSemaphoreValues = values
        waiting[0].pNext = signal
        waiting[0].waitSemaphoreCount = 1
        waiting[0].pWaitSemaphores = other.timeline.semaphore
        waiting[0].pWaitDstStageMask = stages
        self._waiting_parts = (values, stages, signal)
        return waiting

    def has_reached(self, value: int) -> bool:
        """Whether the timeline has reached a value; does not wait."""
        if value > self.completed and self._device.is_usable:
            result = self.look()
            if result != VK_SUCCESS:
                raise self._device.failure(result, "vkGetSemaphoreCounterValue")
        return value <= self.completed

    def look(self) -> int:
        """See how far the device is, and let go of what is done.

        Returns the VkResult, for those who can go on without knowing. Needs no lock.
        """
        if not self._device.is_usable:
            return VK_SUCCESS
        self._poll_at = self.submitted + POLL_INTERVAL
        try:
            result, value = self._device.visits.during(self.timeline.look)
        except DeviceError:  # closed just now
            return VK_SUCCESS
        if result == VK_SUCCESS:
            # A lost device may report any value.
            self.completed = max(self.completed, min(value, self.submitted))
            self._release_completed()
        return result

    def _release_completed(self) -> None:
        lock = self._release_lock
        if self._in_flight and not lock._is_owned():  # else what lets go of something is at it already
            with lock: self._release()  # noqa: E701  # fmt: skip

    def _release(self) -> None:
        in_flight, completed = self._in_flight, self.completed
        while in_flight and in_flight[0][0] <= completed:
            _, batch, keep = in_flight[0]
            if batch is not None:
                # In this order, for others submit meanwhile: they see that it is not kept, or this their run.
                batch.is_kept = False
                last = batch.run.last
                if last > completed:
                    in_flight.append((last, batch, keep))
                    batch.is_kept = True
            in_flight.popleft()

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait until the timeline reaches a value; best without the device's monitor, for others wait for that.

        Raises
        ------
        WaitTimeoutError
            Not within `timeout` seconds; it can be waited for again.
        DeviceError
            The device was closed or lost.
        """
        if value <= self.completed:
            return
        if value > self.submitted:
            # Of a submission that another thread is making just now, or that failed or was interrupted.
            value = min(value, self._monitor.run(self._settled))
        if self._passed_by:
            value = self._passed_by.get(value, value)
        timeline = self.timeline
        waiter = timeline.take_waiter()
        visit = waiter.visit
        visit.thread = get_ident()
        with visit.lock: self._wait(waiter, value, timeout)  # noqa: E701  # fmt: skip
        timeline.give_back(waiter)  # an exception before this drops it
        self._release_completed()

    def _wait(self, waiter: Waiter, value: int, timeout: float | None) -> None:
        if not self._device.is_usable:
            self._device.require_open()
        self.timeline.wait(waiter, value, timeout, self.submitted)
        if value > self.completed:
            self.completed = value

    def _settled(self) -> int:
        """The value at which all is done that was submitted, now that nothing is in doubt."""
        if self._is_in_doubt:
            self._settle()
        return self.submitted

    def wait_idle(self) -> None:
        """Wait for everything submitted so far."""
        self.wait(self._monitor.run(self._settled))
        self._release_completed()

    def drain(self) -> None:
        """Before closing, when nobody submits any more: wait for all work, unless the device is lost."""
        if not self._device.is_lost:
            if self._is_in_doubt:
                self._settle()
            if self.submitted > self.completed:
                self.timeline.wait(self.timeline.take_waiter(), self.submitted, None, self.submitted)

    def disown(self) -> None:
        """In a forked child, which has no thread but its own."""
        self._release_lock._at_fork_reinit()

    def drop(self) -> None:
        """Nothing runs any more: let go of everything."""
        self.completed = self.submitted
        self._in_flight.clear()
        self._obstacle = OBSTACLE


# Functions in which a submission is in doubt because it is under way.
UNDER_WAY = (Queue.submit_inside.__code__, Queue._settle.__code__)
