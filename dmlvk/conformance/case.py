"""A case: a name with parameters, a check whether a device can run the case, and the work itself as plain data.

The same objects are run by `dmlvk conformance` and timed by `dmlvk bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dmlvk import reference
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import OperatorDesc

NO_NUMBERS: Mapping[str, int] = MappingProxyType({})

# Former names of the first group of case names. Waivers, results, digests and patterns may still use them.
FORMER_GROUPS = MappingProxyType({"qlinearconv": "quantized_linear_convolution"})


@dataclass(frozen=True)
class NotSupported:
    """Why a device cannot run a case.

    reason: for a program to read: "feature:shaderIntegerDotProduct", "limit:memory", "path:matrix".
    explanation: for a person.
    """

    reason: str
    explanation: str


class Way(str, Enum):
    """A way to run an operator. Its result must not depend on it."""

    ALONE = "alone"
    OTHER_OFFSET = "other_offset"
    ONE_BUFFER = "one_buffer"
    SEQUENCE = "sequence"
    BESIDE = "beside_other_work"
    TAKE_OVER = "take_over"


@dataclass(frozen=True)
class Workload:
    """One operator with its data.

    inputs: arrays by descriptor field, of the tensors' sizes.
    expected: the right output, bit for bit; None for the result of `dmlvk.reference`.
    offsets: bytes from the start of a buffer to a tensor, by descriptor field; multiples of 16. 0 if a field is absent.
    limits: members of `Limits` that replace the device's own for planning, all of them lower. With them, small tensors
        take the paths of large ones.
    device_type: the type of device to plan for: a GPU's plans can run on a CPU driver, and the reverse.
    profile: a name of `profiles.PROFILES` to plan by, besides that of the run: it gives the kernels of other devices.
    is_defined: False if the operator leaves the output's values open: then the only check is that nothing else changes.
    part: the images of the output that the digest is about; None for all. All of the output is checked.
    """

    desc: OperatorDesc
    inputs: Mapping[str, npt.NDArray[Any]]
    expected: npt.NDArray[Any] | None = None
    offsets: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    limits: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    device_type: DeviceType | None = None
    profile: str | None = None
    is_defined: bool = True
    way: Way = Way.ALONE
    part: slice | None = None

    def digested(self, output: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The elements of an output that the digest is about."""
        return output if self.part is None else output[self.part]

    def result(self) -> npt.NDArray[Any]:
        """The right output."""
        return reference.run(self.desc, **self.inputs) if self.expected is None else self.expected


@dataclass(frozen=True)
class Refusal:
    """A descriptor that breaks a rule, and the error that has to say so.

    content: gives the descriptor as plain data, which `dmlvk.operators.serialization` reads.
    descriptor, field, rule: what the DescriptorError must hold.
    """

    content: Callable[[], dict[str, Any]]
    descriptor: str
    field: str
    rule: str


@dataclass(frozen=True)
class Case:
    """One thing to check.

    name: groups separated by colons, then parameters separated by semicolons:
        "quantized_linear_convolution:zero_point:in=u8;filter=s8;path=integer;shape=odd". Unique. A name means the same
        in every version.
    build: makes the workload, the same each time. Random data comes from `generator` of the name, excluding parameters
        that do not change the result: all paths have the same data.
    path: the kernel path that is forced; None for the planner's choice.
    is_default: whether the case runs when no further cases are requested.
    support: a check of the device's further abilities, beyond the path.
    about: what the case's group tests, in a sentence or two; empty if nothing is known about it.
    refusal: a descriptor that has to be refused. Then there is no workload: `build` raises a ValueError.
    """

    name: str
    build: Callable[[], Workload]
    path: str | None = None
    is_default: bool = False
    support: Callable[[DeviceProfile], NotSupported | None] | None = field(default=None, compare=False)
    about: str = field(default="", compare=False)
    refusal: Refusal | None = field(default=None, compare=False)

    @property
    def group(self) -> str:
        """ "quantized_linear_convolution:zero_point"."""
        return self.name.rpartition(":")[0]

    @property
    def groups(self) -> tuple[str, ...]:
        """("quantized_linear_convolution", "zero_point")."""
        return tuple(self.name.split(":")[:-1])

    @property
    def parameters(self) -> dict[str, str]:
        """{"in": "u8", "filter": "s8", "path": "integer", "shape": "odd"}."""
        pairs = (pair.split("=", 1) for pair in self.name.rsplit(":", 1)[-1].split(";") if "=" in pair)
        return dict(pairs)


# Lists cases lazily and always in the same order: all cases or, given True, only the default cases.
CaseSource: TypeAlias = Callable[[bool], Iterator[Case]]


def current_name(name: str) -> str:
    """The current form of a case's name, or of a pattern, whose first group may have its former name."""
    group, colon, rest = name.partition(":")
    return FORMER_GROUPS.get(group, group) + colon + rest


def generator(name: str) -> np.random.Generator:
    """Random numbers that depend on a case's name alone, on every machine and in every known version of NumPy.

    A renamed group keeps the data of its former name, and so its digests.

    PCG64, `Generator.integers` and `Generator.bytes` are stable across NumPy's releases. The distributions are not
    promised to be, so cases draw integers and bytes only.
    """
    for former, current in FORMER_GROUPS.items():
        if name.startswith(f"{current}:"):
            name = former + name[len(current) :]
    return np.random.Generator(np.random.PCG64(list(name.encode())))
