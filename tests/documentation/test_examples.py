"""The examples in docstrings give what they show, and a parameter of a one-liner has a sentence of its own."""

from __future__ import annotations

import doctest
import inspect
import re

import numpy as np
import pytest

import dmlvk
from dmlvk import functional, layers, reference
from tests.conftest import DEVICE_NAMES
from tools.documentation.sections import numpy_style

FUNCTIONS = sorted(name for name in dmlvk.__all__ if inspect.isfunction(getattr(functional, name, None)))


@pytest.mark.parametrize("module", [functional, layers, reference], ids=lambda module: module.__name__)
def test_examples_give_what_they_show(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", DEVICE_NAMES[0])
    found = doctest.testmod(module, globs={"np": np, "dmlvk": dmlvk})  # type: ignore[arg-type]
    assert found.failed == 0 and found.attempted >= 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_one_liner_has_an_example_and_a_sentence_for_each_parameter(name: str) -> None:
    function = getattr(dmlvk, name)
    text = inspect.getdoc(function) or ""
    assert ">>> " in text
    section = "\n".join(numpy_style(text.split("\n"))).split("\nParameters\n----------\n")[1].split("\n\n")[0]
    entries = re.findall(r"^(\S.*?) : .*\n((?:    .*\n?)*)", section, re.MULTILINE)
    assert [entry for entry, _ in entries] == list(inspect.signature(function).parameters)
    sentences = [" ".join(sentence.split()) for _, sentence in entries]
    assert all(sentence.endswith(".") for sentence in sentences) and len(set(sentences)) == len(sentences)
