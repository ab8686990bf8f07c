"""The exceptions of models."""

from __future__ import annotations

from dmlvk._printable import CleanMessage
from dmlvk.errors import public


@public
class ModelError(CleanMessage, ValueError):
    """A model cannot be read or run, or the values given to it do not fit. The message names the node or the value."""


class NotOnDeviceError(Exception):
    """A node cannot run on the device. The message is the reason that the placement shows."""


class RefusedError(Exception):
    """A node of a device step cannot run on the device with the values of this run.

    index: the node's number in the graph.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason
