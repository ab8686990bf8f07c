"""Runs cases on a Dask cluster: each distinct device runs all of them, split over the workers that have it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distributed import Client, Future, KilledWorker, TimeoutError, get_worker, wait
from distributed.worker import thread_state

from dmlvk.conformance.results import Environment, Result
from dmlvk.conformance.running.execution import Devices
from dmlvk.conformance.running.runner import Item, Runner
from dmlvk.conformance.running.worker import WorkerConfiguration, environment
from dmlvk.dask import cluster
from dmlvk.dask.cluster import DeviceAndDriver, places, resources_of, workers_by_device
from dmlvk.dask.errors import ClusterError
from dmlvk.dask.holding import held_by_task, place_resource

# The number of cases of a task: enough to outweigh the start of its process, few enough to lose little with a worker.
FEWEST, MOST = 25, 200
# Tasks for each worker, so that the workers with one device end at about the same time.
TASKS_A_WORKER = 4
# Seconds between two looks whether the workers are there.
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class ClusterOptions:
    """How each worker runs its cases: see `Runner`."""

    configuration: WorkerConfiguration
    timeout: float
    jobs: int | None
    validate: bool


def look() -> Environment:
    """The task that tells of the worker's device."""
    devices = Devices(_index())
    try:
        return environment(devices)
    finally:
        devices.close()


def run_cases(options: ClusterOptions, items: Sequence[Item]) -> list[Result]:
    """The task that runs cases on the worker's device, in processes of their own."""
    configuration = replace(options.configuration, device=_index())
    results = []
    with Runner(configuration, timeout=options.timeout, jobs=options.jobs, validate=options.validate) as runner:
        for result in runner.run(items):
            results.append(result)
            if _is_cancelled():
                break
    return results


def _index() -> str:
    return str(held_by_task().index)


def _is_cancelled() -> bool:
    """Whether nobody waits for this task any more."""
    task = get_worker().state.tasks.get(thread_state.key)
    return task is None or task.state == "cancelled"


class ClusterRunner:
    """Runs cases on all devices of a cluster, and yields each result as it arrives.

    options: the configuration's device is part of the names of the devices that run; all of them if it is None.
    kinds: the distinct devices, each with its driver.
    Raises ClusterError: no worker has a device, or none has one of that name.
    """

    def __init__(self, client: Client, options: ClusterOptions) -> None:
        self._client = client
        self._options = options
        self._workers = workers_by_device(client, options.configuration.device)
        self.kinds = list(self._workers)

    def environments(self) -> dict[DeviceAndDriver, Environment]:
        """The environment of each device, from one of its workers.

        Raises ClusterError: a device cannot be opened.
        """
        futures = {self._submit(kind, look): kind for kind in self.kinds}
        found: dict[DeviceAndDriver, Environment] = dict(self._answers(futures))
        return {kind: found[kind] for kind in self.kinds}

    def run(self, items: Mapping[DeviceAndDriver, Sequence[Item]]) -> Iterator[tuple[DeviceAndDriver, Result]]:
        """Run cases on each device that has some.

        Raises ClusterError: a device has no worker any more, or its workers die of some cases. The results of the
            others come first.
        """
        futures: dict[Future, DeviceAndDriver] = {}
        parts = {kind: self._parts(kind, items.get(kind, ())) for kind in self.kinds}
        while any(parts.values()):  # in turns, so that no device waits for the others' tasks to be sent
            for kind, left in parts.items():
                if left:
                    futures[self._submit(kind, run_cases, self._options, left.pop(0))] = kind
        for kind, results in self._answers(futures):
            for result in results:
                yield kind, result

    def _parts(self, kind: DeviceAndDriver, items: Sequence[Item]) -> list[Sequence[Item]]:
        size = -(-len(items) // (TASKS_A_WORKER * len(self._workers[kind])))
        size = min(MOST, max(FEWEST, size))
        return [items[first : first + size] for first in range(0, len(items), size)]

    def _submit(self, kind: DeviceAndDriver, task: Callable[..., Any], *arguments: Any) -> Future:
        return self._client.submit(task, *arguments, pure=False, resources=resources_of(kind))

    def _answers(self, futures: dict[Future, DeviceAndDriver]) -> Iterator[tuple[DeviceAndDriver, Any]]:
        """What the tasks return, as they end. Those of a device without workers are given up."""
        left = dict(futures)
        errors: list[ClusterError] = []
        missing: dict[DeviceAndDriver, float] = {}
        try:
            while left:
                try:
                    with self._client.as_current():
                        done = wait(list(left), timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED").done
                except TimeoutError:
                    for kind in self._gone(missing, set(left.values())):
                        errors.append(_gone(kind))
                        lost = [future for future in left if left[future] == kind]
                        self._client.cancel(lost, force=True)
                        for future in lost:
                            del left[future]
                    continue
                for future in filter(cluster.has_ended, done):
                    kind = left.pop(future)
                    if future.status == "finished":
                        yield kind, future.result()
                    else:
                        errors.append(_failure(kind, future))
        finally:
            if left and self._client.status == "running":
                self._client.cancel(list(left), force=True)
        if errors:
            raise errors[0]

    def _gone(self, missing: dict[DeviceAndDriver, float], kinds: set[DeviceAndDriver]) -> list[DeviceAndDriver]:
        """The devices that have had no worker for too long."""
        present, now = places(self._client), time.monotonic()
        for kind in kinds:
            if any(place_resource(worker.place) in present for worker in self._workers[kind]):
                missing.pop(kind, None)
            else:
                missing.setdefault(kind, now)
        return [kind for kind in kinds if now - missing.get(kind, now) > cluster.PATIENCE]


def _gone(kind: DeviceAndDriver) -> ClusterError:
    return ClusterError(
        f"no worker with {kind[0]} has come back for {cluster.PATIENCE:g} s; its other cases did not run"
    )


def _failure(kind: DeviceAndDriver, future: Future) -> ClusterError:
    if future.status != "error":
        return ClusterError(f"{kind[0]}: the scheduler has gone, or somebody cancelled its cases; they did not run")
    error: Any = future.exception()
    text = " ".join(str(error).split())
    if isinstance(error, KilledWorker):
        text = f"its workers died one after the other, the last one at {error.last_worker.address}"
    return ClusterError(f"{kind[0]}: some of its cases did not run: {text}")
