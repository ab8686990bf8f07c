"""A queue: it takes batches, and its timeline semaphore says which of them are done."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Sequence
from threading import get_ident
from typing import Any

from dmlvk.errors import DeviceError
from dmlvk.vulkan.command_buffers import Batch, CommandBuffer, CommandBuffers, fill_submit_information
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.interrupts.locks import RLock
from dmlvk.vulkan.interrupts.monitor import reentered
from dmlvk.vulkan.library import VK_SUCCESS, structure, vk
from dmlvk.vulkan.memory_use import Crossing, MemoryUse, Partner, SemaphoreValue, mark
from dmlvk.vulkan.timeline import Timeline, Waiter

# Submissions after which the queue looks which work is done, so that the objects that work keeps alive do not pile up.
POLL_INTERVAL = 64
# This mark says that nothing can be submitted now, although no submission is in doubt.
OBSTACLE = object()
ALL_COMMANDS = 0x10000  # VK_PIPELINE_STAGE_ALL_COMMANDS_BIT


class Queue:
    """A VkQueue whose submissions run one after the other and count up one timeline semaphore.

    lock: the lock of the device's monitor, held during `submit_inside`.
    command_buffers: those of the queue's family.
    timeline: signalled by the submissions.
    submitted: timeline value of the latest submission.
    completed: the highest timeline value that was seen to be reached.
    """

    # The first call after a wait finds little in the processor's caches: the fewer steps to a value, the better.
    __slots__ = (
        "__weakref__",
        "_attempted",
        "_availability",
        "_context",
        "_crossing",
        "_extended_parts",
        "_handle",
        "_in_flight",
        "_monitor",
        "_nothing",
        "_null_fence",
        "_obstacle",
        "_partner",
        "_passed_by",
        "_poll_at",
        "_release_lock",
        "_required",
        "_required_at",
        "_resting",
        "_signal",
        "_signal_value",
        "_visits",
        "command_buffers",
        "completed",
        "lock",
        "submitted",
        "timeline",
    )

    def __init__(self, context: Context, family: int, index: int = 0) -> None:
        ffi = vk.ffi
        self._context = context
        self._availability = context.availability
        self._visits = context.visits
        self._monitor = context.monitor
        self.lock = context.monitor.lock
        self.submitted = 0
        self.completed = 0
        self._poll_at = POLL_INTERVAL
        # The work in flight: the timeline value of a submission, and its batch, which is kept alive until then.
        self._in_flight: deque[tuple[int, Batch]] = deque()
        # Guards the end of `_in_flight` at which work leaves; submissions enter at the other end. It is an RLock,
        # because an RLock knows its owner.
        self._release_lock: Any = RLock()
        # Usually None. During a submission, and after one that an interrupt ended, its batch: the driver may have the
        # work, or not. OBSTACLE if the device is closed or lost, or if the next submission has to wait for another
        # queue.
        self._obstacle: Any = None
        self._attempted = 0
        # For a value that may never be signalled, a later value that will be: if the host waits for the first one, the
        # validation layer waits too, and does not see that the later one passes it.
        self._passed_by: dict[int, int] = {}
        # The arguments of `require`, and the value of the submission before the one that has to wait.
        self._required: tuple[Queue, int | None] | None = None
        self._required_at = -1
        # Another API that shares memory with the queue, and the crossing of the submission under way. With a partner,
        # the queue rests with an obstacle: each submission asks the partner first.
        self._partner: Partner | None = None
        self._crossing: Crossing | None = None
        self._resting: object | None = None
        self._extended_parts: list[Any] = []
        handle = ffi.new("VkQueue*")
        # void vkGetDeviceQueue(VkDevice device, uint32_t queueFamilyIndex, uint32_t queueIndex, VkQueue* pQueue)
        vk.vkGetDeviceQueue(context.handle, family, index, handle)
        self._handle = handle[0]
        self.command_buffers = CommandBuffers(context, family)
        self.timeline = Timeline(context)
        # Built once: a submission only sets the value to signal.
        signal_value = ffi.new("uint64_t[1]")
        # Setting the value through this view takes half the time.
        self._signal_value = memoryview(ffi.buffer(signal_value)).cast("Q")
        self._signal = structure(
            "TimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1, pSignalSemaphoreValues=signal_value
        )
        self._nothing = ffi.new("VkSubmitInfo*")
        fill_submit_information(self._nothing, self._signal, self.timeline.semaphore, None)
        self._null_fence = ffi.NULL
        context.availability.notify(self.obstruct)

    @property
    def latest(self) -> int:
        """The value at which everything submitted so far is done, a submission in doubt included."""
        return self.submitted + self._is_in_doubt

    @property
    def _is_in_doubt(self) -> bool:
        return self._obstacle is not None and self._obstacle is not OBSTACLE

    def obstruct(self) -> None:
        """Make the next submission check first: the device is closed or lost, or another queue has to come first."""
        if self._obstacle is None:
            self._obstacle = OBSTACLE

    def batch(
        self,
        command_buffers: Sequence[CommandBuffer],
        uses: Collection[MemoryUse],
        writes: Collection[MemoryUse],
        *,
        kept: object = None,
        registered: bool = True,
    ) -> Batch:
        """Prepare recorded command buffers for any number of submissions.

        command_buffers: primary command buffers of this queue, in the order in which they run.
        uses, writes: the memory that they read or write, and the part of it that they write.
        kept: what the batch keeps alive, and therefore work in flight: pipelines, descriptor sets, memory.
        registered: whether the memory itself knows the batch: worth it for a batch that is submitted often, or uses
            little memory.
        """
        signal, semaphore = self._signal, self.timeline.semaphore
        return Batch(command_buffers, signal, semaphore, uses, writes, kept=kept, registered=registered)

    def submit(self, batch: Batch) -> int:
        """Submit a batch, to run after all earlier ones. It is kept alive until the work is done.

        Returns the timeline value at which the work is done.
        """
        with self.lock: return self.submit_inside(batch)  # noqa: E701  # fmt: skip

    def submit_inside(self, batch: Batch) -> int:
        """As `submit`, for a caller that has entered the device's monitor, or holds its lock.

        This is the path of every call, so it does without Monitor.run. If a signal handler calls it in the middle of
        another submission, it finds that submission as an obstacle, and `_prepare` refuses the call.
        """
        information = batch.information
        if self._obstacle is not None:
            information = self._prepare(batch)
        # An exception may strike between any two steps. In this order, work that may be running counts as running, and
        # everything that it uses is kept alive.
        self._obstacle = batch
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
            batch.run.last = self.submitted  # its true value is this one or an earlier one
            self._obstacle = OBSTACLE
            raise self._context.failure(result, "vkQueueSubmit")
        if not batch.is_kept:  # else it is in `_in_flight` already, and stays there until its latest run is done
            self._in_flight.append((value, batch))
            batch.is_kept = True
        self.submitted = value
        self._obstacle = self._resting
        if self._crossing is not None:
            self._cross()
        if value >= self._poll_at:
            self.look()
        return value

    def _prepare(self, batch: Batch) -> Any:
        """Remove the obstacle to a submission; returns the VkSubmitInfo[] for it."""
        self._availability.require_open()
        if self._is_in_doubt:
            self._refuse_if_nested()
            self._settle()
        waits: list[SemaphoreValue] = []
        signals: list[SemaphoreValue] = []
        if self._required_at == self.submitted:
            waits += self._required_values()
        if self._partner is not None:
            self._crossing = crossing = self._partner.before_submission(self, batch.uses)
            if crossing is not None:
                waits.append(crossing.wait)
                signals += [] if crossing.signal is None else [crossing.signal]
        return self._extended(batch, waits, signals) if waits or signals else batch.information

    def join(self, partner: Partner) -> None:
        """Order the submissions from now on with the work of another API. Called with the device's monitor entered."""
        self._partner = partner
        self._resting = OBSTACLE
        self.obstruct()

    def _cross(self) -> None:
        """Tell the partner that the submission with the crossing was made."""
        crossing, self._crossing = self._crossing, None
        if crossing is not None and self._partner is not None:
            self._partner.after_submission(self, crossing)

    def _refuse_if_nested(self) -> None:
        """Raise a DeviceError if the submission in doubt was not ended by an exception, but is still under way."""
        frame = sys._getframe(2).f_back  # the caller of `submit_inside`
        while frame is not None:
            if frame.f_code in UNDER_WAY and frame.f_locals["self"]._context is self._context:
                raise reentered()
            frame = frame.f_back

    def _settle(self) -> None:
        """After an exception inside `submit`: make the timeline pass the values that may never be signalled."""
        # A new value each time: an exception may strike here as well, and no value may be signalled twice.
        self._attempted = value = max(self._attempted, self.submitted + 1) + 1
        if self._is_in_doubt:
            self._in_flight.append((value, self._obstacle))
        self._signal_value[0] = value
        result = vk.vkQueueSubmit(self._handle, 1, self._nothing, self._null_fence)
        if result != VK_SUCCESS:
            raise self._context.failure(result, "vkQueueSubmit")
        self._passed_by = {passed: by for passed, by in self._passed_by.items() if by > self.completed}
        self._passed_by.update(dict.fromkeys(range(self.submitted + 1, value), value))
        if self._required_at == self.submitted:
            self._required_at = value
        self.submitted = value
        self._obstacle = OBSTACLE

    def submit_nothing(self) -> None:
        """Submit no work: some drivers free destroyed objects only at the next submission."""
        self._monitor.run(self._settle)

    def require(self, other: Queue, value: int | None) -> None:
        """Make the next submission wait for another queue. Called with the device's monitor entered.

        value: the timeline value of the other queue that has to be reached; None for everything that is submitted there
            by then.
        """
        if self._required is not None and self._required_at == self.submitted:
            earlier = self._required[1]
            value = None if value is None or earlier is None else max(earlier, value)
        self._required = (other, value)
        self._required_at = self.submitted
        self.obstruct()

    def _required_values(self) -> list[SemaphoreValue]:
        """The value for which the next submission waits, as `require` was told; none if it is reached already."""
        assert self._required is not None
        other, value = self._required
        settled = other._settled()
        value = settled if value is None else min(other._passed_by.get(value, value), settled)
        return [SemaphoreValue(other.timeline.semaphore, value)] if value > other.completed else []

    def _extended(self, batch: Batch, waits: list[SemaphoreValue], signals: list[SemaphoreValue]) -> Any:
        """A VkSubmitInfo[] of a batch that also waits and signals; alive until the next call of this function."""
        ffi = vk.ffi
        information = ffi.new("VkSubmitInfo[]", batch.count)
        ffi.memmove(information, batch.information, ffi.sizeof(information))
        parts: list[Any] = []

        def timeline_of(index: int) -> Any:
            """A copy of the VkTimelineSemaphoreSubmitInfo of one VkSubmitInfo."""
            copy = ffi.new(
                "VkTimelineSemaphoreSubmitInfo*",
                ffi.cast("VkTimelineSemaphoreSubmitInfo*", information[index].pNext)[0],
            )
            information[index].pNext = copy
            parts.append(copy)
            return copy

        if waits:
            values = ffi.new("uint64_t[]", [each.value for each in waits])
            semaphores = ffi.new("VkSemaphore[]", [each.semaphore[0] for each in waits])
            stages = ffi.new("VkPipelineStageFlags[]", [ALL_COMMANDS] * len(waits))
            parts += [values, semaphores, stages]
            timeline = timeline_of(0)
            timeline.waitSemaphoreValueCount = information[0].waitSemaphoreCount = len(waits)
            timeline.pWaitSemaphoreValues = values
            information[0].pWaitSemaphores = semaphores
            information[0].pWaitDstStageMask = stages
        if signals:
            last = batch.count - 1
            # The queue's own value comes first.
            values = ffi.new("uint64_t[]", [self.submitted + batch.count, *(each.value for each in signals)])
            semaphores = ffi.new(
                "VkSemaphore[]", [self.timeline.semaphore[0], *(each.semaphore[0] for each in signals)]
            )
            parts += [values, semaphores]
            timeline = timeline_of(last)
            timeline.signalSemaphoreValueCount = information[last].signalSemaphoreCount = 1 + len(signals)
            timeline.pSignalSemaphoreValues = values
            information[last].pSignalSemaphores = semaphores
        self._extended_parts = parts
        return information

    def has_reached(self, value: int) -> bool:
        """Whether the timeline has reached a value; does not wait."""
        if value > self.completed and self._availability.is_usable:
            result = self.look()
            if result != VK_SUCCESS:
                raise self._context.failure(result, "vkGetSemaphoreCounterValue")
        return value <= self.completed

    def look(self) -> int:
        """Read the timeline, and drop the objects of the work that is done. Needs no lock.

        Returns the VkResult of the reading; some callers can go on after a failure.
        """
        if not self._availability.is_usable:
            return VK_SUCCESS
        self._poll_at = self.submitted + POLL_INTERVAL
        try:
            result, value = self._visits.during(self.timeline.look)
        except DeviceError:  # closed just now
            return VK_SUCCESS
        if result == VK_SUCCESS:
            # A lost device may report any value.
            self.completed = max(self.completed, min(value, self.submitted))
            self._release_completed()
        return result

    @property
    def is_releasing(self) -> bool:
        """Whether this thread is dropping the objects of work that is done: no other thread can do so meanwhile."""
        return bool(self._release_lock._is_owned())

    def _release_completed(self) -> None:
        lock = self._release_lock
        if self._in_flight and not self.is_releasing:  # else this thread is in the middle of `_release`
            with lock: self._release()  # noqa: E701  # fmt: skip

    def _release(self) -> None:
        in_flight, completed = self._in_flight, self.completed
        try:
            while in_flight and in_flight[0][0] <= completed:
                _, batch = in_flight[0]
                # Other threads submit meanwhile. In this order, either they see that the batch is not kept, or this
                # thread sees their run.
                batch.is_kept = False
                last = batch.run.last
                if last > completed:
                    in_flight.append((last, batch))
                    batch.is_kept = True
                in_flight.popleft()
        except IndexError:
            return  # the device is closed just now, and `drop` has emptied it

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait until the timeline reaches a value. Best called outside of the device's monitor, which others wait for.

        Raises WaitTimeoutError: it did not happen within `timeout` seconds; it can be waited for again.
        Raises DeviceError: the device was closed or lost.
        """
        if value <= self.completed:
            return
        if value > self.submitted:
            # The value of a submission that another thread is making just now, or that failed or was interrupted.
            value = min(value, self._monitor.run(self._settled))
        if self._passed_by:
            value = self._passed_by.get(value, value)
        timeline = self.timeline
        waiter = timeline.take_waiter()
        visit = waiter.visit
        visit.thread = get_ident()
        with visit.lock: self._wait(waiter, value, timeout)  # noqa: E701  # fmt: skip
        timeline.give_back(waiter)  # an exception before this line drops the waiter
        self._release_completed()

    def _wait(self, waiter: Waiter, value: int, timeout: float | None) -> None:
        if not self._availability.is_usable:
            self._availability.require_open()
        self.timeline.wait(waiter, value, timeout, self.submitted)
        if value > self.completed:
            self.completed = value

    def _settled(self) -> int:
        """Resolve a submission in doubt; returns the value at which everything submitted is done."""
        if self._is_in_doubt:
            self._settle()
        return self.submitted

    def wait_idle(self) -> None:
        """Wait for everything submitted so far."""
        self.wait(self._monitor.run(self._settled))
        self._release_completed()

    def drain(self) -> None:
        """Before closing, when no thread submits any more: wait for all work, unless the device is lost."""
        if not self._availability.is_lost:
            if self._is_in_doubt:
                self._settle()
            if self.submitted > self.completed:
                self.timeline.wait(self.timeline.take_waiter(), self.submitted, None, self.submitted)

    def disown(self) -> None:
        """In a forked child, which lacks the parent's other threads: release the lock that one of them may hold."""
        self._release_lock._at_fork_reinit()

    def drop(self) -> None:
        """When nothing runs any more: drop everything that work in flight kept alive."""
        self.completed = self.submitted
        self._in_flight.clear()
        self._obstacle = OBSTACLE


# While one of these functions runs, a submission is in doubt because it is under way.
UNDER_WAY = (Queue.submit_inside.__code__, Queue._settle.__code__)
