"""Measures an ONNX model: a run as a whole, its parts, and other libraries."""

from __future__ import annotations

import statistics
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import dmlvk
from dmlvk.benchmark.model.peers import PEERS, Array, ModelWork
from dmlvk.benchmark.networks.timing import time_chain
from dmlvk.benchmark.peers.peer import taking_part
from dmlvk.benchmark.records import MODEL, Keep, Progress, Record, circumstances
from dmlvk.benchmark.timing import FEWEST_ROUNDS, time_on_host, warm_up
from dmlvk.device_profile import DeviceType
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.held import write
from dmlvk.onnx.profile import Profile, StepTimes
from dmlvk.onnx.random_feeds import random_batch
from dmlvk.onnx.session import FUSED
from dmlvk.runtime.sequence import Sequence as Recorded

# Runs in a row on a GPU, of which only the last is timed: those before it bring the clock to its full speed.
IN_A_ROW = 3
# Runs that are asked for at once: enough that the first and the last of them, which are alone, hardly count.
MAPPED = 16


def run(
    device: dmlvk.Device,
    path: Path,
    batches: Sequence[int | None],
    rounds: int,
    names: Sequence[str],
    progress: Progress = lambda name: None,
    keep: Keep = lambda record: None,
) -> Record:
    """Measure a model on random inputs, and check its outputs.

    device: with timestamps.
    batches: sizes for first dimensions that may have any; None for 1.
    rounds: timed runs; fewer if they take long.
    names: the peers that are measured. ONNX Runtime's outputs are compared.
    Raises ModelError: the model cannot be run, or not in such a batch.
    """
    left_out = {name: "not asked for" for name in PEERS if name not in names}
    peers, about_peers = taking_part([peer for name, peer in PEERS.items() if name in names], left_out)
    rows: list[Record] = []
    record: Record = {
        "kind": MODEL,
        **circumstances(device, rounds),
        "model": {"file": path.name},
        **about_peers,
        "batches": rows,
    }
    for batch in batches:
        progress("a run" if batch is None else f"batch {batch}")
        row, feeds, found = _run(device, path, batch, rounds)
        record["model"] |= row.pop("placement")
        work = ModelWork(path, feeds, found, record["model"]["is_fused"])
        row["peers"] = [each.trial(each.measure, work, rounds) for each in peers]
        rows.append(row)
        keep(record)
    device.timestamps = True
    return record


def _run(
    device: dmlvk.Device, path: Path, batch: int | None, rounds: int
) -> tuple[Record, dict[str, Array], dict[str, Array]]:
    """A batch: whole runs, and then runs of another session whose steps are timed.

    Not in turns: each session finds its own constants in the caches, as in an application, and as the peers do.

    Returns the record, and what a run was given and what it returned, by name.
    """
    session = _session(device, path, timestamps=False)
    feeds = random_batch(np.random.default_rng(0), session.get_inputs(), batch)
    start = time.perf_counter()
    found = session.run(None, feeds)
    first = time.perf_counter() - start
    measured = _session(device, path, timestamps=True)
    measured.run(None, feeds)
    if device.profile.device_type is not DeviceType.CPU:
        warm_up(lambda: session.run(None, feeds))
    whole = time_on_host(lambda _: session.run(None, feeds), rounds)
    mapped = time_on_host(lambda _: deque(session.map([feeds] * MAPPED), maxlen=0), rounds)
    profiles: list[Profile] = []
    time_on_host(lambda _: profiles.append(measured.profiled(feeds)[1]), rounds)
    # The first turn warms up.
    steps = [_step(each) for each in zip(*(profile.steps for profile in profiles[1:]), strict=True)]
    row: Record = {
        "batch": batch,
        "inputs": {name: list(array.shape) for name, array in feeds.items()},
        "first_seconds": first,
        "seconds": whole.record(),
        "mapped_seconds": mapped.median / MAPPED,
        "steps": steps,
        "rest_seconds": statistics.median(profile.rest_seconds for profile in profiles[1:]),
        "dispatches": _dispatches(device, measured),
        "alone_seconds": _alone(device, measured, feeds, rounds),
        "memory": {"peak": session.memory.peak, "sum": session.memory.sum},
        "placement": _placement(session),
    }
    names = [output.name for output in session.get_outputs()]
    return row, feeds, dict(zip(names, found, strict=True))


def _session(device: dmlvk.Device, path: Path, timestamps: bool) -> InferenceSession:
    """A session whose sequences, which its first run records, have timestamps or not."""
    device.timestamps = timestamps
    return InferenceSession(path, device)


def _step(runs: Sequence[StepTimes]) -> Record:
    """The median of several runs of a step."""
    first = runs[0]
    gpu = [each.gpu_seconds for each in runs if each.gpu_seconds is not None]
    return {
        "where": first.where,
        "operators": list(first.operators),
        "nodes": first.nodes,
        "seconds": statistics.median(each.seconds for each in runs),
        "gpu_seconds": statistics.median(gpu) if gpu else None,
        "bytes_to_device": first.bytes_to_device,
        "to_device_seconds": statistics.median(each.to_device_seconds for each in runs),
        "bytes_from_device": first.bytes_from_device,
        "from_device_seconds": statistics.median(each.from_device_seconds for each in runs),
    }


def _dispatches(device: dmlvk.Device, session: InferenceSession) -> list[Record]:
    """Each operator on the device: its time after the operator before it, as in a run, and its time when repeated.

    When it is repeated, it finds its code and its constants in caches.
    """
    rows: list[Record] = []
    in_a_row = 1 if device.profile.device_type is DeviceType.CPU else IN_A_ROW
    for bindings in session._bindings():
        sequence = Recorded(device.engine, bindings, timestamps=True)
        runs = [sequence.submit().dispatch_times for _ in range(in_a_row * FEWEST_ROUNDS)]
        medians = iter([statistics.median(times) for times in zip(*runs[in_a_row - 1 :: in_a_row], strict=True)])
        for binding in bindings:
            alone = time_chain(device, [binding], FEWEST_ROUNDS, is_repeated=True, warm_up_seconds=0.0)
            rows.append(
                {
                    "operator": binding.operator_name,
                    "path": binding.plan.path,
                    "seconds": sum(next(medians) for stage in binding.dispatches for _ in stage),
                    "alone_seconds": alone.best.median,
                }
            )
    return rows


def _alone(device: dmlvk.Device, session: InferenceSession, feeds: Mapping[str, Array], rounds: int) -> float:
    """Of a run's parts on the device, with inputs and outputs in its memory, where other libraries find them too."""
    seconds = 0.0
    for execution in session._executions():
        alone = execution.in_device_memory()
        for name in alone.input_tensors.keys() & feeds.keys():
            write(alone.input_tensors[name], feeds[name])
        if alone.bindings:
            seconds += time_chain(device, alone.bindings, rounds, is_repeated=False).best.median
    return seconds


def _placement(session: InferenceSession) -> Record:
    """How many nodes run where, and which the host's are."""
    rows = session.placement
    on_host = Counter(row.op_type for row in rows if row.where == "host")
    return {
        "nodes": dict(Counter(row.where for row in rows)),
        "on_host": dict(on_host),
        "is_fused": any(row.reason == FUSED for row in rows),
    }
