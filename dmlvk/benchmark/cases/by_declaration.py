"""The measured cases of an operator that has no module of its own here: one for each data type of its first tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from dmlvk.benchmark.cases.scale import Scale
from dmlvk.benchmark.work import random_inputs_of
from dmlvk.conformance.case import Case, Workload, generator
from dmlvk.data_type import DataType
from dmlvk.operators import OperatorDesc
from dmlvk.operators.declared import ALL_DATA_TYPES
from dmlvk.operators.drawing import drawn
from dmlvk.tensor_desc import TensorDesc

Option = TypeVar("Option")
# The sizes of an image, from its channels on: those of the inner layers of networks.
IMAGE = (64, 32, 32)


class Large:
    """Packed tensors of rank 4, or as near to it as the rules allow, with all that may be absent."""

    def __init__(self, data_type: DataType, data_bytes: int) -> None:
        self._data_type = data_type
        self._elements = data_bytes // data_type.size_in_bytes

    def one_of(self, name: str, options: Sequence[Option]) -> Option:
        """The case's data type where it is an option; one scale for all channels; an output that is given."""
        member = name.rpartition(".")[2]
        wanted: Any = {"data_type": self._data_type, "is_present": True, "rank": 4}.get(member)
        return wanted if wanted in options else options[0]

    def integer(self, name: str, low: int, high: int) -> int:
        """Choose the least integer of the range, but 1 rather than 0 or a negative number."""
        return min(max(low, 1), high)

    def sizes(self, name: str, rank: int) -> tuple[int, ...]:
        """Choose as many images as the case has bytes for."""
        inner = IMAGE[max(0, len(IMAGE) - rank + 1) :]
        count = self._elements
        for size in inner:
            count //= size
        return (*(1,) * (rank - 1 - len(inner)), max(1, count), *inner)

    def tensor(self, name: str, data_type: DataType, sizes: Sequence[int]) -> TensorDesc:
        """Describe a packed tensor."""
        return TensorDesc(data_type, sizes)

    def element(self, name: str, data_type: DataType) -> int:
        """Choose a number that every data type holds."""
        return 1


def workload(declared: type[OperatorDesc], data_type: DataType, data_bytes: int) -> Workload:
    """An operator whose first tensor has about `data_bytes` bytes."""
    desc = drawn(declared, Large(data_type, data_bytes))
    return Workload(desc, random_inputs_of(desc, generator(f"{declared.stem} {data_type.name}")))


def cases(declared: type[OperatorDesc]) -> Callable[[Scale], Iterator[Case]]:
    """The function `cases` of an operator's module, for an operator without one."""

    def listed(scale: Scale) -> Iterator[Case]:
        first = next(iter(declared.tensor_rules.values()))
        for data_type in first.types if isinstance(first.types, tuple) else ALL_DATA_TYPES:
            build = partial(workload, declared, data_type, scale.data_bytes)
            yield Case(f"{declared.stem}:plain:type={data_type.name}", build, is_default=True)

    return listed
