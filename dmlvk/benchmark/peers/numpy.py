"""NumPy on the CPU. It has no convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.peers.peer import (
    OperatorPeer,
    Slices,
    Trial,
    compare,
    memory_of,
    part_for,
    require_upper_triangle_or_identity,
    shown,
)
from dmlvk.benchmark.timing import time_on_host
from dmlvk.conformance.case import Workload
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, OperatorDesc, Slice1Desc

Array = npt.NDArray[Any]


Step = Callable[[], object]


def _slice1(desc: Slice1Desc, inputs: Mapping[str, Array], output: Array) -> Step:
    source = shown(memory_of(inputs["input_tensor"], desc.input_tensor), desc.input_tensor)
    view = source[Slices.of(desc).signed]
    return lambda: np.copyto(output, view)


def _diagonal_matrix1(desc: DiagonalMatrix1Desc, inputs: Mapping[str, Array], output: Array) -> Step:
    require_upper_triangle_or_identity(desc)
    if desc.input_tensor is None:
        rows, columns = output.shape
        return lambda: np.copyto(output, np.eye(rows, columns, dtype=output.dtype))
    matrices, end = inputs["input_tensor"], desc.diagonal_fill_end
    return lambda: np.copyto(output, np.triu(matrices, end))


def _one_hot(desc: OneHotDesc, inputs: Mapping[str, Array], output: Array) -> Step:
    off, on = inputs["values_tensor"].ravel()
    indices = inputs["indices_tensor"]
    axis, depth = desc.axis, output.shape[desc.axis]

    def one_hot() -> None:
        output.fill(off)
        np.put_along_axis(output, indices % depth, on, axis)

    return one_hot


# For each operator, the function that prepares its work from the descriptor, its inputs and an array for the output.
STEPS: Mapping[type[OperatorDesc], Callable[[Any, Mapping[str, Array], Array], Step]] = {
    Slice1Desc: _slice1,
    DiagonalMatrix1Desc: _diagonal_matrix1,
    OneHotDesc: _one_hot,
}


class NumPy(OperatorPeer):
    """NumPy's own indexing, `triu` and `eye`."""

    name = "numpy"
    runs_on: ClassVar[str] = "CPU"
    operators = STEPS.keys()

    def absence(self) -> str | None:
        return None

    def version(self) -> str:
        return np.__version__

    def measure(self, workload: Workload, expected: Array, rounds: int) -> Trial:
        output = np.empty_like(expected)
        step = part_for(STEPS, workload.desc)(workload.desc, workload.inputs, output)
        times = time_on_host(lambda _: step(), rounds)
        return Trial(times, compare(output, expected))
