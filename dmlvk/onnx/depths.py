"""The order of a program's dispatches: those that need not wait for each other run at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from dmlvk.onnx.program import Operation


def by_depth(operations: Sequence[Operation]) -> list[Operation]:
    """The dispatches in an order with as few barriers as possible.

    The two branches of a residual block, for example, then begin side by side, wherever the model has their nodes: one
    fills the processors that the other leaves idle at its end, and waits for its code meanwhile.
    """
    depth_of = dict(enumerate(depths(operations)))
    return [operations[number] for number in sorted(depth_of, key=depth_of.__getitem__)]


def depths(operations: Sequence[Operation]) -> list[int]:
    """For each dispatch the number of barriers that come before it at least.

    It waits for earlier dispatches that write what it reads or writes, or read what it writes. Between dispatches of
    one depth there is no barrier.
    """
    found: list[int] = []
    earlier: defaultdict[int, list[tuple[int, int, bool, int]]] = defaultdict(list)
    for operation in operations:
        accesses = list(_accesses(operation))
        waits = (
            depth + 1
            for storage, start, end, is_written in accesses
            for begin, stop, was_written, depth in earlier[storage]
            if (is_written or was_written) and start < stop and begin < end
        )
        found.append(max(waits, default=0))
        for storage, start, end, is_written in accesses:
            earlier[storage].append((start, end, is_written, found[-1]))
    return found


def _accesses(operation: Operation) -> Iterator[tuple[int, int, int, bool]]:
    """Storages with the bytes from a first one to a last one, excluded, and whether they are written."""
    tensors, written = operation.desc.tensors, operation.desc.output_fields
    for field, (storage, offset) in operation.places.items():
        yield storage, offset, offset + tensors[field].total_size_in_bytes, field in written
