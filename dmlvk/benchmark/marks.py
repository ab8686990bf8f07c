"""The marks: the rates that this device reaches in this run, with kernels that do nothing else.

A mark's kernel runs as the plan of a descriptor whose tensors have the right sizes: the runtime carries out any plan.
Each result is compared with NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import dmlvk
from dmlvk import DataType, DiagonalMatrix1Desc, TensorDesc
from dmlvk.benchmark.timing import ROTATION_BYTES, Times, rotation, time_bindings
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import OperatorDesc
from dmlvk.operators.slice1 import copy_desc
from dmlvk.planning.grid import folded, workgroup_size
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X, kernel_interface
from dmlvk.planning.plan import Access, Dispatch, Plan, Window
from dmlvk.planning.quantized_linear_convolution.matrix import matrix_of
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator

VECTOR_SIZE = 16
# In the kernels that multiply from registers: chains in an invocation, and matrices in a subgroup. See the kernels.
CHAINS = 8
MATRIX_ROWS, MATRIX_COLUMNS = 2, 4
SUBGROUPS = 4  # in a workgroup that multiplies matrices
MATRIX_WORKGROUPS = 1056  # the same number for each of 132, 96, 88, 66, 48, 44, 32, ... processors

# The kernels that multiply run for this time to twice this time: long enough to be timed, and too short for a GPU to
# lower its clock because of heat.
TARGET_SECONDS = 5e-4
CPU_TARGET_SECONDS = 2e-2

FACTOR, ADDEND = 0x5F9B3DC7, 0x1234567


@dataclass(frozen=True)
class Mark:
    """A rate that no kernel on the device is expected to exceed.

    name: "copy", "fill", "dot_product", "matrix", "float_multiply_add" or "integer_multiply_add".
    rate: bytes per second for copy (reads plus writes) and fill, operations per second for the others.
    unit: "bytes/s" or "operations/s".
    what: a description for people.
    """

    name: str
    rate: float
    unit: str
    what: str
    times: Times
    correct: bool


class AbsentMarkError(Exception):
    """The device has no such unit; the message says why."""


def measure_marks(device: dmlvk.Device, size: int, rounds: int) -> tuple[dict[str, Mark], dict[str, str]]:
    """Measure every mark that the device has.

    device: with timestamps.
    size: bytes that are copied and filled.
    Returns the marks by name, and why the others are absent.
    """
    marks: dict[str, Mark] = {}
    absent: dict[str, str] = {}
    for name, measure in MARKS.items():
        try:
            marks[name] = measure(device, size, rounds)
        except AbsentMarkError as error:
            absent[name] = str(error)
    return marks, absent


class Copies:
    """Plain copies of any number of bytes, to be timed in turns with other work that moves as many.

    A small copy does not run at the rate of a large one: its start and its end count.

    device: with timestamps.
    size: bytes of the largest copy.
    """

    def __init__(self, device: dmlvk.Device, size: int) -> None:
        self._device = device
        self._largest, words = _random_words(device.profile, size)
        self._capacity = max(self._largest, min(ROTATION_BYTES, _window_size(device.profile, ROTATION_BYTES)))
        self._source, self._destination = device.buffer(self._capacity), device.buffer(self._capacity)
        everything = self._source.tensor(TensorDesc(DataType.UINT32, (self._capacity // 4,)))
        everything.write(np.resize(words, self._capacity // 4))
        self._found: dict[int, list[Binding]] = {}

    def bytes_moved(self, wanted: int) -> int:
        """The bytes that a copy moves, which reads and writes a number of bytes in all, or as many as it can."""
        return 2 * min(self._largest, max(VECTOR_SIZE, wanted // 2 // VECTOR_SIZE * VECTOR_SIZE))

    def bindings(self, wanted: int) -> list[Binding]:
        """Copies that move `bytes_moved(wanted)` bytes, in different memory, in turns."""
        size = self.bytes_moved(wanted) // 2
        if size not in self._found:
            desc = copy_desc(TensorDesc(DataType.UINT32, (size // 4,)))
            dispatch = _copy_dispatch(self._device.profile, size)
            operator = CompiledOperator.of_plan(self._device.engine, desc, Plan(path="mark", stages=((dispatch,),)))
            count = min(rotation(2 * size, self._device.profile.device_type), self._capacity // size)
            self._found[size] = [
                operator.bind(
                    input_tensor=self._source.tensor(desc.input_tensor, offset=k * size),
                    output_tensor=self._destination.tensor(desc.output_tensor, offset=k * size),
                )
                for k in range(count)
            ]
        return self._found[size]


def _copy_dispatch(profile: DeviceProfile, size: int) -> Dispatch:
    windows = (
        Window("input_tensor", 0, size, Access.READ, 0, VECTOR_SIZE),
        Window("output_tensor", 0, size, Access.WRITE, 1, VECTOR_SIZE),
    )
    count = size // VECTOR_SIZE
    push_constants = {"source_start": 0, "destination_start": 0, "count": count}
    return _vectors("benchmark/copy", profile, push_constants, windows, count)


def _copy(device: dmlvk.Device, size: int, rounds: int) -> Mark:
    size, source = _random_words(device.profile, size)
    tensor = TensorDesc(DataType.UINT32, source.shape)
    times, result = _run(device, copy_desc(tensor), _copy_dispatch(device.profile, size), rounds, source)
    return Mark(
        "copy",
        2 * size / times.median,
        "bytes/s",
        f"plain 16-byte copy of {size:,} bytes, read and written",
        times,
        np.array_equal(result, source),
    )


def _fill(device: dmlvk.Device, size: int, rounds: int) -> Mark:
    size = _window_size(device.profile, size)
    windows = (Window("output_tensor", 0, size, Access.WRITE, 0, VECTOR_SIZE),)
    count = size // VECTOR_SIZE
    push_constants = {"destination_start": 0, "count": count, "value": ADDEND}
    dispatch = _vectors("benchmark/fill", device.profile, push_constants, windows, count)
    times, result = _run(device, _output_only(size // 4), dispatch, rounds)
    what = f"plain 16-byte fill of {size:,} bytes"
    return Mark("fill", size / times.median, "bytes/s", what, times, bool((result == ADDEND).all()))


def _dot_product(device: dmlvk.Device, size: int, rounds: int) -> Mark:
    if not device.profile.has_integer_dot_product:
        raise AbsentMarkError("the device has no shaderIntegerDotProduct")
    factors = np.array(FACTOR, "<u4")[None].view(np.int8).astype(np.int32)

    def step(x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        sums = x.view(np.int8).reshape(*x.shape, 4).astype(np.int32) @ factors
        return sums.astype(np.uint32) + np.uint32(ADDEND)

    what = "packed dot products of 4 signed bytes from registers"
    return _chains(device, "dot_product", "benchmark/dot_product", {}, (FACTOR, ADDEND), 8, step, what, rounds)


def _integer_multiply_add(device: dmlvk.Device, size: int, rounds: int) -> Mark:
    def step(x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        return x * np.uint32(FACTOR) + np.uint32(ADDEND)

    name, kernel = "integer_multiply_add", "benchmark/multiply_add"
    what = "32-bit integer multiply-adds from registers"
    return _chains(device, name, kernel, {"FLOAT": 0}, (FACTOR, ADDEND), 2, step, what, rounds)


def _float_multiply_add(device: dmlvk.Device, size: int, rounds: int) -> Mark:
    one = int(np.array(1, np.float32).view(np.uint32))
    name, kernel = "float_multiply_add", "benchmark/multiply_add"
    what = "float32 multiply-adds from registers"
    return _chains(device, name, kernel, {"FLOAT": 1}, (one, one), 2, None, what, rounds)


def _matrix(device: dmlvk.Device, size: int, rounds: int) -> Mark:
    profile = device.profile
    matrix = matrix_of(profile)
    if matrix is None:
        raise AbsentMarkError("the device lists no matrices of signed bytes (VK_KHR_cooperative_matrix)")
    lanes = profile.min_subgroup_size
    subgroups = min(SUBGROUPS, profile.limits.max_compute_work_group_invocations // lanes)
    workgroups = 16 if profile.device_type is DeviceType.CPU else MATRIX_WORKGROUPS
    m, n, k = matrix.m, matrix.n, matrix.k
    tiles = MATRIX_ROWS * MATRIX_COLUMNS
    words = workgroups * subgroups * tiles * m * n
    operand_words = (MATRIX_ROWS * m + MATRIX_COLUMNS * n) * k // 4
    source = np.random.default_rng(0).integers(0, 1 << 32, max(words, operand_words), np.uint32)
    desc = copy_desc(TensorDesc(DataType.UINT32, source.shape))
    windows = (
        Window("input_tensor", 0, 4 * operand_words, Access.READ, 0, 4),
        Window("output_tensor", 0, 4 * words, Access.WRITE, 1, 4),
    )

    interface = kernel_interface("benchmark/matrix")
    constants = {
        LOCAL_SIZE_X: subgroups * lanes, "LANES": lanes, "MATRIX_M": m, "MATRIX_N": n, "MATRIX_K": k,
    }  # fmt: skip

    def dispatch(iterations: int) -> Dispatch:
        starts = {"source_start": 0, "result_start": 0}
        return Dispatch(
            kernel=interface.kernel,
            specialization=interface.specialization(constants),
            push_constants=interface.push_constant_words({**starts, "iterations": iterations}),
            windows=windows,
            groups=(workgroups, 1, 1),
            operations=workgroups * subgroups * tiles * 2 * m * n * k * iterations,
            subgroup_size=lanes,
        )

    iterations, times, result = _calibrated(device, desc, dispatch, rounds, source)
    operands = source[:operand_words].view(np.int8).astype(np.int64).reshape(-1, k)
    a = operands[: MATRIX_ROWS * m].reshape(MATRIX_ROWS, m, k)
    b = operands[MATRIX_ROWS * m :].reshape(MATRIX_COLUMNS, n, k)
    products = np.einsum("imk,jnk->ijmn", a, b) * iterations
    expected = np.tile((products & 0xFFFFFFFF).astype(np.uint32).ravel(), workgroups * subgroups)
    return Mark(
        "matrix",
        dispatch(iterations).operations / times.median,
        "operations/s",
        f"products of signed byte matrices {m}x{n}x{k} from registers",
        times,
        np.array_equal(result[:words], expected),
    )


MARKS: Mapping[str, Callable[[dmlvk.Device, int, int], Mark]] = {
    "copy": _copy,
    "fill": _fill,
    "dot_product": _dot_product,
    "matrix": _matrix,
    "float_multiply_add": _float_multiply_add,
    "integer_multiply_add": _integer_multiply_add,
}


def _chains(
    device: dmlvk.Device,
    name: str,
    kernel: str,
    constants: Mapping[str, int],
    factor_and_addend: tuple[int, int],
    operations: int,
    step: Callable[[npt.NDArray[np.uint32]], npt.NDArray[np.uint32]] | None,
    what: str,
    rounds: int,
) -> Mark:
    """A mark of one operation in chains. `step` is the operation in NumPy; None for floats that count up by one."""
    profile = device.profile
    local_size = workgroup_size(profile)
    workgroups = 64 if profile.device_type is DeviceType.CPU else 4096
    count = workgroups * local_size
    windows = (Window("output_tensor", 0, 4 * count, Access.WRITE, 0, 4),)

    interface = kernel_interface(kernel)
    factor, addend = factor_and_addend

    def dispatch(iterations: int) -> Dispatch:
        push_constants = {"start": 0, "iterations": iterations, "factor": factor, "addend": addend}
        return Dispatch(
            kernel=kernel,
            specialization=interface.specialization({LOCAL_SIZE_X: local_size, **constants}),
            push_constants=interface.push_constant_words(push_constants),
            windows=windows,
            groups=(workgroups, 1, 1),
            operations=count * CHAINS * operations * iterations,
        )

    iterations, times, result = _calibrated(device, _output_only(count), dispatch, rounds)
    # NumPy computes some of the chains: whole workgroups at both ends.
    picked = np.r_[:local_size, count - local_size : count].astype(np.uint32)
    x = picked[:, None] * np.uint32(CHAINS) + np.arange(CHAINS, dtype=np.uint32)
    if step is None:
        x = (x & 0xFF) + np.uint32(iterations)
    else:
        for _ in range(iterations):
            x = step(x)
    correct = np.array_equal(result[picked], x.sum(axis=1, dtype=np.uint32))
    return Mark(name, dispatch(iterations).operations / times.median, "operations/s", what, times, correct)


def _calibrated(
    device: dmlvk.Device,
    desc: OperatorDesc,
    dispatch: Callable[[int], Dispatch],
    rounds: int,
    source: npt.NDArray[np.uint32] | None = None,
) -> tuple[int, Times, npt.NDArray[np.uint32]]:
    """Run for the target time. Returns the number of iterations, the times, and the output of the last run."""
    target = CPU_TARGET_SECONDS if device.profile.device_type is DeviceType.CPU else TARGET_SECONDS
    iterations = 16
    while True:
        times, _ = _run(device, desc, dispatch(iterations), 1, source, warm=False)
        # Beyond this, a float that counts up by one would stop counting.
        if times.median >= target or iterations >= 1 << 20:
            break
        iterations *= 2
    times, result = _run(device, desc, dispatch(iterations), rounds, source)
    return iterations, times, result


def _run(
    device: dmlvk.Device,
    desc: OperatorDesc,
    dispatch: Dispatch,
    rounds: int,
    source: npt.NDArray[np.uint32] | None = None,
    *,
    warm: bool = True,
) -> tuple[Times, npt.NDArray[np.uint32]]:
    operator = CompiledOperator.of_plan(device.engine, desc, Plan(path="mark", stages=((dispatch,),)))
    tensors = {name: device.tensor(tensor) for name, tensor in desc.tensors.items()}
    if source is not None:
        tensors["input_tensor"].write(source)
    binding = operator.bind(**tensors)
    if warm:
        times = time_bindings(device, [binding], rounds).times
    else:
        device.submit([binding]).wait()
        times = Times((device.submit([binding]).gpu_time,))
    return times, tensors["output_tensor"].numpy().ravel()


def _vectors(
    kernel: str,
    profile: DeviceProfile,
    push_constants: Mapping[str, int],
    windows: tuple[Window, ...],
    count: int,
) -> Dispatch:
    """One invocation for each vector."""
    size = workgroup_size(profile)
    interface = kernel_interface(kernel)
    return Dispatch(
        kernel=kernel,
        specialization=interface.specialization({LOCAL_SIZE_X: size}),
        push_constants=interface.push_constant_words(push_constants),
        windows=windows,
        groups=folded(-(-count // size), profile),
    )


def _output_only(words: int) -> DiagonalMatrix1Desc:
    tensor = TensorDesc(DataType.UINT32, (1, words))
    return DiagonalMatrix1Desc(output_tensor=tensor, value=0, diagonal_fill_begin=0, diagonal_fill_end=1)


def _window_size(profile: DeviceProfile, size: int) -> int:
    """The part of a size that one storage buffer can cover, in whole vectors."""
    most = min(size, profile.limits.max_storage_buffer_range - profile.offset_alignment, profile.segment_size)
    return most // VECTOR_SIZE * VECTOR_SIZE


def _random_words(profile: DeviceProfile, size: int) -> tuple[int, npt.NDArray[np.uint32]]:
    size = _window_size(profile, size)
    return size, np.frombuffer(np.random.default_rng(0).bytes(size), np.uint32)
