"""The suite without the validation layer: one message, at once, that says how to get it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import drivers

ROOT = Path(__file__).parent.parent
ABSENT = """
from dmlvk.vulkan import instance
instance.VALIDATION_LAYER = "VK_LAYER_that_is_not_there"
"""


def suite(folder: Path, validate: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "absent_layer.py").write_text(ABSENT)
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "DMLVK_VALIDATE": validate, "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "absent_layer", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def test_without_the_layer_the_suite_ends_at_once_and_says_how_to_get_it(tmp_path: Path) -> None:
    finished = suite(tmp_path, "1", "-n", "2", "tests/runtime/test_submission.py")
    output = finished.stdout + finished.stderr
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR
    assert output.count("VK_LAYER_that_is_not_there is not installed") == 1
    for remedy in ("apt install vulkan-validationlayers", f"`{drivers.COMMAND}` gets it", "DMLVK_VALIDATE=0 runs them"):
        assert remedy in output
    assert "passed" not in output and "failed" not in output


def test_the_suite_runs_without_it_if_that_is_asked_for(tmp_path: Path) -> None:
    finished = suite(tmp_path, "0", "-n", "0", "tests/runtime/test_submission.py", "-k", "unless_asked_for")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "passed" in finished.stdout
