"""Batches: of any iterable, or of a dask.array along its first axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


def as_argument_of_task(client: Client, batch: Any) -> Any:
    """A batch as a task takes it: what Dask has yet to compute is computed on the cluster, near the task."""
    if is_dask_collection(batch):
        return client.compute(batch)
    if isinstance(batch, Mapping):
        return {name: client.compute(part) if is_dask_collection(part) else part for name, part in batch.items()}
    return batch
