"""An exported case runs without dmlvk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import dmlvk
from dmlvk.conformance.case import Case, Workload
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.export import export_case
from dmlvk.conformance.outputs import folder_name
from dmlvk.conformance.results import Result, Status
from dmlvk.conformance.running.execution import Devices, execute
from dmlvk.conformance.running.worker import environment
from tests.conformance.drill_cases import convolution_workload, workload

SLICE = Case("slice1:good:type=u8", partial(workload, "slice1:good:type=u8"))
CONVOLUTION = Case(
    "quantized_linear_convolution:good:it=1", partial(convolution_workload, "quantized_linear_convolution:good:it=1")
)


def tight() -> Workload:
    """A convolution whose tensors are cut at memory segments; the output starts in the middle of one."""
    made = convolution_workload("quantized_linear_convolution:tight:it=1")
    limits = {"max_storage_buffer_range": 4096, "max_memory_allocation_size": 8192, "max_buffer_size": 8192}
    return replace(made, limits=limits, offsets={"output_tensor": 4096})


TIGHT = Case("quantized_linear_convolution:tight:it=1", tight)


@pytest.fixture(scope="module")
def devices(device: dmlvk.Device) -> Iterator[Devices]:
    opened = Devices(device.name)
    yield opened
    opened.close()


def exported(case: Case, devices: Devices, parent: Path, profile: str = "device") -> Path:
    result = execute(case, devices, profile, 1)
    assert result.status is Status.PASS, result.message
    return export_case(case, result, environment(devices), parent)


def replay(folder: Path, devices: Devices) -> subprocess.CompletedProcess[str]:
    """Run the folder's script as its receiver does, without dmlvk on the path."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DMLVK_VALIDATE")}
    command = [sys.executable, str(folder / "replay.py"), "--device", devices.profile.name, "--repeat", "2"]
    return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder)


@pytest.mark.parametrize("case", [SLICE, CONVOLUTION, TIGHT], ids=lambda case: case.groups[-1])
def test_a_case_that_passes_is_equal(case: Case, devices: Devices, tmp_path: Path) -> None:
    folder = exported(case, devices, tmp_path)
    finished = replay(folder, devices)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "equal: " in finished.stdout
    record = json.loads((folder / "case.json").read_text())
    assert record["result"]["name"] == case.name
    assert (folder / "slice1/blocks.spv").exists() is (case is SLICE)
    assert np.load(folder / "output_tensor.expected.npy").shape == tuple(record["output"]["sizes"])
    assert "dmlvk" not in (folder / "replay.py").read_text()


def test_a_difference_is_found(devices: Devices, tmp_path: Path) -> None:
    folder = exported(SLICE, devices, tmp_path, "minimum")
    assert folder.name.startswith("minimum.")
    path = folder / "output_tensor.expected.bin"
    start = json.loads((folder / "case.json").read_text())["output"]["start"]
    content = bytearray(path.read_bytes())
    content[start + 2] ^= 1  # an element
    content[start + 3] ^= 1  # a gap
    path.write_bytes(content)
    finished = replay(folder, devices)
    assert finished.returncode == 1
    assert "DIFFERS: 1 of 10 elements, the first at (0, 1)" in finished.stdout
    assert "DIFFERS: 1 bytes outside the elements, the first 3 from the tensor's start" in finished.stdout


def test_the_export_is_what_the_library_records(devices: Devices, tmp_path: Path) -> None:
    """The kernels of the plan in their order. Every binding is aligned and ends inside its memory segment."""
    case = TIGHT
    folder = exported(case, devices, tmp_path)
    record = json.loads((folder / "case.json").read_text())
    made = case.build()
    opened = devices.get("device", made)
    operator = opened.compile(made.desc)
    kernels = [dispatch["kernel"] for stage in record["stages"] for dispatch in stage]
    assert kernels == [dispatch.kernel for dispatch in operator.plan.dispatches]
    for stage in record["initialization"] + record["stages"]:
        for dispatch in stage:
            for binding in dispatch["bindings"]:
                assert binding["offset"] % opened.profile.limits.min_storage_buffer_offset_alignment == 0
                assert binding["offset"] + binding["size"] <= opened.profile.segment_size


def test_folder_names_fit_any_file_system() -> None:
    result = Result('slice1:a b:type=u8;x="<>|?*";n=' + "9" * 200, "device", Status.FAIL)
    name = folder_name(result)
    assert len(name) <= 100
    assert set(name).isdisjoint(':;"<>|?* /\\')


@pytest.mark.parametrize("profile", ["device", "no-subgroup-size-control"])
def test_no_two_cases_share_a_folder(profile: str) -> None:
    """Folder names differ by more than case, because some file systems ignore case."""
    names = [folder_name(Result(case.name, profile, Status.FAIL)).lower() for case in all_cases(default_only=True)]
    assert len(set(names)) == len(names)
