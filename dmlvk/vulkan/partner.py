"""Another API that shares memory with a device: what a queue asks of it before and after a submission."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dmlvk.vulkan.memory_use import MemoryUse


class SemaphoreValue(NamedTuple):
    """A value of a timeline semaphore.

    Attributes
    ----------
    semaphore : VkSemaphore[1]
    value : int
    """

    semaphore: Any
    value: int


@dataclass(frozen=True)
class Crossing:
    """How one submission is ordered with the work of another API.

    Attributes
    ----------
    wait : SemaphoreValue
        The other API signals it. The submission waits for it.
    signal : SemaphoreValue or None
        The submission signals it, for the other API to wait for.
    """

    wait: SemaphoreValue
    signal: SemaphoreValue | None


class Partner(Protocol):
    """Another API that shares memory with a device. Called with the device's monitor entered."""

    def before_submission(self, queue: object, uses: Collection[MemoryUse]) -> Crossing | None:
        """The crossing of a submission that uses this memory; None if it needs no order."""

    def after_submission(self, queue: object, crossing: Crossing) -> None:
        """Called when a submission with a crossing was handed to the driver."""
