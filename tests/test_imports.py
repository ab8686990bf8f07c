"""Imports go one way and never in a circle: import-linter's contracts in pyproject.toml hold, and can be broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in a folder with a pyproject.toml."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "--no-logo", "--no-cache"],
        cwd=root,
        # Takes precedence over the installed package.
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


def test_the_package_keeps_the_contracts() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 kept, 0 broken" in done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imports")
    python_only = shutil.ignore_patterns("__pycache__", "*.xz", "*.json", "*.jpg")
    shutil.copytree(ROOT / "dmlvk", root / "dmlvk", ignore=python_only)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


WINGS = "The wings, from the commands down to the errors"
CIRCLE = "Nothing imports in a circle"
OPERATORS = "Operators know data types and errors, and no device, file or library"
NO_OPERATOR = "What calls Vulkan knows no operator"
VULKAN = "Vulkan is called in dmlvk.vulkan alone"


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("operators/slice1.py", "from dmlvk.planning.grid import GUARANTEED_WORKGROUP_COUNT", [WINGS, CIRCLE]),
        ("operators/slice1.py", "from dmlvk.device_profile import DeviceProfile", [OPERATORS]),
        ("operators/slice1.py", "import numpy as np", [OPERATORS]),
        ("vulkan/queue.py", "from dmlvk.operators import Slice1Desc", [NO_OPERATOR]),
        ("vulkan/queue.py", "from dmlvk.planning import Plan", [WINGS, NO_OPERATOR]),
        ("vulkan/queue.py", "import dmlvk", [WINGS, NO_OPERATOR]),
        ("reference/slice1.py", "def late():\n    from dmlvk.planning import plan", [WINGS]),
        ("planning/grid.py", "from dmlvk.vulkan.library import vk", [WINGS]),
        ("functional.py", "from dmlvk.conformance.case import Case", [WINGS]),
        ("vulkan/handles.py", "from dmlvk.vulkan.pipelines import Pipelines", [CIRCLE]),
        ("runtime/device.py", "import vulkan", [VULKAN]),
        ("new_wing.py", "", [WINGS]),
    ],
)
def test_an_import_the_wrong_way_is_found(package: Path, file: str, line: str, broken: list[str]) -> None:
    path = package / "dmlvk" / file
    before = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n", encoding="utf-8")
    try:
        done = lint_imports(package)
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
    found = [name for name in (WINGS, CIRCLE, OPERATORS, NO_OPERATOR, VULKAN) if f"{name} BROKEN" in done.stdout]
    if "new_wing" in file:  # this error comes before the list of contracts
        assert "new_wing" in done.stdout + done.stderr
    else:
        assert found == broken, done.stdout


def test_imports_for_types_alone_count(package: Path) -> None:
    path = package / "dmlvk" / "runtime" / "binding.py"
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\nif TYPE_CHECKING:\n    from dmlvk.runtime.device import Device\n", encoding="utf-8")
    try:
        done = lint_imports(package)
        assert done.returncode == 1 and f"{CIRCLE} BROKEN" in done.stdout and "4 kept, 2 broken" in done.stdout
    finally:
        path.write_text(before, encoding="utf-8")
