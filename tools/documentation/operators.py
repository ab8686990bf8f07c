"""What the pages of the operators take from the declarations: the table of what is supported, and the descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from dmlvk.operators import OperatorDesc
from dmlvk.operators.declared import ALL_DATA_TYPES, SCALE, ZERO_POINT, Same, TensorRule
from dmlvk.operators.registry import OPERATORS

# Successors first.
SORTED = sorted(OPERATORS, key=lambda desc: (desc.successor is not None, desc.number))


def table() -> Iterator[str]:
    """A row for each operator: its data types, its ranks, and which tensors may be absent."""
    yield "| Operator | Data types | Ranks | May be absent |"
    yield "|---|---|---|---|"
    for desc in SORTED:
        absent = ", ".join(_noun(field) for field in desc.optional_fields if field in desc.tensor_rules)
        yield f"| {desc.operator_name} | {'; '.join(_types(desc))} | {_ranks(desc)} | {absent or 'none'} |"


def _types(desc: type[OperatorDesc]) -> Iterator[str]:
    """The tensors of each choice of data types. A zero point has the type of its tensor."""
    tied: dict[str, list[str]] = {}
    for field, rule in desc.tensor_rules.items():
        if rule.role != ZERO_POINT:
            tied.setdefault(rule.types.field if isinstance(rule.types, Same) else field, []).append(_noun(field))
    shared: dict[str, list[list[str]]] = {}
    for field, nouns in tied.items():
        rule = desc.tensor_rules[field]
        if isinstance(rule.types, Same):  # the output, by its zero point, which has no row
            rule = desc.tensor_rules[rule.types.field]
        assert not isinstance(rule.types, Same)
        names = sorted((each.name for each in rule.types), key=lambda name: (len(name), name))
        choice = f"all {len(names)}" if set(rule.types) == set(ALL_DATA_TYPES) else " or ".join(names)
        shared.setdefault(choice, []).append(nouns)
    for choice, groups in shared.items():
        each = ", each its own" if len(groups) > 1 and " or " in choice else ""
        yield f"{', '.join(' and '.join(nouns) for nouns in groups)}: {choice}{each}"


def _ranks(desc: type[OperatorDesc]) -> str:
    """The ranks of the tensors that have most dimensions, and of others, if theirs differ."""
    ranks = {field: _rank(desc, rule) for field, rule in desc.tensor_rules.items()}
    usual = max(ranks[field] for field, rule in desc.tensor_rules.items() if rule.role not in (SCALE, ZERO_POINT))
    others: dict[tuple[int, int], dict[str, None]] = {}
    for field, rank in ranks.items():
        if rank != usual:
            is_parameter = desc.tensor_rules[field].role in (SCALE, ZERO_POINT)
            others.setdefault(rank, {})["scales and zero points" if is_parameter else _noun(field)] = None
    return "; ".join([_range(usual), *(f"{', '.join(nouns)} {_range(rank)}" for rank, nouns in others.items())])


def _rank(desc: type[OperatorDesc], rule: TensorRule) -> tuple[int, int]:
    for tied in (rule.sizes, rule.rank):
        if isinstance(tied, Same):
            return _rank(desc, desc.tensor_rules[tied.field])
    assert not isinstance(rule.rank, Same)
    return rule.rank


def _range(rank: tuple[int, int]) -> str:
    low, high = rank
    return str(low) if low == high else f"{low} to {high}"


def _noun(field: str) -> str:
    return field.removesuffix("_tensor").replace("_", " ")


def descriptors() -> Iterator[str]:
    """Directives for the classes of all descriptors."""
    for desc in SORTED:
        members = [
            name
            for name, value in vars(desc).items()
            if isinstance(value, (property, cached_property)) and name[0] != "_"
        ]
        yield f".. autoclass:: dmlvk.{desc.__name__}"
        yield f"   :members: {', '.join(members)}"
