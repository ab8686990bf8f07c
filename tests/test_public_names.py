"""The names that `dmlvk` shows and that its classes have; those under which exceptions are caught, printed, pickled."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import dmlvk

# The library: what raises to a caller. Commands and harnesses print their errors.
WINGS = (
    *(
        "_common.arguments",
        "cuda",
        "dask",
        "dxdispatch",
        "errors",
        "functional",
        "onnx",
        "operators",
        "planning",
        "runtime",
    ),
    *("tensor_desc", "torch", "vulkan"),
)
# These are caught inside dmlvk or as the public class that they extend, or are dmlvk's own mistakes.
INTERNAL = {
    *("CleanMessage", "KernelInterfaceError", "NotOnDeviceError", "ObstacleError", "ProcessEndError", "RefusedError"),
    *("SampleError", "_Refused"),
}


def modules(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield name
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{name}."):
        importlib.import_module(found.name)
        yield found.name


def exceptions() -> list[type[BaseException]]:
    """The exceptions that the library's modules define."""
    found = set()
    for wing in WINGS:
        try:
            names = list(modules(f"dmlvk.{wing}"))
        except ImportError as error:  # an extra's library is not installed
            assert wing in ("dask", "onnx", "torch"), error
            continue
        for name in names:
            for value in vars(sys.modules[name]).values():
                is_ours = isinstance(value, type) and issubclass(value, BaseException)
                if is_ours and value.__module__.split(".")[0] == "dmlvk" and value.__name__ not in INTERNAL:
                    found.add(value)
    return sorted(found, key=lambda error: error.__name__)


def test_every_exception_that_a_caller_may_catch_is_a_public_name() -> None:
    found = exceptions()
    assert {"BatchError", "DeviceLostError", "ModelError", "OutOfMemoryError", "PathError"} <= {
        error.__name__ for error in found
    }
    for error in found:
        module = importlib.import_module(error.__module__)
        assert getattr(module, error.__name__) is error
        assert error.__name__ in module.__all__, f"{error.__module__} does not list {error.__name__}"
        assert error.__module__ in ("dmlvk", "dmlvk.dask", "dmlvk.dxdispatch", "dmlvk.onnx"), error


@pytest.mark.parametrize("name", [name for name in dmlvk.__all__ if name.endswith("Error")])
def test_an_exception_is_printed_and_pickled_by_its_public_name(name: str) -> None:
    error = getattr(dmlvk, name)
    made = error("Slice1Desc", "axis", 5, "a rule") if name == "DescriptorError" else error("a message")
    assert repr(error) == f"<class 'dmlvk.{name}'>"
    assert str(pickle.loads(pickle.dumps(made))) == str(made)
    assert type(pickle.loads(pickle.dumps(made))) is error


def test_completion_shows_public_names_alone() -> None:
    assert set(dmlvk.__all__) <= set(dir(dmlvk))
    program = "import dmlvk, sys; print(*[name for name in dir(dmlvk) if not name.startswith('__')])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert set(shown) <= {*dmlvk.__all__, "planning"}
    for module in ("benchmark", "conformance", "onnx"):
        program = f"import dmlvk.{module}; print({module!r} in dir(dmlvk))"
        assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "True\n"


# Modules that are no helpers: the wings, and those whose classes are public names.
MODULES = {
    *("command_line", "data_type", "device_profile", "errors", "functional", "layers", "operators", "quirks"),
    *("runtime", "spirv", "tensor_desc", "version", "vulkan"),
}


def test_helper_modules_have_an_underscore() -> None:
    found = {module.name for module in pkgutil.iter_modules(dmlvk.__path__) if not module.name.startswith("_")}
    assert found - set(dmlvk._MODULES) - set(dmlvk.__all__) <= MODULES


# Each is the exception of its own package, and has the package's name in messages.
SHARED_BY_PACKAGES = {"ModelError"}


def named_types(path: Path) -> Iterator[tuple[str, str]]:
    """The classes, aliases of types and type variables that a module defines, each with what tells it from others."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name, f"class of {path}"
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper():
                yield target.id, ast.unparse(node.value)


def test_the_name_of_a_type_has_one_meaning() -> None:
    meanings = defaultdict(set)
    for path in Path(dmlvk.__file__).parent.rglob("*.py"):
        for name, meaning in named_types(path):
            meanings[name].add(meaning)
    assert len(meanings) > 500 and meanings["Array"] == {"npt.NDArray[Any]"}
    found = {name: each for name, each in meanings.items() if len(each) > 1 and name not in SHARED_BY_PACKAGES}
    assert not found, "give one of them another name, or define an alias once"
