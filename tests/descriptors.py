"""Hypothesis strategies for valid descriptors of every operator, from the operators' declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from dmlvk import DataType, TensorDesc
from dmlvk.operators import OperatorDesc
from dmlvk.operators.drawing import drawn
from dmlvk.operators.registry import OPERATORS
from tests import layouts

Option = TypeVar("Option")
INT32 = st.integers(-(2**31), 2**31 - 1)


class Drawn:
    """Choices that Hypothesis makes: tensors of any kind."""

    def __init__(self, draw: st.DrawFn, declared: type[OperatorDesc]) -> None:
        self._draw = draw
        self._outputs = declared.output_fields

    def one_of(self, name: str, options: Sequence[Option]) -> Option:
        return self._draw(st.sampled_from(options))

    def integer(self, name: str, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def sizes(self, name: str, rank: int) -> tuple[int, ...]:
        return self._draw(layouts.sizes(rank, 500 if name == "pixels" else 20_000))

    def tensor(self, name: str, data_type: DataType, sizes: Sequence[int]) -> TensorDesc:
        return self._draw(layouts.tensor_descs(data_type, tuple(sizes), is_output=name in self._outputs))

    def element(self, name: str, data_type: DataType) -> Any:
        """Any bits, and Python's numbers."""
        size = data_type.size_in_bytes
        bits = st.binary(min_size=size, max_size=size)
        if data_type.is_floating_point:
            return self._draw(bits | st.floats(width=16) | st.sampled_from([float("nan"), -0.0, 0.1, 1e-7, 65504.0]))
        return self._draw(bits | st.integers(0, 127))


@st.composite
def descriptors(draw: st.DrawFn, declared: type[OperatorDesc]) -> OperatorDesc:
    """Descriptors of one operator."""
    return drawn(declared, Drawn(draw, declared))


STRATEGIES: Mapping[type[OperatorDesc], st.SearchStrategy[OperatorDesc]] = {
    declared: descriptors(declared) for declared in OPERATORS
}
DESCRIPTORS: st.SearchStrategy[OperatorDesc] = st.one_of(*STRATEGIES.values())
