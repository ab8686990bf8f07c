"""Runs the demo's panels: result, check against the reference, and time."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import numpy as np

import dmlvk
from dmlvk._common.bits import equal_bits
from dmlvk.demo.panels import Panel

# The median of this many runs. On a slow device fewer runs are enough, because each is measured well.
MOST_RUNS, FEWEST_RUNS = 9, 3
ENOUGH_SECONDS = 0.1


@dataclass(frozen=True)
class PanelResult:
    """The result of one panel.

    operator: DirectML's name, such as "SLICE1".
    kernels: the kernels that a run dispatches, by their names, such as "slice1/tiles".
    result: the output, read back.
    correct: whether the result equals the reference bit for bit.
    seconds: median of several runs.
    timed_by: "GPU" for the device's own timestamps. "host" if it has none: from the call to the end of waiting.
    bytes_moved: the bytes that the plan reads and writes.
    """

    panel: Panel
    operator: str
    kernels: tuple[str, ...]
    result: np.ndarray
    correct: bool
    seconds: float
    timed_by: str
    bytes_moved: int

    @property
    def gigabytes_per_second(self) -> float:
        return self.bytes_moved / self.seconds / 1e9 if self.seconds > 0 else 0.0


def measure(device: dmlvk.Device, panel: Panel) -> PanelResult:
    """Run a panel's operator on a device, check its result, and time it.

    Raises DeviceError: the device could not run the panel.
    """
    compiled = device.compile(panel.desc, wait=True)
    tensors = {field: device.tensor(desc) for field, desc in panel.desc.tensors.items()}
    for field, array in panel.inputs.items():
        tensors[field].write(array)
    # Elements that the operator does not write would show.
    tensors["output_tensor"].write_bytes(b"\xa5" * panel.desc.output_tensor.total_size_in_bytes)
    # Tensors that are OWNED_BY_DML are given once, before the first dispatch, and not timed.
    owned = {field for field, desc in panel.desc.tensors.items() if desc.flags & dmlvk.TensorFlags.OWNED_BY_DML}
    if owned:
        compiled.initialize(**{field: tensors[field] for field in owned})
    bound = {field: tensor for field, tensor in tensors.items() if field not in owned}
    compiled(**bound).wait()
    result = tensors["output_tensor"].numpy()
    expected = dmlvk.reference.run(panel.desc, **panel.inputs)

    kernels = dict.fromkeys(dispatch.kernel for dispatch in compiled.plan.dispatches)
    device_times: list[float] = []
    host_times: list[float] = []
    binding = compiled.bind(**bound)
    try:
        device.timestamps = True
        device.submit([binding]).wait()
    except dmlvk.DeviceError:
        # Vulkan does not promise timestamps on every queue. Any other error is raised again below.
        device.timestamps = False
    while len(host_times) < FEWEST_RUNS or (len(host_times) < MOST_RUNS and sum(host_times) < ENOUGH_SECONDS):
        start = time.perf_counter()
        submission = device.submit([binding])
        submission.wait()
        host_times.append(time.perf_counter() - start)
        times = submission.measured_times()
        if times is not None:
            device_times.append(sum(times))
    device.timestamps = False
    is_alike = (result.dtype, result.shape) == (expected.dtype, expected.shape)
    return PanelResult(
        panel=panel,
        operator=panel.desc.operator_name,
        kernels=tuple(kernels),
        result=result,
        correct=is_alike and equal_bits(result, expected),
        seconds=statistics.median(device_times or host_times),
        timed_by="GPU" if device_times else "host",
        bytes_moved=sum(dispatch.bytes_moved for dispatch in compiled.plan.dispatches),
    )
