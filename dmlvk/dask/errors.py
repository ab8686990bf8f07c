"""The exceptions and the warning of clusters."""

from __future__ import annotations

from typing import Any

from dmlvk._printable import CleanMessage
from dmlvk.errors import DeviceError, public


@public
class ClusterError(DeviceError):
    """A cluster could not do what was asked: no scheduler answers, or no worker has a device. The message says why."""


@public
class ClusterWarning(UserWarning):
    """A worker of the cluster is left out, and why."""


@public
class BatchError(CleanMessage, RuntimeError):
    """A batch could not be run. The exception of the worker is its `__cause__`.

    Attributes:
        number (int): The batch's position, from 0.
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"batch {number}: {message}")
        self.number = number
        self._message = message

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle makes an exception anew from its message alone.
        return type(self), (self.number, self._message)


@public
class DifferenceError(BatchError):
    """Two devices gave different bits for a batch. The message names both, and the first element that differs."""
