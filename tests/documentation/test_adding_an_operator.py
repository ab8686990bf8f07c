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
from tools.compile_kernels import find_compiler

ROOT = Path(__file__).parents[2]
FILE = re.compile(
    r"`((?:dmlvk|tests|kernels)/[\w/]*element_wise_bit_and[\w/]*\.(?:py|comp))`.*?\n```(?:py|glsl)\n(.*?)^```$",
    re.M | re.S,
)
STEM, NAME = "element_wise_bit_and", "ELEMENT_WISE_BIT_AND"
MODEL = {
    "resources": {
        "a": {"initialValuesDataType": "UINT8", "initialValues": [255, 6, 12, 85]},
        "b": {"initialValuesDataType": "UINT8", "initialValues": [1, 3, 10, 170]},
        "c": {"initialValuesDataType": "UINT8", "initialValues": {"valueCount": 4, "value": 99}},
    },
    "dispatchables": {
        "and": {
            "type": f"DML_OPERATOR_{NAME}",
            "desc": {f"{tensor}Tensor": {"DataType": "UINT8", "Sizes": [4]} for tensor in ("A", "B", "Output")},
        }
    },
    "commands": [
        {
            "type": "dispatch",
            "dispatchable": "and",
            "bindings": {"ATensor": "a", "BTensor": "b", "OutputTensor": "c"},
        }
    ],
}


def files() -> Mapping[str, str]:
    """The text of each file that the page shows."""
    return dict(FILE.findall((ROOT / "docs" / "adding_an_operator.md").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, its kernels and tools, with the page's files; the page's kernel is compiled."""
    folder = tmp_path_factory.mktemp("checkout")
    for part in ("dmlvk", "kernels", "tools"):
        shutil.copytree(ROOT / part, folder / part)  # with its bytecode
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        assert not (folder / path).exists()
        (folder / path).write_text(text, encoding="utf-8")
    program = f"""
from tools import compile_kernels as tool
from tools.compile_kernels import Compiler
tool.find_compiler = lambda: {find_compiler()!r}
assert tool.compile_kernels([]) == []
"""
    run(folder, "-c", program)
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
    assert len(files()) == 4  # of at most five
    assert sum(text.count("\n") for text in files().values()) <= 200


def test_conformance_has_its_cases_and_refusals(checkout: Path) -> None:
    listed = run(checkout, "-m", "dmlvk", "conformance", "--list", STEM, f"invalid:{STEM}")
    assert listed.count(f"{STEM}:form:") > 50
    assert f"invalid:{STEM}:rule=output_sizes" in listed and f"invalid:{STEM}:rule=a_absent" in listed


@pytest.mark.nightly
def test_the_documentation_has_its_rows_its_class_and_its_kernel(checkout: Path) -> None:
    shutil.copytree(ROOT / "docs", checkout / "docs", ignore=shutil.ignore_patterns("made", "devices"))
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(ROOT / "bench" / "results", checkout / "bench" / "results")
    run(checkout, "-c", "from tools.documentation import made_pages; made_pages.write()")
    made = checkout / "docs" / "made"
    assert f"| {NAME} | a and b and output: INT8 or UINT8 | 1 to 8 | none |" in (made / "operators.md").read_text()
    assert ".. autoclass:: dmlvk.ElementWiseBitAndDesc\n" in (made / "descriptors.txt").read_text()
    assert f"- `operation`: {NAME}: output = a & b." in (made / "kernels.md").read_text()


def test_the_benchmark_has_its_cases(checkout: Path) -> None:
    assert f"{STEM}:plain:type=UINT8" in run(checkout, "-m", "dmlvk", "bench", "--list", "--operator", STEM)


def test_it_runs_from_the_library_from_its_cases_and_from_dxdispatch(checkout: Path) -> None:
    program = f"""
import json, sys, numpy as np, dmlvk
from dmlvk.conformance.cases import all_cases
loads = [case.build() for case in all_cases(True) if case.groups[0] == {STEM!r} and case.path is None][:20:3]
for selector in ("llvmpipe", "SwiftShader"):
    with dmlvk.Device(selector) as device:
        for load in loads:
            tensors = {{}}
            for name, desc in load.desc.tensors.items():
                tensors[name] = device.tensor(desc)
                if name in load.inputs: tensors[name].write(load.inputs[name])
            device.compile(load.desc)(**tensors).wait()
            assert tensors["output_tensor"].numpy().tobytes() == load.result().tobytes(), load.desc
        model = dmlvk.dxdispatch.load(sys.argv[1])
        assert model.run(device)["c"].tolist() == [1, 2, 8, 0]
assert len(loads) > 5
assert "ElementWiseBitAndDesc" in dir(dmlvk)
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
