"""Batches: of any iterable, or of a dask.array along its first axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dask.base import is_dask_collection
from distributed import Client


def batches_of(given: Any) -> tuple[Iterable[Any], int | None]:
    """What is iterated, and the number of batches if that is known.

    Parameters
    ----------
    given : iterable or dask.array.Array
        Of an array, each chunk along the first axis is a batch; its other axes are made whole.

    Raises
    ------
    TypeError
        It is no iterable, or another collection of Dask.
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


def arguments_of_task(client: Client, batches: Sequence[Any], near: str) -> list[Any]:
    """Batches as a task takes them: what Dask has yet to compute is computed on one worker, in the task's place.

    Parameters
    ----------
    client : distributed.Client
    batches : sequence
    near : str
        The worker's address. If it has gone, others compute.
    """
    wanted = [part for batch in batches for part in _parts(batch) if is_dask_collection(part)]
    if not wanted:
        return list(batches)
    # One call for all of them: each call costs the client milliseconds.
    futures = iter(client.compute(wanted, workers=[near], allow_other_workers=True))

    def argument(part: Any) -> Any:
        return next(futures) if is_dask_collection(part) else part

    return [
        {name: argument(part) for name, part in batch.items()} if isinstance(batch, Mapping) else argument(batch)
        for batch in batches
    ]


def _parts(batch: Any) -> Iterable[Any]:
    return batch.values() if isinstance(batch, Mapping) else (batch,)
