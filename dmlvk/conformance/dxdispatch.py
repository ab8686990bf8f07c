"""A case as a model of DxDispatch, so that DirectML on Windows can be asked the same question.

model.json                   the model: one dispatch, then the output is written to OutputTensor.actual.npy
*.npy                        the memory of each tensor before the run, guard bytes included
OutputTensor.expected.npy    the output's right memory after the run
check.py                     compares the two: needs Python and NumPy
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common import files
from dmlvk.conformance.case import Case
from dmlvk.conformance.outputs import file_system_name, require_own
from dmlvk.conformance.running.placement import Placement, placed_tensors
from dmlvk.dxdispatch.descriptors import camel_case, write_descriptor
from dmlvk.tensor_desc import TensorFlags

MODEL = "model.json"
OUTPUT = "output_tensor"
# DxDispatch ignores this member of the model; check.py reads it.
RECORD = "dmlvk"
DISPATCHABLE = "operator"


def export_models(cases: Iterable[Case], parent: Path) -> Iterator[tuple[Case, Path | Exception]]:
    """Write cases, each into a folder of its own. Yields each case with its folder, or why it has none.

    Raises OSError: a folder cannot be written, or it holds something else.
    """
    for case in cases:
        try:
            yield case, export_model(case, parent)
        except OSError:
            raise
        except Exception as error:  # a case of the user's own may fail in any way
            yield case, error


def export_model(case: Case, parent: Path) -> Path:
    """Write a case into a folder of its own, and return the folder.

    case: its path, limits and type of device do not matter: DirectML has its own.
    parent: the folder in which the new folder is made.
    Raises ValueError: the format cannot express the case: its Value is a NaN with other bits than the usual ones, or
        DirectML does not have the operator.
    Raises OSError: the folder cannot be written, or it exists and contains something other than an exported case.
    """
    workload = case.build()
    level = workload.desc.minimum_feature_level
    if level is None:
        raise ValueError(f"DirectML does not have the operator {workload.desc.operator_name}")
    placements = placed_tensors(case.name, workload, None)
    dispatchable = write_descriptor(workload.desc)
    sources: dict[bool, dict[str, Any]] = {True: {}, False: {}}
    memory: dict[str, npt.NDArray[Any]] = {}
    for field, placement in placements.items():
        point = camel_case(field)
        memory[point] = _elements(placement, placement.content)
        size = memory[point].itemsize
        is_owned = bool(placement.desc.flags & TensorFlags.OWNED_BY_DML)
        sources[is_owned][point] = {
            "name": point,
            "elementOffset": placement.start // size,
            "elementSizeInBytes": size,
        }
    if sources[True]:
        dispatchable["bindings"] = sources[True]
    output = placements[OUTPUT]
    point = camel_case(OUTPUT)
    expected = output.content_with(workload.result())
    model = {
        RECORD: {
            "case": case.name,
            "minimum_feature_level": level.name,
            "output": {
                "actual": f"{point}.actual.npy",
                "expected": f"{point}.expected.npy",
                **output.layout,
                "is_defined": workload.is_defined,
            },
        },
        "resources": {name: {"initialValues": {"sourcePath": f"{name}.npy"}} for name in memory},
        "dispatchables": {DISPATCHABLE: dispatchable},
        "commands": [
            {"type": "dispatch", "dispatchable": DISPATCHABLE, "bindings": sources[False]},
            {"type": "writeFile", "resource": point, "targetPath": f"{point}.actual.npy"},
        ],
    }
    folder = parent / file_system_name(case.name)
    require_own(folder, MODEL, {RECORD}, "an exported model")
    folder.mkdir(parents=True, exist_ok=True)
    # Written first, because this file marks the folder as an export.
    files.write_text(folder / MODEL, json.dumps(model, indent=1))
    for name, values in memory.items():
        files.write_bytes(folder / f"{name}.npy", files.npy_bytes(values))
    files.write_bytes(folder / f"{point}.expected.npy", files.npy_bytes(_elements(output, expected)))
    files.write_bytes(folder / "check.py", files.packaged_bytes("dmlvk.conformance", "check.py"))
    # A result of an earlier export would be taken for an answer to this one.
    (folder / f"{point}.actual.npy").unlink(missing_ok=True)
    return folder


def _elements(placement: Placement, content: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """A buffer as elements of the tensor's type. Its size and the tensor's start are multiples of 16 bytes."""
    return content.view(placement.desc.data_type.numpy_dtype)
