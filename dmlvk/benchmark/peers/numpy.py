"""NumPy on the CPU. It has no convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.peers.peer import (
    Peer,
    Slices,
    Trial,
    UnsupportedError,
    compare,
    memory_of,
    require_upper_triangle_or_identity,
    shown,
)
from dmlvk.benchmark.timing import time_on_host
from dmlvk.conformance.case import Workload
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, Slice1Desc

Array = npt.NDArray[Any]


class NumPy(Peer):
    """NumPy's own indexing, `triu` and `eye`."""

    name = "numpy"
    runs_on: ClassVar[str] = "CPU"

    def absence(self) -> str | None:
        return None

    def version(self) -> str:
        return np.__version__

    def measure(self, workload: Workload, expected: Array, rounds: int) -> Trial:
        output = np.empty_like(expected)
        step = _step(workload, output)
        times = time_on_host(lambda _: step(), rounds)
        return Trial(times, compare(output, expected))


def _step(workload: Workload, output: Array) -> Callable[[], object]:
    desc, inputs = workload.desc, workload.inputs
    if isinstance(desc, Slice1Desc):
        source = shown(memory_of(inputs["input_tensor"], desc.input_tensor), desc.input_tensor)
        view = source[Slices.of(desc).signed]
        return lambda: np.copyto(output, view)
    if isinstance(desc, DiagonalMatrix1Desc):
        require_upper_triangle_or_identity(desc)
        if desc.input_tensor is None:
            rows, columns = output.shape
            return lambda: np.copyto(output, np.eye(rows, columns, dtype=output.dtype))
        matrices, end = inputs["input_tensor"], desc.diagonal_fill_end
        return lambda: np.copyto(output, np.triu(matrices, end))
    if isinstance(desc, OneHotDesc):
        off, on = inputs["values_tensor"].ravel()
        indices = inputs["indices_tensor"]
        axis, depth = desc.axis, output.shape[desc.axis]

        def one_hot() -> None:
            output.fill(off)
            np.put_along_axis(output, indices % depth, on, axis)

        return one_hot
    raise UnsupportedError("no quantized convolution")
