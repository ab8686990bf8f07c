"""Finds the operators and their parts. All other wings (planning, reference, conformance, benchmark) ask it.

An operator has one stem. In each wing its module is called by the stem: `dmlvk.operators.slice1`,
`dmlvk.planning.slice1`, `dmlvk.reference.slice1` and so on. Only the declaration, in `dmlvk.operators`, and the
reference must exist: what a wing lacks for an operator falls back, as `parts` says. This module knows no other wing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from dmlvk import operators
from dmlvk.operators.declared import OperatorDesc

# Modules of `dmlvk.operators` that stand on this one.
ABOVE = ("descriptors", "registry", "serialization")


def _declared() -> Iterator[type[OperatorDesc]]:
    """The classes under `@operator` in the modules beside this one."""
    for found in pkgutil.iter_modules(operators.__path__):
        if found.name in ABOVE:
            continue
        module = import_module(f"{operators.__name__}.{found.name}")
        for value in vars(module).values():
            is_descriptor = isinstance(value, type) and issubclass(value, OperatorDesc) and "stem" in vars(value)
            if is_descriptor and value.__module__ == module.__name__:
                yield value


# In the order of their numbers, which is that of the conformance cases and of the benchmark.
OPERATORS: tuple[type[OperatorDesc], ...] = tuple(sorted(_declared(), key=lambda desc: desc.number))
CURRENT_OPERATORS: tuple[type[OperatorDesc], ...] = tuple(desc for desc in OPERATORS if desc.successor is None)


def parts(
    wing: str,
    name: str,
    operators: Iterable[type[OperatorDesc]] = OPERATORS,
    *,
    is_shared: bool = False,
    default: Callable[[type[OperatorDesc]], Any] | None = None,
) -> dict[type[OperatorDesc], Any]:
    """Find a part of each operator: the attribute `name` of its module in a wing, or what stands in for it.

    wing: the wing's package, such as "dmlvk.planning".
    name: the function or constant that a module defines.
    operators: all of them by default.
    is_shared: whether the module of the operator's successor, and then that of its family (`<wing>.families.<family>`),
        stands in for its own.
    default: makes the part of an operator for which no module defines it.
    Returns in the order of `operators`.
    Raises ImportError: no module defines the part, and there is no default.
    """
    return {desc: _part(desc, wing, name, is_shared, default) for desc in operators}


def _part(
    desc: type[OperatorDesc],
    wing: str,
    name: str,
    is_shared: bool,
    default: Callable[[type[OperatorDesc]], Any] | None,
) -> Any:
    stems = [desc.stem]
    if is_shared:
        stems += [desc.successor.stem] if desc.successor is not None else []
        stems += [f"families.{desc.family}"]
    modules = [f"{wing}.{stem}" for stem in stems]
    for path in modules:
        module = _module(path)
        if hasattr(module, name):
            return getattr(module, name)
    if default is None:
        raise ImportError(f"{desc.operator_name} has no {name}: none of {', '.join(modules)} defines it")
    return default(desc)


def _module(path: str) -> ModuleType | None:
    """A module; None if there is none. A mistake inside a module is raised."""
    package, _, name = path.rpartition(".")
    if package.endswith(".families") and find_spec(package) is None:
        return None
    return import_module(path) if find_spec(f".{name}", package) is not None else None
