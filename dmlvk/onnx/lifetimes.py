"""Memory shared by lifetime: where each storage of a program lies in one block of memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dmlvk.onnx.depths import depths
from dmlvk.onnx.program import Program

# Enough for every device's alignment of buffer offsets.
ALIGNMENT = 256


@dataclass(frozen=True)
class StorageOffsets:
    """Offsets in a block of memory.

    offsets: by storage. Storages that no dispatch uses have no place.
    size: bytes of the block: the peak.
    sum: bytes that all storages would take beside each other.
    """

    offsets: Mapping[int, int]
    size: int
    sum: int


def storage_offsets(program: Program, kept: set[int], elsewhere: Collection[int] = ()) -> StorageOffsets:
    """Place the storages of a program. Two share memory only if a barrier lies between their dispatches.

    kept: storages that are read after the last dispatch.
    elsewhere: storages with memory of their own, which get no place.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for depth, operation in zip(depths(program.operations), program.operations, strict=True):
        for storage, _ in operation.places.values():
            if storage not in elsewhere:
                first[storage] = min(first.get(storage, depth), depth)
                last[storage] = max(last.get(storage, depth), depth)
    given = {value.storage for value in program.inputs.values()} | program.constants.keys()
    end = len(program.operations)
    for storage in first:
        if storage in given:
            first[storage] = -1
        if storage in kept or storage in program.constants:  # constants are there for the next run too
            last[storage] = end
    sizes = {storage: -(-program.sizes[storage] // ALIGNMENT) * ALIGNMENT for storage in first}
    offsets: dict[int, int] = {}
    # The largest first: small ones fit into the gaps between them.
    for storage in sorted(first, key=lambda s: (-sizes[s], s)):
        taken = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in offsets
            if first[other] <= last[storage] and first[storage] <= last[other]
        )
        offset = 0
        for begin, stop in taken:
            if offset + sizes[storage] <= begin:
                break
            offset = max(offset, stop)
        offsets[storage] = offset
    size = max((offsets[storage] + sizes[storage] for storage in offsets), default=0)
    return StorageOffsets(offsets, size, sum(sizes.values()))
