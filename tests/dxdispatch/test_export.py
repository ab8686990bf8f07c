"""Conformance cases as models: they run here with the expected bytes, and the check finds what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dmlvk
from dmlvk.command_line import main
from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.dxdispatch import export_model, export_models
from tests.amount import THOROUGH
from tests.conformance.drill_cases import convolution_workload, workload

# The first case of each group that has no special purpose on a device: the groups are the kinds of cases.
KINDS: dict[str, Case] = {}
REFUSED: list[Case] = []
for _case in all_cases(default_only=True):
    # Operators of our own, which DxDispatch does not know.
    if _case.groups[0] in (
        *("byte_layer_normalization", "byte_resample", "byte_softmax", "byte_table", "byte_table_mean"),
        *("quantized_linear_convolution_add", "quantized_linear_convolution_table"),
    ):
        continue
    if _case.refusal is not None:
        REFUSED.append(_case)
        continue
    KINDS.setdefault(":".join(_case.groups), _case)

# Elements with gaps between them, an offset, and three kinds of wrong bytes to make.
SLICE = Case("slice1:good:type=u8", partial(workload, "slice1:good:type=u8"))
CONVOLUTION = Case("quantized_linear_convolution:good:it=1", partial(convolution_workload, "q:good:it=1"))


def run(folder: Path, device: dmlvk.Device) -> None:
    dmlvk.dxdispatch.load(folder / "model.json").run(device, log=lambda line: None)


def check(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """The script in the folder, as its receiver runs it: outside the tree."""
    folder = arguments[0]
    command = [sys.executable, "-I", str(folder / "check.py"), *map(str, arguments[1:])]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_every_operator_has_kinds_of_cases() -> None:
    operators = {name.split(":")[0] for name in KINDS}
    assert {
        "slice1",
        "slice",
        "one_hot",
        "diagonal_matrix1",
        "diagonal_matrix",
        "quantized_linear_convolution",
    } <= operators
    assert len(KINDS) > 40


def test_descriptors_that_have_to_be_refused_are_no_models(tmp_path: Path) -> None:
    for _, result in export_models(REFUSED, tmp_path):
        assert isinstance(result, ValueError)
        assert "its descriptor has to be refused" in str(result)
    assert REFUSED and not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_case_gives_the_expected_bytes(kind: str, device: dmlvk.Device, tmp_path: Path) -> None:
    """The whole memory: elements, gaps and guard bytes. Where elements are undefined, all other bytes."""
    ((_, folder),) = export_models([KINDS[kind]], tmp_path)
    assert isinstance(folder, Path), folder
    if not THOROUGH and list(KINDS).index(kind) % 3:  # by day every third is run; all are made and read
        dmlvk.dxdispatch.load(folder / "model.json")
        return
    run(folder, device)
    expected = np.load(folder / "OutputTensor.expected.npy")
    actual = np.load(folder / "OutputTensor.actual.npy")
    record = json.loads((folder / "model.json").read_text())["dmlvk"]
    assert record["case"] == KINDS[kind].name
    if record["output"]["is_defined"]:
        assert actual.dtype == expected.dtype
        assert actual.tobytes() == expected.tobytes()
        before = np.load(folder / "OutputTensor.npy")
        assert before.tobytes() != expected.tobytes(), "the output is poisoned before the run"
    else:
        output = record["output"]
        start, size = output["start"], int(np.prod(output["sizes"])) * actual.itemsize
        for memory in (actual, expected):
            memory.view(np.uint8)[start : start + size] = 0
        assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("case", [SLICE, CONVOLUTION], ids=lambda case: case.groups[0])
def test_the_check_compares_elements_and_other_bytes(case: Case, device: dmlvk.Device, tmp_path: Path) -> None:
    folder = export_model(case, tmp_path)
    assert "import dmlvk" not in (folder / "check.py").read_text()
    finished = check(folder)
    assert (finished.returncode, finished.stdout[:9]) == (1, "NO RESULT")
    run(folder, device)
    finished = check(folder, "--all-bytes")
    assert (finished.returncode, finished.stdout) == (0, f"equal: {case.name}\n"), finished.stderr

    layout = json.loads((folder / "model.json").read_text())["dmlvk"]["output"]
    path = folder / "OutputTensor.actual.npy"
    right = np.load(path)
    damaged = right.copy()
    damaged.view(np.uint8)[layout["start"] + layout["strides"][-1]] ^= 1
    np.save(path, damaged)
    finished = check(folder)
    assert finished.returncode == 1
    assert f"DIFFERS: {case.name}: 1 of {np.prod(layout['sizes'])} elements, the first at (0," in finished.stdout

    damaged = right.copy()
    damaged.view(np.uint8)[layout["start"] - 3] ^= 1
    np.save(path, damaged)
    finished = check(folder)
    assert finished.returncode == 0
    assert "1 bytes changed, the first -3 from the tensor's start" in finished.stdout
    assert check(folder, "--all-bytes").returncode == 1

    np.save(path, right[:-1])
    assert check(folder).returncode == 1


def test_an_owned_tensor_is_bound_by_the_dispatchable(tmp_path: Path) -> None:
    model = json.loads((export_model(CONVOLUTION, tmp_path) / "model.json").read_text())
    dispatchable = model["dispatchables"]["operator"]
    assert dispatchable["bindings"].keys() == {"FilterTensor"}
    assert "FilterTensor" not in model["commands"][0]["bindings"]
    assert dispatchable["type"] == "DML_OPERATOR_QUANTIZED_LINEAR_CONVOLUTION"


def test_a_case_that_the_format_cannot_express_is_named(tmp_path: Path) -> None:
    (case,) = (
        case for case in all_cases(True) if case.name == "diagonal_matrix1:bits:type=float64;number=1;input=absent"
    )
    result = CliRunner().invoke(main, ["conformance", "--export-dxdispatch", str(tmp_path), case.name])
    assert result.exit_code == 1
    assert f"Not exported: {case.name}: DxDispatch's format cannot express a NaN" in result.output
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    folder = export_model(SLICE, tmp_path)
    (folder / "OutputTensor.actual.npy").write_text("an earlier answer")
    assert export_model(SLICE, tmp_path) == folder
    assert not (folder / "OutputTensor.actual.npy").exists()
    (folder / "model.json").write_text('{"resources": {}}')
    with pytest.raises(OSError, match="left as it is"):
        export_model(SLICE, tmp_path)
    assert (folder / "model.json").read_text() == '{"resources": {}}'


def test_the_command_exports_the_chosen_cases_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_device(*arguments: Any, **options: Any) -> None:
        raise AssertionError("an export needs no device")

    monkeypatch.setattr(dmlvk.Device, "__init__", no_device)
    result = CliRunner().invoke(
        main, ["conformance", "slice1:page", "slice:page", "--export-dxdispatch", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    folders = sorted(tmp_path.iterdir())
    assert "4 of 4 cases are in" in result.output
    assert len(folders) == 4
    for folder in folders:
        names = {path.name for path in folder.iterdir()}
        assert names == {"model.json", "check.py", "InputTensor.npy", "OutputTensor.npy", "OutputTensor.expected.npy"}
