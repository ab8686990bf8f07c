"""Known questions: what a driver has to answer right before a kernel path is taken on its device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dmlvk.operators import OperatorDesc


@dataclass(frozen=True)
class Elements:
    """Random elements of a tensor: integers from `low` to `high`, excluding, times a factor."""

    low: int
    high: int
    factor: float = 1.0

    @classmethod
    def only(cls, value: int, factor: float = 1.0) -> Elements:
        """The same number throughout."""
        return cls(value, value + 1, factor)


@dataclass(frozen=True, eq=False)
class Question:
    """An operator whose result the host computes too.

    elements: what the inputs hold, by field.
    """

    desc: OperatorDesc
    elements: Mapping[str, Elements]
