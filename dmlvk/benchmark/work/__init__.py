"""The least work that an operator can do, and random data for it.

Bytes and operations are counted from the descriptor alone. An operator has a module of its own where these are not what
`base` says of any operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.work import base
from dmlvk.benchmark.work.base import Work
from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import parts

__all__ = ["Work", "random_inputs_of", "work_of"]

COUNTERS: Mapping[type[OperatorDesc], Callable[[Any], Work]] = parts(
    __name__, "work", is_shared=True, default=lambda _: base.work
)
SOURCES: Mapping[type[OperatorDesc], Callable[[Any, np.random.Generator], dict[str, npt.NDArray[Any]]]] = parts(
    __name__, "random_inputs", is_shared=True, default=lambda _: base.random_inputs
)


def work_of(desc: OperatorDesc) -> Work:
    """Count an operator's work. Each tensor counts once, however often a kernel reads it.

    Raises
    ------
    TypeError
        `desc` is not a descriptor.
    """
    if type(desc) not in COUNTERS:
        raise TypeError(f"{type(desc).__name__} is not an operator descriptor")
    return COUNTERS[type(desc)](desc)


def random_inputs_of(desc: OperatorDesc, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Random data for an operator's inputs, by field, like that of its common uses."""
    return SOURCES[type(desc)](desc, random)
