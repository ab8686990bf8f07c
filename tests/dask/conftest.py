"""A cluster of two processes on this host, one with each test driver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from uuid import uuid4

import pytest
from distributed import Client, LocalCluster

from dmlvk.dask import prepare
from dmlvk.dask.claims import lock_folder
from tests.conftest import DEVICE_NAMES


@pytest.fixture(autouse=True)
def _two_devices() -> None:
    if len(DEVICE_NAMES) != 2:
        pytest.skip(f"a cluster of two workers needs two names in DMLVK_TEST_DEVICES, not {DEVICE_NAMES}")


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    """All ports are free ones that the system chooses. The kernels' own tests have the validation layer.

    It ends with the last test of this folder: an idle cluster takes a fifth of a core.
    """
    with LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
        env={**os.environ, "DMLVK_VALIDATE": "0"},
    ) as found:
        yield found
    shutil.rmtree(lock_folder(found.scheduler.id))


@pytest.fixture
def cluster_name() -> Iterator[str]:
    """The name of a cluster in which nobody has claimed a device."""
    name = uuid4().hex
    yield name
    shutil.rmtree(lock_folder(name))


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the cluster, whose two workers have a device each, and which no earlier test has left anything."""
    with Client(cluster, set_as_default=False) as found:
        found.wait_for_workers(2, timeout=60)
        devices = {worker.device for worker in prepare(found, DEVICE_NAMES) if worker.device}
        assert len(devices) == 2
        yield found
