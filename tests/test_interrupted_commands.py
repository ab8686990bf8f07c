"""Ctrl-C in the middle of long work: what was found until then is shown and kept; the status is that of Ctrl-C."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import dmlvk
from dmlvk.command_line.terminal import INTERRUPTED
from dmlvk.conformance.results_file import read_results
from dmlvk.runtime.tuned_paths import PREFIX
from tests.programs import python

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

DIGITS = Path(dmlvk.__file__).parent / "demo" / "digits.onnx"
# Sends itself Ctrl-C as a step of the work begins, by its number from 0.
PROGRAM = """
import os, signal, sys
from dmlvk.command_line import main, terminal
terminal.LINE_SECONDS = 0.0
step, last = terminal.Steps.__call__, int(sys.argv[1])
def interrupt(self, name):
    self.number = getattr(self, "number", -1) + 1
    step(self, name)
    if self.number == last:
        os.kill(os.getpid(), signal.SIGINT)
terminal.Steps.__call__ = interrupt
main(sys.argv[2:])
"""


def interrupted(folder: Path, step: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command on the first test driver, with a cache of its own, and interrupt it as a step begins."""
    command = ["-W", "ignore", "-c", PROGRAM, step, *arguments, "--device", "llvmpipe"]
    environment = {**os.environ, "DMLVK_CACHE_DIR": str(folder / "cache"), "DMLVK_VALIDATE": "0"}
    return python(*command, env=environment, timeout=300)


@pytest.mark.parametrize(
    ("subject", "step", "list_of_results"),
    [
        pytest.param("--operator one_hot --size tiny --rounds 2 --peer none", 4, "cases", id="operators"),
        pytest.param(f"--model {DIGITS} --batch 1 --batch 2 --rounds 2 --peer none", 1, "batches", id="model"),
        pytest.param(
            "--network mobilenetv2 --size tiny --rounds 2 --peer none --batch 1",
            40,
            "runs",
            id="network",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_bench_shows_and_keeps_the_figures_so_far(
    subject: str, step: int, list_of_results: str, tmp_path: Path
) -> None:
    file, page = tmp_path / "record.json", tmp_path / "page.md"
    done = interrupted(tmp_path, step, "bench", *subject.split(), "--json", file, "--markdown", page)
    assert done.returncode == INTERRUPTED, done.stderr
    assert done.stderr.splitlines()[-1] == "Interrupted: these are the figures so far"
    assert "Traceback" not in done.stderr
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record[list_of_results]
    assert len(done.stdout.splitlines()) > 3 and page.read_text(encoding="utf-8").startswith("#")


def test_bench_before_the_first_figure_says_so(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    done = interrupted(
        tmp_path, 0, "bench", "--operator", "one_hot", "--size", "tiny", "--peer", "none", "--json", file
    )
    assert done.returncode == INTERRUPTED
    assert done.stderr.splitlines()[-1] == "Interrupted" and not file.exists()


def test_tune_remembers_what_it_measured(tmp_path: Path) -> None:
    done = interrupted(tmp_path, 1, "tune", "--case", "one_hot:*", "--rounds", "1")
    assert done.returncode == INTERRUPTED, done.stderr
    assert "Interrupted: 1 of " in done.stderr and "remembered in " in done.stdout
    (file,) = (path for path in (tmp_path / "cache").rglob(f"{PREFIX}*") if path.suffix != ".lock")
    assert len(json.loads(file.read_text(encoding="utf-8"))["choices"]) == 1


def test_conformance_reports_and_can_go_on(tmp_path: Path) -> None:
    file, page = tmp_path / "results.jsonl", tmp_path / "page.html"
    pattern = "slice1:*"
    done = interrupted(tmp_path, 3, "conformance", pattern, "--json", file, "--html", page, "--jobs", "1")
    assert done.returncode == INTERRUPTED, done.stderr
    assert done.stdout.splitlines()[-1] == f"Interrupted; go on with --resume {file}"
    assert len(read_results(file).results) >= 2
    assert page.exists()
    assert " s: 1 of " in done.stderr  # a line of progress, since the output is no terminal
