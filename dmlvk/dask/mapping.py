"""A map over batches: each is run once, on some device of the cluster, and the results come in order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from distributed import Client

from dmlvk._common.arguments import as_argument
from dmlvk._common.window import in_order
from dmlvk.dask.batches import batches_of
from dmlvk.dask.cluster import prepared
from dmlvk.dask.errors import ClusterError
from dmlvk.dask.models import model_of
from dmlvk.dask.portions import MOST_BATCHES, PORTIONS_AHEAD, PortionSize
from dmlvk.dask.running import DeviceRunning, Outcome


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

    Args:
        client (distributed.Client): Of the cluster whose workers have the devices.
        model (InferenceSession, path, bytes, ModelProto, OperatorDesc or CompiledOperator): An ONNX model, or one
            operator. A session's own device does not count, but its `fuse_qdq` does. The contents of a compiled
            operator's tensors that are OWNED_BY_DML travel with it.
        batches (iterable or dask.array.Array): A batch is what a run is given: feeds by the inputs' names, or for an
            operator arrays by its fields; or one array, if there is one input. A batch, or an array in it, may be a
            Delayed, a Future or a dask.array: then a worker loads it. Of a dask.array, each chunk along the first axis
            is a batch. An iterable is read only as far as batches are in flight, so it may be larger than any memory.
        output_names (sequence of str, optional): The outputs of an ONNX model; all by default.
        constants (mapping of str to array_like, optional): For an operator: the tensors that are the same for all
            batches.
        check (float): This share of the batches, from 0 to 1, is run on two devices and compared bit for bit: on
            devices of two drivers if there are such. Which batches these are is the same in each run.
        in_flight (int, optional): The most batches that are read and not yet yielded; by default four portions for each
            device. A portion is what a device runs in 0.1 s, at most 32 batches, so that short batches do not wait for
            Dask's messages.
        progress (callable, optional): Called for each result with the number of results, and the number of batches if
            that is known, else None.

    Returns:
        iterator: For each batch, in order, what `InferenceSession.run` returns (a list of arrays), or an operator's
            output. A caller that stops early closes it, or drops it: what is in flight is then cancelled.

    Raises:
        ClusterError: No scheduler answers, no worker has a device, or no device is left to go on with. A batch whose
            worker is lost runs again elsewhere.
        BatchError: A batch could not be run: its shape is wrong, for example. The message names the batch, and its
            `__cause__` is the worker's exception. Results of the batches before it come first.
        DifferenceError: Two devices gave different bits for a batch.
        ModelError, BindingError, TypeError, ValueError: For a model, constants or options that cannot be.
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
    size = PortionSize(MOST_BATCHES)
    most = PORTIONS_AHEAD * len(workers)
    if in_flight is not None:
        bound = as_argument("in_flight", in_flight, 1, None, "one batch is read at a time, or more", ValueError)
        most = min(most, bound)
        size = PortionSize(min(MOST_BATCHES, bound // most))
    run = DeviceRunning(client, travelling, None if output_names is None else list(output_names), workers, check, size)
    return _reported(in_order(size.portions(elements, run.is_checked), run.begin, most), progress, total)


def _reported(
    outcomes: Generator[Outcome, None, None], progress: Callable[[int, int | None], object] | None, total: int | None
) -> Iterator[Any]:
    number = 0
    with closing(outcomes):
        for outcome in outcomes:
            for result in outcome.results:
                number += 1
                if progress is not None:
                    progress(number, total)
                yield result
            if outcome.error is not None:
                raise outcome.error
