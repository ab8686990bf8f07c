"""Writes what type checkers have to know of each operator, from the operators' declarations.

    python -m tools.stubs            writes the files
    python -m tools.stubs --check    fails if a file is not what would be written

dmlvk/operators/descriptors.pyi names the descriptors, which the registry finds when the package is imported.
dmlvk/runtime/bound_tensors.pyi has the tensors of each operator, and how a compiled operator is called with them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import OPERATORS

PACKAGE = Path(__file__).resolve().parent.parent / "dmlvk"
# The methods of a compiled operator: the tensors that they take, those of any operator, and what they return.
METHODS = (
    ("call", "Tensors", "Tensor", "Submission"),
    ("bind", "Tensors", "Tensor", "Binding"),
    ("initialize", "Inputs", "Any", "Submission"),
)
BEFORE_TENSORS = """
from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict, TypeVar, overload

import numpy.typing as npt
from typing_extensions import NotRequired, Unpack
from typing_extensions import TypeVar as TypeVarWithDefault

from dmlvk import operators
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.submission import Submission
from dmlvk.runtime.tensor import Tensor

Method = TypeVar("Method")
Described = TypeVarWithDefault("Described", bound=operators.OperatorDesc, default=Any)
Elements: TypeAlias = Tensor | npt.ArrayLike
""".splitlines()
AFTER_METHODS = """
def typed_as(signature: Method) -> Callable[[Callable[..., Any]], Method]: ...
""".splitlines()
WRITTEN_BY = "# Written by `python -m tools.stubs` from the operators' declarations."


def stubs() -> Mapping[Path, str]:
    """The text of each file."""
    return {
        PACKAGE / "operators" / "descriptors.pyi": descriptors(),
        PACKAGE / "runtime" / "bound_tensors.pyi": bound_tensors(),
    }


def descriptors() -> str:
    """The descriptors by name."""
    names = sorted((desc.__name__, desc.__module__) for desc in OPERATORS)
    return "\n".join(
        [
            WRITTEN_BY,
            *sorted(f"from {module} import {name} as {name}" for name, module in names),
            "",
            "__all__ = [",
            *(f'    "{name}",' for name, _ in names),
            "]",
            "",
        ]
    )


def bound_tensors() -> str:
    """The tensors of each operator, and the methods of a compiled operator as overloads."""
    lines = [WRITTEN_BY, *BEFORE_TENSORS]
    lines += ["Compiled = TypeVar(", '    "Compiled",']
    lines += [f"    operators.{desc.__name__}," for desc in (*OPERATORS, OperatorDesc)] + [")"]
    for desc in OPERATORS:
        name = _name(desc)
        for kind, elements in (("Inputs", "Elements"), ("InputTensors", "Tensor")):
            fields = [f"    {field}: {elements}" for field in desc.input_fields]
            lines += ["", f"class {name}{kind}(TypedDict, total=False):", *(fields or ["    pass"])]
        required = [f"    {field}: Tensor" for field in desc.output_fields if field not in desc.optional_fields]
        optional = [
            f"    {field}: NotRequired[Tensor]" for field in desc.output_fields if field in desc.optional_fields
        ]
        lines += ["", f"class {name}Tensors({name}InputTensors):", *required, *optional]
    for method, kind, given, result in METHODS:
        for desc in OPERATORS:
            self = f"self: CompiledOperator[operators.{desc.__name__}]"
            lines += ["", "@overload", f"def {method}("]
            lines += [f"    {self}, **tensors: Unpack[{_name(desc)}{kind}]", f") -> {result}: ..."]
        self = "self: CompiledOperator[operators.OperatorDesc]"
        lines += ["", "@overload", f"def {method}({self}, **tensors: {given}) -> {result}: ..."]
    return "\n".join([*lines, *AFTER_METHODS, ""])


def _name(desc: type[OperatorDesc]) -> str:
    return desc.__name__.removesuffix("Desc")


def main() -> None:
    """Write the files, or check them."""
    stale = [path for path, text in stubs().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"{', '.join(path.name for path in stale)}: run `python -m tools.stubs`")
        return
    for path in stale:
        path.write_text(stubs()[path], encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
