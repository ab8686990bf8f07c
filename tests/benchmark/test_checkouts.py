"""`python -m bench.checkouts`: two checkouts, call by call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import dmlvk
from bench.checkouts import cases, main, page

ROOT = Path(__file__).parents[2]


def test_a_checkout_beside_itself(device: dmlvk.Device, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    arguments = [str(ROOT), str(ROOT), "--device", device.name, "--case", "SLICE1 rows of 9, UINT8", "--rounds", "2"]
    comment = tmp_path / "comment.md"
    result = CliRunner().invoke(main, [*arguments, "--json", str(path), "--markdown", str(comment)])
    assert result.exit_code == 0, result.output
    assert "| SLICE1 rows of 9, UINT8 | " in comment.read_text(encoding="utf-8")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["device"] == device.name
    (case,) = record["cases"]
    assert case["case"] == "SLICE1 rows of 9, UINT8"
    assert case["equal"]
    assert min(case["before"], case["after"], case["ratio"]) > 0


def test_what_calls_cost_the_host(device: dmlvk.Device, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    arguments = [str(ROOT), str(ROOT), "--device", device.name, "--case", "host: submit*", "--rounds", "1"]
    result = CliRunner().invoke(main, [*arguments, "--json", str(path)])
    assert result.exit_code == 0, result.output
    figures = {case["case"]: case["before"] for case in json.loads(path.read_text(encoding="utf-8"))["cases"]}
    # A list that has to be recorded is dearer than one that is remembered.
    assert figures["host: submit of 100 bindings, recorded"] > 2 * figures["host: submit of 100 bindings"]
    assert figures["host: submit of a chain, recorded"] > 2 * figures["host: submit of 100 bindings"]
    assert figures["host: submit of 100 bindings"] > figures["host: submit of one binding"] > 0


def test_a_checkout_with_other_results_is_told(device: dmlvk.Device, tmp_path: Path) -> None:
    """The other checkout reads every tensor as zeros."""
    other = tmp_path / "dmlvk"
    other.mkdir()
    (other / "__init__.py").write_text(
        f"import sys\ndel sys.modules['dmlvk']\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import dmlvk, numpy\ndmlvk.Tensor.numpy = lambda tensor: numpy.zeros(tensor.desc.sizes)\n",
        encoding="utf-8",
    )
    arguments = [str(ROOT), str(tmp_path), "--device", device.name, "--case", "SLICE1 copy, UINT8", "--rounds", "1"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "DIFFERENT" in result.output


def test_kernels_are_compiled_before_the_turns(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise the turns of one checkout could be those of a general kernel."""
    (tmp_path / "dmlvk").mkdir()
    (tmp_path / "dmlvk" / "__init__.py").write_text(
        f"import sys\ndel sys.modules['dmlvk']\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import dmlvk\nfrom dmlvk.runtime import background\nassert not background.is_allowed()\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("DMLVK_BACKGROUND", "1")
    arguments = [str(ROOT), str(tmp_path), "--device", device.name, "--case", "SLICE1 copy, UINT8", "--rounds", "1"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["."], "name two checkouts"),
        ([".", str(ROOT / "kernels")], "has no dmlvk/__init__.py"),
        ([".", ".", "--case", "nothing"], "no case is called 'nothing'"),
        ([".", ".", "--device", "no such"], "ended with status 1"),
    ],
)
def test_what_is_wrong_is_told(arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2)
    assert words in result.output


def test_a_comment_names_what_is_slower_or_different() -> None:
    figures = [
        {"case": "a", "before": 1.0, "after": 1.0, "ratio": 1.0, "equal": True},
        {"case": "b", "before": 1.0, "after": 2.0, "ratio": 2.0, "equal": True},
        {"case": "c", "before": 1.0, "after": 0.5, "ratio": 0.5, "equal": False},
    ]
    text = "\n".join(page(figures, "a device"))
    assert "Slower by more than 10%: b. \nOther results: c." in text
    assert "| b | 1000.00 | 2000.00 | 2.00 | equal |" in text
    text = "\n".join(page(figures[:1], "a device"))
    assert "Slower by more than 10%: nothing. \nOther results: none." in text


def test_each_operator_has_cases() -> None:
    operators = {desc.operator_name for desc in cases().values() if desc is not None}
    assert operators == {"SLICE1", "DIAGONAL_MATRIX1", "ONE_HOT", "QUANTIZED_LINEAR_CONVOLUTION"}
