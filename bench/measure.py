"""How the benchmarks measure: random data, the result checked, caches defeated, times from the GPU's own timestamps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dmlvk
from dmlvk.device_profile import DeviceType
from dmlvk.operators import OperatorDesc

# Tensors are rotated until a round touches this much memory, several times the largest cache of any device.
ROTATION_BYTES = 1 << 29
MAXIMUM_ROTATION = 8
WARM_UP_SECONDS = 1.0


@dataclass(frozen=True)
class Case:
    """One operator to time.

    Attributes
    ----------
    name : str
    desc : OperatorDesc
    inputs : dict of str to ndarray
        By descriptor field.
    path : str, optional
        Forces a kernel path.
    bytes_moved : int, optional
        What counts as moved, where that is not what the plan counts: the bytes of the elements read and written.
    """

    name: str
    desc: OperatorDesc
    inputs: Mapping[str, npt.NDArray[Any]]
    path: str | None = None
    bytes_moved: int | None = None


@dataclass(frozen=True)
class Measurement:
    """What a case took.

    Attributes
    ----------
    seconds : tuple of float
        One a round, on the GPU.
    bytes_moved, operations : int
        What the plan counts: bytes read and written, and multiply-adds times two.
    is_correct : bool
        Whether the output is the reference's, bit for bit.
    """

    name: str
    path: str
    seconds: tuple[float, ...]
    bytes_moved: int
    operations: int
    is_correct: bool

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def bytes_per_second(self) -> float:
        return self.bytes_moved / self.median

    @property
    def operations_per_second(self) -> float:
        return self.operations / self.median


def random_array(data_type: dmlvk.DataType, sizes: Iterable[int], seed: int = 0) -> npt.NDArray[Any]:
    """Random bits of a data type."""
    shape = tuple(sizes)
    count = int(np.prod(shape)) * data_type.size_in_bytes
    return np.frombuffer(np.random.default_rng(seed).bytes(count), data_type.numpy_dtype).reshape(shape)


def measure(device: dmlvk.Device, case: Case, rounds: int = 20) -> Measurement:
    """Time a case.

    Parameters
    ----------
    device : Device
        Opened with `timestamps=True`.
    case : Case
    rounds : int
        Timed runs, after a warm-up.
    """
    operator = device.compile(case.desc, path=case.path)
    plan = operator.plan
    bytes_moved = case.bytes_moved
    if bytes_moved is None:
        bytes_moved = sum(dispatch.bytes_moved for dispatch in plan.dispatches)
    count = min(MAXIMUM_ROTATION, 1 + ROTATION_BYTES // max(1, bytes_moved))
    owned = [field for field, tensor in case.desc.tensors.items() if tensor.flags & dmlvk.TensorFlags.OWNED_BY_DML]
    if operator.has_state:
        given = {field: device.tensor(case.desc.tensors[field]) for field in owned}
        for field, tensor in given.items():
            tensor.write(case.inputs[field])
        operator.initialize(**given)
    bindings, outputs = [], []
    for _ in range(count):
        tensors = {}
        for field, array in case.inputs.items():
            if field in owned:
                continue
            tensors[field] = device.tensor(case.desc.tensors[field])
            tensors[field].write(array)
        outputs.append(device.tensor(case.desc.tensors["output_tensor"]))
        bindings.append(operator.bind(output_tensor=outputs[-1], **tensors))
    # An idle GPU runs at a fraction of its clock and takes a while to speed up (an H200: 345 of 1,980 MHz).
    start = time.perf_counter()
    while True:
        for binding in bindings:
            device.submit([binding]).wait()
        if device.profile.device_type is DeviceType.CPU or time.perf_counter() - start > WARM_UP_SECONDS:
            break
    seconds = []
    for index in range(rounds):
        submission = device.submit([bindings[index % count]])
        submission.wait()
        if submission.gpu_time is None:
            raise SystemExit(f"{device.name} has no timestamps to measure with")
        seconds.append(submission.gpu_time)
    expected = dmlvk.reference.run(case.desc, **case.inputs)
    is_correct = all(output.numpy().tobytes() == expected.tobytes() for output in outputs)
    operations = sum(dispatch.operations for dispatch in plan.dispatches)
    return Measurement(case.name, plan.path, tuple(seconds), bytes_moved, operations, is_correct)


def report(device: dmlvk.Device, cases: Iterable[Case], mark: str | None = None, rounds: int = 20) -> int:
    """Measure cases, print a table, and give the exit status: 1 when a result was wrong.

    Parameters
    ----------
    device : Device
    cases : iterable of Case
    mark : str, optional
        Name of the case that the others' rates are divided by.
    rounds : int
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    profile = device.profile
    title = f"{device.name}, {profile.driver_name} {profile.driver_info}"
    table = Table("case", "path", "median ms", "spread", "GB/s", "Top/s", "of the mark", "result", title=title)
    found = [measure(device, case, rounds) for case in track(list(cases), "measuring", console=console)]
    best = next((m.bytes_per_second for m in found if m.name == mark), None)
    for m in found:
        table.add_row(
            m.name,
            m.path,
            f"{m.median * 1e3:.3f}",
            f"{min(m.seconds) * 1e3:.3f}-{max(m.seconds) * 1e3:.3f}",
            f"{m.bytes_per_second / 1e9:.1f}",
            f"{m.operations_per_second / 1e12:.3f}" if m.operations else "",
            f"{m.bytes_per_second / best:.0%}" if best else "",
            "equal" if m.is_correct else "DIFFERENT",
        )
    console.print(table)
    return 0 if all(m.is_correct for m in found) else 1
