"""The imports inside dmlvk.vulkan, including those for types alone."""

from __future__ import annotations

import ast
from pathlib import Path

import dmlvk.vulkan

FOLDER = Path(dmlvk.vulkan.__file__).parent
PACKAGE = "dmlvk.vulkan."


def layers() -> list[list[str]]:
    """The modules in layers, from the package's docstring: its indented lines."""
    assert dmlvk.vulkan.__doc__ is not None
    return [line.split() for line in dmlvk.vulkan.__doc__.splitlines() if line.startswith("    ")]


def imported(module: str) -> set[str]:
    """The other modules that a module of the package imports, in functions and under TYPE_CHECKING too."""
    files = [*FOLDER.glob(f"{module}.py"), *FOLDER.glob(f"{module}/*.py")]
    assert files, module
    return set().union(*map(imported_by, files)) - {module}


def imported_by(path: Path) -> set[str]:
    """The modules of the package that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            assert not module.startswith("."), f"{path.name}: a relative import"
            # `from dmlvk.vulkan import queue` imports a module too.
            names.update([module] if module != PACKAGE[:-1] else [PACKAGE + alias.name for alias in node.names])
    return {name.removeprefix(PACKAGE).split(".")[0] for name in names if name.startswith(PACKAGE)}


def test_every_module_has_its_place_in_one_layer() -> None:
    listed = [module for layer in layers() for module in layer]
    found = {path.relative_to(FOLDER).parts[0].removesuffix(".py") for path in FOLDER.rglob("*.py")}
    assert sorted(listed) == sorted(found - {"__init__"})


def test_modules_import_only_from_the_layers_above_their_own() -> None:
    above: set[str] = set()
    for layer in layers():
        for module in layer:
            assert imported(module) <= above, f"{module} imports a module of its own layer or below"
        above.update(layer)


def test_modules_stand_in_the_first_layer_that_they_can() -> None:
    place = {module: number for number, layer in enumerate(layers()) for module in layer}
    for module, number in place.items():
        first = 1 + max((place[other] for other in imported(module)), default=-1)
        assert number == first, f"{module} could stand in layer {first + 1}, and stands in layer {number + 1}"
