"""Plans are checked on recorded devices. The check notices a plan that a device could not carry out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from dmlvk import DataType, Slice1Desc, SliceDesc, TensorDesc
from dmlvk.command_line import main
from dmlvk.conformance.case import Case
from dmlvk.conformance.plans import (
    CAPABILITY_FEATURES,
    CAPABILITY_PROPERTIES,
    capabilities,
    check_plans,
    missed_path,
    violations,
)
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning import Access, Plan, plan
from dmlvk.runtime.implementation import spirv
from tests.conformance.drill_cases import convolution_workload
from tests.planning.quantized_linear_convolution.descriptors import convolution
from tests.test_spirv import MANIFEST

DESC = convolution_workload("a convolution").desc
LARGE = convolution(1, 64, (14, 14), 64, (3, 3), padding=(1, 1))
TRANSPOSE = Slice1Desc(
    input_tensor=TensorDesc(DataType.FLOAT32, (80, 100), (1, 80)),
    output_tensor=TensorDesc(DataType.FLOAT32, (80, 100)),
    input_window_offsets=(0, 0),
    input_window_sizes=(80, 100),
    input_window_strides=(1, 1),
)


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
    assert "it needs shaderIntegerDotProduct" in problems(plan(DESC, rich, path="dot4"), load("intel-hsw"))


def test_limits() -> None:
    rich = load("nvidia-h200")
    found = plan(DESC, rich, path="dot4")
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
    found = plan(DESC, profile, path="dot4")
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


def test_the_best_path() -> None:
    rich = load("nvidia-h200")
    assert missed_path(plan(LARGE, rich), LARGE, rich) is None
    for path in ("matrix", "split_k", "halo"):
        assert missed_path(plan(LARGE, rich, path=path), LARGE, rich) is None
    for path in ("dot4", "vectors", "direct"):
        assert missed_path(plan(LARGE, rich, path=path), LARGE, rich) == "matrix"
    old = load("intel-hsw")
    assert missed_path(plan(LARGE, old, path="direct"), LARGE, old) == "integer"
    assert missed_path(plan(TRANSPOSE, rich), TRANSPOSE, rich) is None
    assert missed_path(plan(TRANSPOSE, rich, path="blocks"), TRANSPOSE, rich) == "tiles"
    transpose = SliceDesc(
        input_tensor=TRANSPOSE.input_tensor, offsets=(0, 0), sizes=TRANSPOSE.output_tensor.sizes, strides=(1, 1)
    )
    assert missed_path(plan(transpose, rich), transpose, rich) is None
    assert missed_path(plan(transpose, rich, path="blocks"), transpose, rich) == "tiles"
    assert missed_path(plan(LARGE, load("swiftshader"), path="integer"), LARGE, load("swiftshader")) == "dot4"


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


def test_a_sample_of_the_cases_on_every_recorded_device() -> None:
    finished = CliRunner().invoke(main, ["conformance", "--plans", "--sample", "25", "--seed", "1"])
    assert finished.exit_code == 0, finished.output
    for name in NAMES:
        assert name in finished.output
