"""One operator on a device: its times on memory that no cache holds, and a bit-for-bit check of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

import dmlvk
from dmlvk._common.bits import equal_bits
from dmlvk.benchmark.timing import BUSY_SECONDS, Times, rotation, time_in_turns
from dmlvk.benchmark.work import Work, work_of
from dmlvk.operators import OperatorDesc
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator

POISON = b"\xa5"


@dataclass(frozen=True)
class DispatchTimes:
    """One dispatch of a plan: its kernel, its times, and the bytes and operations that the plan counts for it."""

    kernel: str
    times: Times
    bytes_moved: int
    operations: int


@dataclass(frozen=True)
class Measurement:
    """The measurement of an operator.

    path: the kernel path of the plan.
    work: the least that the operator must move and compute.
    times: times of all its dispatches together, on the device.
    processor: on a CPU driver: the time that it used on all processors together.
    correct: whether every output, on each set of memory, has the expected bits.
    untrue: why the device's timestamps cannot be true.
    beside: times of what was run in turns with it.
    """

    path: str
    work: Work
    times: Times
    processor: Times | None
    dispatches: tuple[DispatchTimes, ...]
    correct: bool
    untrue: str | None
    beside: Times | None = None


def measure(
    device: dmlvk.Device,
    desc: OperatorDesc,
    inputs: Mapping[str, npt.NDArray[Any]],
    expected: npt.NDArray[Any],
    *,
    path: str | None = None,
    rounds: int = 20,
    beside: Sequence[Binding] = (),
) -> Measurement:
    """Time an operator and check its result.

    device: opened with `timestamps=True`.
    inputs: by descriptor field. Tensors that are OWNED_BY_DML are given once, beforehand, and are not part of the time.
    beside: other work, on other memory, that is timed in turns with the operator.
    Raises PathError: the operator has no such path here.
    """
    operator = device.compile(desc, path=path, wait=True)
    work = work_of(desc)
    bindings, outputs = bind_anew(device, operator, inputs, rotation(work.bytes_moved, device.profile.device_type))
    items = [bindings, beside] if beside else [bindings]
    measured, *others = time_in_turns(device, items, rounds, busy_seconds=BUSY_SECONDS)
    dispatches = tuple(
        DispatchTimes(dispatch.kernel, times, dispatch.bytes_moved, dispatch.operations)
        for dispatch, times in zip(operator.plan.dispatches, measured.dispatches, strict=True)
    )
    correct = all(equal_bits(output.numpy(), expected) for output in outputs)
    path = operator.plan.path
    return Measurement(
        path,
        work,
        measured.times,
        measured.processor,
        dispatches,
        correct,
        measured.untrue,
        others[0].times if others else None,
    )


def bind_anew(
    device: dmlvk.Device, operator: CompiledOperator[Any], inputs: Mapping[str, npt.NDArray[Any]], count: int = 1
) -> tuple[list[Binding], list[dmlvk.Tensor]]:
    """Bind an operator to sets of tensors of its own.

    inputs: by descriptor field. Tensors that are OWNED_BY_DML are given here, once.
    Returns the bindings, and for each its output, filled with a pattern that a run has to overwrite.
    """
    described = operator.desc.tensors
    owned = {field for field, tensor in described.items() if tensor.flags & dmlvk.TensorFlags.OWNED_BY_DML}
    if operator.has_state:
        operator.initialize(**{field: inputs[field] for field in owned})
    bindings, outputs = [], []
    for _ in range(count):
        tensors = {field: device.tensor(described[field]) for field in inputs if field not in owned}
        for field, tensor in tensors.items():
            tensor.write(inputs[field])
        outputs.append(device.tensor(described["output_tensor"]))
        outputs[-1].write_bytes(POISON * outputs[-1].desc.total_size_in_bytes)
        bindings.append(operator.bind(output_tensor=outputs[-1], **tensors))
    return bindings, outputs
