"""The error of a model that cannot be run."""

from __future__ import annotations

from typing import Any

from dmlvk._printable import CleanMessage
from dmlvk.errors import public, shown

MISSING: Any = object()


@public
class ModelError(CleanMessage, ValueError):
    """A model breaks a rule of DxDispatch's format, or asks for something that dmlvk does not have.

    Attributes:
        file (str): The model's file.
        key (str): The place in it, such as "dispatchables.x.desc.InputTensor.Sizes[2]"; empty for the file as a whole.
        rule (str):
        expected (str or None): What would be right, where that can be said.
    """

    def __init__(self, file: str, key: str, value: Any, rule: str, expected: str | None = None) -> None:
        self.file = file
        self.key = key
        self.rule = rule
        self.expected = expected
        place = file if not key else f"{file}: {key}"
        if value is not MISSING:
            place = f"{place} = {shown(value)}"
        message = f"{place}: {rule}"
        super().__init__(message if expected is None else f"{message}; expected {expected}")
