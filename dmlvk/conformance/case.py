"""A case: parameters under a name, a check whether a device can run it, and the work itself as plain data.

The same objects are run by `dmlvk conformance` and timed by `dmlvk bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import reference
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import OperatorDesc

NO_NUMBERS: Mapping[str, int] = MappingProxyType({})

# What the first group of a case's name was called once. Waivers, results, digests and patterns may still say so.
FORMER_GROUPS = MappingProxyType({"qlinearconv": "quantized_linear_convolution"})


@dataclass(frozen=True)
class NotSupported:
    """Why a device cannot run a case.

    Attributes
    ----------
    reason : str
        For a program to read: "feature:shaderIntegerDotProduct", "limit:memory", "path:matrix".
    explanation : str
        For a person.
    """

    reason: str
    explanation: str


@dataclass(frozen=True)
class Workload:
    """One operator with its data.

    Attributes
    ----------
    desc : OperatorDesc
    inputs : mapping of str to ndarray
        By descriptor field, of the tensors' sizes.
    expected : ndarray, optional
        What the output must be, bit for bit; None for what `dmlvk.reference` gives.
    offsets : mapping of str to int
        Bytes from the start of a buffer to a tensor, by descriptor field; multiples of 16. 0 where a field is absent.
    limits : mapping of str to int
        Members of `Limits` that the device is planned for in place of its own, all of them lower: how small tensors
        take the way of large ones.
    device_type : DeviceType, optional
        What the device is planned for as: a GPU's plans run on a CPU driver, and the other way round.
    is_defined : bool
        False where the operator leaves the output's values open: then all that is asked is that nothing else changes.
    """

    desc: OperatorDesc
    inputs: Mapping[str, npt.NDArray[Any]]
    expected: npt.NDArray[Any] | None = None
    offsets: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    limits: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    device_type: DeviceType | None = None
    is_defined: bool = True

    def result(self) -> npt.NDArray[Any]:
        """What the output must be."""
        return reference.run(self.desc, **self.inputs) if self.expected is None else self.expected


@dataclass(frozen=True)
class Case:
    """One thing to check.

    Attributes
    ----------
    name : str
        Groups with colons between, then parameters with semicolons:
        "quantized_linear_convolution:zero_point:in=u8;filter=s8;path=dot4;shape=odd". Unique, and the same in every
        version that means the same.
    build : callable
        Makes the workload; the same one each time. Random data comes from `generator` of the name, less what does not
        change the result: all paths have the same data.
    path : str, optional
        The kernel path that is forced; None for the planner's choice.
    is_default : bool
        Whether it is one of those that run unless more are asked for.
    support : callable, optional
        What else a device must have, beyond the path.
    """

    name: str
    build: Callable[[], Workload]
    path: str | None = None
    is_default: bool = False
    support: Callable[[DeviceProfile], NotSupported | None] | None = field(default=None, compare=False)

    @property
    def groups(self) -> tuple[str, ...]:
        """("quantized_linear_convolution", "zero_point")."""
        return tuple(self.name.split(":")[:-1])

    @property
    def parameters(self) -> dict[str, str]:
        """{"in": "u8", "filter": "s8", "path": "dot4", "shape": "odd"}."""
        pairs = (pair.split("=", 1) for pair in self.name.rsplit(":", 1)[-1].split(";") if "=" in pair)
        return dict(pairs)


def current_name(name: str) -> str:
    """A case's name, or a pattern of names, whose first group may have its former name."""
    group, colon, rest = name.partition(":")
    return FORMER_GROUPS.get(group, group) + colon + rest


def generator(name: str) -> np.random.Generator:
    """Random numbers that depend on a case's name alone, on every machine and in every version of NumPy that we know.

    A group that has another name now keeps the data that it had under the former one, and so its digests.

    PCG64 and `Generator.integers` and `bytes` are stable across NumPy's releases; the distributions are not promised
    to be, so cases draw integers and bytes only.
    """
    for former, current in FORMER_GROUPS.items():
        if name.startswith(f"{current}:"):
            name = former + name[len(current) :]
    return np.random.Generator(np.random.PCG64(list(name.encode())))
