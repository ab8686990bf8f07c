"""The exceptions of dmlvk. Wrong use raises one of them before anything reaches the Vulkan driver."""

from __future__ import annotations


class DescriptorError(ValueError):
    """A descriptor breaks a rule of its operator's page.

    The message names the descriptor, the field, its value, the rule, and what would be right.

    Attributes
    ----------
    descriptor : str
        Class name of the descriptor, such as ``"Slice1Desc"``.
    field : str
        The field that breaks the rule, such as ``"input_window_sizes[2]"``.
    value : object
        What the field holds.
    rule : str
        The rule, in one sentence.
    expected : str or None
        What would be right, where that can be said.
    """

    def __init__(self, descriptor: str, field: str, value: object, rule: str, expected: str | None = None) -> None:
        self.descriptor = descriptor
        self.field = field
        self.value = value
        self.rule = rule
        self.expected = expected
        message = f"{descriptor}.{field} = {value!r}: {rule}"
        super().__init__(message if expected is None else f"{message}; expected {expected}")


class BindingError(ValueError):
    """The tensors bound to an operator are not those that its descriptor describes."""


class DeviceError(RuntimeError):
    """The device or its driver could not do what was asked: none found, out of memory, lost, timed out."""
