"""The README's examples run as they stand, and what it says about the project is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dmlvk

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_readme_has_examples_of_each_way_of_use() -> None:
    code = "\n".join(EXAMPLES)
    for name in ("device.compile", "dmlvk.slice1(", "dmlvk.diagonal_matrix1(", "dmlvk.one_hot(", "reference.run"):
        assert name in code


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example{number}" for number in range(1, len(EXAMPLES) + 1)])
def test_example_runs(example: str, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", device.profile.name)
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})


def test_files_that_the_readme_names_are_there() -> None:
    for name in ("docs/demo.png", "LICENSE", "dmlvk/demo/ORIGIN.txt"):
        assert name in README
        assert (ROOT / name).is_file()
    for folder in re.findall(r"^    ((?:dmlvk|kernels|tests|tools)[a-z/]*/) ", README, re.MULTILINE):
        assert (ROOT / folder).is_dir()


def test_every_environment_variable_is_documented() -> None:
    """A variable that the package reads is in the README's table."""
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", README, re.MULTILINE))
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "dmlvk").rglob("*.py"))
    read = {name for source in sources for name in re.findall(r"""environ[^\n]*?["'](DMLVK_[A-Z_]+)["']""", source)}
    assert read <= documented
