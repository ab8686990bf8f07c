"""The file of typed examples: its programs run and do what type checkers are told. `make lint` checks the types."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dmlvk
from tests import typing_examples

ROOT = Path(__file__).parents[1]
PROGRAMS: tuple[Callable[[dmlvk.Device], None], ...] = (
    typing_examples.one_liners_of_arrays,
    typing_examples.one_liners_of_tensors,
    typing_examples.operators,
    typing_examples.operators_with_tensors_of_their_own,
    typing_examples.any_operator,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_typed_program_runs(device: dmlvk.Device, program: Callable[[dmlvk.Device], None]) -> None:
    program(device)


def test_programs_that_take_other_arguments_run(device: dmlvk.Device) -> None:
    image = np.zeros((4, 5), np.int16)
    typing_examples.either_in(device, image)
    typing_examples.either_in(device, device.tensor(image))
    typing_examples.data_types()


def test_the_type_checkers_are_asked() -> None:
    """With settings under which a mistake that a checker does not find is an error."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lint = makefile[makefile.index("define LINT") : makefile.index("endef")]
    assert "-m mypy\n" in lint and "-m basedpyright\n" in lint
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'module = ["tests.typing_examples"]\nwarn_unused_ignores = true' in settings
    assert 'include = ["tests/typing_examples.py"]' in settings
    assert 'reportUnnecessaryTypeIgnoreComment = "error"\nenableTypeIgnoreComments = false' in settings


def test_every_mistake_is_expected_of_both_checkers() -> None:
    text = Path(typing_examples.__file__).read_text(encoding="utf-8")
    lines = text.splitlines()
    (mistakes,) = (
        node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == "mistakes"
    )
    marked = [line for line in lines if "# type: ignore" in line or "# pyright: ignore" in line]
    assert len(marked) > 10
    assert all("# type: ignore[" in line and "# pyright: ignore[" in line for line in marked)
    first, last = mistakes.lineno, mistakes.end_lineno
    assert [line for number, line in enumerate(lines, 1) if line in marked and not first < number <= (last or 0)] == []
