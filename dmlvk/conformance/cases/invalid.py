"""Descriptors that break one rule each. The operator has to refuse them, and the error has to name the field and rule.

refusals.json holds each of them whole, as plain data, with the error: a table of its own for those who test another
implementation. `python -m tools.expected_digests` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

from dmlvk._common import files
from dmlvk.conformance.case import Case, Refusal, Workload, generator
from dmlvk.conformance.cases.by_declaration import Chosen
from dmlvk.data_type import DataType
from dmlvk.operators import OperatorDesc, Slice1Desc
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
from dmlvk.operators.registry import OPERATORS, parts
from dmlvk.operators.serialization import serialize

ABOUT = "Descriptors that break one rule each: the error must name the field and the rule."
REFUSALS = "refusals.json"

Content = dict[str, Any]
# Changes to a valid descriptor: members by their names, those of a tensor after a dot. A tensor that is None is absent.
Changes = Mapping[str, Any]
# The rules of every tensor, broken by SLICE1's input.
TENSOR_BASE = Slice1Desc
LARGEST = 2**32 - 1

TENSOR_RULES: Mapping[str, Changes] = {
    "no_dimensions": {"input_tensor.sizes": []},
    "nine_dimensions": {"input_tensor.sizes": [1] * 9},
    "size_0": {"input_tensor.sizes": [1, 1, 0, 4]},
    "negative_size": {"input_tensor.sizes": [1, 1, -4, 4]},
    "fractional_size": {"input_tensor.sizes": [1, 1, 4.5, 4]},
    "size_past_32_bits": {"input_tensor.sizes": [1, 1, 4, 2**32]},
    "too_many_elements": {"input_tensor.sizes": [1, 1, 2**16, 2**16]},
    "stride_count": {"input_tensor.strides": [4, 1]},
    "negative_stride": {"input_tensor.strides": [16, 16, 4, -1]},
    "stride_past_32_bits": {"input_tensor.strides": [16, 16, 2**32, 1]},
    "end_past_64_bits": {"input_tensor.sizes": [1, 1, 1, LARGEST], "input_tensor.strides": [0, 0, 0, LARGEST]},
    "total_size_too_small": {"input_tensor.total_size_in_bytes": 63},
    "alignment_no_power_of_two": {"input_tensor.guaranteed_base_offset_alignment": 24},
    "alignment_below_an_element": {"input_tensor.guaranteed_base_offset_alignment": 2},
    "unknown_flag": {"input_tensor.flags": 2},
}

# Operators break the rules of their declarations, and those that their own module names.
NAMED_RULES: Mapping[type[OperatorDesc], Mapping[str, Changes]] = parts(
    "dmlvk.conformance.cases", "BROKEN_RULES", default=lambda _: {}
)


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


def invalid_content(declared: type[OperatorDesc], changes: Changes) -> Content:
    """The whole descriptor, as plain data."""
    content = base_content(declared)
    for name, value in changes.items():
        field, _, member = name.partition(".")
        if value == "broadcast":
            value = [0] * len(content[field]["sizes"])
        if member:
            content[field][member] = value
        else:
            content[field] = value
    return content


@cache
def recorded_refusals() -> Mapping[str, Any]:
    """The published table: by case name, the descriptor and the error."""
    return dict(files.packaged_json("dmlvk.conformance", REFUSALS, {}))


def rules() -> Iterator[tuple[str, type[OperatorDesc], Mapping[str, Changes]]]:
    """The broken rules of tensors and of each operator: the group, the operator of the descriptor, the changes."""
    yield "tensor", TENSOR_BASE, TENSOR_RULES
    for declared in OPERATORS:
        yield declared.stem, declared, {**broken_rules(declared), **NAMED_RULES[declared]}


def _no_workload(name: str) -> Workload:
    raise ValueError(f"{name} has no tensors: its descriptor has to be refused")


def cases(default_only: bool = False) -> Iterator[Case]:
    """One case for each rule; all cases run by default."""
    for group, declared, broken in rules():
        for rule, changes in broken.items():
            name = f"invalid:{group}:rule={rule}"
            recorded = recorded_refusals().get(name, {}).get("error", {})
            refusal = Refusal(
                partial(invalid_content, declared, changes),
                recorded.get("descriptor", ""),
                recorded.get("field", ""),
                recorded.get("rule", ""),
            )
            yield Case(name, partial(_no_workload, name), is_default=True, about=ABOUT, refusal=refusal)
