"""Sequences: bindings recorded once and replayed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dmlvk.runtime.binding import Binding
from dmlvk.runtime.recording import CommandWriter, dispatch_count
from dmlvk.runtime.submission import Submission, TimestampQueries, Timing, submission_of
from dmlvk.vulkan.recording import SIMULTANEOUS_USE

if TYPE_CHECKING:
    from dmlvk.runtime.device import Device


class Sequence:
    """Bindings recorded once and replayed with `submit`. Made by `Device.sequence`.

    The contents of its tensors may change between replays (`Tensor.write`); their memory stays the same.
    """

    # As the queue's: submitting it is to touch little memory.
    __slots__ = (
        "__weakref__",
        "_batch",
        "_batches",
        "_bindings",
        "_last",
        "_queries",
        "_queue",
        "_timing",
        "_timing_lock",
        "_vulkan",
        "device",
    )

    def __init__(self, device: Device, bindings: tuple[Binding, ...], timestamps: bool) -> None:
        self.device = device
        self._vulkan = device.vulkan
        self._queue = device.vulkan.queue
        self._bindings = bindings
        self._queries: TimestampQueries | None = None
        self._timing: Timing | None = None
        self._last = 0
        self._timing_lock = threading.Lock()
        with self._vulkan.lock:
            self._vulkan.require_open()
            if timestamps:
                self._queries = TimestampQueries(self._vulkan, dispatch_count(bindings) + 1)
            self._batches = CommandWriter(self._vulkan, SIMULTANEOUS_USE, self._queries).write(bindings)
        # Most sequences are one command buffer, with nothing to be done besides.
        is_measured = timestamps or device.debug_level > 0
        self._batch = self._batches[0] if len(self._batches) == 1 and not is_measured else None

    def __repr__(self) -> str:
        return f"<dmlvk.Sequence of {len(self._bindings)} bindings on {self.device.name}>"

    def submit(self) -> Submission:
        """Run everything once more, after all earlier work; does not wait.

        With timestamps it waits for its own last run, for a replay overwrites them.

        Raises
        ------
        DeviceError
            The device is closed or lost.
        """
        batch = self._batch
        if batch is None:
            return self._submit_batches()
        queue = self._queue
        value = queue.submit(batch, self)
        submission = Submission()
        submission._queue = queue
        submission._value = value
        return submission

    def _submit_batches(self) -> Submission:
        vulkan = self._vulkan
        with self._timing_lock:
            vulkan.require_open()
            if self._timing is not None:
                vulkan.queue.wait(self._last)
                self._timing.times()
            if self._queries is not None:
                self._timing = Timing(self._queries)
            with vulkan.lock:
                for batch in self._batches:
                    self._last = vulkan.queue.submit(batch, self)
            submission = submission_of(vulkan.queue, self._last, self._timing)
        if self.device.debug_level:
            self.device.report(self._bindings, submission)
        return submission
