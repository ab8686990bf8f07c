"""A queue: batches go in, a timeline semaphore says what is done."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dmlvk.vulkan.access import Access, mark
from dmlvk.vulkan.command_buffers import Batch, CommandBuffers, submit_information
from dmlvk.vulkan.library import VK_SUCCESS, vk
from dmlvk.vulkan.timeline import Timeline

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
        "_lock",
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
        "submitted",
        "timeline",
    )

    def __init__(self, device: VulkanDevice, family: int, index: int = 0) -> None:
        ffi = vk.ffi
        self._device = device
        self._lock = device.lock
        self.submitted = 0
        self.completed = 0
        self._poll_at = POLL_INTERVAL
        # A batch with what its submissions keep alive, and the value of the submission at which it was put here.
        self._in_flight: deque[tuple[int, Batch | None, Any]] = deque()
        self._release_lock = threading.Lock()  # submissions come in at one end, this is about the other
        # Usually None. What is being submitted, or was when an interrupt came: it may have reached the driver, or not.
        # OBSTACLE where the device is closed or lost, or another queue has to be waited for.
        self._obstacle: Any = None
        self._attempted = 0
        # For a value that may never be signalled, the one after it that will: the validation layer waits for each that
        # is waited for, and does not see that a later one passes it.
        self._passed_by: dict[int, int] = {}
        # What `require` was given, for the submission after this one.
        self._required: tuple[Any, int] | None = None
        self._required_at = -1
        self._waiting_parts: tuple[Any, ...] = ()
        handle = ffi.new("VkQueue*")
        # void vkGetDeviceQueue(VkDevice device, uint32_t queueFamilyIndex, uint32_t queueIndex, VkQueue* pQueue)
        vk.vkGetDeviceQueue(device.handle, family, index, handle)
        self._handle = handle[0]
        self.command_buffers = CommandBuffers(device, family)
        try:
            self.timeline = Timeline(device)
        except BaseException:
            self.command_buffers.close()
            raise
        # Built once: a submission only sets the value to signal.
        signal_value = ffi.new("uint64_t[1]")
        # A view of it, through which it is set in half the time.
        self._signal_value = memoryview(ffi.buffer(signal_value)).cast("Q")
        self._signal = ffi.new("VkTimelineSemaphoreSubmitInfo*")
        self._signal.sType = vk.VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO
        self._signal.signalSemaphoreValueCount = 1
        self._signal.pSignalSemaphoreValues = signal_value
        self._nothing = submit_information(self._signal, self.timeline.semaphore, None)
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
        self, command_buffer: Any, uses: Collection[Access], writes: Collection[Access], *, registered: bool = True
    ) -> Batch:
        """Prepare a recorded command buffer for any number of submissions.

        Parameters
        ----------
        command_buffer : VkCommandBuffer
            A primary one of `command_buffers`.
        uses, writes : collection of Access
            The memory that it reads or writes, and of that, what it writes.
        registered : bool
            Whether that memory is to know it: for what is submitted often, or uses little memory.
        """
        return Batch(
            self.command_buffers,
            command_buffer,
            self._signal,
            self.timeline.semaphore,
            uses,
            writes,
            registered=registered,
        )

    def submit(self, batch: Batch, keep: Any) -> int:
        """Submit a batch, to run after all earlier ones.

        Takes the device's lock; whoever submits several batches that belong together holds it around them.

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
        lock = self._lock
        try:
            # Half the time of `with`, and far less to fetch into the caches after a wait.
            lock.acquire()
            information = batch.information
            if self._obstacle is not None:
                information = self._prepare(information)
            # Signal handlers may raise between any two steps. The order is such that the work then counts as running
            # when it may be, and everything that it uses is kept.
            self._obstacle = keep
            self._signal_value[0] = batch.run.last = value = self.submitted + 1
            if not batch.is_registered:
                mark(value, batch.uses, batch.writes)
            # VkResult vkQueueSubmit(VkQueue queue, uint32_t submitCount, const VkSubmitInfo* pSubmits, VkFence fence)
            result = vk.vkQueueSubmit(self._handle, 1, information, self._null_fence)
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
        except BaseException as error:
            try:
                lock.release()
            except RuntimeError:  # interrupted while it waited for the lock
                raise error from None
            raise
        lock.release()  # Python looks for signals after a call: at none of the steps from the last one to this
        return value

    def _prepare(self, information: Any) -> Any:
        """Before a submission that is not like any other; returns the VkSubmitInfo for it."""
        self._device.require_open()
        if self._is_in_doubt:
            self._settle()
        return self._waiting(information) if self._required_at == self.submitted else information

    def _settle(self) -> None:
        """After an interrupt inside `submit`: make the timeline pass the value that may never be signalled."""
        self._in_flight.append((self.submitted + 1, None, self._obstacle))
        # Another one each time: an interrupt may come here as well, and no value may be signalled twice.
        self._attempted = value = max(self._attempted, self.submitted + 1) + 1
        self._signal_value[0] = value
        result = vk.vkQueueSubmit(self._handle, 1, self._nothing, self._null_fence)
        if result != VK_SUCCESS:
            raise self._device.failure(result, "vkQueueSubmit")
        self._passed_by[self.submitted + 1] = value
        if self._required_at == self.submitted:
            self._required_at = value
        self.submitted = value
        self._obstacle = OBSTACLE

    def require(self, other: Queue, value: int) -> None:
        """Make the next submission wait until another queue's timeline reaches a value. With the device's lock held."""
        if self._required is None or self._required_at != self.submitted or value > self._required[1]:
            self._required = (other.timeline.semaphore, value)
            self._required_at = self.submitted
            self.obstruct()

    def _waiting(self, information: Any) -> Any:
        """A VkSubmitInfo that also waits for what `require` was given; kept until as many others were made."""
        ffi = vk.ffi
        assert self._required is not None
        semaphore, value = self._required
        values = ffi.new("uint64_t[1]", [value])
        stages = ffi.new("VkPipelineStageFlags[1]", [0x10000])  # VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
        signal = ffi.new("VkTimelineSemaphoreSubmitInfo*", self._signal[0])
        signal.waitSemaphoreValueCount = 1
        signal.pWaitSemaphoreValues = values
        waiting = ffi.new("VkSubmitInfo*", information[0])
        waiting.pNext = signal
        waiting.waitSemaphoreCount = 1
        waiting.pWaitSemaphores = semaphore
        waiting.pWaitDstStageMask = stages
        self._waiting_parts = (values, stages, signal)
        return waiting

    def has_reached(self, value: int) -> bool:
        """Whether the timeline has reached a value; does not wait."""
        if value > self.completed:
            with self._device.lock:
                if self._device.is_usable:
                    self.poll()
        return value <= self.completed

    def poll(self) -> int:
        """Look how far the device is, and let go of what is done. Called with the device's lock held."""
        result = self.look()
        if result != VK_SUCCESS:
            raise self._device.failure(result, "vkGetSemaphoreCounterValue")
        return self.completed

    def look(self) -> int:
        """As `poll`, but a failure is only returned: for those who can go on without knowing."""
        if self._device.is_closed:
            return VK_SUCCESS
        self._poll_at = self.submitted + POLL_INTERVAL
        result, value = self.timeline.look()
        if result == VK_SUCCESS:
            # A lost device may report any value.
            self.completed = max(self.completed, min(value, self.submitted))
            self._release_completed()
        return result

    def _release_completed(self) -> None:
        # Whoever is at it already lets go of this too, or the next one does.
        if self._release_lock.acquire(False):
            try:
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
            finally:
                self._release_lock.release()

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait until the timeline reaches a value. The device's lock need not be held, and had better not be.

        Raises
        ------
        WaitTimeoutError
            Not within `timeout` seconds; it can be waited for again.
        DeviceError
            The device was closed or lost.
        """
        if value <= self.completed:
            return
        device = self._device
        if value > self.submitted:
            # Of a submission that another thread is making just now, or that failed or was interrupted.
            with device.lock:
                device.require_open()
                if self._is_in_doubt:
                    self._settle()
                value = min(value, self.submitted)
        if self._passed_by:
            value = self._passed_by.get(value, value)
        timeline, guests = self.timeline, device.guests
        waiter = timeline.take_waiter()
        try:
            guests.add(waiter)
            if not device.is_usable:
                device.require_open()
            timeline.wait(waiter, value, timeout, self.submitted)
        finally:
            guests.discard(waiter)
            timeline.give_back(waiter)
        if value > self.completed:
            self.completed = value
        self._release_completed()

    def wait_idle(self) -> None:
        """Wait for everything submitted so far."""
        with self._device.lock:
            self._device.require_open()
            if self._is_in_doubt:
                self._settle()
        self.wait(self.submitted)
        self._release_completed()

    def drain(self) -> None:
        """Before closing, when nobody submits any more: wait for all work, unless the device is lost."""
        if not self._device.is_lost:
            if self._is_in_doubt:
                self._settle()
            if self.submitted > self.completed:
                self.timeline.wait(self.timeline.take_waiter(), self.submitted, None, self.submitted)

    def drop(self) -> None:
        """Nothing runs any more: let go of everything."""
        self.completed = self.submitted
        self._in_flight.clear()
        self._obstacle = OBSTACLE

    def close(self) -> None:
        """Destroy semaphore and command buffers; nothing may be in flight."""
        self.command_buffers.close()
        self.timeline.close()
