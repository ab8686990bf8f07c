"""Each entry of the reference has an example that runs, and each parameter a sentence of its own."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import operators
from dmlvk.operators.registry import OPERATORS
from tests.conftest import DEVICE_NAMES
from tests.documentation.blocks import ROOT
from tests.programs import python
from tools.documentation.sections import numpy_style

PAGES = sorted(path for path in (ROOT / "docs" / "reference").glob("*.rst") if path.stem != "index")
DIRECTIVE = re.compile(r"^\.\. auto(class|function|exception):: ([\w.]+)(?:\(\))?\n((?:[ ]+.*\n|\n)*)", re.MULTILINE)
# torch is not installed where these tests run. `make test-torch` runs its page.
TORCH = ROOT / "docs" / "reference" / "torch.rst"
ENTRY = re.compile(r"^(\S.*?) : .*\n((?:    .*\n?)*)", re.MULTILINE)


def entries(page: Path) -> Iterator[tuple[str, str]]:
    """The names of a page's entries, each with what the page adds to its docstring."""
    for _, name, added in DIRECTIVE.findall(page.read_text(encoding="utf-8") + "\n"):
        yield name, added


def named(name: str) -> Any:
    """The object of a dotted name."""
    return pkgutil.resolve_name(name)


NAMES = [(page, *entry) for page in PAGES if page != TORCH for entry in entries(page)]
DOCUMENTED = sorted({name for _, name, _ in NAMES} | {f"dmlvk.{desc.__name__}" for desc in OPERATORS})


@pytest.mark.parametrize("page", [page for page in PAGES if page != TORCH], ids=lambda page: page.stem)
def test_the_examples_of_a_page_give_what_they_show(page: Path) -> None:
    """In a process of its own: ONNX Runtime and a cluster are among them."""
    environment = {**os.environ, "DMLVK_DEVICE": DEVICE_NAMES[0], "DMLVK_VALIDATE": "0"}
    done = python("-W", "ignore", "-m", "doctest", "-o", "ELLIPSIS", page, env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", [each.name for each in pkgutil.iter_modules(operators.__path__)])
def test_the_examples_of_descriptors_give_what_they_show(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"dmlvk.operators.{module}"), globs={"np": np, "dmlvk": dmlvk})
    assert found.failed == 0


def test_each_entry_has_an_example() -> None:
    added = {name: text for _, name, text in NAMES}
    assert len(added) > 70
    without = [name for name in DOCUMENTED if ">>> " not in added.get(name, "") + (inspect.getdoc(named(name)) or "")]
    assert without == []
    assert all(">>> " in text for _, text in entries(TORCH))


def test_each_parameter_has_a_sentence_of_its_own() -> None:
    parameters = 0
    for name in DOCUMENTED:
        owner = named(name)
        methods = [value for key, value in vars(owner).items() if key[0] != "_"] if inspect.isclass(owner) else []
        for documented in [owner, *filter(inspect.isfunction, methods)]:
            section = re.search(
                r"^Parameters\n-+\n(.*?)(?:\n\n(?=\S+\n---)|\Z)",
                "\n".join(numpy_style((inspect.getdoc(documented) or "").split("\n"))),
                re.DOTALL | re.MULTILINE,
            )
            found = ENTRY.findall(section[1] + "\n") if section else []
            sentences = [" ".join(sentence.split()) for _, sentence in found]
            assert all("," not in entry for entry, _ in found), (name, found)
            assert all(sentence.endswith((".", ":")) for sentence in sentences), (name, documented, found)
            assert len(set(sentences)) == len(sentences), (name, documented, sentences)
            parameters += len(found)
    assert parameters > 200
