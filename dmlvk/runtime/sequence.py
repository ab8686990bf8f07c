"""Sequences: bindings recorded once and replayed."""

from __future__ import annotations

from dmlvk.runtime import debug
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.command_writer import CommandWriter, dispatch_count
from dmlvk.runtime.copying import NotCopied
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.of_device import OfDevice
from dmlvk.runtime.submission import Submission, TimestampQueries, Timing, submission_of
from dmlvk.vulkan.command_buffers import Batch
from dmlvk.vulkan.interrupts.monitor import Monitor
from dmlvk.vulkan.recorder import SIMULTANEOUS_USE


class Sequence(OfDevice, NotCopied):
    """Bindings recorded once and replayed with `submit`. Made by `Device.sequence`.

    The contents of its tensors may change between replays (`Tensor.write`); their memory stays the same. A sequence
    that was recorded with general kernels is recorded again, between two submissions, once all special ones are
    compiled.
    """

    # For the same reason as the queue's: submitting must touch little memory.
    __slots__ = (
        "__weakref__",
        "_batch",
        "_bindings",
        "_is_measured",
        "_is_plain",
        "_is_special",
        "_last",
        "_monitor",
        "_queries",
        "_queue",
        "_times_of_each",
        "_timestamps",
        "_timing",
        "_vulkan",
        "engine",
    )

    in_place_of_a_copy = "record its bindings once more (device.sequence)"

    def __init__(
        self, engine: Engine, bindings: tuple[Binding, ...], timestamps: bool, times_of_each: bool = True
    ) -> None:
        self.engine = engine
        self._vulkan = engine.vulkan
        self._queue = engine.vulkan.queue
        self._bindings = bindings
        self._timing: Timing | None = None
        self._last = 0
        self._monitor = Monitor(self._vulkan.context.availability)
        self._timestamps = timestamps
        self._times_of_each = times_of_each or engine.debug_level > 0
        self._is_measured = timestamps or engine.debug_level > 0
        self._batch, self._queries = self._vulkan.monitor.run(self._record, bindings)
        # Whether all kernels stay the same; and whether a submission therefore needs nothing else.
        self._is_special = all(binding.provisional is None for binding in bindings)
        self._is_plain = self._is_special and not self._is_measured

    def _record(self, bindings: tuple[Binding, ...]) -> tuple[Batch, TimestampQueries | None]:
        queries = None
        if self._timestamps:
            queries = TimestampQueries(self._vulkan, dispatch_count(bindings), self._times_of_each)
        return CommandWriter(self._vulkan, SIMULTANEOUS_USE, queries).write(bindings), queries

    def __repr__(self) -> str:
        return f"<dmlvk.Sequence of {len(self._bindings)} bindings on {self.engine.name}>"

    def submit(self) -> Submission:
        """Run everything once more, after all earlier work; does not wait.

        With timestamps, it first waits for the sequence's last run, because a replay overwrites the timestamps.

        Raises:
            DeviceError: The device is closed or lost.
        """
        if not self._is_plain:
            return self._submit_with_care()
        queue = self._queue
        with queue.lock: value = queue.submit_inside(self._batch)  # noqa: E701  # fmt: skip
        submission = Submission()
        submission._queue = queue
        submission._value = value
        return submission

    def _submit_with_care(self) -> Submission:
        self._monitor.run(self._record_again)
        if not self._is_measured:
            return submission_of(self._queue, self._queue.submit(self._batch))
        submission = self._monitor.run(self._submit_after_the_last)
        if self.engine.debug_level:
            debug.report(self.engine, self._bindings, submission)
        return submission

    def _record_again(self) -> None:
        """Record special kernels in place of general ones, once all of them are compiled."""
        provisional = [binding.provisional for binding in self._bindings if binding.provisional is not None]
        if self._is_special or not all(each.is_settled for each in provisional):
            return
        bindings = tuple([binding.settled() for binding in self._bindings])
        batch, queries = self._vulkan.monitor.run(self._record, bindings)
        # In one step.
        self._bindings, self._batch, self._queries, self._is_special = bindings, batch, queries, True
        self._is_plain = not self._is_measured

    def _submit_after_the_last(self) -> Submission:
        queue = self._queue
        if self._timing is not None:
            queue.wait(self._last)
            self._timing.times()
        # The new timing is made before the run that overwrites the old one's timestamps.
        self._timing = None if self._queries is None else Timing(self._queries)
        self._last = queue.submit(self._batch)
        return submission_of(queue, self._last, self._timing)
