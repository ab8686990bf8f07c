"""Random descriptors, by the rules of their fields: for property tests, conformance cases and the benchmark.

What is chosen, and how, is up to `Choices`: a test draws from Hypothesis, a conformance case from its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dmlvk.data_type import DataType
from dmlvk.operators.declared import (
    OUTPUT,
    AxisRule,
    BooleanRule,
    Choices,
    DataTypeRule,
    ElementRule,
    IntegerRule,
    IntegersRule,
    OneAChannel,
    OperatorDesc,
    Same,
    TensorRule,
)
from dmlvk.tensor_desc import TensorDesc

# Where a rule gives a wider range, integers are drawn from this one.
MOST = 8


def drawn(declared: type[OperatorDesc], choose: Choices) -> OperatorDesc:
    """A random descriptor that keeps the rules of its fields, and what `tied` says of several fields together."""
    tensors = _Tensors(declared, choose)
    fields: dict[str, Any] = {name: tensors.made(name) for name in declared.input_fields if tensors.is_present(name)}
    known = {**fields, OUTPUT: tensors.made(OUTPUT)} if tensors.sizes_are_known(OUTPUT) else fields
    for name, rule in declared.rules.items():
        is_left_out = rule.is_optional and not choose.one_of(f"{name}.is_present", (False, True))
        if not isinstance(rule, (TensorRule, DataTypeRule)) and not is_left_out:
            fields[name] = _number(name, rule, known, choose)
    fields.update(declared.tied(choose, fields))
    if OUTPUT not in fields:
        fields[OUTPUT] = _output(declared, fields, known.get(OUTPUT), tensors, choose)
    desc = declared(**fields)
    further = {
        name: choose.tensor(name, tensors.data_type(name), desc.tensors[OUTPUT].sizes)
        for name in declared.output_fields
        if name not in desc.tensors and tensors.is_present(name)
    }
    return replace(desc, **further) if further else desc


def _output(
    declared: type[OperatorDesc],
    fields: Mapping[str, Any],
    known: TensorDesc | None,
    tensors: _Tensors,
    choose: Choices,
) -> TensorDesc | None:
    """The output: left out, if the other fields imply it, or of the sizes that they imply."""
    is_implied = declared.rules[OUTPUT].is_optional and all(name in fields for name in tensors.of_the_output_s_sizes)
    if is_implied and not choose.one_of(f"{OUTPUT}.is_present", (True, False)):
        return None
    if known is not None and (tensors.of_the_output_s_sizes or not is_implied):
        return known
    return choose.tensor(OUTPUT, tensors.data_type(OUTPUT), declared(**fields).tensors[OUTPUT].sizes)


class _Tensors:
    """The tensors of a descriptor. Choices that several of them share are made once."""

    def __init__(self, declared: type[OperatorDesc], choose: Choices) -> None:
        self._rules = declared.tensor_rules
        self._choose = choose
        self._types: dict[str, DataType] = {}
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._present: dict[str, bool] = {}
        # The inputs whose sizes are the output's.
        self.of_the_output_s_sizes = tuple(
            name for name in declared.input_fields if self._rules[name].sizes == Same(OUTPUT)
        )

    def is_present(self, name: str) -> bool:
        if name not in self._present:
            is_optional = self._rules[name].is_optional
            self._present[name] = not is_optional or self._choose.one_of(f"{name}.is_present", (False, True))
        return self._present[name]

    def sizes_are_known(self, name: str) -> bool:
        """Whether the sizes follow from those of inputs, or those of an input from these."""
        return isinstance(self._rules[name].sizes, Same) or bool(self.of_the_output_s_sizes)

    def made(self, name: str) -> TensorDesc:
        return self._choose.tensor(name, self.data_type(name), self.sizes(name))

    def data_type(self, name: str) -> DataType:
        if name not in self._types:
            types = self._rules[name].types
            chosen = self.data_type(types.field) if isinstance(types, Same) else self._chosen_type(name, types)
            self._types[name] = chosen
        return self._types[name]

    def _chosen_type(self, name: str, types: Sequence[DataType]) -> DataType:
        return types[0] if len(types) == 1 else self._choose.one_of(f"{name}.data_type", types)

    def sizes(self, name: str) -> tuple[int, ...]:
        if name not in self._sizes:
            self._sizes[name] = self._chosen_sizes(name, self._rules[name])
        return self._sizes[name]

    def _chosen_sizes(self, name: str, rule: TensorRule) -> tuple[int, ...]:
        if isinstance(rule.sizes, Same):
            return self.sizes(rule.sizes.field)
        low, high = (len(self.sizes(rule.rank.field)),) * 2 if isinstance(rule.rank, Same) else rule.rank
        rank = low if low == high else self._choose.one_of(f"{name}.rank", range(low, high + 1))
        if rule.sizes is None:
            return self._choose.sizes(name, rank)
        one = (1,) * rank
        if not isinstance(rule.sizes, OneAChannel):
            return one
        each = rule.sizes.sizes_of(self.sizes(rule.sizes.of), rank)
        return self._choose.one_of(f"{name}.is_per_channel", (one, each)) if rule.sizes.or_one else each


def _number(name: str, rule: Any, tensors: Mapping[str, TensorDesc], choose: Choices) -> Any:
    if isinstance(rule, AxisRule):
        return choose.integer(name, 0, tensors[rule.of].rank - 1)
    if isinstance(rule, BooleanRule):
        return choose.one_of(name, (False, True))
    if isinstance(rule, ElementRule):
        return choose.element(name, rule.of if isinstance(rule.of, DataType) else tensors[rule.of].data_type)
    assert isinstance(rule, IntegerRule), f"{name}: no choice is known for {type(rule).__name__}"
    low, high = max(rule.low, -MOST), min(rule.high, MOST)
    if not isinstance(rule, IntegersRule):
        return choose.one_of(name, (choose.integer(name, low, high), rule.low, rule.high))
    count = rule.count(_Ranks(tensors))[0]
    return tuple(choose.integer(name, low, high) for _ in range(count))


class _Ranks:
    """Stands in for a descriptor that is not made yet, where a rule asks for the rank of a tensor."""

    def __init__(self, tensors: Mapping[str, TensorDesc]) -> None:
        self.__dict__.update(tensors)
