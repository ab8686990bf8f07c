"""Runs one case on a device and judges its result.

Each tensor lies between guard bytes, in a buffer of its own unless the case says otherwise. Before the run, the output,
the guards and the gaps between strides are random bytes. Afterwards the output's elements must equal the expected ones
bit for bit, and every other byte, those of the inputs included, must be unchanged. The case is dispatched several
times: if the same work gives different bits, there is a race.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlvk
from dmlvk._common.bits import as_bits, equal_bits, first_difference
from dmlvk.conformance.case import Case, NotSupported, Refusal, Way, Workload
from dmlvk.conformance.outputs import keep_both
from dmlvk.conformance.profiles import narrow, workload_profile
from dmlvk.conformance.results import Result, Status
from dmlvk.conformance.running import take_over
from dmlvk.conformance.running.placement import Bytes, Placement, placed_tensors
from dmlvk.conformance.running.ways import OtherWork, PlacedTensor, placed_on_device, run_once
from dmlvk.errors import DescriptorError, DeviceLostError, OutOfMemoryError, PathError, ValidationError
from dmlvk.operators import OperatorDesc
from dmlvk.operators.serialization import deserialize
from dmlvk.planning import GENERAL_PATH
from dmlvk.reference import further_outputs
from dmlvk.runtime.elements import element_view
from dmlvk.vulkan.library import raise_messages

# Keeps two outputs of a case that should be equal, and says where.
Differ = Callable[[npt.NDArray[Any], npt.NDArray[Any]], Path]

# If a device has no room for less than this, the device is broken rather than small.
SMALL_MEMORY = 256 << 20
# A worker keeps at most this many open devices, of different profiles and limits.
DEVICE_COUNT = 4


class Devices:
    """One Vulkan device, opened under each profile and set of limits to which it is narrowed.

    selector: as `dmlvk.Device` accepts it.
    """

    def __init__(self, selector: str | None) -> None:
        self._selector = selector
        self._open: OrderedDict[tuple[object, ...], dmlvk.Device] = OrderedDict()
        with dmlvk.Device(self._selector) as device:
            self.profile = device.profile
            self.features = device.vulkan.context.configuration.features
            self.distrusted_paths = device.distrusted_paths()

    def get(self, profile: str, workload: Workload) -> dmlvk.Device:
        """The device, narrowed to a profile of `profiles.PROFILES` and to the limits that a workload asks for."""
        key = (profile, tuple(sorted(workload.limits.items())), workload.device_type, workload.profile)
        device = self._open.get(key)
        if device is None:
            narrowed = workload_profile(self.profile, profile, workload)
            device = self._open[key] = dmlvk.Device(self._selector, profile=narrowed)
            device.engine.self_test = None  # cases test all paths, also those that nobody else takes
            if len(self._open) > DEVICE_COUNT:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(key)
        return device

    def close(self) -> None:
        """Close them all."""
        with ExitStack() as stack:
            while self._open:
                stack.callback(self._open.popitem()[1].close)


def execute(
    case: Case,
    devices: Devices,
    profile: str,
    repeat: int,
    keep: Callable[[npt.NDArray[Any]], None] = lambda elements: None,
    soak: float = 0.0,
    outputs: Path | None = None,
) -> Result:
    """Run a case. Raises nothing except for an interrupt.

    profile: a name of `profiles.PROFILES`.
    repeat: the number of times that the case is dispatched.
    keep: given the output's elements after the first dispatch: those of the result's digest.
    soak: seconds for which the dispatch, recorded once, is replayed afterwards.
    outputs: the folder for both outputs, if a replay gives another; a temporary folder by default.
    """
    start = time.perf_counter()
    result = partial(Result, case.name, profile, path=case.path or "")
    if case.refusal is not None:
        return replace(result(**_refused(case.refusal)), seconds=time.perf_counter() - start)
    workload: Workload | None = None
    try:
        lacking = None if case.support is None else case.support(narrow(devices.profile, profile))
        if lacking is None:
            workload = case.build()
            operator = _compiled(devices, profile, case, workload)
            if isinstance(operator, NotSupported):
                lacking = operator
            else:
                result = partial(result, path=operator.plan.path)
        if lacking is not None:
            found = result(Status.NOT_SUPPORTED, lacking.reason, lacking.explanation)
        else:
            assert workload is not None and isinstance(operator, dmlvk.CompiledOperator)
            differ = partial(keep_both, outputs, result(Status.FLAKY))
            found = result(**_judged(case, operator, workload, repeat, keep, soak, differ))
    except DeviceLostError as error:
        found = result(Status.DEVICE_LOST, "VK_ERROR_DEVICE_LOST", str(error))
    except ValidationError as error:
        found = result(Status.FAIL, "validation", str(error))
    except (OutOfMemoryError, MemoryError) as error:
        if workload is not None and memory_size(workload.desc) < SMALL_MEMORY:
            found = result(Status.FAIL, f"exception:{type(error).__name__}", str(error))
        else:
            found = result(Status.NOT_SUPPORTED, "limit:memory", str(error))
    except Exception as error:  # any error is this case's result; the other cases go on
        found = result(Status.FAIL, f"exception:{type(error).__name__}", str(error))
    if workload is not None:
        found = replace(found, operator=workload.desc.operator_name, types=types_text(workload.desc))
    return replace(found, seconds=time.perf_counter() - start)


def _refused(refusal: Refusal) -> dict[str, Any]:
    """Status, reason and message of a case whose descriptor has to be refused."""
    wanted = f"{refusal.descriptor}.{refusal.field}: {refusal.rule}"
    try:
        made = deserialize(refusal.content())
    except DescriptorError as error:
        found = f"{error.descriptor}.{error.field}: {error.rule}"
        if found == wanted:
            return {"status": Status.PASS}
    except Exception as error:  # any other error is a finding too
        found = f"{type(error).__name__}: {error}"
    else:
        return {"status": Status.FAIL, "reason": "accepted", "message": f"{made} is accepted; expected {wanted}"}
    return {"status": Status.FAIL, "reason": "error", "message": f"refused with another error: {found}; not {wanted}"}


def _compiled(devices: Devices, profile: str, case: Case, workload: Workload) -> dmlvk.CompiledOperator | NotSupported:
    device = devices.get(profile, workload)
    try:
        if workload.way is Way.TAKE_OVER:
            return take_over.held_back(device, workload, case.path)
        return device.compile(workload.desc, case.path, wait=True)
    except PathError as error:
        return NotSupported(f"path:{case.path or GENERAL_PATH}", str(error))


def memory_size(desc: OperatorDesc) -> int:
    """Bytes of all tensors of an operator."""
    return sum(tensor.total_size_in_bytes for tensor in desc.tensors.values())


def types_text(desc: OperatorDesc) -> str:
    """The output's data type; for a convolution, the data types of input, filter and output."""
    shown = (
        ("input_tensor", "filter_tensor", "output_tensor") if "filter_tensor" in desc.tensors else ("output_tensor",)
    )
    return " ".join(desc.tensors[field].data_type.name.lower() for field in shown)


def digest(elements: npt.NDArray[Any]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of an array's elements in row-major order, little-endian."""
    return hashlib.sha256(np.ascontiguousarray(elements).data).hexdigest()[:16]


@dataclass(frozen=True)
class _Outcome:
    """The memory after one dispatch."""

    elements: npt.NDArray[Any]
    digest: str
    guard_damage: str


def _judged(
    case: Case,
    operator: dmlvk.CompiledOperator,
    workload: Workload,
    repeat: int,
    keep: Callable[[npt.NDArray[Any]], None],
    soak: float,
    differ: Differ,
) -> dict[str, Any]:
    """Status, reason, message and digest of a case."""
    expected = workload.result()
    output_desc = workload.desc.tensors["output_tensor"]
    if expected.shape != output_desc.sizes or expected.dtype != output_desc.data_type.numpy_dtype:
        raise ValueError(
            f"the case expects an output of shape {expected.shape} and dtype {expected.dtype}; its output_tensor has "
            f"{output_desc.sizes} and {output_desc.data_type.numpy_dtype}"
        )
    placements = placed_tensors(case.name, workload, operator.device.profile)
    placed = placed_on_device(operator.device, placements, workload.way)
    output = placed["output_tensor"]
    owned = {
        field: placed[field]
        for field, desc in workload.desc.tensors.items()
        if desc.flags & dmlvk.TensorFlags.OWNED_BY_DML
    }
    bound = {field: tensor for field, tensor in placed.items() if field not in owned}

    for tensor in bound.values():
        tensor.fill()
    runs = _runs_with_a_take_over if workload.way is Way.TAKE_OVER else _runs
    outcomes = []
    for wrong in runs(case, operator, workload, owned, bound, repeat):
        outcomes.append(_look(output.read(), output.placement))
        if wrong:
            return {"status": Status.FAIL, "reason": "take-over", "message": wrong, "digest": outcomes[0].digest}
    raise_messages()
    keep(workload.digested(outcomes[0].elements))
    reported = digest(workload.digested(outcomes[0].elements))
    for field in bound.keys() - {"output_tensor"}:
        if field in workload.desc.output_fields:
            found = _look(placed[field].read(), placements[field])
            right = further_outputs(workload.desc, **workload.inputs)[field]
            verdict = _verdict([found], right, placements[field])
            if verdict["status"] is not Status.PASS:
                return {**verdict, "message": f"{field}: {verdict['message']}", "digest": reported}
            continue
        damage = np.flatnonzero(placed[field].read() != placements[field].content)
        if damage.size:
            message = f"{damage.size} bytes of {field} or around it changed, but an input may only be read"
            return {"status": Status.FAIL, "reason": "input", "message": message, "digest": reported}
    if not workload.is_defined:
        return _verdict_on_guards(outcomes, Status.UNPREDICTABLE)
    verdict = _verdict(outcomes, expected, output.placement)
    if soak and verdict["status"] is Status.PASS and workload.way is not Way.TAKE_OVER:
        verdict = _soaked(operator, bound, outcomes[0], soak, differ) or verdict
    return {**verdict, "digest": reported}


def _soaked(
    operator: dmlvk.CompiledOperator,
    bound: Mapping[str, PlacedTensor],
    first: _Outcome,
    seconds: float,
    differ: Differ,
) -> dict[str, Any] | None:
    """Replay one recorded run for some seconds; the verdict at the first run with other bits, None if there is none."""
    output = bound["output_tensor"]
    tensors = {field: tensor.tensor for field, tensor in bound.items()}
    sequence = operator.device.sequence([operator.bind(**tensors)])
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        output.fill()
        sequence.submit().wait()
        found = _look(output.read(), output.placement)
        if found.guard_damage or not equal_bits(found.elements, first.elements):
            text = found.guard_damage or difference(found.elements, first.elements)
            kept = differ(first.elements, found.elements)
            message = (
                f"replay {number} of one recorded run gave an output_tensor of other bits than the first run: {text}; "
                f"both arrays, first and found, are in {kept}"
            )
            return {"status": Status.FLAKY, "reason": "soak", "message": message}
    return None


def _runs(
    case: Case,
    operator: dmlvk.CompiledOperator,
    workload: Workload,
    owned: Mapping[str, PlacedTensor],
    bound: Mapping[str, PlacedTensor],
    repeat: int,
) -> Iterator[str]:
    """Run a case `repeat` times; yields after each run."""
    for _ in range(repeat):
        _initialize(operator, owned)
        other = OtherWork(operator, workload, case.name) if workload.way in (Way.SEQUENCE, Way.BESIDE) else None
        bound["output_tensor"].fill()
        run_once(operator, {field: tensor.tensor for field, tensor in bound.items()}, workload.way, other)
        yield ""


def _runs_with_a_take_over(
    case: Case,
    operator: dmlvk.CompiledOperator,
    workload: Workload,
    owned: Mapping[str, PlacedTensor],
    bound: Mapping[str, PlacedTensor],
    repeat: int,
) -> Iterator[str]:
    """Run a case `repeat` times before a take-over and after it; yields other faults after each run."""
    constants = {field: tensor.tensor for field, tensor in bound.items() if field not in take_over.OF_EACH_CALL}
    row = take_over.CallRow(operator.device, workload, case.name, constants)
    for _ in range(repeat):
        bound["output_tensor"].fill()
        yield from row.run(case.path, lambda fresh: _initialize(fresh, owned), bound)


def _initialize(operator: dmlvk.CompiledOperator, owned: Mapping[str, PlacedTensor]) -> None:
    if operator.has_state:
        for tensor in owned.values():
            tensor.fill()
        operator.initialize(**{field: tensor.tensor for field, tensor in owned.items()})
        for tensor in owned.values():  # the operator took over their contents: the tensors may be changed
            tensor.tensor.write_bytes(~tensor.placement.memory)


def _look(after: Bytes, output: Placement) -> _Outcome:
    memory = after[output.start : output.start + output.desc.total_size_in_bytes]
    elements = element_view(output.desc, memory).copy(order="C")
    # Everything else must be unchanged: with the old elements put back, nothing may differ.
    others = after.copy()
    restored = others[output.start : output.start + output.desc.total_size_in_bytes]
    as_bits(element_view(output.desc, restored))[...] = as_bits(element_view(output.desc, output.memory))
    damaged = np.flatnonzero(others != output.content)
    damage = ""
    if damaged.size:
        first = int(damaged[0])
        damage = (
            f"{damaged.size} bytes outside the output's elements were written, the first at byte "
            f"{first - output.start} from the tensor's start ({output.desc.total_size_in_bytes} bytes): "
            f"{after[first]:#04x} in place of {output.content[first]:#04x}"
        )
    return _Outcome(elements, digest(elements), damage)


def _verdict_on_guards(outcomes: list[_Outcome], good: Status = Status.PASS) -> dict[str, Any]:
    damage = next((outcome.guard_damage for outcome in outcomes if outcome.guard_damage), "")
    return {"status": Status.FAIL, "reason": "guard", "message": damage} if damage else {"status": good}


def _verdict(outcomes: list[_Outcome], expected: npt.NDArray[Any], output: Placement) -> dict[str, Any]:
    wanted = digest(expected)
    first = outcomes[0]
    digests = list(dict.fromkeys(outcome.digest for outcome in outcomes))
    if len(digests) > 1:
        counts = ", ".join(f"{value} {sum(o.digest == value for o in outcomes)}x" for value in digests)
        wrong = next(outcome for outcome in outcomes if outcome.digest != wanted)
        message = (
            f"the same dispatch gave different bits: {counts}; {wanted} is right. "
            f"{difference(wrong.elements, expected)}"
        )
        return {"status": Status.FLAKY, "reason": "digest", "message": message, "digest": first.digest}
    on_guards = _verdict_on_guards(outcomes)
    if first.digest != wanted:
        poison = element_view(output.desc, output.memory)
        wrong_places = as_bits(first.elements) != as_bits(expected)
        unwritten = equal_bits(first.elements[wrong_places], poison[wrong_places])
        message = difference(first.elements, expected) + (" They were not written." if unwritten else "")
        reason = "unwritten" if unwritten else "difference"
        message = f"{message} {on_guards.get('message', '')}".strip()
        return {"status": Status.FAIL, "reason": reason, "message": message, "digest": first.digest}
    return {**on_guards, "digest": first.digest}


def difference(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> str:
    """The first coordinate at which two arrays of one shape differ, its two elements, and the number of differences."""
    found = first_difference(got, expected)
    if found is None:
        return "All elements are equal."
    coordinate, count = found
    mine, theirs = as_bits(got)[coordinate], as_bits(expected)[coordinate]
    width = 2 + 2 * got.dtype.itemsize
    return (
        f"{count} of {got.size} elements differ, the first at {coordinate}: got {got[coordinate]} "
        f"({int(mine):#0{width}x}), expected {expected[coordinate]} ({int(theirs):#0{width}x})."
    )
