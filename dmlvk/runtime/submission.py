"""Work submitted to a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlvk._common.arguments import as_seconds
from dmlvk.errors import DeviceError
from dmlvk.runtime.array_protocol import with_advice
from dmlvk.runtime.copying import NotCopied
from dmlvk.vulkan.timestamps import QueryPool

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice
    from dmlvk.vulkan.queue import Queue


OF_NOTHING = (
    "this Submission was made by hand and stands for no work; calling an operator gives one, and so do Device.submit "
    "and Sequence.submit"
)

NOT_MEASURED = (
    "this Submission was not timed: set device.timestamps = True before work is submitted, and before a sequence is "
    "recorded; or open the device with dmlvk.Device(timestamps=True)"
)

IN_OUTPUT = "the result is in the tensor that was bound as output_tensor: output.numpy() waits for it and copies it"
ELSEWHERE = {
    **dict.fromkeys(("cpu", "numpy", "output", "output_tensor", "result", "results", "tolist"), IN_OUTPUT),
    **dict.fromkeys(("get", "join", "synchronize"), f"submission.wait() waits for the work; {IN_OUTPUT}"),
    **dict.fromkeys(("elapsed_time", "seconds", "time"), "submission.gpu_time, where device.timestamps was set"),
    **dict.fromkeys(("is_done", "ready"), "submission.done"),
}


class TimestampQueries:
    """Queries for the timestamps of one recording: one before its first dispatch and one after each, or the last alone.

    The caller must have entered the device's monitor to make one.

    dispatches: of the recording.
    of_each: whether each dispatch has a time of its own. Timestamps between dispatches take a little time themselves.
    """

    def __init__(self, vulkan: VulkanDevice, dispatches: int, of_each: bool = True) -> None:
        self.vulkan = vulkan
        self.of_each = of_each
        self.count = dispatches + 1 if of_each else 2
        self.pool: QueryPool = vulkan.query_pools.take(self.count)


class Timing:
    """The times of one run of a recording. They must be read before the recording runs again."""

    def __init__(self, queries: TimestampQueries) -> None:
        self._queries = queries
        self._times: tuple[float, ...] | None = None

    def times(self) -> tuple[float, ...]:
        """Seconds of each dispatch, or of all together; the run must be done."""
        if self._times is None:
            vulkan = self._queries.vulkan
            self._times = vulkan.visits.during(vulkan.query_pools.read, self._queries.pool, self._queries.count)
        return self._times


@with_advice(ELSEWHERE)
class Submission(NotCopied):
    """Work in order on a device's queue. The caller need not keep anything: all that the work uses is kept for it."""

    __slots__ = ("_queue", "_value")

    in_place_of_a_copy = "wait for it where it was made"

    # No __init__: it would double the cost of making a submission, and every call of an operator makes one.
    _queue: Queue
    _value: int

    def __repr__(self) -> str:
        if not hasattr(self, "_queue"):
            return "<dmlvk.Submission of nothing>"
        try:
            state = "done" if self.done else "running"
        except DeviceError:
            state = "its device is lost"
        return f"<dmlvk.Submission {self._value}, {state}>"

    @property
    def done(self) -> bool:
        """Whether the work is done; does not wait. After the device was closed, its work is done."""
        try:
            queue = self._queue
        except AttributeError:
            raise TypeError(OF_NOTHING) from None
        return queue.has_reached(self._value)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the work is done.

        Args:
            timeout (float, optional): Seconds, from 0 to infinity; without it there is no limit.

        Raises:
            DeviceError: The time is over; the error is then a TimeoutError too, and the work goes on and can be waited
                for again. Or the device was lost.
            TypeError, ValueError: For a timeout that is not a number, is negative, or is NaN.
        """
        try:
            queue = self._queue
        except AttributeError:
            raise TypeError(OF_NOTHING) from None
        queue.wait(self._value, None if timeout is None else as_seconds("timeout", timeout))

    @property
    def gpu_time(self) -> float:
        """Seconds on the GPU from the start of the first dispatch to the end of the last, after waiting for them.

        Raises:
            DeviceError: No timestamps were requested: see `Device.timestamps`. Or the device was lost or closed.
        """
        return sum(self.dispatch_times)

    @property
    def dispatch_times(self) -> tuple[float, ...]:
        """Seconds of each dispatch, if the device runs them one after the other. Errors as for `gpu_time`."""
        times = self.measured_times()
        if times is None:
            raise DeviceError(NOT_MEASURED if hasattr(self, "_queue") else OF_NOTHING)
        return times

    def measured_times(self) -> tuple[float, ...] | None:
        """As `dispatch_times`; None if no timestamps were requested, or the device has none."""
        return None


class MeasuredSubmission(Submission):
    """A submission with timestamps."""

    __slots__ = ("_timing",)

    def __init__(self, queue: Queue, value: int, timing: Timing) -> None:
        self._queue = queue
        self._value = value
        self._timing = timing

    def measured_times(self) -> tuple[float, ...]:
        """Seconds of each dispatch, after waiting for them."""
        self.wait()
        return self._timing.times()


def submission_of(queue: Queue, value: int, timing: Timing | None = None) -> Submission:
    """A submission that is done when the queue reaches this value."""
    if timing is not None:
        return MeasuredSubmission(queue, value, timing)
    made = Submission()
    made._queue = queue
    made._value = value
    return made
