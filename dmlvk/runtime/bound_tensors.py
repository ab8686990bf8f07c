"""The tensors that each operator is bound to, by name: what type checkers know of `CompiledOperator`.

For them `python -m tools.stubs` writes the stub beside this file. Of each operator it has the inputs, which
`initialize` takes as tensors or arrays, and all tensors, which a call and `bind` take. An input may be missing: a call
takes no input that is OWNED_BY_DML, and some are optional.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import OPERATORS

# The descriptor of a compiled operator. Where nothing is known of it, tensors may have any names.
Described = TypeVar("Described", bound=OperatorDesc)
# A descriptor that is compiled. Its type is the first of these that fits, so it may be one of several operators too.
Compiled = TypeVar("Compiled", *OPERATORS, OperatorDesc)

# The signatures of CompiledOperator's methods, in the stub an overload for each operator.
call = bind = initialize = None


def typed_as(signature: Any) -> Callable[[Any], Any]:
    """Give a method the type of a signature, for type checkers."""
    return lambda method: method
