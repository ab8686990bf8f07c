"""The cases of an operator that has no module of its own here: what its declaration leaves open, in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.combinations import DEVICES, PLANNERS_CHOICE, Group, Parameters, labelled, only
from dmlvk.conformance.cases.layouts import INPUT_LAYOUTS, LIMITS, OUTPUT_LAYOUTS, SIZES, fits_rank, lay_out
from dmlvk.conformance.cases.values import elements_of
from dmlvk.data_type import DataType
from dmlvk.operators import OperatorDesc
from dmlvk.operators.declared import OUTPUT, OneAChannel
from dmlvk.operators.drawing import drawn
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

Option = TypeVar("Option")


class Chosen:
    """Choices that a case's parameters make; random numbers make all others."""

    def __init__(self, declared: type[OperatorDesc], p: Parameters, numbers: np.random.Generator) -> None:
        self._outputs = declared.output_fields
        self._p = p
        self._numbers = numbers

    def one_of(self, name: str, options: Sequence[Option]) -> Option:
        """A data type and a rank as the parameters say; optional fields as "optional" says, the output is there."""
        field, _, member = name.partition(".")
        if member == "is_present":
            wanted: Any = field == OUTPUT or self._p.optional
        elif member == "is_per_channel":
            wanted = options[self._p.scales == "each"]
        elif member in ("data_type", "rank"):
            wanted = getattr(self._p, member if member == "rank" else type_label(field), None)
        else:
            wanted = None
        return wanted if wanted in options else options[int(self._numbers.integers(len(options)))]

    def integer(self, name: str, low: int, high: int) -> int:
        """Choose any integer of the range."""
        return int(self._numbers.integers(low, high, endpoint=True))

    def sizes(self, name: str, rank: int) -> tuple[int, ...]:
        """Choose sizes of some thousand bytes; most rows end inside a 32-bit word."""
        return SIZES[rank]

    def tensor(self, name: str, data_type: DataType, sizes: Sequence[int]) -> TensorDesc:
        """Lay a tensor out as the parameters say, if that layout fits the sizes."""
        layout = self._p.output if name in self._outputs else self._p.input
        return lay_out(data_type, sizes, layout if _fits(layout, sizes) else "packed")

    def element(self, name: str, data_type: DataType) -> bytes:
        """Choose any bits."""
        return self._numbers.bytes(data_type.size_in_bytes)


def _fits(layout: str, sizes: Sequence[int]) -> bool:
    return fits_rank(layout, len(sizes)) and (layout != "interleaved" or np.gcd(sizes[-1], sizes[-2]) == 1)


def type_label(field: str) -> str:
    """A parameter's name: "a_type" for the data type of a_tensor."""
    return f"{field.removesuffix('_tensor')}_type"


def form(declared: type[OperatorDesc], numbers: np.random.Generator, p: Parameters) -> Workload:
    """Random elements in every layout, data type and rank, with and without what may be absent."""
    desc = drawn(declared, Chosen(declared, p, numbers))
    inputs = {
        name: elements_of(numbers, tensor, desc.tensor_rules[name].role)
        for name, tensor in desc.tensors.items()
        if name in desc.input_fields
    }
    return Workload(desc, inputs, device_type=p.device, limits=p.limits)


def parameters(declared: type[OperatorDesc]) -> Mapping[str, Any]:
    """What the declaration leaves open, and the ways to run it."""
    tensors = declared.tensor_rules
    types = {
        type_label(name): {kind.name.lower(): kind for kind in rule.types}
        for name, rule in tensors.items()
        if isinstance(rule.types, tuple) and len(rule.types) > 1
    }
    ranks = next((rule.rank for rule in tensors.values() if isinstance(rule.rank, tuple) and rule.of is None), (1, 8))
    per_channel = any(isinstance(rule.sizes, OneAChannel) and rule.sizes.or_one for rule in tensors.values())
    return {
        **types,
        "rank": range(ranks[0], ranks[1] + 1),
        "optional": {"absent": False, "present": True} if declared.optional_fields else {"none": False},
        "scales": ("one", "each") if per_channel else ("one",),
        "input": INPUT_LAYOUTS if declared.input_fields else ("packed",),
        "output": OUTPUT_LAYOUTS,
        "limits": only(LIMITS, "own", "cut", "floor"),
        "path": (PLANNERS_CHOICE, *KERNEL_PATHS[declared]),
        "device": DEVICES,
    }


def declared_form(declared: type[OperatorDesc], left_out: Callable[[Mapping[str, str]], bool] | None = None) -> Group:
    """The cases of what an operator's declaration leaves open."""
    choices = {name: labelled(values) for name, values in parameters(declared).items()}
    # A parameter with one value says nothing in a name.
    fixed = {name: next(iter(values.items())) for name, values in choices.items() if len(values) == 1}

    def keep(labels: Mapping[str, str]) -> bool:
        def label(name: str) -> str:
            return fixed[name][0] if name in fixed else labels[name]

        return all(fits_rank(label(tensor), int(label("rank"))) for tensor in ("input", "output"))

    def build(numbers: np.random.Generator, p: Parameters) -> Workload:
        return form(
            declared, numbers, SimpleNamespace(**{name: value for name, (_, value) in fixed.items()}, **vars(p))
        )

    about = (form.__doc__ or "").strip()
    open_choices = {name: values for name, values in choices.items() if name not in fixed}
    return Group(f"{declared.stem}:form", build, open_choices, keep=keep, left_out=left_out, about=about)
