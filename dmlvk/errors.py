"""The exceptions of dmlvk. Wrong use raises one of them before anything reaches the Vulkan driver."""

from __future__ import annotations

import math
import reprlib
from typing import Any, TypeVar

from dmlvk._printable import CleanMessage

# Characters of a message that a value takes at most: of a million sizes nobody reads more.
LONGEST_VALUE = 300


class _Shown(reprlib.Repr):
    """Python's own way to shorten what is long, with other limits."""

    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = 16
        self.maxstring = self.maxother = LONGEST_VALUE

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write an integer of thousands of digits.
        if x.bit_length() <= 256:
            return repr(x)
        return f"about {'-' if x < 0 else ''}10**{math.floor(x.bit_length() * math.log10(2))}"


_shown = _Shown()


def shown(value: object) -> str:
    """A value as a message shows it: its repr, shortened to `LONGEST_VALUE` characters; never raises."""
    if isinstance(value, (str, bytes, bytearray)):
        value = value[:LONGEST_VALUE]
    try:
        text = _shown.repr(value)
    except Exception:  # a repr of the caller's own
        text = f"<{type(value).__name__}>"
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


Raised = TypeVar("Raised", bound=type[BaseException])


def public(error: Raised) -> Raised:
    """Name an exception as callers write it: `dmlvk.DeviceError`, though the module `dmlvk.errors` defines it.

    Tracebacks show this name, and what is pickled is found by it.
    """
    error.__module__ = error.__module__.rpartition(".")[0]
    return error


@public
class DescriptorError(CleanMessage, ValueError):
    """A descriptor breaks a rule of its operator's page.

    The message names the descriptor, the field, its value, the rule, and what would be right.

    Attributes:
        descriptor (str): Class name of the descriptor, such as ``"Slice1Desc"``.
        field (str): The field that breaks the rule, such as ``"input_window_sizes[2]"``.
        value (object): What the field holds.
        rule (str): The rule, in one sentence.
        expected (str or None): What would be right, where that can be said.
    """

    def __init__(self, descriptor: str, field: str, value: object, rule: str, expected: str | None = None) -> None:
        self.descriptor = descriptor
        self.field = field
        self.value = value
        self.rule = rule
        self.expected = expected
        message = f"{descriptor}.{field} = {shown(value)}: {rule}"
        super().__init__(message if expected is None else f"{message}; expected {expected}")

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle makes an exception anew from its message alone.
        return type(self), (self.descriptor, self.field, self.value, self.rule, self.expected)


@public
class BindingError(CleanMessage, ValueError):
    """The tensors bound to an operator are not those that its descriptor describes."""


@public
class PathError(CleanMessage, ValueError):
    """An operator does not have the requested kernel path: at all, on this device, or at this size."""


@public
class DeviceError(CleanMessage, RuntimeError):
    """The device or its driver could not do what was asked: none found, out of memory, lost, timed out."""

    is_multiline = True  # a validation layer's messages are


@public
class DeviceLostError(DeviceError):
    """VK_ERROR_DEVICE_LOST: the device can run nothing any more, and the contents of its memory are gone."""


@public
class OutOfMemoryError(DeviceError):
    """An allocation does not fit; the message says how much was asked and how much memory there is."""


@public
class ValidationError(DeviceError):
    """The Khronos validation layer reported a message (only with DMLVK_VALIDATE=1)."""


# TimeoutError comes first: tblib, by which Dask pickles exceptions, calls the first base's __new__, and only an
# OSError's makes an OSError.
@public
class WaitTimeoutError(TimeoutError, DeviceError):
    """Work was not done within the given time. It goes on, and can be waited for again."""


@public
class ReentryError(DeviceError):
    """A call in the middle of another one on the same thread, by a signal handler or a finalizer.

    It says nothing of the device. Let the handler set a flag, and act on it after the other call.
    """
