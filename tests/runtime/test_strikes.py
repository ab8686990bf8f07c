"""Exceptions and calls that strike in the middle of public calls; each test is a process of its own.

The tests strike a few lines of each call, with three ways of moving data. `make test-thorough` strikes up to 500, with
every way, and other lines on the next day: all lines have their turn within a few days. To strike all at once, each
time on a device that was just opened, takes 1.4 hours a way on lavapipe and 13 on SwiftShader:

    python -m tests.runtime.struck_calls --device llvmpipe --variant direct
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

import dmlvk
from tests.amount import THOROUGH

# By day, the ways without which code is left out; the others are parts of them.
VARIANTS = ["direct", "staged-copy-queue", "background"]
if THOROUGH:
    VARIANTS += ["staged", "segmented-staged"]
# Whether the handler raises an exception.
SIGNALS = [("direct", True), ("staged-copy-queue", False)]
if THOROUGH:
    SIGNALS += [("direct", False), ("staged-copy-queue", True)]
needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows has no timer whose signal interrupts a program")


def run(module: str, device: dmlvk.Device, *arguments: str, timeout: float = 600) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.runtime.{module}", "--device", device.name, *arguments],
        env={**os.environ, "DMLVK_VALIDATE": "0"},
        capture_output=True,
        text=True,
        timeout=None if THOROUGH else timeout,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_exception_at_any_line_of_any_call(device: dmlvk.Device, variant: str) -> None:
    most, seed = 2, 97 * VARIANTS.index(variant)
    if THOROUGH:
        most, seed = 500, int(time.time()) // 86400
    output = run("struck_calls", device, "--variant", variant, "--most", str(most), "--seed", str(seed))
    struck = dict(line.rsplit(": ", 1) for line in output.splitlines())
    assert len(struck) > 30
    assert sum(map(int, struck.values())) > len(struck)


@needs_signals
@pytest.mark.parametrize(("variant", "raises"), SIGNALS)
def test_a_signal_handler_that_calls(device: dmlvk.Device, variant: str, raises: bool) -> None:
    seconds = 60 if THOROUGH else 1
    options = ["--raises"] if raises else []
    assert " made, " in run("nested_calls", device, "--variant", variant, "--seconds", str(seconds), *options)
