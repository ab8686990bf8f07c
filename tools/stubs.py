"""Writes what type checkers have to know of each operator, from the operators' declarations.

    python -m tools.stubs            writes the files
    python -m tools.stubs --check    fails if a file is not what would be written

dmlvk/operators/descriptors.pyi names the descriptors, which the registry finds when the package is imported.
dmlvk/runtime/bound_tensors.pyi has the tensors of each operator, and how a compiled operator is called with them.
dmlvk/_signatures.pyi has the overloads of the one-liners, from the functions in dmlvk/functional.py.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
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
BEFORE_FUNCTIONS = """
from collections.abc import Callable
from typing import Any, Literal, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from dmlvk._operands import Argument, Array, DType, Integers, Operand, Plain, Scalar
from dmlvk.runtime.shared_devices import DeviceName
from dmlvk.runtime.tensor import Tensor

Function = TypeVar("Function")

def one_liner(signature: Function) -> Callable[[Callable[..., Any]], Function]: ...
""".splitlines()
# The argument whose data type a result has; a data type that all results have; and what has to be given where the
# first argument is absent.
TYPE_OF = {"diagonal_matrix1": "input", "one_hot": "values", "slice1": "input", "byte_table": "table"}
ARRAYS = {"dequantize_linear": "npt.NDArray[np.float32]"}
WITHOUT_INPUT = {"diagonal_matrix1": {"sizes": "Integers"}}
WRITTEN_BY = "# Written by `python -m tools.stubs` from the operators' declarations."


def stubs() -> Mapping[Path, str]:
    """The text of each file."""
    return {
        PACKAGE / "operators" / "descriptors.pyi": descriptors(),
        PACKAGE / "runtime" / "bound_tensors.pyi": bound_tensors(),
        PACKAGE / "_signatures.pyi": signatures(),
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


def signatures() -> str:
    """The one-liners as overloads: a Tensor among the arguments gives a Tensor, arrays alone give an array."""
    tree = ast.parse((PACKAGE / "functional.py").read_text(encoding="utf-8"))
    lines = [WRITTEN_BY, *BEFORE_FUNCTIONS]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            documentation = ast.get_docstring(node, clean=False)
            for changes, result in _overloads(node):
                lines += ["", "@overload", f"def {node.name}("]
                lines += [f"    {each}," for each in _parameters(node, changes)]
                lines += [f') -> {result}:\n    """{documentation}"""' if documentation else f") -> {result}: ..."]
                documentation = None  # editors show that of the first overload
    return "\n".join([*lines, ""])


def _overloads(node: ast.FunctionDef) -> Iterator[tuple[dict[str, str], str]]:
    """The annotations that differ from those of the function, with the result; the narrowest first."""
    annotations = {each.arg: ast.unparse(each.annotation) for each in _arguments(node) if each.annotation is not None}
    # A scale is a number most often; where it is a Tensor, the result may be either to a type checker.
    tensors = [each.arg for each in node.args.args if not each.arg.endswith("scale")]
    plain = {name: text.replace("Argument", "Plain") for name, text in annotations.items() if "Argument" in text}
    plain = {name: text.removesuffix(" | None") if name == tensors[0] else text for name, text in plain.items()}
    array = ARRAYS.get(node.name, "Array")
    found: list[tuple[dict[str, str], str]] = [({name: "Tensor"}, "Tensor") for name in tensors]
    if node.name in TYPE_OF:
        found.append(({**plain, TYPE_OF[node.name]: "npt.NDArray[Scalar]"}, "npt.NDArray[Scalar]"))
    found.append((plain, array))
    if node.name in WITHOUT_INPUT:
        found.append(({tensors[0]: "None", **WITHOUT_INPUT[node.name]}, array))
    found.append(({tensors[0]: "Argument"}, "Operand"))
    for changes, result in found:
        if "return_indices" not in annotations:
            yield changes, result
        elif result == "Operand":
            yield changes, f"{result} | tuple[{result}, {result}]"
        else:
            yield {**changes, "return_indices": "Literal[False]"}, result
            yield {**changes, "return_indices": "Literal[True]"}, f"tuple[{result}, {result}]"


def _parameters(node: ast.FunctionDef, changes: Mapping[str, str]) -> Iterator[str]:
    """The parameters of an overload. A default stays where its annotation allows it."""
    positional = node.args.args
    defaults = [None] * (len(positional) - len(node.args.defaults)) + list(node.args.defaults)
    for argument, default in zip(_arguments(node), [*defaults, *node.args.kw_defaults], strict=True):
        if node.args.kwonlyargs and argument is node.args.kwonlyargs[0]:
            yield "*"
        assert argument.annotation is not None
        annotation = changes.get(argument.arg, ast.unparse(argument.annotation))
        text = "" if default is None else ast.unparse(default)
        fits = text != "None" or annotation == "None" or annotation.endswith("None") or annotation == "DeviceName"
        has_default = bool(text) and fits and annotation != "Literal[True]"
        yield f"{argument.arg}: {annotation}{f' = {text}' if has_default else ''}"


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.args, *node.args.kwonlyargs]


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
