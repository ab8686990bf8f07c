"""Work that was given to a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlvk.vulkan.timestamps import QueryPool

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice


class TimestampQueries:
    """Room for the timestamps of one recording: one before its first dispatch and one after each."""

    def __init__(self, vulkan: VulkanDevice, count: int) -> None:
        self.vulkan = vulkan
        self.count = count
        self.pool: QueryPool = vulkan.query_pools.take(count)

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.vulkan.query_pools.recycle(self.pool)


class Timing:
    """The times of one run of a recording. They have to be read before the recording runs again."""

    def __init__(self, queries: TimestampQueries) -> None:
        self._queries = queries
        self._times: tuple[float, ...] | None = None

    def times(self) -> tuple[float, ...]:
        """Seconds of each dispatch; the run must be done."""
        queries = self._queries
        with queries.vulkan.lock:
            if self._times is None:
                queries.vulkan.require_open()
                self._times = tuple(queries.vulkan.query_pools.read(queries.pool, queries.count))
            return self._times


class Submission:
    """Work in order on a device's queue. Nothing has to be kept: what the work uses lives until it is done."""

    __slots__ = ("_timing", "_value", "_vulkan")

    def __init__(self, vulkan: VulkanDevice, value: int, timing: Timing | None = None) -> None:
        self._vulkan = vulkan
        self._value = value
        self._timing = timing

    def __repr__(self) -> str:
        return f"<dmlvk.Submission {self._value}, {'done' if self.done else 'running'}>"

    @property
    def done(self) -> bool:
        """Whether the work is done; does not wait. What closing the device waited for is done."""
        if self._value <= self._vulkan.queue.completed:
            return True
        with self._vulkan.lock:
            if not self._vulkan.is_usable:
                return self._value <= self._vulkan.queue.completed
            return self._value <= self._vulkan.queue.poll()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the work is done.

        Parameters
        ----------
        timeout : float, optional
            Seconds; without it there is no limit.

        Raises
        ------
        DeviceError
            Also a TimeoutError when the time is over: the work goes on and can be waited for again. Or the device was
            lost.
        """
        self._vulkan.queue.wait(self._value, timeout)

    @property
    def gpu_time(self) -> float | None:
        """Seconds on the GPU from the start of the first dispatch to the end of the last, after waiting for them.

        None when no timestamps were asked for (`Device.timestamps`), or the device has none.
        """
        times = self.dispatch_times
        return None if times is None else sum(times)

    @property
    def dispatch_times(self) -> tuple[float, ...] | None:
        """Seconds of each dispatch, as far as the device runs them one after the other; None as for `gpu_time`."""
        if self._timing is None:
            return None
        self.wait()
        return self._timing.times()
