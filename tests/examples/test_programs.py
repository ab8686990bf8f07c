"""The examples run as their users run them, on each test driver, and notice a wrong result."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from PIL import Image

import dmlvk
from dmlvk.command_line import main
from examples import dxdispatch_model, one_hot_masks, photograph_filters
from tests.examples.test_digits import program
from tests.programs import python

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
WORKFLOW = EXAMPLES / "conformance_ci.yml"


def done(device: dmlvk.Device, name: str, *arguments: str) -> str:
    """Run an example in a process of its own; its output."""
    finished = program(device, "-m", f"examples.{name}", *arguments)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_table_has_every_example() -> None:
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".yml") and path.stem != "__init__"}
    rows = set(re.findall(r"^\| \[([a-z_./]+)\]", README, re.MULTILINE))
    assert rows == programs | {"digits/"}
    for module in re.findall(r"python -m examples\.([a-z_.]+)", README):
        assert (EXAMPLES / f"{module.replace('.', '/')}.py").is_file()


def test_masks(device: dmlvk.Device) -> None:
    said = done(device, "one_hot_masks", "--length", "9", "--window", "3", "--vocabulary", "21")
    assert said.count("equal to NumPy's") == 5
    assert done(device, "one_hot_masks", "--length", "1", "--window", "1").count("equal to NumPy's") == 5


def test_masks_notice_a_wrong_result(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot_masks, "INT32_MAX", 2)  # one diagonal in place of all
    result = CliRunner().invoke(one_hot_masks.main, ["--device", device.name, "--length", "5"])
    assert result.exit_code == 1 and result.output.count("DIFFERENT from NumPy's") == 1


def test_filters(device: dmlvk.Device, tmp_path: Path) -> None:
    picture = tmp_path / "last.png"
    said = done(device, "photograph_filters", "--frames", "3", "--side", "48", "--output", str(picture))
    assert re.search(r"^[\d,.]+ frames of 48 x 48 a second on ", said)
    assert "equal the NumPy reference bit for bit" in said
    with Image.open(picture) as image:
        assert image.size == (48, 48) and len(image.getcolors(1 << 24) or []) > 100


def test_filters_notice_a_wrong_result(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second frame is filtered, and the first one's result is returned."""
    call = photograph_filters.Filters.__call__
    kept: list[np.ndarray] = []

    def stale(self: Any, frame: np.ndarray) -> np.ndarray:
        kept.append(call(self, frame).copy())
        return kept[0]

    monkeypatch.setattr(photograph_filters.Filters, "__call__", stale)
    arguments = ["--device", device.name, "--frames", "2", "--side", "16"]
    result = CliRunner().invoke(photograph_filters.main, arguments)
    assert result.exit_code == 1 and "differs from the NumPy reference: frame 1" in result.output


def test_the_model_of_dxdispatch(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "encoded, reversed, banded: equal to NumPy's" in done(device, "dxdispatch_model")
    model = str(EXAMPLES / "dxdispatch_model.json")
    command = CliRunner().invoke(main, ["run", model, "--device", device.name])
    assert command.exit_code == 0
    assert command.output.startswith("Resource 'banded': 5, 0, 0, 1, 5, 5, 0, 0, 0, 5, 5, 0,")
    expected = dxdispatch_model.expected
    monkeypatch.setattr(dxdispatch_model, "expected", lambda classes: expected(classes[::-1]))
    result = CliRunner().invoke(dxdispatch_model.main, ["--device", device.name])
    assert result.exit_code == 1 and "differs from NumPy's: encoded, reversed, banded" in result.output


def test_the_workflow_runs(device: dmlvk.Device, tmp_path: Path) -> None:
    """Its own commands in their order, besides those that install; with a sample in place of a quarter of the suite."""
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if step.get("run", "").startswith("dmlvk ")]
    assert [command.split()[1] for command in commands] == ["devices", "conformance"]
    part = job["strategy"]["matrix"]["part"]
    assert part == list(range(1, len(part) + 1))
    written = []
    for command in commands:
        chosen = re.sub(rf"--fraction \$\{{\{{ matrix.part \}}\}}/{len(part)}", "--sample 6", command)
        assert "$" not in chosen
        words = ["-m", *shlex.split(chosen)]
        if "conformance" in words:
            words += ["--device", device.name]
        finished = python(*words, cwd=tmp_path, timeout=300)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        written += re.findall(r"--(?:json|junit|html) (\S+)", chosen)
    kept = job["steps"][-1]["with"]["path"].split()
    assert {*written, "failures"} == set(kept)
    assert all((tmp_path / name).stat().st_size > 500 for name in written)
