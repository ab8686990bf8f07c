"""Descriptors that break one rule each. The operator has to refuse them, and the error has to name the field and rule.

refusals.json holds each of them whole, as plain data, with the error: a table of its own for those who test another
implementation. `python -m tools.expected_digests` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from dmlvk._common import files
from dmlvk.conformance.case import Case, Refusal, Workload
from dmlvk.conformance.cases.broken_rules import Changes, base_content, broken_rules
from dmlvk.operators import OperatorDesc, Slice1Desc
from dmlvk.operators.registry import OPERATORS, parts

ABOUT = "Descriptors that break one rule each: the error must name the field and the rule."
REFUSALS = "refusals.json"

Content = dict[str, Any]
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
