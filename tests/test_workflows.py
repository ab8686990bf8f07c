"""The workflows call targets that exist, with what they need, and the linter finds what is wrong in one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compilers.chips import CHIPS
from tests.test_contributing import TARGETS
from tools.lint_workflows import run_actionlint, workflow_files

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in loaded(path)["jobs"].values() for step in job.get("steps", ())]


def test_there_is_a_workflow_of_each_kind() -> None:
    assert [path.stem for path in WORKFLOWS] == ["benchmark", "checks", "nightly", "release"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_of_make_exist(path: Path) -> None:
    commands = "\n".join(step.get("run", "") for step in steps(path))
    called = set(re.findall(r"^make (?:-C \S+ )?([a-z][a-z-]*)", commands, re.MULTILINE))
    matrices = [job.get("strategy", {}).get("matrix", {}) for job in loaded(path)["jobs"].values()]
    called |= {target for matrix in matrices for target in matrix.get("target", ())}
    assert called <= TARGETS
    assert called or path.stem == "release"


def test_the_checks_are_those_of_this_project() -> None:
    text = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    for target in ("lint", "test", "test-minimal", "docs", "package"):
        assert re.search(rf"make {target}(?: |$)", text, re.MULTILINE)
    jobs = loaded(ROOT / ".github" / "workflows" / "checks.yml")["jobs"]
    assert len(jobs["windows"]["strategy"]["matrix"]["python"]) == 2


@pytest.mark.skipif(os.name == "nt", reason="the nightly jobs run in a POSIX shell")
def test_sixteen_nights_run_each_part_of_the_suite_once() -> None:
    """The command itself, on the days from 2026-11-23, with a `make` that prints what it is given."""
    job = loaded(ROOT / ".github" / "workflows" / "nightly.yml")["jobs"]["conformance"]
    (command,) = (step["run"] for step in job["steps"] if "make conformance" in step.get("run", ""))
    script = ""
    for night in range(16):
        script += f"date() {{ echo {1795394460 + 86400 * night}; }}\n"
        for part in job["strategy"]["matrix"]["part"]:
            script += command.replace("${{ matrix.part }}", str(part)) + "\n"
    made = subprocess.run(
        ["/bin/sh", "-e", "-c", f'make() {{ echo "$@"; }}\n{script}'], capture_output=True, text=True, check=True
    )
    expected = {
        f"conformance PYTHON=python CONFORMANCE_ARGUMENTS=--full --fraction {part + 1}/128" for part in range(128)
    }
    assert sorted(made.stdout.splitlines()) == sorted(expected)


def test_the_nightly_chips_are_chips() -> None:
    matrix = loaded(ROOT / ".github" / "workflows" / "nightly.yml")["jobs"]["compilers"]["strategy"]["matrix"]
    names = [name for chips in matrix["chips"] for name in chips.split()]
    assert set(names) <= set(CHIPS)
    assert {name for name in CHIPS if name.startswith("amd-")} < set(names)


def test_only_a_tag_publishes_and_without_a_password() -> None:
    release = loaded(ROOT / ".github" / "workflows" / "release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key `on` as true
    publish = release["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["needs"] == "checks"
    assert "secrets." not in "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    writing = [path.stem for path in WORKFLOWS if "write" in path.read_text(encoding="utf-8")]
    assert writing == ["benchmark", "release"]
    for path in WORKFLOWS:
        assert loaded(path)["permissions"] == {"contents": "read"}


def test_workflows_pass_the_linter() -> None:
    assert {*WORKFLOWS} < {*workflow_files()}
    assert run_actionlint(workflow_files()) == 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("run: make lint", "run: make $LINT"),  # shellcheck's: no quotes
        ("timeout-minutes: 20", "timeout-minute: 20"),
        ("matrix.python", "matrix.pyton"),
    ],
)
def test_a_wrong_workflow_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    text = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    assert right in text
    file = tmp_path / "checks.yml"
    file.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    assert run_actionlint([file]) != 0
