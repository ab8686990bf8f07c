"""Measures random shapes one after the other, until the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dmlvk
from bench.sweep.shapes import ConvolutionShape, MovementShape, SweptShape, shapes
from dmlvk.benchmark.harness import UNITS
from dmlvk.benchmark.marks import Mark, measure_marks
from dmlvk.benchmark.measurement import bind_anew
from dmlvk.benchmark.networks.peers import PEERS as NETWORK_PEERS
from dmlvk.benchmark.networks.peers import NetworkPeer
from dmlvk.benchmark.networks.timing import time_chain
from dmlvk.benchmark.peers import PEERS
from dmlvk.benchmark.peers.peer import OperatorPeer, Peer, taking_part
from dmlvk.benchmark.records import Keep, Record, circumstances, one_line
from dmlvk.benchmark.timing import Times, rotation, time_bindings
from dmlvk.benchmark.work import Work
from dmlvk.conformance.case import Workload
from dmlvk.planning.plan import Plan

# A GPU gets slow while the host makes a shape's data and compiles its kernels: after a warm-up of 0.05 s some shapes of
# a hundred seemed to take five times as long as they do.
WARM_UP_SECONDS = 0.3
# The peers of convolutions and of movements, by their names for --peer.
CONVOLUTION_PEERS: dict[str, NetworkPeer] = {name: NETWORK_PEERS[name] for name in ("cudnn-fp16-graph",)}
MOVEMENT_PEERS: dict[str, OperatorPeer] = {name: PEERS[name] for name in ("torch",)}
PEER_NAMES = (*CONVOLUTION_PEERS, *MOVEMENT_PEERS)


@dataclass(frozen=True)
class SweepSettings:
    """The settings of a sweep.

    seconds: the last shape begins before this time.
    seed: of the shapes.
    data_bytes: as for `shapes`.
    rounds: timed runs of each shape, at most.
    peers: some of PEER_NAMES.
    """

    operators: Sequence[str]
    seconds: float
    seed: int
    data_bytes: int
    rounds: int
    peers: Sequence[str]


def run(
    device: dmlvk.Device,
    settings: SweepSettings,
    progress: Callable[[str, float], None] = lambda name, seconds: None,
    keep: Keep = lambda record: None,
    row: Iterable[SweptShape] | None = None,
) -> Record:
    """Measure shapes.

    device: opened with `timestamps=True`.
    progress: called before each measurement with its name and the seconds that have passed.
    row: in place of random ones.
    """
    begin = time.monotonic()
    progress("marks", 0.0)
    marks, absent_marks = measure_marks(device, settings.data_bytes, settings.rounds)
    known: dict[str, Peer] = {**CONVOLUTION_PEERS, **MOVEMENT_PEERS}
    found, about_peers = taking_part((known[name] for name in settings.peers), {})
    peers = {peer.name for peer in found}
    rows: list[Record] = []
    record: Record = {
        "kind": "sweep",
        **circumstances(device, settings.rounds),
        "seed": settings.seed,
        "data_bytes": settings.data_bytes,
        "marks": {name: {"rate": mark.rate, "correct": mark.correct} for name, mark in marks.items()},
        "absent_marks": absent_marks,
        **about_peers,
        "shapes": rows,
    }
    for shape in shapes(settings.operators, settings.seed, settings.data_bytes) if row is None else row:
        passed = time.monotonic() - begin
        if rows and passed > settings.seconds:
            break
        progress(shape.name, passed)
        rows.append(_row(device, shape, marks, settings.rounds, peers))
        keep(record)
    return record


def bound(work: Work, marks: dict[str, Mark]) -> tuple[float, str]:
    """The least time of some work at the marks' rates, and the mark that decides.

    Operations count at the rate of the device's fastest unit: what a kernel without it loses shows as lost.
    """
    moves = "copy" if work.bytes_read >= work.bytes_written / 16 else "fill"
    bounds = [(work.bytes_moved / marks[moves].rate, moves)]
    if work.operations:
        units = (*UNITS.values(), "float_multiply_add", "integer_multiply_add")
        bounds.append(min((work.operations / marks[unit].rate, unit) for unit in units if unit in marks))
    return max(bounds)


def _row(device: dmlvk.Device, shape: SweptShape, marks: dict[str, Mark], rounds: int, peers: set[str]) -> Record:
    row: Record = {"name": shape.name, "bytes": shape.work.bytes_moved, "operations": shape.work.operations}
    inputs = shape.inputs()
    try:
        plan, times, is_right = _measured(device, shape, inputs, rounds)
    except dmlvk.DeviceError as error:
        if device.vulkan.is_lost:
            raise
        return {**row, "failure": one_line(error), "peers": []}
    least, name = bound(shape.work, marks)
    return {
        **row,
        "path": plan.path,
        "dispatches": len(plan.dispatches),
        "seconds": times.median,
        "predicted_seconds": plan.predicted_seconds,
        "bound": {"seconds": least, "bound_by": name},
        "correct": is_right,
        "peers": [trial for each in sorted(peers) if (trial := _trial(each, shape, inputs, rounds)) is not None],
    }


def _measured(device: dmlvk.Device, shape: SweptShape, inputs: dict[str, Any], rounds: int) -> tuple[Plan, Times, bool]:
    """Run a shape: a convolution after itself, as in a network; a movement in turn on memory that no cache holds."""
    operator = device.compile(shape.desc, wait=True)
    is_convolution = isinstance(shape, ConvolutionShape)
    count = 1 if is_convolution else rotation(shape.work.bytes_moved, device.profile.device_type)
    bindings, outputs = bind_anew(device, operator, inputs, count)
    if is_convolution:
        times = time_chain(device, bindings, rounds, is_repeated=True, warm_up_seconds=WARM_UP_SECONDS).best
    else:
        times = time_bindings(device, bindings, rounds, WARM_UP_SECONDS).times
    return operator.plan, times, all(shape.is_right(inputs, output.numpy()) for output in outputs)


def _trial(name: str, shape: SweptShape, inputs: dict[str, Any], rounds: int) -> Record | None:
    """A peer's time; None if it has nothing to do with such a shape."""

    def of_a_convolution(peer: NetworkPeer, shape: ConvolutionShape) -> Record:
        return {"seconds": peer.measure_layer(shape.layer, shape.batch, shape.layout, rounds).best.median}

    def of_a_movement(peer: OperatorPeer, shape: MovementShape) -> Record:
        expected = shape.expected(inputs)
        return {"seconds": peer.measure(Workload(shape.desc, inputs, expected=expected), expected, rounds).times.median}

    if isinstance(shape, ConvolutionShape) and name in CONVOLUTION_PEERS:
        return CONVOLUTION_PEERS[name].trial(of_a_convolution, CONVOLUTION_PEERS[name], shape)
    if isinstance(shape, MovementShape) and name in MOVEMENT_PEERS:
        return MOVEMENT_PEERS[name].trial(of_a_movement, MOVEMENT_PEERS[name], shape)
    return None
