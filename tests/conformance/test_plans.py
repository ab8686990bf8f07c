"""Plans are checked on recorded devices. The check notices a plan that a device could not carry out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from dmlvk.command_line import main
from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.plans import (
    CAPABILITY_FEATURES,
    CAPABILITY_PROPERTIES,
    PlanCheck,
    capabilities,
    check_plans,
    violations,
)
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning import Access, Plan, plan
from dmlvk.runtime.kernel_modules import spirv
from tests.conformance.drill_cases import convolution_workload
from tests.test_spirv import MANIFEST

DESC = convolution_workload("a convolution").desc


def changed(found: Plan, **changes: object) -> Plan:
    """The plan with fields of its first dispatch replaced."""
    first, *others = found.stages
    return replace(found, stages=((replace(first[0], **changes), *first[1:]), *others))  # type: ignore[arg-type]


def problems(found: Plan, profile: DeviceProfile) -> str:
    return "\n".join(violations(found, DESC, profile))


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_for_the_device_itself_is_carried_out(name: str) -> None:
    assert problems(plan(DESC, load(name)), load(name)) == ""


def test_a_feature_that_is_not_there() -> None:
    rich = load("nvidia-h200")
    found = plan(DESC, rich, path="matrix")
    poor = replace(rich, features=rich.features - {"cooperativeMatrix", "shaderInt8"})
    assert "it needs cooperativeMatrix" in problems(found, poor)
    assert "it needs shaderInt8" in problems(found, poor)
    assert "it needs shaderIntegerDotProduct" in problems(plan(DESC, rich, path="vectors"), load("intel-hsw"))


def test_limits() -> None:
    rich = load("nvidia-h200")
    found = plan(DESC, rich, path="integer")
    for change, message in (
        ({"max_push_constants_size": 8}, "bytes of push constants"),
        ({"max_per_stage_descriptor_storage_buffers": 1}, "storage buffers"),
        ({"max_compute_work_group_invocations": 8}, "a workgroup of"),
        ({"max_compute_work_group_count": (0, 0, 0)}, "workgroups"),
        ({"max_storage_buffer_range": 64}, "larger than a storage buffer"),
        ({"max_buffer_size": 512}, "several memory segments"),
    ):
        assert message in problems(found, replace(rich, limits=replace(rich.limits, **change)))  # type: ignore[arg-type]


def test_dispatches_that_no_device_takes() -> None:
    profile = load("nvidia-h200")
    found = plan(DESC, profile, path="integer")
    dispatch = found.stages[0][0]
    first, *others = dispatch.windows
    for changes, message in (
        ({"seconds": 1.0}, "a watchdog allows"),
        ({"push_constants": (1 << 32, *dispatch.push_constants)}, "more than 32 bits"),
        ({"subgroup_size": 7}, "subgroups of 7"),
        ({"groups": (1, 1, 65_536)}, "workgroups"),
        ({"windows": (replace(first, offset=8), *others)}, "multiples of 16 bytes"),
        ({"windows": (replace(first, size=1 << 20), *others)}, "ends past"),
        ({"windows": (replace(first, base_word=99), *others)}, "no push constant"),
        ({"windows": (replace(first, tensor="input_tensor", size=16, access=Access.WRITE),)}, "writes an input"),
    ):
        assert message in problems(changed(found, **changes), profile)
    assert "without dispatches" in problems(replace(found, stages=((),)), profile)


@pytest.mark.parametrize("kernel", sorted(MANIFEST["kernels"]))
def test_the_capabilities_of_every_kernel_are_known(kernel: str) -> None:
    assert spirv(kernel)
    assert 1 in capabilities(kernel)
    assert capabilities(kernel) <= CAPABILITY_FEATURES.keys() | CAPABILITY_PROPERTIES.keys()


def test_a_case_that_no_device_can_plan_is_a_problem() -> None:
    case = Case("convolution:it=1", lambda: convolution_workload("a"), path="matrix")
    checks = {check.device: check for check in check_plans([case], ["nvidia-h200", "swiftshader"])}
    assert (checks["nvidia-h200"].path, checks["nvidia-h200"].problems) == ("matrix", ())
    assert (checks["swiftshader"].path, checks["swiftshader"].problems) == ("", ())


@pytest.mark.parametrize("first", range(2))
def test_every_case_is_planned_within_the_limits(first: int) -> None:
    """Each default case on one recorded device: by turns, so that each device gets a part of every group.

    `dmlvk conformance --plans` takes all cases on all devices, for minutes.
    """
    found: list[PlanCheck] = []
    for number, case in enumerate(all_cases(default_only=True)):
        if number % 2 == first:
            turn = number + number // len(NAMES)  # so that parameters with 40 values do not keep to one device
            found += check_plans([case], [NAMES[turn % len(NAMES)]])
    assert {check.device for check in found} == set(NAMES)
    assert sum(bool(check.path) for check in found) > 800
    assert [check for check in found if check.problems] == []


def test_the_command_says_what_it_checked_on_each_device() -> None:
    finished = CliRunner().invoke(main, ["conformance", "--plans", "slice1:page:*", "*:types:*path=auto"])
    assert finished.exit_code == 0, finished.output
    lines = finished.stdout.splitlines()  # without those of progress, which a command prints that takes long
    for name in NAMES:
        assert any(name in line.split() for line in lines), "a name is cut"
    assert all(len(line) <= 80 for line in lines)
