"""The order of a program's dispatches: those that need not wait for each other run at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dmlvk.onnx.program import Operation
from dmlvk.runtime.rows import Rows, are_apart, rows_of


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
    earlier: defaultdict[int, list[tuple[StorageAccess, int]]] = defaultdict(list)
    for operation in operations:
        accesses = list(accesses_of(operation))
        waits = (
            depth + 1 for access in accesses for other, depth in earlier[access.storage] if access.depends_on(other)
        )
        found.append(max(waits, default=0))
        for access in accesses:
            earlier[access.storage].append((access, found[-1]))
    return found


class StorageAccess(NamedTuple):
    """A tensor that a dispatch reads or writes: bytes of a storage from a first one to a last one, excluded."""

    storage: int
    start: int
    end: int
    rows: Rows | None
    is_written: bool

    def depends_on(self, other: StorageAccess) -> bool:
        """Whether the two, of one storage, may share a byte that one of them writes."""
        if not (self.is_written or other.is_written) or self.start >= other.end or other.start >= self.end:
            return False
        return not are_apart(self.start, self.rows, other.start, other.rows)


def accesses_of(operation: Operation) -> Iterator[StorageAccess]:
    """The tensors of a dispatch."""
    tensors, written = operation.desc.tensors, operation.desc.output_fields
    for field, (storage, offset) in operation.places.items():
        desc = tensors[field]
        yield StorageAccess(storage, offset, offset + desc.total_size_in_bytes, rows_of(desc), field in written)
