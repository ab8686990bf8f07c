"""Whatever stands in a place of a model: it is taken or refused with the place, and nothing else is raised."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.dxdispatch import ModelError
from tests.amount import THOROUGH
from tests.dxdispatch.models import copy_model, write
from tests.dxdispatch.test_descriptors import BY_HAND

JUNK: list[Any] = [None, True, -1, 0, 1.5, 2**70, 1e308, "x", "", "nan", [], {}, [[]], [{}], {"name": 3}, {"value": 1}]
Place = tuple[Any, ...]


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Every place in a document."""
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, (*path, key))


def replaced(model: Any, path: Place, junk: Any) -> Any:
    if not path:
        return junk
    changed = copy.deepcopy(model)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = junk
    return changed


def models() -> dict[str, Any]:
    """A model with every part of the format, and one of each operator."""
    source = {
        "initialValuesDataType": "INT16",
        "initialValues": [1, 2, 3, 4],
        "sizeInBytes": 64,
        "initialValuesOffsetInBytes": 4,
    }
    commands = [
        {"type": "print", "resource": "A", "verbose": True},
        {"type": "writeFile", "resource": "F", "targetPath": "x.png", "dimensions": [1, 1, 2, 2]},
    ]
    whole = copy_model("INT16", 4, source, commands=commands)
    whole["resources"] |= {
        "F": {
            "initialValuesDataType": "FLOAT32",
            "initialValues": {"valueCount": 4, "valueStart": 1, "valueDelta": 0.5},
        },
        "M": {"initialValues": [{"type": "UINT8", "value": 3}, {"type": "FLOAT32", "value": "inf"}]},
        "N": {"initialValues": {"sourcePath": "values.npy"}},
    }
    whole["commands"][0]["bindings"]["InputTensor"] = [{"name": "A", "elementOffset": 8, "counter": "F", "shape": [4]}]
    whole["dispatchables"]["reverse"] |= {"dmlCompileType": "DmlCompileOp", "executionFlags": ["NONE"]}
    operators = {
        name: {"resources": {}, "dispatchables": {"x": {"type": name, "desc": desc}}, "commands": []}
        for name, (desc, _) in BY_HAND.items()
    }
    return {"whole": whole} | operators


MODELS = models()


@pytest.mark.parametrize("name", MODELS)
def test_junk_in_every_place(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "values.npy", np.arange(1, 5, dtype=np.int8))
    model = MODELS[name]
    refusals = 0
    for number, path in enumerate(places(model)):
        for junk in JUNK if THOROUGH else JUNK[number % 2 :: 2]:
            try:
                dmlvk.dxdispatch.load(write(tmp_path, replaced(model, path, junk)))
            except ModelError as error:
                refusals += 1
                assert "\n" not in str(error)
                # The place is above, at or below the junk, or another part that no longer fits it.
                assert error.key or not path or path[-1] in ("resources", "dispatchables", "commands"), str(error)
    assert refusals > 100
    assert {each.name for each in tmp_path.iterdir()} == {"model.json", "values.npy"}


def test_the_models_themselves_are_taken(tmp_path: Path) -> None:
    np.save(tmp_path / "values.npy", np.arange(1, 5, dtype=np.int8))
    for name in ("whole", "SLICE", "SLICE1", "DIAGONAL_MATRIX", "DIAGONAL_MATRIX1", "ONE_HOT"):
        dmlvk.dxdispatch.load(write(tmp_path, MODELS[name]))
