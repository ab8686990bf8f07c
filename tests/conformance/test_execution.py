"""The result of a case: each kind of failure of a device has its own status and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, DiagonalMatrix1Desc, TensorDesc
from dmlvk.conformance.case import Case, Refusal, Way, Workload
from dmlvk.conformance.cases.invalid import NAMED_RULES, base_content, invalid_content
from dmlvk.conformance.results import Result, Status
from dmlvk.conformance.running import execution, take_over
from dmlvk.conformance.running.execution import Devices, difference, digest, execute
from dmlvk.conformance.running.ways import PlacedTensor
from dmlvk.errors import DeviceLostError, OutOfMemoryError, ValidationError
from dmlvk.operators import Slice1Desc
from dmlvk.runtime.implementation import Rebinding
from tests.conformance.drill_cases import all_cases, convolution_workload, workload

CASE = Case("slice1:good:type=u8", partial(workload, "slice1:good:type=u8"))
CONVOLUTION = Case(
    "quantized_linear_convolution:good:it=1", partial(convolution_workload, "quantized_linear_convolution:good:it=1")
)

# Changes the bytes of a tensor's buffer as they are read. Its arguments: the bytes from the tensor's start, and the
# number of the read.
Change = Callable[[np.ndarray, int], None]


@pytest.fixture(scope="module")
def devices(device: dmlvk.Device) -> Iterator[Devices]:
    opened = Devices(device.name)
    yield opened
    opened.close()


def run(devices: Devices, case: Case = CASE) -> Result:
    return execute(case, devices, "device", 3)


def leave_behind(monkeypatch: pytest.MonkeyPatch, margin: int, sizes: tuple[int, ...], change: Change) -> None:
    """Change the bytes that are read from the tensor of these sizes, from `margin` bytes before its start."""
    original = PlacedTensor.read
    count = 0

    def read(self: PlacedTensor) -> np.ndarray:
        nonlocal count
        found = original(self).copy()
        if self.placement.desc.sizes == sizes:
            change(found[self.placement.start - margin :], count)
            count += 1
        return found

    monkeypatch.setattr(PlacedTensor, "read", read)


@pytest.mark.parametrize("case", [CASE, CONVOLUTION])
def test_the_expected_bits_pass(devices: Devices, case: Case) -> None:
    result = run(devices, case)
    assert (result.status, result.reason, result.message) == (Status.PASS, "", "")
    assert result.path
    assert result.digest == digest(case.build().result())
    assert result.seconds > 0


def test_a_result_says_what_ran(devices: Devices) -> None:
    assert (run(devices).operator, run(devices).types) == ("SLICE1", "uint8")
    result = run(devices, CONVOLUTION)
    assert (result.operator, result.types) == ("QUANTIZED_LINEAR_CONVOLUTION", "uint8 int8 int8")


def test_a_wrong_element(devices: Devices) -> None:
    def one_bit_off() -> Workload:
        made = workload(CASE.name)
        expected = made.result().copy()
        expected[1, 3] ^= 1
        return replace(made, expected=expected)

    result = run(devices, replace(CASE, build=one_bit_off))
    assert (result.status, result.reason) == (Status.FAIL, "difference")
    assert "1 of 10 elements differ, the first at (1, 3): got" in result.message


def test_runs_that_differ(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(memory: np.ndarray, count: int) -> None:
        memory[2] ^= count == 1

    leave_behind(monkeypatch, 0, (2, 5), change)
    result = run(devices)
    assert (result.status, result.reason) == (Status.FLAKY, "digest")
    assert "2x" in result.message
    assert "1 of 10 elements differ, the first at (0, 1)" in result.message


@pytest.mark.parametrize(("place", "where"), [(-1, "byte -1 "), (1, "byte 1 "), (32, "byte 32 ")])
def test_a_byte_beside_the_elements(devices: Devices, monkeypatch: pytest.MonkeyPatch, place: int, where: str) -> None:
    """The byte lies before the tensor, in a gap between elements, or after the end (29 bytes, 32 in whole words)."""

    def change(memory: np.ndarray, count: int) -> None:
        memory[place + 1] ^= 0x80

    leave_behind(monkeypatch, 1, (2, 5), change)
    result = run(devices)
    assert (result.status, result.reason) == (Status.FAIL, "guard")
    assert where in result.message


def test_a_kernel_that_does_not_run(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def wait(self) -> None:
            pass

    monkeypatch.setattr(dmlvk.CompiledOperator, "__call__", lambda self, **tensors: Nothing())
    result = run(devices)
    assert (result.status, result.reason) == (Status.FAIL, "unwritten")


def test_an_input_that_changed(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(memory: np.ndarray, count: int) -> None:
        memory[7] ^= 1

    leave_behind(monkeypatch, 0, (2, 15), change)
    result = run(devices)
    assert (result.status, result.reason) == (Status.FAIL, "input")
    assert "input_tensor" in result.message


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (DeviceLostError("lost"), Status.DEVICE_LOST, "VK_ERROR_DEVICE_LOST"),
        (ValidationError("VUID"), Status.FAIL, "validation"),
        (OutOfMemoryError("no room"), Status.FAIL, "exception:OutOfMemoryError"),
        (RuntimeError("a bug"), Status.FAIL, "exception:RuntimeError"),
    ],
)
def test_errors(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, error: Exception, status: Status, reason: str
) -> None:
    def fail(*arguments: object, **tensors: object) -> None:
        raise error

    monkeypatch.setattr(dmlvk.CompiledOperator, "__call__", fail)
    result = run(devices)
    assert (result.status, result.reason) == (status, reason)
    assert str(error) in result.message


def test_no_memory_for_a_large_case_is_not_a_failure(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "SMALL_MEMORY", 16)

    def fail(*arguments: object, **tensors: object) -> None:
        raise OutOfMemoryError("no room")

    monkeypatch.setattr(dmlvk.CompiledOperator, "__call__", fail)
    assert (run(devices).status, run(devices).reason) == (Status.NOT_SUPPORTED, "limit:memory")


def test_not_supported_has_a_reason_for_programs(devices: Devices) -> None:
    drills = {case.name: case for case in all_cases()}
    result = run(devices, drills["drill:support:it=lacks_everything"])
    assert (result.status, result.reason) == (Status.NOT_SUPPORTED, "feature:telepathy")
    result = run(devices, drills["drill:path:path=nonsense"])
    assert (result.status, result.reason, result.path) == (Status.NOT_SUPPORTED, "path:nonsense", "nonsense")
    assert "'blocks'" in result.message


def test_a_mistake_in_the_planner_is_not_taken_for_a_missing_path(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ValueError("min() arg is an empty sequence")

    monkeypatch.setattr(dmlvk.Device, "plan", fail)
    other = partial(workload, "other", DataType.INT16)  # a descriptor that was not compiled before
    result = run(devices, replace(CASE, build=other, path="tiles"))
    assert (result.status, result.reason) == (Status.FAIL, "exception:ValueError")


def test_elements_that_share_memory_must_be_equal(devices: Devices) -> None:
    broadcast = TensorDesc(DataType.UINT8, (3, 4), (0, 1))
    desc = DiagonalMatrix1Desc(
        input_tensor=broadcast,
        output_tensor=TensorDesc(DataType.UINT8, (3, 4)),
        value=1,
        diagonal_fill_begin=0,
        diagonal_fill_end=1,
    )
    row = np.arange(4, dtype=np.uint8)
    good = Workload(desc, {"input_tensor": np.tile(row, (3, 1))})
    bad = Workload(desc, {"input_tensor": np.arange(12, dtype=np.uint8).reshape(3, 4)})
    assert run(devices, replace(CASE, build=lambda: good)).status is Status.PASS
    result = run(devices, replace(CASE, build=lambda: bad))
    assert (result.status, result.reason) == (Status.FAIL, "exception:ValueError")
    assert "one place in memory" in result.message


def refused_case(**changes: str) -> Case:
    """A window stride of 0, with the error that it must raise, or with another."""
    wanted = {"descriptor": "Slice1Desc", "field": "input_window_strides[2]", "rule": "a window stride may not be 0"}
    refusal = Refusal(lambda: invalid_content(Slice1Desc, NAMED_RULES[Slice1Desc]["stride_0"]), **(wanted | changes))
    return replace(CASE, refusal=refusal)


def test_an_invalid_descriptor_is_refused_with_its_error(devices: Devices) -> None:
    result = run(devices, refused_case())
    assert (result.status, result.message, result.digest) == (Status.PASS, "", "")


@pytest.mark.parametrize("member", ["descriptor", "field", "rule"])
def test_an_invalid_descriptor_that_is_refused_for_another_reason(devices: Devices, member: str) -> None:
    result = run(devices, refused_case(**{member: "another"}))
    assert (result.status, result.reason) == (Status.FAIL, "error")
    assert "Slice1Desc.input_window_strides[2]: a window stride may not be 0; not " in result.message


def test_an_invalid_descriptor_that_is_accepted_or_raises_something_else(devices: Devices) -> None:
    valid = replace(CASE, refusal=Refusal(lambda: base_content(Slice1Desc), "Slice1Desc", "a", "b"))
    assert run(devices, valid).reason == "accepted"
    assert "Slice1Desc(input_tensor=" in run(devices, valid).message
    no_descriptor = replace(CASE, refusal=Refusal(lambda: {"operator": "NONE"}, "Slice1Desc", "a", "b"))
    assert run(devices, no_descriptor).reason == "error"
    assert "ValueError" in run(devices, no_descriptor).message


def test_open_values_are_not_compared(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_values() -> Workload:
        made = workload(CASE.name)
        return replace(made, expected=~made.result(), is_defined=False)

    case = replace(CASE, build=open_values)
    assert (run(devices, case).status, run(devices, case).digest) == (Status.UNPREDICTABLE, "")
    assert run(devices, case).is_good

    def change(memory: np.ndarray, count: int) -> None:
        memory[1] ^= 1

    leave_behind(monkeypatch, 0, (2, 5), change)
    assert run(devices, case).reason == "guard"


def test_a_workload_is_planned_for_lower_limits_and_another_kind_of_device(devices: Devices) -> None:
    limits = {"max_storage_buffer_range": 4096, "max_memory_allocation_size": 8192, "max_buffer_size": 8192}
    elements = np.frombuffer(np.random.default_rng(1).bytes(9216), np.uint8).reshape(96, 96)

    def build() -> Workload:
        desc = dmlvk.Slice1Desc(
            input_tensor=TensorDesc(DataType.UINT8, (96, 96), (1, 96)),
            output_tensor=TensorDesc(DataType.UINT8, (96, 96)),
            input_window_offsets=(0, 0),
            input_window_sizes=(96, 96),
            input_window_strides=(1, 1),
        )
        return Workload(desc, {"input_tensor": elements}, limits=limits, device_type=dmlvk.DeviceType.DISCRETE_GPU)

    narrowed = devices.get("device", build())
    assert narrowed.profile.limits.max_storage_buffer_range == 4096
    assert narrowed.profile.segment_size == 8192
    result = run(devices, Case("slice1:tight:it=1", build))
    # As itself, a CPU takes blocks.
    assert (result.status, result.path) == (Status.PASS, "elements")


def test_difference_shows_bits() -> None:
    got = np.array([[1.0, np.nan]], np.float32)
    expected = np.array([[1.0, -np.nan]], np.float32)
    text = difference(got, expected)
    assert text.startswith("1 of 2 elements differ, the first at (0, 1): got nan (0x")
    assert "0x7fc00000" in text
    assert "0xffc00000" in text


class TestWays:
    """The ways in which a case is run, which its result must not depend on."""

    @pytest.mark.parametrize(
        ("case", "way"), [(c, way) for c in (CASE, CONVOLUTION) for way in Way if (c, way) != (CASE, Way.TAKE_OVER)]
    )
    def test_each_gives_the_same_bits(self, devices: Devices, case: Case, way: Way) -> None:
        result = run(devices, replace(case, build=lambda: replace(case.build(), way=way)))
        assert (result.status, result.message) == (Status.PASS, "")
        assert result.digest == digest(case.build().result())

    def test_each_is_taken(self, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: Counter[str] = Counter()

        def count(name: str) -> None:
            original = getattr(dmlvk.Device, name)

            def counted(self: dmlvk.Device, *arguments: object) -> object:
                calls[name] += 1
                return original(self, *arguments)

            monkeypatch.setattr(dmlvk.Device, name, counted)

        for name in ("buffer", "submit", "sequence"):
            count(name)
        found = {}
        for way in set(Way) - {Way.TAKE_OVER}:
            calls.clear()
            assert run(devices, replace(CASE, build=partial(made_in, way))).status is Status.PASS
            found[way] = dict(calls)
        assert found[Way.ALONE]["buffer"] - found[Way.ONE_BUFFER]["buffer"] == 1
        assert found[Way.SEQUENCE]["sequence"] == 3
        assert found[Way.BESIDE]["submit"] - found[Way.ALONE].get("submit", 0) == 3 * 7

    def test_a_take_over_needs_a_general_kernel(self, devices: Devices) -> None:
        result = run(devices, replace(CASE, build=partial(made_in, Way.TAKE_OVER)))
        assert (result.status, result.reason) == (Status.NOT_SUPPORTED, "path:general")

    def test_a_kernel_that_never_takes_over_fails(self, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Rebinding, "latest", lambda _: None)
        result = run(devices, replace(CONVOLUTION, build=lambda: replace(CONVOLUTION.build(), way=Way.TAKE_OVER)))
        assert (result.status, result.reason) == (Status.FAIL, "take-over")
        assert "the path general runs after the take-over" in result.message

    @pytest.mark.parametrize("number", [0, 3, 4, 7, 10, 12])
    def test_every_call_of_a_take_over_is_checked(
        self, devices: Devices, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """A right output is compared with a wrong one, and the case fails for that."""
        honest, made = take_over.CallRow._call, []

        def call(row: take_over.CallRow) -> take_over.CheckedCall:
            made.append(honest(row))
            return made[-1] if len(made) - 1 != number else replace(made[-1], expected=~made[-1].expected)

        monkeypatch.setattr(take_over.CallRow, "_call", call)
        result = run(devices, replace(CONVOLUTION, build=lambda: replace(CONVOLUTION.build(), way=Way.TAKE_OVER)))
        assert (result.status, result.reason) == (Status.FAIL, "take-over")
        assert len(made) == 13

    def test_tensors_in_one_buffer_have_guards_too(self, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
        def change(memory: np.ndarray, count: int) -> None:
            memory[0] ^= 1

        leave_behind(monkeypatch, 1, (2, 15), change)  # the byte before the input
        result = run(devices, replace(CASE, build=partial(made_in, Way.ONE_BUFFER)))
        assert (result.status, result.reason) == (Status.FAIL, "input")

    def test_other_images_are_checked_and_not_digested(self, devices: Devices) -> None:
        def first_row(wrong_row: int) -> Workload:
            made = workload(CASE.name)
            expected = made.result().copy()
            expected[wrong_row, 3] ^= 1
            return replace(made, expected=expected, part=slice(0, 1))

        right = digest(workload(CASE.name).result()[:1])
        for row in (0, 1):
            result = run(devices, replace(CASE, build=partial(first_row, row)))
            assert (result.status, result.reason, result.digest) == (Status.FAIL, "difference", right)


def made_in(way: Way) -> Workload:
    return replace(workload(CASE.name), way=way)
