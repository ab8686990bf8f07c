"""NumPy on the CPU and CuPy on CUDA, which have the same functions. They have no convolution of this kind."""

from __future__ import annotations

import time
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
    missing_package,
    package_version,
    part_for,
    require_upper_triangle_or_identity,
)
from dmlvk.benchmark.peers.torch import IDLE_CYCLES, rotation_of
from dmlvk.benchmark.timing import FEWEST_ROUNDS, WARM_UP_SECONDS, Times, time_on_host
from dmlvk.conformance.case import Workload
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, OperatorDesc, Slice1Desc

Array = npt.NDArray[Any]
TimedCall = Callable[[], Any]

IDLE = """extern "C" __global__ void idle(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) { }
}"""


def _slice1(library: Any, desc: Slice1Desc, inputs: Mapping[str, Array], output: Any) -> TimedCall:
    memory = library.asarray(memory_of(inputs["input_tensor"], desc.input_tensor))
    strides = [stride * memory.itemsize for stride in desc.input_tensor.element_strides]
    view = library.lib.stride_tricks.as_strided(memory, desc.input_tensor.sizes, strides)[Slices.of(desc).signed]

    def slice1() -> Any:
        library.copyto(output, view)
        return output

    return slice1


def _diagonal_matrix1(library: Any, desc: DiagonalMatrix1Desc, inputs: Mapping[str, Array], output: Any) -> TimedCall:
    require_upper_triangle_or_identity(desc)
    if desc.input_tensor is None:
        rows, columns = output.shape
        return lambda: library.eye(rows, columns, dtype=output.dtype)
    matrices, end = library.asarray(inputs["input_tensor"]), desc.diagonal_fill_end
    return lambda: library.triu(matrices, end)


def _one_hot(library: Any, desc: OneHotDesc, inputs: Mapping[str, Array], output: Any) -> TimedCall:
    off, on = inputs["values_tensor"].ravel().tolist()
    axis, depth = desc.axis, output.shape[desc.axis]
    indices = library.asarray(inputs["indices_tensor"].ravel())
    rows = library.arange(indices.size)

    def one_hot() -> Any:
        output.fill(off)
        hot = indices % depth
        output[(rows, hot) if axis else (hot, rows)] = on
        return output

    return one_hot


# For each operator, the function that prepares the fastest of a library's own operations from the library, the
# descriptor, its inputs and an array for the output. A step returns the result, which may be that array.
STEPS: Mapping[type[OperatorDesc], Callable[[Any, Any, Mapping[str, Array], Any], TimedCall]] = {
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
        step = part_for(STEPS, workload.desc)(np, workload.desc, workload.inputs, np.empty_like(expected))
        results: list[Any] = [None]

        def kept(_: int) -> None:
            results[0] = step()

        times = time_on_host(kept, rounds)
        return Trial(times, compare(results[0], expected))


class CuPy(OperatorPeer):
    """CuPy's own indexing, `triu` and `eye`."""

    name = "cupy"
    runs_on: ClassVar[str] = "CUDA"
    operators = STEPS.keys()

    def absence(self) -> str | None:
        missing = missing_package("cupy")
        if missing:
            return missing
        import cupy

        try:
            return None if cupy.cuda.runtime.getDeviceCount() else "CuPy sees no CUDA device"
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return f"CuPy sees no CUDA device: {error}"

    def version(self) -> str:
        return package_version("cupy", "cupy-cuda13x", "cupy-cuda12x")

    def measure(self, workload: Workload, expected: Array, rounds: int) -> Trial:
        import cupy

        prepare = part_for(STEPS, workload.desc)
        cupy.get_default_memory_pool().free_all_blocks()
        count = rotation_of(workload.desc)
        outputs = [cupy.empty(expected.shape, expected.dtype) for _ in range(count)]
        steps = [prepare(cupy, workload.desc, workload.inputs, output) for output in outputs]
        results: list[Any] = [None] * count

        def step(number: int) -> None:
            results[number % count] = steps[number % count]()

        times = _time(step, rounds)
        return Trial(times, compare(cupy.asnumpy(results[0]), expected))


def _time(step: Callable[[int], object], rounds: int) -> Times:
    """As dmlvk.benchmark.peers.torch does it, with CuPy's events."""
    import cupy

    idle = cupy.RawKernel(IDLE, "idle")
    start = time.perf_counter()
    number = 0
    while number < FEWEST_ROUNDS or time.perf_counter() - start < WARM_UP_SECONDS:
        step(number)
        cupy.cuda.get_current_stream().synchronize()
        number += 1
    seconds = []
    for number in range(rounds):
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        idle((1,), (1,), (IDLE_CYCLES,))
        before.record()
        step(number)
        after.record()
        after.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(before, after) * 1e-3)
    return Times(tuple(seconds))
