"""Modules that stand on another library say what to install where it is missing, and nothing else needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(program: str, package: str = "torch") -> subprocess.CompletedProcess[str]:
    """Run a program in which the import of a package fails as if the package were not installed."""
    absent = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nPACKAGE = {package!r}\n" + (
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == PACKAGE:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    return subprocess.run([sys.executable, "-c", absent + program], capture_output=True, text=True, timeout=120)


def test_torch_is_named_where_it_is_missing() -> None:
    done = run("import dmlvk.torch")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        'ImportError: dmlvk.torch needs torch, which is not installed: pip install "dmlvk[torch]", or pip install torch'
    )


@pytest.mark.parametrize("package", ["dask", "distributed"])
def test_dask_is_named_where_it_is_missing(package: str) -> None:
    done = run("import dmlvk.dask", package)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: dmlvk.dask needs Dask, which is not installed: pip install 'dmlvk[dask]'"


@pytest.mark.parametrize("command", ["conformance", "bench"])
def test_a_scheduler_without_dask(command: str) -> None:
    done = run(f"from dmlvk.command_line import main; main([{command!r}, '--scheduler', 'tcp://127.0.0.1:1'])", "dask")
    assert done.returncode == 1
    rule = "dmlvk.dask needs Dask, which is not installed: pip install 'dmlvk[dask]'"
    assert done.stderr == f"Error: --scheduler: {rule}\n"


def test_the_demo_without_pillow(tmp_path: Path) -> None:
    output = tmp_path / "demo.png"
    done = run(f"from dmlvk.command_line import main; main(['demo', '--output', {str(output)!r}])", "PIL")
    assert done.returncode == 1
    assert done.stderr == 'Error: the demo needs Pillow to draw with: pip install "dmlvk[demo]"\n'


def test_dmlvk_imports_no_extra() -> None:
    extras = "{'torch', 'dask', 'distributed', 'onnx'}"
    commands = "dmlvk.command_line.conformance, dmlvk.command_line.bench"
    done = run(f"import dmlvk, dmlvk.conformance, dmlvk.benchmark, {commands}; assert not {extras} & set(sys.modules)")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_torch_that_is_too_old_is_named() -> None:
    done = run(
        "import types\n"
        "torch = types.ModuleType('torch')\n"
        "torch.library, torch.__version__ = types.ModuleType('torch.library'), '2.1.0'\n"
        "sys.modules['torch'] = torch\n"
        "import dmlvk.torch"
    )
    assert "ImportError: dmlvk.torch needs torch 2.4 or newer; torch 2.1.0 is installed" in done.stderr


def test_what_torch_itself_lacks_is_said() -> None:
    done = run(
        "class Broken:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError(\"No module named 'sympy'\", name='sympy')\n"
        "sys.meta_path.insert(0, Broken())\n"
        "import dmlvk.torch"
    )
    assert done.stderr.strip().splitlines()[-1] == "ModuleNotFoundError: No module named 'sympy'"
