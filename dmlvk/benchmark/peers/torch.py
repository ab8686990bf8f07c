"""torch on CUDA: its eager operations, and expressions compiled by torch.compile."""

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
from dmlvk.benchmark.timing import FEWEST_ROUNDS, LARGEST_ROTATION, ROTATION_BYTES, WARM_UP_SECONDS, Times
from dmlvk.benchmark.work import work_of
from dmlvk.conformance.case import Workload
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, OperatorDesc, Slice1Desc

Array = npt.NDArray[Any]
# The GPU idles for this many cycles before each timed run, while the host issues the run. Otherwise the host's time
# would be measured.
IDLE_CYCLES = 400_000


def cuda_absence() -> str | None:
    """Why torch cannot run on CUDA here."""
    missing = missing_package("torch")
    if missing:
        return missing
    import torch

    return None if torch.cuda.is_available() else "torch sees no CUDA device"


def rotation_of(desc: OperatorDesc) -> int:
    """The number of sets of tensors, the same as for the kernels of this project."""
    return max(1, min(LARGEST_ROTATION, -(-ROTATION_BYTES // max(1, work_of(desc).bytes_moved))))


def time_on_cuda(step: Callable[[int], object], rounds: int, warm_up_seconds: float = WARM_UP_SECONDS) -> Times:
    """Time a function by CUDA events: one call per round, with the round's number, after a warm-up."""
    import torch

    start = time.perf_counter()
    number = 0
    while number < FEWEST_ROUNDS or time.perf_counter() - start < warm_up_seconds:
        step(number)
        torch.cuda.synchronize()
        number += 1
    seconds = []
    for number in range(rounds):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(IDLE_CYCLES)
        before.record()
        step(number)
        after.record()
        torch.cuda.synchronize()
        seconds.append(before.elapsed_time(after) * 1e-3)
    return Times(tuple(seconds))


def on_cuda(array: Array) -> Any:
    """An array as a CUDA tensor of the same bits. torch supports little for unsigned types of 16 bits and more."""
    import torch

    if array.dtype.kind == "u" and array.itemsize > 1:
        array = array.view(f"i{array.itemsize}")
    return torch.from_numpy(np.array(array)).cuda()


Rotation = tuple[Callable[..., Any], list[tuple[Any, ...]]]


def _views(workload: Workload, desc: Slice1Desc, count: int) -> list[Any]:
    """`count` copies of the input on the device, with the strides of its descriptor."""
    memory = memory_of(workload.inputs["input_tensor"], desc.input_tensor)
    strides = desc.input_tensor.element_strides
    return [copy.as_strided(desc.input_tensor.sizes, strides) for copy in copies(memory, count)]


def copies(array: Array, count: int) -> list[Any]:
    """`count` copies of an array on the device."""
    first = on_cuda(array)
    return [first, *(first.clone() for _ in range(count - 1))]


def _outputs(expected: Array, count: int) -> list[Any]:
    """`count` tensors on the device for the result."""
    return [on_cuda(np.zeros(1, expected.dtype)).new_empty(expected.shape) for _ in range(count)]


def _eager_slice1(workload: Workload, desc: Slice1Desc, expected: Array, count: int) -> Rotation:
    import torch

    slices = Slices.of(desc)
    views = [view[slices.positive] for view in _views(workload, desc, count)]
    if slices.flipped:
        return lambda view: torch.flip(view, slices.flipped), [(view,) for view in views]
    return lambda out, view: out.copy_(view), list(zip(_outputs(expected, count), views, strict=True))


def _eager_diagonal_matrix1(workload: Workload, desc: DiagonalMatrix1Desc, expected: Array, count: int) -> Rotation:
    import torch

    require_upper_triangle_or_identity(desc)
    end, output = desc.diagonal_fill_end, _outputs(expected, count)
    if desc.input_tensor is None:
        return lambda out: torch.eye(*expected.shape, out=out), [(out,) for out in output]
    matrices = copies(workload.inputs["input_tensor"], count)
    return lambda out, m: torch.triu(m, end, out=out), list(zip(output, matrices, strict=True))


def _eager_one_hot(workload: Workload, desc: OneHotDesc, expected: Array, count: int) -> Rotation:
    import torch

    off, on = workload.inputs["values_tensor"].ravel().tolist()
    axis, depth = desc.axis, expected.shape[desc.axis]
    indices = copies(workload.inputs["indices_tensor"], count)

    def one_hot(out: Any, index: Any) -> Any:
        return out.fill_(off).scatter_(axis, torch.remainder(index, depth), on)

    return one_hot, list(zip(_outputs(expected, count), indices, strict=True))


def _compiled_slice1(workload: Workload, desc: Slice1Desc, expected: Array, count: int) -> Rotation:
    import torch

    slices, packed = Slices.of(desc), torch.contiguous_format

    def slice1(source: Any) -> Any:
        view = source[slices.positive]
        return torch.flip(view, slices.flipped) if slices.flipped else view.clone(memory_format=packed)

    return slice1, [(view,) for view in _views(workload, desc, count)]


def _compiled_diagonal_matrix1(workload: Workload, desc: DiagonalMatrix1Desc, expected: Array, count: int) -> Rotation:
    import torch

    require_upper_triangle_or_identity(desc)
    end = desc.diagonal_fill_end
    if desc.input_tensor is None:
        rows, columns = desc.output_tensor.sizes

        def eye(start: Any) -> Any:
            y = torch.arange(rows, device="cuda")[:, None] + start
            return (y == torch.arange(columns, device="cuda")).to(torch.float32)

        return eye, [(torch.zeros(1, dtype=torch.int64, device="cuda"),)] * count
    return lambda m: torch.triu(m, end), [(matrices,) for matrices in copies(workload.inputs["input_tensor"], count)]


def _compiled_one_hot(workload: Workload, desc: OneHotDesc, expected: Array, count: int) -> Rotation:
    import torch

    axis, depth = desc.axis, desc.output_tensor.sizes[desc.axis]
    values = on_cuda(workload.inputs["values_tensor"])

    def one_hot(index: Any) -> Any:
        wrapped = torch.where(index < 0, index + depth, index)
        shape = [depth if dimension == axis else 1 for dimension in range(index.ndim)]
        positions = torch.arange(depth, device="cuda").reshape(shape)
        return torch.where(wrapped == positions, values[..., 1], values[..., 0])

    return one_hot, [(index,) for index in copies(workload.inputs["indices_tensor"], count)]


Prepare = Callable[[Workload, Any, Array, int], Rotation]

# For each operator, the fastest of torch's own operations, and an expression for torch.compile.
EAGER: Mapping[type[OperatorDesc], Prepare] = {
    Slice1Desc: _eager_slice1,
    DiagonalMatrix1Desc: _eager_diagonal_matrix1,
    OneHotDesc: _eager_one_hot,
}
COMPILED: Mapping[type[OperatorDesc], Prepare] = {
    Slice1Desc: _compiled_slice1,
    DiagonalMatrix1Desc: _compiled_diagonal_matrix1,
    OneHotDesc: _compiled_one_hot,
}


class Torch(OperatorPeer):
    """torch's own operations, eagerly or through torch.compile."""

    runs_on: ClassVar[str] = "CUDA"
    operators = EAGER.keys()

    def __init__(self, name: str, *, compiles: bool) -> None:
        self.name = name
        self._compiles = compiles

    def absence(self) -> str | None:
        return cuda_absence()

    def version(self) -> str:
        return package_version("torch")

    def measure(self, workload: Workload, expected: Array, rounds: int) -> Trial:
        import torch

        prepare = part_for(COMPILED if self._compiles else EAGER, workload.desc)
        torch.cuda.empty_cache()
        count = rotation_of(workload.desc)
        function, sources = prepare(workload, workload.desc, expected, count)
        results: list[Any] = [None] * count
        if self._compiles:
            torch._dynamo.reset()
            function = torch.compile(function, dynamic=False)

        def step(number: int) -> None:
            results[number % count] = function(*sources[number % count])

        with torch.no_grad():
            times = time_on_cuda(step, rounds)
            result = compare(results[0].cpu().numpy(), expected)
        return Trial(times, result)


TORCH_EAGER = Torch("torch", compiles=False)
TORCH_COMPILED = Torch("torch-compile", compiles=True)
