"""Models for the tests, written as users write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy.typing as npt

import dmlvk
from dmlvk.dxdispatch import ModelError

NOTHING: list[Any] = []


def write(folder: Path, model: Any, name: str = "model.json") -> Path:
    path = folder / name
    path.write_text(model if isinstance(model, str) else json.dumps(model), encoding="utf-8")
    return path


def copy_model(
    data_type: str, count: int, source: Any, target: Any = None, commands: list[Any] = NOTHING
) -> dict[str, Any]:
    """SLICE1 that copies the resource A to the resource B from its end to its start, then further commands."""
    tensor = {"DataType": data_type, "Sizes": [count]}
    return {
        "resources": {
            "A": source,
            "B": target or {"initialValuesDataType": data_type, "initialValues": {"valueCount": count, "value": 7}},
        },
        "dispatchables": {
            "reverse": {
                "type": "DML_OPERATOR_SLICE1",
                "desc": {
                    "InputTensor": tensor,
                    "OutputTensor": tensor,
                    "DimensionCount": 1,
                    "InputWindowOffsets": [0],
                    "InputWindowSizes": [count],
                    "InputWindowStrides": [-1],
                },
            }
        },
        "commands": [
            {"type": "dispatch", "dispatchable": "reverse", "bindings": {"InputTensor": "A", "OutputTensor": "B"}},
            *commands,
        ],
    }


def initial(folder: Path, resource: Any) -> npt.NDArray[Any]:
    """The elements of a resource as they are uploaded."""
    model = dmlvk.dxdispatch.load(write(folder, {"resources": {"A": resource}, "dispatchables": {}, "commands": []}))
    found = model.resources["A"]
    return found.result(found.initial_memory)


def refusal(folder: Path, model: Any) -> ModelError:
    """The error of a model. It names the file, and is one line."""
    path = write(folder, model)
    try:
        dmlvk.dxdispatch.load(path)
    except ModelError as error:
        assert str(error).startswith(f"{path}: ")
        assert "\n" not in str(error)
        return error
    raise AssertionError("the model was not refused")


def refused(folder: Path, model: Any, key: str, *words: str) -> None:
    """Check that a model is refused for a key, with words in the message."""
    error = refusal(folder, model)
    assert error.key == key, str(error)
    for word in words:
        assert word in str(error), str(error)
