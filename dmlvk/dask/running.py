"""How a map's portions run: as tasks on the workers, whose answers are fetched as soon as they are there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Future, Worker, get_worker

from dmlvk.dask import cluster
from dmlvk.dask.batches import arguments_of_task, loaded_ahead
from dmlvk.dask.checking import Partners, SpreadShare, difference
from dmlvk.dask.cluster import ClusterWorker, places
from dmlvk.dask.errors import BatchError, ClusterError, DifferenceError
from dmlvk.dask.holding import NAME, held_by_task, place_resource
from dmlvk.dask.models import PortableModel
from dmlvk.dask.portions import Portion, PortionSize

# Of a device's one resource, so that a worker with two threads has a second portion at hand while the first one runs.
AMOUNT = 0.5
# Sendings of the model that one portion may need. Each worker that comes late needs one.
SENDINGS = 20
# Seconds between two looks whether the cluster can still do what is waited for.
LOOK_SECONDS = 1.0


def run_batches(digest: str, batches: Sequence[Any], output_names: Sequence[str] | None) -> dict[str, Any]:
    """The task of a portion.

    Returns either "missing", the worker's address, if it lacks the model; or "label", the device; "outputs", those of
        each batch; "seconds", of all; and "loading", the seconds in which the task loaded batches. If a batch fails
        that is not the only one, the outputs end before it.
    """
    held = held_by_task()
    if not held.has(digest):
        return {"missing": get_worker().address}
    label, outputs, loading = held.label, [], 0.0
    start = time.perf_counter()
    loads = loaded_ahead(batches, held.loaders)
    for _ in batches:
        try:
            loaded, seconds = next(loads)
            loading += seconds
            outputs.append(held.run(digest, loaded, output_names))
        except Exception:
            if not outputs and not held.has(digest):  # dropped just now
                return {"missing": get_worker().address}
            if len(batches) == 1:
                raise
            break
    loads.close()
    return {"label": label, "outputs": outputs, "seconds": time.perf_counter() - start, "loading": loading}


def has_model(digest: str, dask_worker: Worker) -> bool:
    """Whether a worker has a model; true if it has no device any more, since then it needs none."""
    plugin = dask_worker.plugins.get(NAME)
    return plugin is None or plugin.holding is None or plugin.holding.has(digest)


def store_model(model: PortableModel, dask_worker: Worker) -> None:
    """Give a worker a model, if it still has a device."""
    plugin = dask_worker.plugins.get(NAME)
    if plugin is not None and plugin.holding is not None:
        plugin.holding.store(model)


async def fetched(client: Client, future: Future) -> Any:
    """The answer of a task, when it is there. Runs on the client's event loop, so that answers overlap."""
    return await client.gather(future, asynchronous=True)


class DeviceRunning:
    """One map: how its portions are submitted.

    workers: those that have a device.
    check: the share of batches that run on two devices.
    size: is told the times.
    """

    def __init__(
        self,
        client: Client,
        model: PortableModel,
        output_names: list[str] | None,
        workers: Sequence[ClusterWorker],
        check: float,
        size: PortionSize,
    ) -> None:
        self.client = client
        self.size = size
        self.partners = Partners(workers)
        self.is_checked = SpreadShare(check).has
        self._model = model
        self._digest = model.digest  # once, because it reads all constants
        self._output_names = output_names
        self._name = f"{NAME}-batch-{uuid4().hex}"
        self._tries = itertools.count()
        # By address: the portions in flight whose batches a worker was asked to load.
        self._loading = Counter({worker.address: 0 for worker in workers})
        self.send_model([worker.address for worker in workers])

    def send_model(self, addresses: Sequence[str]) -> None:
        """Send the model to those workers that lack it. One that has gone in the meantime needs none."""
        having = self._ask(has_model, self._digest, addresses)
        lacking = [address for address, has in having.items() if not has]
        if lacking:
            self._ask(store_model, self._model, lacking)

    def _ask(self, function: Callable[..., Any], argument: Any, addresses: Sequence[str]) -> dict[str, Any]:
        """Call a function on workers; returns the answers of those that are still there."""
        answers = self.client.run(function, argument, workers=list(addresses), on_error="return")
        for address, answer in answers.items():
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise ClusterError(f"the model cannot be sent to worker {address}: {answer}") from answer
        return {address: answer for address, answer in answers.items() if not isinstance(answer, Exception)}

    def begin(self, portion: Portion) -> PortionInFlight:
        """Submit a portion; twice if it is to be checked."""
        return PortionInFlight(self, portion)

    def submit(self, first: int, batches: Sequence[Any], worker: ClusterWorker | None) -> _Task:
        """Submit batches as one task, to any device or to one.

        Raises BatchError: they cannot be sent.
        """
        resources = {NAME: AMOUNT}
        if worker is not None:
            resources[place_resource(worker.place)] = AMOUNT
        # What a worker has to load, one worker loads all; it will run them too, since Dask runs a task near its data.
        near = worker.address if worker is not None else min(self._loading, key=lambda each: self._loading[each])
        try:
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                future = self.client.submit(
                    run_batches,
                    self._digest,
                    arguments_of_task(self.client, batches, near, self.size.loads_slowly),
                    self._output_names,
                    key=f"{self._name}-{first}-{next(self._tries)}",
                    resources=resources,
                )
        except Exception as error:
            raise BatchError(first, f"it cannot be sent: {error}") from error
        self._loading[near] += 1
        pending = asyncio.run_coroutine_threadsafe(fetched(self.client, future), self.client.loop.asyncio_loop)
        return _Task(future, pending, near)

    def note_end(self, task: _Task) -> None:
        """Take note that a task loads no more."""
        self._loading[task.near] -= 1


@dataclass(frozen=True)
class _Task:
    """A task of Dask, its answer, and the worker that was asked to load its batches."""

    future: Future
    pending: concurrent.futures.Future[Any]
    near: str


@dataclass
class Outcome:
    """The results of a portion.

    results: one for each batch.
    error: what happened instead of the next result.
    """

    results: list[Any]
    error: Exception | None


class PortionInFlight:
    """A portion that has been submitted."""

    def __init__(self, run: DeviceRunning, portion: Portion) -> None:
        self._run = run
        self._portion = portion
        self._first: ClusterWorker | None = None
        self._second: ClusterWorker | None = None
        if portion.is_checked:
            self._first, self._second = run.partners.next()
        self._once = _Batches(run, portion.first, portion.batches, self._first)
        self._again: _Batches | None = None
        if self._second is not None:
            self._again = _Batches(run, portion.first, portion.batches, self._second)

    def result(self) -> Outcome:
        """Wait for the outputs."""
        try:
            return self._compared()
        finally:
            self._once.release()
            if self._again is not None:
                self._again.release()

    def cancel(self) -> None:
        """Stop what has not begun."""
        self._once.cancel()
        if self._again is not None:
            self._again.cancel()

    def _compared(self) -> Outcome:
        """The outputs; those of both devices are compared."""
        answers, error = self._once.answers()
        results = [outputs for _, outputs in answers]
        if self._again is None:
            return Outcome(results, error)
        others, error_again = self._again.answers()
        for number, (mine, theirs) in enumerate(zip(answers, others, strict=False)):
            text = difference(*mine, *theirs)
            if text:
                text += self._opinion(number, mine, theirs)
                return Outcome(results[:number], DifferenceError(self._portion.first + number, text))
        return Outcome(results[: len(others)], error if len(answers) <= len(others) else error_again)

    def _opinion(self, number: int, mine: tuple[str, Any], theirs: tuple[str, Any]) -> str:
        """With which of two devices a third one agrees."""
        assert self._first is not None and self._second is not None
        third = self._run.partners.beside(self._first, self._second)
        if third is None:
            return ""
        batches = _Batches(self._run, self._portion.first + number, [self._portion.batches[number]], third)
        try:
            answers, _ = batches.answers()
        finally:
            batches.release()
        if not answers:
            return ""
        name = answers[0][0]
        for label, outputs in (mine, theirs):
            if not difference(*answers[0], label, outputs):
                return f"; {name} agrees with {label}"
        return f"; {name} agrees with neither"


class _Batches:
    """Batches that run on one device, or on any."""

    def __init__(self, run: DeviceRunning, first: int, batches: Sequence[Any], worker: ClusterWorker | None) -> None:
        self._run = run
        self._number = first
        self._batches = batches
        self._worker = worker
        self._futures: list[Future] = []
        self._sendings = 0
        self._task = self._submitted(0, len(batches))

    def _submitted(self, begin: int, end: int) -> _Task:
        task = self._run.submit(self._number + begin, self._batches[begin:end], self._worker)
        self._futures.append(task.future)
        return task

    def cancel(self) -> None:
        """Stop what has not begun."""
        if self._run.client.status == "running":
            self._run.client.cancel(self._futures, force=True)

    def release(self) -> None:
        """Let the workers forget the outputs."""
        # Else workers keep the outputs for as long as some exception in a cycle keeps this object.
        for future in self._futures:
            future.release()

    def answers(self) -> tuple[list[tuple[str, Any]], Exception | None]:
        """For each batch the device's label and the outputs; and the error that ended them."""
        found: list[tuple[str, Any]] = []
        task, end = self._task, len(self._batches)
        try:
            while True:
                answer = self._answer(task, self._number + len(found))
                if "missing" not in answer:
                    found += [(answer["label"], outputs) for outputs in answer["outputs"]]
                    if len(found) == len(self._batches):
                        return found, None
                    # If the task has ended early, its next batch failed: alone it tells why.
                    end = len(found) + 1 if len(found) < end else len(self._batches)
                task = self._submitted(len(found), end)
        except (BatchError, ClusterError) as error:
            return found, error

    def _answer(self, task: _Task, number: int) -> dict[str, Any]:
        """The answer of a task; a worker that lacks the model is sent it."""
        try:
            answer: dict[str, Any] = self._waited(task, number)
        finally:
            self._run.note_end(task)
        if "missing" not in answer:
            self._run.size.learn(len(answer["outputs"]), answer["seconds"], answer["loading"])
            return answer
        # A worker that has come in the meantime.
        self._sendings += 1
        if self._sendings == SENDINGS:
            raise ClusterError(f"batch {number}: each of {SENDINGS} workers in a row had not kept the model")
        self._run.send_model([answer["missing"]])
        return answer

    def _waited(self, task: _Task, number: int) -> Any:
        """Wait for a task, as long as some worker can run it."""
        client, worker = self._run.client, self._worker
        missing_since: float | None = None
        while not concurrent.futures.wait([task.pending], LOOK_SECONDS).done:
            present = places(client)
            is_possible = bool(present) if worker is None else place_resource(worker.place) in present
            now = time.monotonic()
            missing_since = None if is_possible else missing_since or now
            if missing_since is not None and now - missing_since > cluster.PATIENCE:
                what = "a device" if worker is None else f"{worker.device}, on which it is checked,"
                message = f"no worker with {what} has come back for {cluster.PATIENCE:g} s"
                raise ClusterError(f"batch {number}: {message}")
        error = task.pending.exception()
        if error is None:
            return task.pending.result()
        if task.future.status == "error":
            raise BatchError(number, f"{type(error).__name__}: {error}") from error
        raise ClusterError(f"batch {number}: it was cancelled, or the scheduler has gone") from error
