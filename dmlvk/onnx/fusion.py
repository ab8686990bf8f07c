"""Dispatches that become one: a convolution and the addition of its output, if nothing else reads that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from dmlvk.onnx.program import Operation
from dmlvk.operators import (
    ElementWiseQuantizedLinearAddDesc,
    QuantizedLinearConvolutionAddDesc,
    QuantizedLinearConvolutionDesc,
)

LETTERS = ("a", "b")
PARAMETERS = ("scale_tensor", "zero_point_tensor")


def fused(operations: Sequence[Operation], kept: Collection[int]) -> list[Operation]:
    """The dispatches of a program, in order, with sums as last steps of convolutions.

    kept: storages whose contents are read after the last dispatch, or written before the first.
    """
    uses = Counter(storage for operation in operations for storage, _ in operation.places.values())
    convolutions: dict[tuple[int, int], int] = {}
    found: list[Operation | None] = list(operations)
    for number, operation in enumerate(operations):
        if type(operation.desc) is QuantizedLinearConvolutionDesc:
            convolutions[operation.places["output_tensor"]] = number
        if isinstance(operation.desc, ElementWiseQuantizedLinearAddDesc):
            # Of two convolutions the later one: the other's output has to be there before it runs.
            numbers = {letter: convolutions.get(operation.places[f"{letter}_tensor"], -1) for letter in LETTERS}
            for letter in sorted(LETTERS, key=lambda letter: -numbers[letter]):
                place, before = operation.places[f"{letter}_tensor"], numbers[letter]
                if before < 0 or place[0] in kept or uses[place[0]] != 2:
                    continue
                both = _with_sum(operations[before], operation, letter)
                if both is not None:
                    found[before], found[number] = None, both
                    break
    return [operation for operation in found if operation is not None]


def _with_sum(convolution: Operation, addition: Operation, letter: str) -> Operation | None:
    """A convolution and the addition of which its output is A or B; None if they are not one operator."""
    first, second = convolution.desc, addition.desc
    assert isinstance(first, QuantizedLinearConvolutionDesc)
    assert isinstance(second, ElementWiseQuantizedLinearAddDesc)
    between, output = first.output_tensor, second.output_tensor
    operand = getattr(second, f"{letter}_tensor")
    if (between.sizes, between.element_strides) != (operand.sizes, operand.element_strides):
        return None
    if not between.data_type == operand.data_type == output.data_type:
        return None
    if not all(_are_equal(convolution, f"output_{name}", addition, f"{letter}_{name}") for name in PARAMETERS):
        return None
    (other,) = (each for each in LETTERS if each != letter)
    names = {f"{other}_{name}": f"addend_{name}" for name in ("tensor", *PARAMETERS)}
    names |= {f"output_{name}": f"sum_{name}" for name in PARAMETERS} | {"output_tensor": "output_tensor"}
    given = {each.name: getattr(first, each.name) for each in fields(first) if each.init}
    given |= {name: getattr(second, field) for field, name in names.items()}
    desc = QuantizedLinearConvolutionAddDesc(**given, addend_comes_first=letter == "b")

    def joined(own: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        return {**own, **{names[field]: value for field, value in more.items() if field in names}}

    return Operation(desc, joined(convolution.places, addition.places), joined(convolution.owned, addition.owned))


def _are_equal(first: Operation, field: str, second: Operation, other: str) -> bool:
    """Whether two parameters have the same number: constants, or none, which is a zero point of 0."""
    numbers = []
    for operation, name in ((first, field), (second, other)):
        if name in operation.owned:
            numbers.append(np.asarray(operation.owned[name]).reshape(-1))
        elif name in operation.places:
            return False
        else:
            numbers.append(np.zeros(1, np.int8))
    return bool(len(numbers[0]) == len(numbers[1]) == 1 and numbers[0][0] == numbers[1][0])
