"""Sequences: bindings recorded once and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlvk.runtime.binding import Binding
from dmlvk.runtime.command_writer import CommandWriter, dispatch_count
from dmlvk.runtime.copying import NotCopied
from dmlvk.runtime.submission import Submission, TimestampQueries, Timing, submission_of
from dmlvk.vulkan.command_buffers import Batch
from dmlvk.vulkan.monitor import Monitor
from dmlvk.vulkan.recorder import SIMULTANEOUS_USE

if TYPE_CHECKING:
    from dmlvk.runtime.device import Device


class Sequence(NotCopied):
    """Bindings recorded once and replayed with `submit`. Made by `Device.sequence`.

    The contents of its tensors may change between replays (`Tensor.write`); their memory stays the same.
    """

    # For the same reason as the queue's: submitting must touch little memory.
    __slots__ = (
        "__weakref__",
        "_batch",
        "_bindings",
        "_is_measured",
        "_last",
        "_monitor",
        "_queries",
        "_queue",
        "_timing",
        "_vulkan",
        "device",
    )

    in_place_of_a_copy = "record its bindings once more (device.sequence)"

    def __init__(
        self, device: Device, bindings: tuple[Binding, ...], timestamps: bool, times_of_each: bool = True
    ) -> None:
        self.device = device
        self._vulkan = device.vulkan
        self._queue = device.vulkan.queue
        self._bindings = bindings
        self._queries: TimestampQueries | None = None
        self._timing: Timing | None = None
        self._last = 0
        self._monitor = Monitor(self._vulkan.context.availability)
        self._is_measured = timestamps or device.debug_level > 0
        times_of_each = times_of_each or device.debug_level > 0
        self._batch: Batch = self._vulkan.monitor.run(self._record, timestamps, times_of_each)

    def _record(self, timestamps: bool, times_of_each: bool) -> Batch:
        if timestamps:
            self._queries = TimestampQueries(self._vulkan, dispatch_count(self._bindings), times_of_each)
        return CommandWriter(self._vulkan, SIMULTANEOUS_USE, self._queries).write(self._bindings)

    def __repr__(self) -> str:
        return f"<dmlvk.Sequence of {len(self._bindings)} bindings on {self.device.name}>"

    def submit(self) -> Submission:
        """Run everything once more, after all earlier work; does not wait.

        With timestamps, it first waits for the sequence's last run, because a replay overwrites the timestamps.

        Raises
        ------
        DeviceError
            The device is closed or lost.
        """
        if self._is_measured:
            return self._submit_measured()
        queue = self._queue
        with queue.lock: value = queue.submit_inside(self._batch, self)  # noqa: E701  # fmt: skip
        submission = Submission()
        submission._queue = queue
        submission._value = value
        return submission

    def _submit_measured(self) -> Submission:
        submission = self._monitor.run(self._submit_after_the_last)
        if self.device.debug_level:
            self.device.report(self._bindings, submission)
        return submission

    def _submit_after_the_last(self) -> Submission:
        queue = self._queue
        if self._timing is not None:
            queue.wait(self._last)
            self._timing.times()
        # The new timing is made before the run that overwrites the old one's timestamps.
        self._timing = None if self._queries is None else Timing(self._queries)
        self._last = queue.submit(self._batch, self)
        return submission_of(queue, self._last, self._timing)
