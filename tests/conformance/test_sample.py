"""A sample of the suite on the drivers at hand, as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import dmlvk
from dmlvk.command_line import main
from dmlvk.conformance.digests import recorded_digests
from dmlvk.conformance.results import Status
from dmlvk.conformance.results_file import read_results
from tests.conftest import DEVICE_NAMES

SAMPLE = 24


@pytest.mark.every_driver
def test_a_sample_passes_with_the_recorded_digests(device: dmlvk.Device, tmp_path: Path) -> None:
    results, count = tmp_path / "results.jsonl", SAMPLE if DEVICE_NAMES[0] in device.name else SAMPLE // 2
    command = ["conformance", "--device", device.name, "--sample", str(count), "--seed", "6", "--json", str(results)]
    finished = CliRunner().invoke(main, command, catch_exceptions=False)
    assert finished.exit_code == 0, finished.output
    run = read_results(results)
    assert len(run.results) == count
    digests = recorded_digests()
    for result in run.results.values():
        # What is unpredictable has an output that is left open, and so no digest.
        assert result.status in (Status.PASS, Status.NOT_SUPPORTED, Status.UNPREDICTABLE)
        assert result.status is Status.NOT_SUPPORTED or result.digest == digests.get(result.name, "")
