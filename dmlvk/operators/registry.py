"""The one list of operators. All other wings (planning, reference, conformance, benchmark) read it.

An operator has one stem. In each wing its module is called by the stem: `dmlvk.operators.slice1`,
`dmlvk.planning.slice1`, `dmlvk.reference.slice1` and so on. A wing collects what its modules define with `parts`;
`tests/operators/test_registry.py` lists the names that each wing asks for. This module knows no other wing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dmlvk.operators.diagonal_matrix import DiagonalMatrixDesc
from dmlvk.operators.diagonal_matrix1 import DiagonalMatrix1Desc
from dmlvk.operators.one_hot import OneHotDesc
from dmlvk.operators.quantized_linear_convolution import QuantizedLinearConvolutionDesc
from dmlvk.operators.rules import OperatorDesc
from dmlvk.operators.slice import SliceDesc
from dmlvk.operators.slice1 import Slice1Desc


@dataclass(frozen=True)
class Operator:
    """An operator.

    Attributes
    ----------
    stem : str
        The name of its module in every wing: DirectML's name in lower case.
    desc : type of OperatorDesc
        The class of its descriptors.
    successor : type of OperatorDesc, optional
        The descriptors of the operator that took its place. It runs the successor's kernels, so the benchmark has no
        cases for it.
    """

    stem: str
    desc: type[OperatorDesc]
    successor: type[OperatorDesc] | None = None


# The order is the order of the conformance cases and of the benchmark: a new operator goes to the end.
OPERATORS: tuple[Operator, ...] = (
    Operator("slice1", Slice1Desc),
    Operator("one_hot", OneHotDesc),
    Operator("diagonal_matrix1", DiagonalMatrix1Desc),
    Operator("quantized_linear_convolution", QuantizedLinearConvolutionDesc),
    Operator("slice", SliceDesc, successor=Slice1Desc),
    Operator("diagonal_matrix", DiagonalMatrixDesc, successor=DiagonalMatrix1Desc),
)
CURRENT_OPERATORS: tuple[Operator, ...] = tuple(operator for operator in OPERATORS if operator.successor is None)


def parts(wing: str, name: str, operators: Iterable[Operator] = OPERATORS) -> dict[type[OperatorDesc], Any]:
    """Collect the attribute `name` of each operator's module in a wing.

    Parameters
    ----------
    wing : str
        The wing's package, such as "dmlvk.planning".
    name : str
        What each module has to define.
    operators : iterable of Operator, optional
        The operators that the wing has modules for: all of them by default.

    Returns
    -------
    dict of type of OperatorDesc to object
        In the order of `operators`.

    Raises
    ------
    ImportError
        The wing has no module for an operator.
    AttributeError
        The module does not define the name.
    """
    return {operator.desc: getattr(import_module(f"{wing}.{operator.stem}"), name) for operator in operators}
