"""Batches: of any iterable, or of a dask.array along its first axis."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import dask
from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Client, futures_of
from distributed.worker import thread_state

from dmlvk._common.window import in_order

# Batches that the task of a portion loads at a time, on as many threads, which it shares with the worker's other tasks.
LOADS_AHEAD = 4


def batches_of(given: Any) -> tuple[Iterable[Any], int | None]:
    """What is iterated, and the number of batches if that is known.

    given: of an array, each chunk along the first axis is a batch; its other axes are made whole.
    Raises TypeError: it is no iterable, or another collection of Dask.
    """
    if is_dask_collection(given):
        import dask.array  # half a second, for those who use it

        if not isinstance(given, dask.array.Array):
            kind = type(given).__name__
            raise TypeError(f"batches is a dask {kind}; of Dask's collections, only an array has batches")
        if given.ndim == 0:
            raise TypeError("batches is a dask.array without dimensions; its first axis would be the batches'")
        return _chunks(given), given.numblocks[0]
    try:
        iter(given)
    except TypeError:
        raise TypeError(f"batches is an iterable or a dask.array, not {type(given).__name__}") from None
    return given, len(given) if hasattr(given, "__len__") else None


def _chunks(array: Any) -> Iterator[Any]:
    whole = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
    for number in range(whole.numblocks[0]):
        yield whole.blocks[number]


@dataclass(frozen=True)
class Lazy:
    """What the task of a portion itself computes. Dask sees no collection in it."""

    collection: Any

    def computed(self) -> Any:
        """The array, computed on this thread."""
        # Not dask.compute: that optimizes the graph first, in milliseconds of Python for a single task.
        return dask.get(self.collection.__dask_graph__(), self.collection.__dask_keys__()[0])


@dataclass(frozen=True)
class _Wanted:
    """The place of a part that Dask computes in a task of its own."""

    number: int


def arguments_of_task(client: Client, batches: Sequence[Any], near: str, are_apart: bool) -> list[Any]:
    """Batches as a task takes them: what Dask has yet to compute is computed where the task runs.

    near: the address of the worker that computes. If it has gone, others do.
    are_apart: whether Dask computes each in a task of its own, so that all threads of the worker take part. If not, the
        batches' own task does, which saves messages; but never parts of dask.arrays, which may share work.
    """
    wanted: list[Any] = []

    def argument(part: Any) -> Any:
        if not is_dask_collection(part):
            return part
        if not are_apart and isinstance(part, Delayed) and _is_whole(part):
            return Lazy(part)
        wanted.append(part)
        return _Wanted(len(wanted) - 1)

    arguments = [_mapped(argument, batch) for batch in batches]
    if not wanted:
        return arguments
    # One call for all of them: each call costs the client milliseconds.
    futures = client.compute(wanted, workers=[near], allow_other_workers=True)
    return [
        _mapped(lambda part: futures[part.number] if isinstance(part, _Wanted) else part, batch) for batch in arguments
    ]


def loaded_ahead(batches: Sequence[Any], pool: Executor) -> Generator[tuple[Any, float], None, None]:
    """The batches of `arguments_of_task`, in their task, and the seconds that each took to load.

    Some are loaded ahead on threads: one that loads from a file keeps a device from working for as long as it runs.

    pool: the threads. All tasks of a worker share them: more threads would only wait for the interpreter.
    """
    if not any(isinstance(part, Lazy) for batch in batches for part in _parts(batch)):
        yield from ((batch, 0.0) for batch in batches)
        return
    # What a batch computes may ask Dask on which worker it runs.
    state = dict(vars(thread_state))
    yield from in_order(batches, lambda batch: pool.submit(_computed, batch, state), LOADS_AHEAD)


def _computed(batch: Any, state: Mapping[str, Any]) -> tuple[Any, float]:
    vars(thread_state).update(state)
    start = time.perf_counter()
    found = _mapped(lambda part: part.computed() if isinstance(part, Lazy) else part, batch)
    return found, time.perf_counter() - start


def _is_whole(delayed: Delayed) -> bool:
    """Whether a graph has all that it needs. The cluster alone knows the keys of Futures."""
    graph = delayed.__dask_graph__()
    return not futures_of(delayed) and all(
        graph.keys() >= getattr(task, "dependencies", {None}) for task in graph.values()
    )


def _parts(batch: Any) -> Iterable[Any]:
    return batch.values() if isinstance(batch, Mapping) else (batch,)


def _mapped(function: Callable[[Any], Any], batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return {name: function(part) for name, part in batch.items()}
    return function(batch)
