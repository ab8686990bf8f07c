"""Which worker has which device; workers that have none; schedulers and clients that are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import dmlvk
from dmlvk.dask import ClusterError, ClusterWarning, connect, prepare
from dmlvk.dask import cluster as clusters
from dmlvk.dask import device as worker_device
from dmlvk.dask import map as map_batches
from dmlvk.dask.claims import claim, lock_folder, wanted
from dmlvk.runtime.device_info import best_devices
from tests.conftest import DEVICE_NAMES
from tests.dask.test_mapping import require_all, require_no_tasks
from tests.dask.workers import ROOT, worker
from tests.onnx.test_devices import batches, network


def test_each_device_is_claimed_once(cluster_name: str) -> None:
    cluster, infos = cluster_name, best_devices()
    held = [claim(infos, cluster) for _ in infos]
    assert [each.info.index for each in held if each is not None] == [info.index for info in infos]
    assert len({each.name for each in held if each is not None}) == len(infos)
    assert claim(infos, cluster) is None
    other = claim(infos, f"other than {cluster}")
    assert other is not None and other.info is infos[0]
    other.release()
    shutil.rmtree(lock_folder(f"other than {cluster}"))
    assert held[0] is not None
    held[0].release()
    again = claim(infos, cluster)
    assert again is not None and again.info is infos[0]
    for each in (*held[1:], again):
        assert each is not None
        each.release()


def test_the_end_of_a_process_ends_its_claim(cluster_name: str) -> None:
    cluster, infos = cluster_name, best_devices()
    command = [sys.executable, "-m", "tests.dask.workers", "claim", cluster]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == infos[0].name
        second = claim(infos, cluster)
        assert second is not None and second.info is infos[1]
    finally:
        process.kill()
        process.communicate()
    first = claim(infos, cluster)
    assert first is not None and first.info is infos[0]
    first.release()
    second.release()


def test_locks_of_clusters_that_ended_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of a cluster that still runs stay, and so do new ones."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    infos = best_devices()
    ended, running = claim(infos, "ended"), claim(infos, "running")
    assert ended is not None and running is not None
    ended.release()
    for name in ("ended", "running"):
        os.utime(lock_folder(name), (0, 0))
    new = claim(infos, "new")
    assert new is not None
    assert {folder for (own,) in [tmp_path.iterdir()] for folder in own.iterdir()} == {
        lock_folder("running"),
        lock_folder("new"),
    }
    assert claim(infos[:1], "running") is None
    running.release()
    new.release()


def test_the_devices_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dmlvk.devices()
    monkeypatch.delenv("DMLVK_DEVICE", raising=False)
    assert wanted(None) == wanted("best") == best_devices()
    assert [info.index for info in wanted("all")] == [info.index for info in known]
    assert [info.index for info in wanted([1, "absent", known[1].name, 0])] == [1, 0]
    with pytest.raises(dmlvk.DeviceError, match="absent"):
        wanted(["absent"])
    monkeypatch.setenv("DMLVK_DEVICE", "1")
    assert [info.index for info in wanted(None)] == [1]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no owners of temporary folders")
def test_a_folder_of_somebody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"dmlvk-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="belongs to another user"):
        claim(best_devices(), "any")


def name_of_device() -> tuple[str, str]:
    """The device of a task's worker, and the default device of its process."""
    with dmlvk.Device() as default:
        return worker_device().name, default.name


def test_work_asks_for_devices(client: Client) -> None:
    for each in prepare(client):
        for resource in (f"device={each.device}", f"driver={each.driver}", f"place={each.place}"):
            future = client.submit(name_of_device, resources={f"dmlvk.{resource}": 1}, pure=False)
            assert future.result(timeout=60) == (each.device, each.device)
    with pytest.raises(ClusterError, match="this is no task of a Dask worker"):
        worker_device()


ARRAYS = 64


def faults_of_arrays() -> int:
    """How often this process asks the system for a page while it makes arrays of 3 MiB, one after the other."""
    import resource

    counts = []
    for _ in range(3):  # other threads of the process may ask too
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(ARRAYS):
            np.ones(3 << 20, np.uint8)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(counts)


@pytest.mark.nightly
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's memory")
def test_a_worker_keeps_the_memory_of_arrays(client: Client) -> None:
    assert max(client.run(faults_of_arrays).values()) < ARRAYS
    program = "from tests.dask.test_workers import faults_of_arrays; print(faults_of_arrays())"
    variables = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "PYTHONPATH": str(ROOT)}
    # So each worker begins.
    found = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    assert int(found.stdout) >= ARRAYS


NO_DMLVK = "import sys; sys.modules['dmlvk'] = None"
OTHER_VERSION = "import dmlvk.version; dmlvk.version.__version__ = '0.0.9'"
OTHER_KERNELS = """
from dmlvk._common import files
honest = files.packaged_bytes
files.packaged_bytes = lambda package, name: b"another manifest" if package == "dmlvk" else honest(package, name)
"""


@pytest.mark.nightly
def test_workers_that_cannot_take_part(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    """They are left out with the reason; a map goes on without them. One that is left over waits for its turn."""
    programs = {"no_dmlvk": NO_DMLVK, "version": OTHER_VERSION, "kernels": OTHER_KERNELS}
    for name, program in programs.items():
        (tmp_path / f"{name}.py").write_text(program)
    expected = {
        "no_dmlvk": "dmlvk.dask cannot be imported there: ",
        "version": f"it has dmlvk 0.0.9, the client has {dmlvk.__version__}",
        "kernels": f"its dmlvk {dmlvk.__version__} has other kernels than the client's",
        "vulkan": "the Vulkan loader found no driver",
    }
    address = cluster.scheduler_address
    nothing = {"VK_DRIVER_FILES": "/dev/null", "VK_ICD_FILENAMES": "/dev/null"}
    with ExitStack() as stack:
        processes = [stack.enter_context(worker(address, {}, tmp_path / f"{name}.py")) for name in programs]
        processes.append(stack.enter_context(worker(address, nothing)))
        spare = stack.enter_context(worker(address, {}))
        client.wait_for_workers(7, timeout=60)
        end = time.monotonic() + 30
        while True:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ClusterWarning)
                found = {each.address: each for each in prepare(client)}
            if len(caught) == 4 and not any(each.reason == "it is starting" for each in found.values()):
                break
            assert time.monotonic() < end, (found, caught)
            time.sleep(0.1)
        pids: dict[int, str] = {pid: each for each, pid in client.run(os.getpid).items()}
        for process, reason in zip(processes, expected.values(), strict=True):
            each = found[pids[process.pid]]
            assert each.device == "" and reason in each.reason
            assert any(f"worker {each.address} is left out: {each.reason}" == str(one.message) for one in caught)
        assert found[pids[spare.pid]].reason.startswith("each device of its host has a worker already (")
        assert all(len(each.reason.splitlines()) < 2 for each in found.values())
        given = batches(30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClusterWarning)
            require_all(map_batches(client, network()[0], given, check=0.5), given)


def test_a_cluster_without_a_device(cluster: LocalCluster, tmp_path: Path) -> None:
    """Each worker's reason is in the error. A cluster in this process takes the devices of a list."""
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address="127.0.0.1:0", protocol="tcp://") as own,
        Client(own, set_as_default=False) as client,
    ):
        with (
            pytest.warns(ClusterWarning, match="absent"),
            pytest.raises(ClusterError, match=r"no worker of the cluster at .* has a device: .*absent"),
        ):
            prepare(client, ["absent"])
            list(map_batches(client, network()[0], batches(1)))
        before = os.environ.get("DMLVK_DEVICE")
        workers = prepare(client, [DEVICE_NAMES[1]])
        (found,) = [each for each in workers if each.device]
        assert DEVICE_NAMES[1].lower() in found.device.lower()
        assert os.environ.get("DMLVK_DEVICE") == before, "the process is the user's own"
        given = batches(3)
        require_all(map_batches(client, network()[0], given), given)
        with pytest.raises(ClusterError, match=r"check = 0.5 needs two devices, and the cluster has one: "):
            map_batches(client, network()[0], given, check=0.5)
        client.retire_workers([found.address])
        require_all(map_batches(client, network()[0], given), given)  # the other worker has the device now
        shutil.rmtree(lock_folder(own.scheduler.id))
        with pytest.raises(ValueError, match=r"devices = 'GeForce': must be 'best', 'all' or a list"):
            prepare(client, "GeForce")


def test_a_cluster_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "PATIENCE", 0.3)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as own,
        Client(own, set_as_default=False) as client,
        pytest.raises(ClusterError, match=r"has no worker, even after 0.3 s; `dask worker ADDRESS`"),
    ):
        map_batches(client, network()[0], batches(1))


def test_a_cluster_that_another_version_has_prepared(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    other: Any = {"version": "0.0.9", "kernels": "others"}
    monkeypatch.setattr(clusters, "identity", lambda: other)
    with pytest.raises(ClusterError, match=rf"is prepared for dmlvk {dmlvk.__version__}, and this is dmlvk 0\.0\.9"):
        prepare(client)


def test_a_scheduler_without_dmlvk(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the tasks. The scheduler of these tests runs in this process."""
    monkeypatch.setitem(sys.modules, "dmlvk.dask", None)
    with pytest.raises(ClusterError, match=r"cannot import dmlvk\.dask, .*; install the same dmlvk there"):
        prepare(client)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://", "127.0.0.1:nonsense"])
def test_a_scheduler_that_is_not_there(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 0.3)
    with pytest.raises(ClusterError, match=rf"no Dask scheduler answers at {address}: .*`dask scheduler`") as caught:
        connect(address)
    assert "\n" not in str(caught.value)


@pytest.mark.nightly
def test_a_client_that_goes_away(client: Client, cluster: LocalCluster) -> None:
    """Its process is killed in the middle: the scheduler drops its batches, and the devices serve others."""
    command = [sys.executable, "-m", "tests.dask.workers", "map", cluster.scheduler_address]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        for _ in range(5):
            assert process.stdout.readline() == "result\n"
        assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > 0
    finally:
        process.kill()
        process.communicate()
    require_no_tasks(client)
    given = batches(10)
    require_all(map_batches(client, network()[0], given), given)
