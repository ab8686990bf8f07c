"""A map over batches: each is run once, on some device of the cluster, and the results come in order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Future, TimeoutError, Worker, get_worker, wait

from dmlvk.arguments import as_argument
from dmlvk.dask import cluster
from dmlvk.dask.batches import as_argument_of_task, batches_of
from dmlvk.dask.checking import Partners, Share, difference
from dmlvk.dask.cluster import ClusterWorker, has_ended, places, prepared
from dmlvk.dask.errors import BatchError, ClusterError, DifferenceError
from dmlvk.dask.holding import NAME, held_by_task, place_resource
from dmlvk.dask.models import Model, model_of
from dmlvk.window import in_order

# Of a device's one resource, so that a worker with two threads has a second batch at hand while the first one runs.
AMOUNT = 0.5
# Batches in flight for each device, by default.
AHEAD = 4
# Sendings of the model that one batch may need. Each worker that comes late needs one.
SENDINGS = 20
# Seconds between two looks whether the cluster can still do what is waited for.
LOOK_SECONDS = 1.0


def map(
    client: Client,
    model: Any,
    batches: Any,
    output_names: Sequence[str] | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    check: float = 0.0,
    in_flight: int | None = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> Iterator[Any]:
    """Run a model for each batch, on all devices of a cluster.

    Prepares the cluster as `prepare` does, if that was not done. The model is sent to each worker once.

    Parameters
    ----------
    client : distributed.Client
    model : InferenceSession, path, bytes, ModelProto, OperatorDesc or CompiledOperator
        An ONNX model, or one operator. A session's own device does not count, but its `fuse_qdq` does. The contents of
        a compiled operator's tensors that are OWNED_BY_DML travel with it.
    batches : iterable or dask.array.Array
        A batch is what a run is given: feeds by the inputs' names, or for an operator arrays by its fields; or one
        array, if there is one input. A batch, or an array in it, may be a Delayed, a Future or a dask.array: then a
        worker loads it. Of a dask.array, each chunk along the first axis is a batch. An iterable is read only as far as
        batches are in flight, so it may be larger than any memory.
    output_names : sequence of str, optional
        The outputs of an ONNX model; all by default.
    constants : mapping of str to array_like, optional
        For an operator: the tensors that are the same for all batches.
    check : float
        This share of the batches, from 0 to 1, is run on two devices and compared bit for bit: on devices of two
        drivers if there are such. Which batches these are is the same in each run.
    in_flight : int, optional
        At most so many batches are read and not yet yielded; four for each device by default.
    progress : callable, optional
        Called for each result with the number of results, and the number of batches if that is known, else None.

    Returns
    -------
    iterator
        For each batch, in order, what `InferenceSession.run` returns (a list of arrays), or an operator's output. A
        caller that stops early closes it, or drops it: what is in flight is then cancelled.

    Raises
    ------
    ClusterError
        No scheduler answers, no worker has a device, or no device is left to go on with. A batch whose worker is lost
        runs again elsewhere.
    BatchError
        A batch could not be run: its shape is wrong, for example. The message names the batch, and its `__cause__` is
        the worker's exception. Results of the batches before it come first.
    DifferenceError
        Two devices gave different bits for a batch.
    ModelError, BindingError, TypeError, ValueError
        For a model, constants or options that cannot be.
    """
    if isinstance(check, bool) or not isinstance(check, (int, float)) or not 0 <= check <= 1:
        raise ValueError(f"check = {check!r}: must be a share of the batches, from 0 to 1")
    travelling = model_of(model, constants)
    if output_names is not None and not travelling.digest.startswith("onnx"):
        raise TypeError("output_names are those of an ONNX model; an operator has one output")
    elements, total = batches_of(batches)
    workers = prepared(client)
    if check and len(workers) < 2:
        raise ClusterError(f"check = {check!r} needs two devices, and the cluster has one: {workers[0]}")
    most = AHEAD * len(workers)
    if in_flight is not None:
        most = as_argument("in_flight", in_flight, 1, None, "one batch is read at a time, or more", ValueError)
    run = _Run(client, travelling, None if output_names is None else list(output_names), workers, check)
    return _reported(in_order(enumerate(elements), run.begin, most), progress, total)


def _reported(
    results: Generator[Any, None, None], progress: Callable[[int, int | None], object] | None, total: int | None
) -> Iterator[Any]:
    with closing(results):
        for number, result in enumerate(results, 1):
            if progress is not None:
                progress(number, total)
            yield result


def run_batch(digest: str, batch: Any, output_names: Sequence[str] | None) -> dict[str, Any]:
    """The task of a batch: the device's label and the outputs; or the worker's address, if it lacks the model."""
    held = held_by_task()
    label = held.label
    if not held.has(digest):
        return {"missing": get_worker().address}
    return {"label": label, "outputs": held.run(digest, batch, output_names)}


def has_model(digest: str, dask_worker: Worker) -> bool:
    """Whether a worker has a model; true if it has no device any more, since then it needs none."""
    plugin = dask_worker.plugins.get(NAME)
    return plugin is None or plugin.holding is None or plugin.holding.has(digest)


def store_model(model: Model, dask_worker: Worker) -> None:
    """Give a worker a model, if it still has a device."""
    plugin = dask_worker.plugins.get(NAME)
    if plugin is not None and plugin.holding is not None:
        plugin.holding.store(model)


class _Run:
    """One map: how its batches are submitted."""

    def __init__(
        self,
        client: Client,
        model: Model,
        output_names: list[str] | None,
        workers: Sequence[ClusterWorker],
        check: float,
    ) -> None:
        self.client = client
        self._model = model
        self._digest = model.digest  # once, because it reads all constants
        self._output_names = output_names
        self._partners = Partners(workers)
        self._share = Share(check)
        self._name = f"{NAME}-batch-{uuid4().hex}"
        self._tries = itertools.count()
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

    def begin(self, numbered: tuple[int, Any]) -> _Batch:
        """Submit a batch; twice if it is to be checked."""
        return _Batch(self, *numbered)

    def submit(self, number: int, batch: Any, worker: ClusterWorker | None) -> Future:
        """Submit a batch to any device, or to one."""
        resources = {NAME: AMOUNT}
        if worker is not None:
            resources[place_resource(worker.place)] = AMOUNT
        try:
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                return self.client.submit(
                    run_batch,
                    self._digest,
                    as_argument_of_task(self.client, batch),
                    self._output_names,
                    key=f"{self._name}-{number}-{next(self._tries)}",
                    resources=resources,
                )
        except Exception as error:
            raise BatchError(number, f"it cannot be sent: {error}") from error

    def pair(self, number: int) -> tuple[ClusterWorker | None, ClusterWorker | None]:
        """The device on which a batch runs, and the one on which it runs again; None for any, and for none."""
        return self._partners.next() if self._share.has(number) else (None, None)

    def third(self, first: ClusterWorker, second: ClusterWorker) -> ClusterWorker | None:
        """A device beside two, if there is one."""
        return self._partners.beside(first, second)


class _Batch:
    """A batch in flight."""

    def __init__(self, run: _Run, number: int, batch: Any) -> None:
        self._run = run
        self._number = number
        self._batch = batch
        self._first, self._second = run.pair(number)
        self._futures: list[Future] = []
        self._future = self._submitted(self._first)
        self._again = None if self._second is None else self._submitted(self._second)

    def _submitted(self, worker: ClusterWorker | None) -> Future:
        future = self._run.submit(self._number, self._batch, worker)
        self._futures.append(future)
        return future

    def result(self) -> Any:
        """Wait for the outputs."""
        try:
            return self._compared()
        finally:
            # Else workers keep the outputs for as long as some exception in a cycle keeps this object.
            for future in self._futures:
                future.release()

    def _compared(self) -> Any:
        """The outputs; those of both devices are compared."""
        label, outputs = self._outputs(self._future, self._first)
        if self._again is not None:
            assert self._first is not None and self._second is not None
            other, again = self._outputs(self._again, self._second)
            text = difference(label, outputs, other, again)
            if text:
                raise DifferenceError(self._number, text + self._opinion(label, outputs, other, again))
        return outputs

    def cancel(self) -> None:
        """Stop what has not begun."""
        if self._run.client.status == "running":
            self._run.client.cancel(self._futures, force=True)

    def _opinion(self, label: str, outputs: Any, other: str, again: Any) -> str:
        """With which of two devices a third one agrees."""
        assert self._first is not None and self._second is not None
        third = self._run.third(self._first, self._second)
        if third is None:
            return ""
        try:
            name, answer = self._outputs(self._submitted(third), third)
        except (BatchError, ClusterError):
            return ""
        if not difference(name, answer, label, outputs):
            return f"; {name} agrees with {label}"
        if not difference(name, answer, other, again):
            return f"; {name} agrees with {other}"
        return f"; {name} agrees with neither"

    def _outputs(self, future: Future, worker: ClusterWorker | None) -> tuple[str, Any]:
        """The device's label and the outputs, from a worker that has the model."""
        for _ in range(SENDINGS):
            answer = self._answer(future, worker)
            if "missing" not in answer:
                return answer["label"], answer["outputs"]
            # A worker that has come in the meantime.
            self._run.send_model([answer["missing"]])
            future = self._submitted(worker)
        raise ClusterError(f"batch {self._number}: each of {SENDINGS} workers in a row had not kept the model")

    def _answer(self, future: Future, worker: ClusterWorker | None) -> dict[str, Any]:
        """Wait for a task, as long as some worker can run it."""
        client = self._run.client
        missing_since: float | None = None
        while True:
            try:
                with client.as_current():
                    wait(future, timeout=LOOK_SECONDS)
                if has_ended(future):
                    break
            except TimeoutError:
                present = places(client)
                is_possible = bool(present) if worker is None else place_resource(worker.place) in present
                now = time.monotonic()
                missing_since = None if is_possible else missing_since or now
                if missing_since is not None and now - missing_since > cluster.PATIENCE:
                    what = "a device" if worker is None else f"{worker.device}, on which it is checked,"
                    message = f"no worker with {what} has come back for {cluster.PATIENCE:g} s"
                    raise ClusterError(f"batch {self._number}: {message}") from None
        if future.status == "finished":
            found: dict[str, Any] = future.result()
            return found
        if future.status == "error":
            error = future.exception()
            raise BatchError(self._number, f"{type(error).__name__}: {error}") from error
        raise ClusterError(f"batch {self._number}: it was cancelled, or the scheduler has gone")
