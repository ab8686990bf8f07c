"""Runs the benchmark on a Dask cluster: each distinct device runs all cases, split over the workers that have it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from distributed import Client, Future, as_completed

import dmlvk
from dmlvk._common import files
from dmlvk.benchmark import harness
from dmlvk.benchmark import records as records_of
from dmlvk.benchmark.choice import Choice
from dmlvk.benchmark.peers import PEERS
from dmlvk.benchmark.records import Record
from dmlvk.dask.cluster import DeviceAndDriver, has_ended, resources_of, workers_by_device
from dmlvk.dask.errors import ClusterError
from dmlvk.dask.holding import held_by_task

CPU = dmlvk.DeviceType.CPU.name


def run_part(choice: Choice, part: int, parts: int) -> Record:
    """The task: measure every `parts`-th case on the device of the worker."""
    with dmlvk.Device(held_by_task().index, timestamps=True) as device:
        is_cpu = device.profile.device_type is dmlvk.DeviceType.CPU
        left_out = {name: "not asked for" for name in PEERS if name not in choice.peers}
        settings = harness.OperatorSettings(choice.scale(is_cpu), choice.rounds, choice.peers, left_out)
        return harness.run(device, choice.chosen(is_cpu)[part::parts], settings)


def run(
    client: Client,
    choice: Choice,
    selector: str | None = None,
    keep: Callable[[list[Record]], None] = lambda records: None,
) -> list[Record]:
    """Measure on each distinct device of a cluster.

    The workers that have one GPU share its cases. A CPU driver's cases run on one worker, and CPU drivers run one after
    the other: two at a time would share the processor that is measured.

    selector: part of the names of the devices that run; all of them by default.
    keep: called with the records so far whenever one is whole.
    Returns a record of `harness.run` for each device.
    Raises ClusterError: no device of the cluster has the name, or one could not be measured. `keep` has got the records
        of the others.
    """
    kinds = workers_by_device(client, selector)
    gpus = {kind: len(members) for kind, members in kinds.items() if members[0].type != CPU}
    turns = [gpus, *({kind: 1} for kind in kinds if kind not in gpus)]
    records: list[Record] = []
    errors: list[ClusterError] = []
    for turn in turns:
        for record in _measured(client, choice, turn, errors):
            records.append(record)
            keep(records)
    if errors:
        raise errors[0]
    return records


def _measured(
    client: Client, choice: Choice, counts: dict[DeviceAndDriver, int], errors: list[ClusterError]
) -> Iterator[Record]:
    """The records of some devices. Workers measure the cases of a device in parts: `counts` has their numbers."""
    futures: dict[Future, tuple[DeviceAndDriver, int]] = {}
    found: dict[DeviceAndDriver, dict[int, Record]] = {kind: {} for kind in counts}
    try:
        for kind, count in counts.items():
            for part in range(count):
                future = client.submit(run_part, choice, part, count, pure=False, resources=resources_of(kind))
                futures[future] = kind, part
        with client.as_current():
            ended = as_completed(list(futures))
            for future in ended:
                if not has_ended(future):
                    ended.add(future)
                    continue
                kind, part = futures[future]
                if future.status != "finished":
                    error = future.exception() if future.status == "error" else "the scheduler has gone"
                    errors.append(ClusterError(f"{kind[0]} is not measured: {error}"))
                    continue
                found[kind][part] = future.result()
                if len(found[kind]) == counts[kind]:
                    yield merged([found[kind][number] for number in range(counts[kind])])
    finally:
        if client.status == "running":
            client.cancel([future for future in futures if not future.done()], force=True)


def merged(parts: Sequence[Record]) -> Record:
    """The record of one device from those of its parts: the cases in their order, the marks of the first part."""
    rows = [part["cases"] for part in parts]
    ordered = [row for turn in itertools.zip_longest(*rows) for row in turn if row is not None]
    return {**parts[0], "cases": ordered}


def write(records: Sequence[Record], path: Path) -> None:
    """Write the record of one device as `records.write` does, those of several as one file."""
    if len(records) == 1:
        records_of.write(records[0], path)
    else:
        files.write_text(path, files.json_text({"format": records_of.FORMAT, "devices": list(records)}, 1) + "\n")


def read(path: Path) -> list[Record]:
    """Read the records of one device or of several.

    Raises OSError: the file cannot be read, or has no such records.
    """
    content = files.read_json(path)
    listed = content.get("devices") if isinstance(content, dict) and "devices" in content else [content]
    if not isinstance(listed, list) or not all(
        isinstance(record, dict) and record.get("format") == records_of.FORMAT and isinstance(record.get("cases"), list)
        for record in listed
    ):
        raise files.FileError(f"{path} is not a record of `dmlvk bench --json`, format {records_of.FORMAT}")
    return listed
