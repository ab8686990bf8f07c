"""One descriptor for each rule of an operator's fields, which breaks that rule alone, as changes to a valid one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from dmlvk.conformance.case import generator
from dmlvk.conformance.cases.by_declaration import Chosen
from dmlvk.data_type import DataType
from dmlvk.operators import OperatorDesc
from dmlvk.operators.declared import (
    OUTPUT,
    AxisRule,
    BooleanRule,
    DataTypeRule,
    ElementRule,
    IntegerRule,
    IntegersRule,
    OneAChannel,
    Same,
    TensorRule,
)
from dmlvk.operators.drawing import drawn
from dmlvk.operators.serialization import serialize

# Changes to a valid descriptor: members by their names, those of a tensor after a dot. A tensor that is None is absent.
Changes = Mapping[str, Any]

OUTPUT_RULES: Mapping[str, Changes] = {
    "output_owned": {"output_tensor.flags": 1},
    "output_overlaps": {"output_tensor.strides": "broadcast"},
}


def valid(declared: type[OperatorDesc]) -> OperatorDesc:
    """A descriptor with all that may be absent, and with a scale for each channel."""
    p = SimpleNamespace(rank=4, optional=True, scales="each", input="packed", output="packed")
    return drawn(declared, Chosen(declared, p, generator(f"invalid:{declared.stem}")))


def broken_rules(declared: type[OperatorDesc]) -> dict[str, Changes]:
    """The changes that break each rule, by the rule's name."""
    desc = valid(declared)
    rules: dict[str, Changes] = {}
    for name, rule in declared.rules.items():
        label = name.removesuffix("_tensor")
        broken = _of_a_tensor(desc, name, rule) if isinstance(rule, TensorRule) else _of_a_number(desc, name, rule)
        rules.update({f"{label}_{kind}": changes for kind, changes in broken})
    return {**rules, **OUTPUT_RULES}


def _of_a_tensor(desc: OperatorDesc, name: str, rule: TensorRule) -> Iterator[tuple[str, Changes]]:
    if not rule.is_optional:
        yield "absent", {name: None}
    tensor = desc.tensors.get(name)
    if tensor is None:
        return
    allowed = (tensor.data_type,) if isinstance(rule.types, Same) else rule.types
    other = next((kind for kind in DataType if kind not in allowed), None)
    if other is not None:
        yield "data_type", {f"{name}.data_type": other.name}
    sizes = list(tensor.sizes)
    if isinstance(rule.rank, Same) or isinstance(rule.sizes, Same):
        yield "rank", {f"{name}.sizes": sizes[1:] if len(sizes) > 1 else [*sizes, 1]}
    elif rule.rank[1] < 8:
        yield "rank", {f"{name}.sizes": [1] * (rule.rank[1] + 1)}
    elif rule.rank[0] > 1:
        yield "rank", {f"{name}.sizes": sizes[: rule.rank[0] - 1]}
    if rule.sizes is not None:
        k = min(1, len(sizes) - 1) if isinstance(rule.sizes, OneAChannel) else -1
        sizes[k] += 1
        yield "sizes", {f"{name}.sizes": sizes}


def _of_a_number(desc: OperatorDesc, name: str, rule: Any) -> Iterator[tuple[str, Changes]]:
    value: Any = getattr(desc, name)
    if isinstance(rule, IntegersRule):
        yield "count", {name: [*value, 1]}
        yield "below_its_range", {name: [rule.low - 1, *value[1:]]}
        yield "above_its_range", {name: [rule.high + 1, *value[1:]]}
    elif isinstance(rule, IntegerRule):
        yield "below_its_range", {name: rule.low - 1}
        yield "above_its_range", {name: rule.high + 1}
    elif isinstance(rule, AxisRule):
        yield "negative", {name: -1}
        yield "past_the_rank", {name: desc.tensors[rule.of].rank}
    elif isinstance(rule, BooleanRule):
        yield "no_truth_value", {name: 2}
    elif isinstance(rule, ElementRule):
        yield "no_number", {name: [7]}
    elif isinstance(rule, DataTypeRule):
        other = next(kind for kind in DataType if kind is not desc.tensors[rule.of].data_type)
        yield "of_another_tensor", {name: other.name}


def base_content(declared: type[OperatorDesc]) -> dict[str, Any]:
    """The valid descriptor as plain data."""
    content = serialize(valid(declared))
    assert OUTPUT in content
    return content
