"""A whole run (marks, cases and peers) as one record of plain data that can be written as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlvk
from dmlvk._common.arguments import as_argument
from dmlvk.benchmark.cases import Scale, without
from dmlvk.benchmark.marks import Copies, Mark, measure_marks
from dmlvk.benchmark.measurement import Measurement, measure
from dmlvk.benchmark.peers import PEERS
from dmlvk.benchmark.peers.peer import OperatorPeer, taking_part
from dmlvk.benchmark.records import Keep, Progress, Record, circumstances
from dmlvk.benchmark.work import Work, work_of
from dmlvk.conformance.case import Case, Workload
from dmlvk.errors import PathError
from dmlvk.runtime.kernel_modules import spirv

# SPIR-V capabilities that show with which unit a kernel multiplies, the fastest first.
UNITS = {6022: "matrix", 6019: "dot_product"}
CAPABILITY = 17


@dataclass(frozen=True)
class OperatorSettings:
    """The settings of a run.

    rounds: timed runs of each measured item; fewer if they take long.
    left_out: names of the peers that are not measured, and why: the record lists them as absent.
    """

    scale: Scale
    rounds: int
    peers: Sequence[str]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rounds = as_argument("rounds", self.rounds, 1, None, "each thing is timed at least once", ValueError)
        object.__setattr__(self, "rounds", rounds)


def run(
    device: dmlvk.Device,
    cases: Sequence[Case],
    settings: OperatorSettings,
    progress: Progress = lambda name: None,
    keep: Keep = lambda record: None,
) -> Record:
    """Measure marks, cases and peers.

    device: opened with `timestamps=True`.
    """
    progress("marks")
    marks, absent_marks = measure_marks(device, settings.scale.data_bytes, settings.rounds)
    copies = Copies(device, settings.scale.data_bytes)
    peers, about_peers = taking_part((PEERS[name] for name in settings.peers), settings.left_out)
    rows: list[Record] = []
    record = {
        **circumstances(device, settings.rounds),
        "settings": {
            "data_bytes": settings.scale.data_bytes,
            "batch": settings.scale.batch,
            "rounds": settings.rounds,
        },
        "marks": {name: _mark_record(mark) for name, mark in marks.items()},
        "absent_marks": absent_marks,
        **about_peers,
        "cases": rows,
    }
    done: set[str] = set()
    for case in cases:
        progress(case.name)
        workload = case.build()
        expected = workload.result()
        row = _case(device, case, workload, expected, marks, copies, settings.rounds)
        # A peer chooses its own layout, and few peers have zero points: one trial serves for all cases of a layer.
        row["work"] = without(case, "layout", "path", "filter_zero_point")
        if row["work"] not in done:
            done.add(row["work"])
            row["peers"] = [peer.trial(_trial, peer, workload, expected, settings.rounds) for peer in peers]
        rows.append(row)
        keep(record)
    return record


def unit_of(kernels: Iterable[str]) -> str | None:
    """The unit with which kernels multiply, by their SPIR-V: "matrix" or "dot_product"; None for neither."""
    declared: set[int] = set()
    for kernel in kernels:
        words = np.frombuffer(spirv(kernel), "<u4")
        position = 5
        while position < len(words) and int(words[position]) & 0xFFFF == CAPABILITY:
            declared.add(int(words[position + 1]))
            position += int(words[position]) >> 16
    return next((unit for capability, unit in UNITS.items() if capability in declared), None)


def is_copy(work: Work) -> bool:
    """Whether a plain copy is the mark of some work: it computes nothing, and reads more than next to nothing."""
    return not work.operations and work.bytes_read >= work.bytes_written / 16


def mark_seconds(work: Work, unit: str | None, marks: dict[str, Mark]) -> tuple[float, str] | None:
    """The time for some work at the marks' rates, and the name of the deciding mark; None if the mark is absent."""
    if not work.operations:
        name = "copy" if is_copy(work) else "fill"
        return work.bytes_moved / marks[name].rate, name
    if unit is None:
        unit = max(("float_multiply_add", "integer_multiply_add"), key=lambda name: marks[name].rate)
    if unit not in marks:
        return None
    return max((work.bytes_moved / marks["copy"].rate, "copy"), (work.operations / marks[unit].rate, unit))


def _case(
    device: dmlvk.Device,
    case: Case,
    workload: Workload,
    expected: npt.NDArray[Any],
    marks: dict[str, Mark],
    copies: Copies,
    rounds: int,
) -> Record:
    row: Record = {"name": case.name, "operator": case.groups[0], "sizes": _sizes(workload)}
    work = work_of(workload.desc)
    beside = copies.bindings(work.bytes_moved) if is_copy(work) else ()
    try:
        found = measure(device, workload.desc, workload.inputs, expected, path=case.path, rounds=rounds, beside=beside)
    except PathError as error:
        return {**row, "impossible": str(error)}
    if found.beside is None:
        kernels = [dispatch.kernel for dispatch in found.dispatches]
        mark = mark_seconds(work, unit_of(kernels) if work.operations else None, marks)
    else:
        mark = found.beside.median * work.bytes_moved / copies.bytes_moved(work.bytes_moved), "copy"
    return {**row, **_measurement_record(found, mark)}


def _measurement_record(found: Measurement, mark: tuple[float, str] | None) -> Record:
    median = found.times.median
    return {
        "path": found.path,
        "seconds": found.times.record(),
        "processor_seconds": None if found.processor is None else found.processor.record(),
        "bytes": found.work.bytes_moved,
        "operations": found.work.operations,
        "bytes_per_second": found.work.bytes_moved / median,
        "operations_per_second": found.work.operations / median,
        "mark": None if mark is None else {"seconds": mark[0], "bound_by": mark[1], "fraction": mark[0] / median},
        "correct": found.correct,
        "untrue_timestamps": found.untrue,
        "dispatches": [
            {
                "kernel": dispatch.kernel,
                "seconds": dispatch.times.median,
                "bytes": dispatch.bytes_moved,
                "operations": dispatch.operations,
            }
            for dispatch in found.dispatches
        ],
    }


def _mark_record(mark: Mark) -> Record:
    return {
        "rate": mark.rate,
        "unit": mark.unit,
        "what": mark.what,
        "seconds": mark.times.record(),
        "correct": mark.correct,
    }


def _trial(peer: OperatorPeer, workload: Workload, expected: npt.NDArray[Any], rounds: int) -> Record:
    trial = peer.measure(workload, expected, rounds)
    return {"seconds": trial.times.record(), "result": trial.result}


def _sizes(workload: Workload) -> dict[str, list[int]]:
    return {name: list(tensor.sizes) for name, tensor in workload.desc.tensors.items() if math.prod(tensor.sizes) > 2}
