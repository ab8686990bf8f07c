"""A logical device: it puts the parts together, and takes them down when it is closed."""

from __future__ import annotations

import sys
from contextlib import suppress
from weakref import ref

from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import DeviceError, ReentryError
from dmlvk.vulkan.allocation import Allocation, HostView
from dmlvk.vulkan.blocks import MemoryBlock, Segment
from dmlvk.vulkan.configuration import Configuration, configure
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.descriptors import DescriptorSets
from dmlvk.vulkan.external import memory_handle, semaphore_handle, timeline_for_export
from dmlvk.vulkan.handles import Handle
from dmlvk.vulkan.host_threads import in_background
from dmlvk.vulkan.instance import close_ownerless, open_devices, while_process_lasts
from dmlvk.vulkan.interrupts.monitor import Monitor, reentered
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.memory import MemoryPool
from dmlvk.vulkan.memory_use import Partner
from dmlvk.vulkan.narrower_profile import narrower
from dmlvk.vulkan.pauses import Pauses
from dmlvk.vulkan.physical_device import PhysicalDevice
from dmlvk.vulkan.pipelines import Pipelines
from dmlvk.vulkan.queue import Queue
from dmlvk.vulkan.recorder import DispatchBarrier
from dmlvk.vulkan.timestamps import QueryPools
from dmlvk.vulkan.transfers import Transfers


class VulkanDevice:
    """A VkDevice with its queue, memory, pipelines and transfers.

    owner: when it is gone, nothing uses the device any more.
    profile: capabilities to use instead of the device's own, at most as large as those: see `narrower`.
    force_staging: move data through staging memory even if the host reaches the device's memory directly; for tests.
    force_copy_queue: on a device with one queue only, treat that queue as two; for tests.
    context: the part that all others stand on.
    profile: the capabilities that plans are made for.
    monitor: entered while command buffers are recorded and submitted.
    visits: the waits and the uses of mapped memory that are going on; closing the device waits for them.
    queue: the compute queue.
    copy_queue: a second queue, on which large copies run beside kernels.
    pauses: of the compute queue.
    """

    # On the class, so that a device that an exception left half made can be closed.
    _is_idle = False
    _is_closing = False
    _is_destroyed = False
    _has_dropped_view = False

    def __init__(
        self,
        physical: PhysicalDevice,
        owner: object,
        *,
        profile: DeviceProfile | None = None,
        force_staging: bool = False,
        force_copy_queue: bool = False,
    ) -> None:
        self.profile = physical.profile if profile is None else narrower(profile, physical.profile)
        configuration = configure(physical, self.profile, force_copy_queue=force_copy_queue)
        self.context = context = Context(physical, self.profile, configuration)
        self.monitor = context.monitor
        self.visits = context.visits
        self._closing = Monitor()
        # A view takes itself out when it goes.
        self._views: set[ref[HostView]] = set()
        self.copy_queue: Queue | None = None
        close_ownerless()
        try:
            while_process_lasts(self._open, owner, configuration, force_staging)
        except BaseException:
            self.close()
            raise

    def _open(self, owner: object, configuration: Configuration, force_staging: bool) -> None:
        # From here on, whatever an exception interrupts: everything that was made is destroyed when the owner is gone.
        open_devices[self] = ref(owner)
        self.visits.during(self._make_parts, configuration, force_staging)

    def _make_parts(self, configuration: Configuration, force_staging: bool) -> None:
        context = self.context
        context.create()
        self.queue = Queue(context, configuration.compute_family.index)
        if configuration.copy_queue is not None:
            self.copy_queue = Queue(context, configuration.copy_queue.family, configuration.copy_queue.index)
        self.dispatch_barrier = DispatchBarrier(self.queue.command_buffers)
        self.memory = MemoryPool(context, self.queue, force_staging=force_staging)
        self.transfers = Transfers(context, self.queue, self.copy_queue, self.memory)
        self.descriptors = DescriptorSets(context)
        self.pipelines = Pipelines(context, self.descriptors, self.queue)
        self.pauses = Pauses(self.queue, self.visits)
        self.query_pools = QueryPools(context)
        context.availability.grant()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.context.availability.is_closed

    @property
    def is_lost(self) -> bool:
        """Whether a call returned VK_ERROR_DEVICE_LOST."""
        return self.context.availability.is_lost

    def require_open(self) -> None:
        """Raise a DeviceError if the device is closed or lost, or was opened before a fork."""
        self.context.availability.require_open()

    def close(self) -> None:
        """Wait for the work in flight, then destroy everything. Closing again does nothing.

        If an interrupt (Ctrl-C) strikes while it waits, the device stays open. If one strikes later, the next call goes
        on with closing.

        Raises DeviceError: the work in flight failed; the device is closed all the same. Or this is a signal handler or
            finalizer in the middle of another call of this device; the device stays open.
        """
        if self._is_destroyed:
            open_devices.pop(self, None)  # an exception may have struck just before the end of `_destroy`
        elif not self.context.availability.is_inherited:
            # Before it waits for another thread that closes the device, and that waits for this one.
            if self.visits.is_entered or self.context.handles.is_entered or self._is_changing:
                raise reentered()
            self._closing.run(self._close)

    def _close(self) -> None:
        if self._is_destroyed:
            return
        self._is_closing = True
        try:
            error = None if self._is_idle else self._wait_for_end()
            self._is_idle = True
            self._destroy()
            while self._has_dropped_view:  # a finalizer in the middle of `_destroy`
                self._destroy()
        finally:
            self._is_closing = False
        if error is not None:
            raise error

    def _wait_for_end(self) -> DeviceError | None:
        """Refuse new calls, then wait for the calls under way and for the device; returns the error of the work."""
        availability = self.context.availability
        was_usable = availability.is_usable
        availability.is_closed = True
        availability.withdraw()
        error: DeviceError | None = None
        try:
            # Calls under way come to an end; later ones see that the device is closed.
            for monitor in self._monitors():
                monitor.pass_through()
            self.visits.wait_for_end()
            try:
                for queue in self._queues():
                    queue.drain()
            except DeviceError as failed:
                error = failed
            # Even if the timelines say that all is done: after a submission's signal, a driver's own thread lets go of
            # the semaphores for which the submission waited. Mesa's crashed there when they were destroyed before. The
            # driver also ends the work of a lost device in finite time, whatever this call returns.
            # VkResult vkDeviceWaitIdle(VkDevice device)
            if self.context.handle:  # else the driver could not make the VkDevice
                vk.vkDeviceWaitIdle(self.context.handle)
        except BaseException:
            availability.is_closed = False
            availability.is_usable = was_usable and not availability.is_lost
            raise
        return error

    def _monitors(self) -> list[Monitor]:
        parts = (getattr(self, name, None) for name in ("transfers", "memory", "descriptors", "pipelines"))
        return [self.monitor, *(part.monitor for part in parts if part is not None)]

    def _queues(self) -> list[Queue]:
        queues = (getattr(self, name, None) for name in ("queue", "copy_queue"))
        return [queue for queue in queues if queue is not None]

    @property
    def _is_changing(self) -> bool:
        return any(monitor.is_entered for monitor in self._monitors())

    @property
    def is_entered(self) -> bool:
        """Whether this thread is in the middle of a change, so that a signal handler or a finalizer asks."""
        queues = (self.queue, self.copy_queue)
        is_releasing = any(queue is not None and queue.is_releasing for queue in queues)
        return is_releasing or self.pipelines.is_entered or self._is_changing

    def wait_idle(self) -> None:
        """Wait for everything submitted so far."""
        for queue in self._queues():
            queue.wait_idle()

    def timeline_for_export(self) -> tuple[Handle, int]:
        """A timeline semaphore, and the handle by which another API imports it."""
        semaphore = timeline_for_export(self.context)
        return semaphore, semaphore_handle(self.context, semaphore.value)

    def memory_handle(self, block: MemoryBlock) -> int:
        """The handle by which another API imports the memory of a block."""
        return memory_handle(self.context, block.memory)

    def join(self, partner: Partner) -> None:
        """Order the submissions of all queues with another API's work. Called with the device's monitor entered."""
        for queue in self._queues():
            queue.join(partner)

    def host_view(self, memory: Allocation, segment: Segment) -> HostView:
        """A view through which other libraries see a mapped segment of an allocation.

        Called during a visit of the open device: so closing the device comes later, and finds the view.
        """
        view = HostView(memory, segment, self._after_view)
        self._views.add(ref(view, self._views.discard))
        return view

    def _after_view(self) -> None:
        """Go on with closing: a view was dropped, and perhaps nothing else was left of the device."""
        # While the device waits for its last calls, this thread may be in the middle of one of them: `close` looks at
        # the views later. At the end of the process, half of the modules are gone.
        if not self._is_idle or sys.is_finalizing():
            return
        if self._closing.is_entered:
            self._has_dropped_view = True
        else:
            self.close_from_finalizer()

    def close_from_finalizer(self) -> None:
        """As `close`, but on a thread of the background, and later, if this thread cannot wait.

        The garbage collector calls finalizers in the middle of anything: of a call of this device, or of what another
        thread that is closing the device waits for, such as a file's lock.
        """
        if not self._is_closing:
            with suppress(ReentryError):
                return self.close()
        in_background(self.close)

    def _viewed_blocks(self) -> set[MemoryBlock]:
        """The blocks that other libraries see."""
        views = [view() for view in self._views.copy()]  # a copy, because other threads change the set
        return {view.segment.block for view in views if view is not None and not view.is_dropped}

    def disown(self) -> None:
        """In a forked child: leave the device to the parent. Nothing is destroyed or waited for."""
        self.context.availability.disown()
        for monitor in (*self._monitors(), self._closing):
            monitor.renew()
        for queue in self._queues():
            queue.disown()

    def _destroy(self) -> None:
        """Destroy everything but blocks that other libraries see; nothing is in flight. May be repeated."""
        self._has_dropped_view = False
        for queue in self._queues():
            queue.drop()
        # Before anything is destroyed: an exception below leaves the views' memory as it is.
        kept = [handle for block in self._viewed_blocks() for handle in block.handles]
        try:
            if hasattr(self, "pipelines"):
                self.pipelines.close()
            if hasattr(self, "memory"):
                self.memory.close()
        finally:
            self.context.destroy(kept)
            if not kept:
                self._is_destroyed = True
                open_devices.pop(self, None)
