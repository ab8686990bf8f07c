"""Measures an ONNX model: a run as a whole, its parts, and ONNX Runtime on the CPU."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

import dmlvk
from dmlvk.benchmark.peers.peer import Peer, missing_package, package_version, taking_part
from dmlvk.benchmark.records import MODEL, Record, circumstances
from dmlvk.benchmark.timing import Times, time_on_host, warm_up
from dmlvk.device_profile import DeviceType
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.profile import Profile, StepTimes
from dmlvk.onnx.random_feeds import random_batch
from dmlvk.onnx.session import FUSED

Array = np.ndarray
# Floats of the host's nodes may differ by this share of the largest element. A level of a byte is more.
ROUNDING = 1e-3


def run(
    device: dmlvk.Device,
    path: Path,
    batches: Sequence[int | None],
    rounds: int,
    with_peer: bool,
    progress: Callable[[str], None] = lambda name: None,
    keep: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Measure a model on random inputs, and check its outputs.

    Parameters
    ----------
    device : Device
        With timestamps.
    path : Path
        An ONNX model.
    batches : sequence of int or None
        Sizes for first dimensions that may have any; None for 1.
    rounds : int
        Timed runs; fewer if they take long.
    with_peer : bool
        Whether ONNX Runtime is measured, and its outputs are compared.
    progress : callable
        Called before each batch with its name.
    keep : callable
        Called after each batch with the record so far.

    Raises
    ------
    ModelError
        The model cannot be run, or not in such a batch.
    """
    peers, about_peers = taking_part(
        [ModelPeer()] if with_peer else [], {} if with_peer else {ModelPeer.name: "not asked for"}
    )
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
        row, outputs = _run(device, path, batch, rounds)
        record["model"] |= row.pop("placement")
        arguments = (path, outputs.feeds, outputs.found, record["model"]["is_fused"], rounds)
        row["peers"] = [each.trial(_trial, each, *arguments) for each in peers]
        rows.append(row)
        keep(record)
    device.timestamps = True
    return record


class ModelPeer(Peer):
    """Its optimized run on all cores, and its plain run for comparison."""

    name = "onnxruntime"
    runs_on: ClassVar[str] = "CPU"

    def absence(self) -> str | None:
        return missing_package("onnxruntime")

    def version(self) -> str:
        return package_version("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml")

    def measure(
        self, path: Path, feeds: Mapping[str, Any], rounds: int
    ) -> tuple[Times, dict[str, Any], dict[str, Any]]:
        """The times of the optimized run, and the outputs of the plain run and of the optimized one, by name."""
        plain, _ = _peer_session(path, optimizes=False)
        plain_outputs = plain.run(None, dict(feeds))
        del plain
        optimized, names = _peer_session(path, optimizes=True)
        results: list[Any] = []

        def step(_: int) -> None:
            results[:] = optimized.run(None, dict(feeds))

        times = time_on_host(step, rounds)
        return times, dict(zip(names, plain_outputs, strict=True)), dict(zip(names, results, strict=True))


def _peer_session(path: Path, optimizes: bool) -> tuple[Any, list[str]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimizes else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session, [output.name for output in session.get_outputs()]


class _Outputs(NamedTuple):
    """What a run was given, and what it returned, by name."""

    feeds: dict[str, Array]
    found: dict[str, Array]


def _run(device: dmlvk.Device, path: Path, batch: int | None, rounds: int) -> tuple[Record, _Outputs]:
    """A batch: whole runs, and in turns with them runs of another session whose steps are timed."""
    session = _session(device, path, timestamps=False)
    feeds = random_batch(np.random.default_rng(0), session.get_inputs(), batch)
    start = time.perf_counter()
    found = session.run(None, feeds)
    first = time.perf_counter() - start
    measured = _session(device, path, timestamps=True)
    measured.run(None, feeds)
    if device.profile.device_type is not DeviceType.CPU:
        warm_up(lambda: session.run(None, feeds))
    seconds: list[float] = []
    profiles: list[Profile] = []

    def step(_: int) -> None:
        start = time.perf_counter()
        session.run(None, feeds)
        seconds.append(time.perf_counter() - start)
        profiles.append(measured.profiled(feeds)[1])

    time_on_host(step, rounds)
    # The first turn warms up.
    steps = [_step(each) for each in zip(*(profile.steps for profile in profiles[1:]), strict=True)]
    row: Record = {
        "batch": batch,
        "inputs": {name: list(array.shape) for name, array in feeds.items()},
        "first_seconds": first,
        "seconds": Times(tuple(seconds[1:])).record(),
        "steps": steps,
        "rest_seconds": statistics.median(profile.rest_seconds for profile in profiles[1:]),
        "memory": {"peak": session.memory.peak, "sum": session.memory.sum},
        "placement": _placement(session),
    }
    names = [output.name for output in session.get_outputs()]
    return row, _Outputs(feeds, dict(zip(names, found, strict=True)))


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


def _placement(session: InferenceSession) -> Record:
    """How many nodes run where, and which the host's are."""
    rows = session.placement
    on_host = Counter(row.op_type for row in rows if row.where == "host")
    return {
        "nodes": dict(Counter(row.where for row in rows)),
        "on_host": dict(on_host),
        "is_fused": any(row.reason == FUSED for row in rows),
    }


def _trial(
    peer: ModelPeer,
    path: Path,
    feeds: Mapping[str, Array],
    found: Mapping[str, Array],
    is_fused: bool,
    rounds: int,
) -> Record:
    times, plain, optimized = peer.measure(path, feeds, rounds)
    outputs = [{"name": name, **_comparison(found[name], plain[name], optimized[name], is_fused)} for name in found]
    return {"seconds": times.record(), "outputs": outputs}


def _comparison(found: Any, plain: Any, optimized: Any, is_fused: bool) -> Record:
    """An output beside those of ONNX Runtime's plain run and of its optimized run: "equal", "different" or "wrong".

    Fused nodes may give other bits than the plain run. Without them an output is wrong if it differs by more than the
    host's floats may.
    """
    if not all(isinstance(each, np.ndarray) for each in (found, plain, optimized)):
        return {"result": "not compared"}
    for each, kind in ((plain, "plain"), (optimized, "optimized")):
        if found.dtype == each.dtype and found.shape == each.shape and found.tobytes() == each.tobytes():
            return {"result": "equal", "to": kind, "elements": found.size}
    if found.dtype != plain.dtype or found.shape != plain.shape:
        return {"result": "wrong", "to": f"plain, which is {plain.dtype} {plain.shape}", "elements": found.size}
    comparison = {"to": "plain", "elements": found.size, "different": int(np.count_nonzero(found != plain))}
    if found.dtype.kind not in "iuf":
        return {"result": "different" if is_fused else "wrong", **comparison}
    wide, right = found.astype(np.float64), plain.astype(np.float64)
    largest = float(np.nan_to_num(np.abs(wide - right), nan=np.inf).max(initial=0.0))
    limit = {"largest": largest} if np.isfinite(largest) else {}
    allowed = ROUNDING * float(np.nan_to_num(np.abs(right)).max(initial=0.0)) if found.dtype.kind == "f" else 0.0
    return {"result": "different" if is_fused or largest <= allowed else "wrong", **comparison, **limit}
