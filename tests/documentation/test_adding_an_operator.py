"""The operator of the page docs/adding_an_operator.md, really added to a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import dmlvk

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"`((?:dmlvk|tests|kernels)/[\w/]*element_wise_identity\w*\.py)`.*?\n```py\n(.*?)^```$", re.M | re.S)
STEM, NAME = "element_wise_identity", "ELEMENT_WISE_IDENTITY"
MODEL = {
    "resources": {
        "a": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4]},
        "b": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}},
    },
    "dispatchables": {
        "copy": {
            "type": f"DML_OPERATOR_{NAME}",
            "desc": {
                "InputTensor": {"DataType": "FLOAT32", "Sizes": [4]},
                "OutputTensor": {"DataType": "FLOAT32", "Sizes": [4]},
            },
        }
    },
    "commands": [{"type": "dispatch", "dispatchable": "copy", "bindings": {"InputTensor": "a", "OutputTensor": "b"}}],
}


def files() -> Mapping[str, str]:
    """The text of each file that the page shows."""
    return dict(FILE.findall((ROOT / "docs" / "adding_an_operator.md").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and its tests with the page's files."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(Path(dmlvk.__file__).parent, folder / "dmlvk", ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        assert not (folder / path).exists()
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def run(folder: Path, *arguments: str) -> str:
    """What a Python program prints that imports the copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_it_takes_few_files_and_lines() -> None:
    assert len(files()) == 4
    assert sum(text.count("\n") for text in files().values()) <= 200


def test_conformance_has_its_cases_and_refusals(checkout: Path) -> None:
    listed = run(checkout, "-m", "dmlvk", "conformance", "--list", STEM, f"invalid:{STEM}")
    assert listed.count(f"{STEM}:form:") > 50
    assert f"invalid:{STEM}:rule=output_sizes" in listed and f"invalid:{STEM}:rule=input_absent" in listed


def test_the_benchmark_has_its_cases(checkout: Path) -> None:
    assert f"{STEM}:plain:type=FLOAT32" in run(checkout, "-m", "dmlvk", "bench", "--list", "--operator", STEM)


def test_it_runs_from_the_library_from_its_cases_and_from_dxdispatch(checkout: Path) -> None:
    program = f"""
import json, sys, numpy as np, dmlvk
from dmlvk.conformance.cases import all_cases
with dmlvk.Device("llvmpipe") as device:
    ran = 0
    for case in all_cases(True):
        if case.groups[0] == {STEM!r} and case.path is None and not ran > 20:
            load = case.build()
            tensors = {{}}
            for name, desc in load.desc.tensors.items():
                tensors[name] = device.tensor(desc)
                if name in load.inputs: tensors[name].write(load.inputs[name])
            device.compile(load.desc)(**tensors).wait()
            assert tensors["output_tensor"].numpy().tobytes() == load.result().tobytes(), case.name
            ran += 1
    assert ran > 10
    model = dmlvk.dxdispatch.load(sys.argv[1])
    assert model.run(device)["b"].tolist() == [1, 2, 3, 4]
assert "ElementWiseIdentityDesc" in dir(dmlvk)
print("all ran")
"""
    path = checkout / "model.json"
    path.write_text(json.dumps(MODEL), encoding="utf-8")
    assert run(checkout, "-c", program, str(path)) == "all ran\n"


def test_its_own_test_passes(checkout: Path, device: dmlvk.Device) -> None:
    tests = checkout / "tests" / "kernels"
    (checkout / "conftest.py").write_text(
        "import dmlvk, pytest\n\n@pytest.fixture\ndef device():\n    with dmlvk.Device('llvmpipe') as device:\n"
        "        yield device\n",
        encoding="utf-8",
    )
    assert "1 passed" in run(checkout, "-m", "pytest", "-q", "-n", "0", "-c", os.devnull, "--rootdir=.", str(tests))
