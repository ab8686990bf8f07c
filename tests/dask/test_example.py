"""The example of a map on a cluster, on the test's cluster and on one that it makes itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

from examples import dask_map
from tests.conftest import DEVICE_NAMES

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
def test_on_a_cluster_of_its_own() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "examples.dask_map", "--batches", "5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert finished.returncode == 0, finished.stderr
    assert "5 of 5 batches equal the NumPy reference bit for bit" in finished.stdout
    assert finished.stdout.count("tcp://") == len(DEVICE_NAMES)


def test_it_notices_a_wrong_result(client: Client, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is given other images for the third batch."""
    made = list(dask_map.batches(4))
    other = [*made[:2], np.zeros_like(made[2]), made[3]]
    given = iter([made, other])
    monkeypatch.setattr(dask_map, "batches", lambda count: iter(next(given)))
    arguments = ["--scheduler", cluster.scheduler_address, "--batches", "4", "--check", "0.5"]
    result = CliRunner().invoke(dask_map.main, arguments)
    assert result.exit_code == 1, result.output
    assert "differs from the NumPy reference: batch 2" in result.output
