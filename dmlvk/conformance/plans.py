"""Checks plans without running them: each must keep to its device's limits and use only the device's features.

Whether a plan takes the fastest path is not asked here: a second opinion on that would be a second planner, and only
measurements know.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from dmlvk.conformance.case import Case, NotSupported, Workload
from dmlvk.conformance.profiles import DEVICE, workload_profile
from dmlvk.conformance.recorded import load
from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError
from dmlvk.operators import OperatorDesc
from dmlvk.planning import CLEAN, MAXIMUM_SUBMISSION_SECONDS, PERSISTENT, SCRATCH, Access, Dispatch, Plan, plan
from dmlvk.runtime.kernel_modules import spirv
from dmlvk.vulkan.specialization import declarations

# The feature that each SPIR-V capability needs; None if every device of Vulkan 1.2 has the capability.
CAPABILITY_FEATURES: dict[int, str | None] = {
    1: None,  # Shader
    9: "shaderFloat16",
    10: "shaderFloat64",
    11: "shaderInt64",
    22: "shaderInt16",
    39: "shaderInt8",
    61: None,  # GroupNonUniform
    64: None,  # GroupNonUniformBallot
    65: None,  # GroupNonUniformShuffle: used only on lavapipe, which has it
    4433: "storageBuffer16BitAccess",
    4448: "storageBuffer8BitAccess",
    5345: "vulkanMemoryModel",
    6018: "shaderIntegerDotProduct",  # DotProductInput4x8BitPacked
    6019: "shaderIntegerDotProduct",  # DotProduct
    6022: "cooperativeMatrix",
}
# The property that announces each capability for which there is no feature.
CAPABILITY_PROPERTIES = {4467: "shaderRoundingModeRTEFloat32"}
OP_CAPABILITY = 17


@cache
def capabilities(kernel: str) -> frozenset[int]:
    """The SPIR-V capabilities that a kernel declares."""
    code = spirv(kernel)
    words = struct.unpack(f"<{len(code) // 4}I", code)
    return frozenset(operands[0] for opcode, operands in declarations(words) if opcode == OP_CAPABILITY)


def violations(made: Plan, desc: OperatorDesc, profile: DeviceProfile) -> Iterator[str]:
    """The parts of a plan that a device cannot carry out, and its accesses to memory outside the operator's tensors."""
    if not made.stages or not all(made.stages):
        yield "a stage without dispatches"
    sizes = {field: tensor.total_size_in_bytes for field, tensor in desc.tensors.items()}
    sizes |= {SCRATCH: made.scratch_size, PERSISTENT: made.persistent_size, CLEAN: made.clean_size}
    writable = {*desc.output_fields, SCRATCH, PERSISTENT, CLEAN}
    for stage in (*made.initialization, *made.stages):
        for dispatch in stage:
            for text in (*_dispatch(dispatch, profile), *_windows(dispatch, sizes, writable, profile)):
                yield f"{dispatch.kernel}: {text}"


def _dispatch(dispatch: Dispatch, profile: DeviceProfile) -> Iterator[str]:
    limits = profile.limits
    buffers = len(dispatch.windows)
    if not 1 <= buffers <= limits.max_per_stage_descriptor_storage_buffers:
        yield f"{buffers} storage buffers; the device allows 1 to {limits.max_per_stage_descriptor_storage_buffers}"
    if 4 * len(dispatch.push_constants) > limits.max_push_constants_size:
        size = 4 * len(dispatch.push_constants)
        yield f"{size} bytes of push constants; the device allows {limits.max_push_constants_size}"
    if not all(0 <= word < 1 << 32 for word in (*dispatch.push_constants, *dispatch.specialization)):
        yield "a constant of more than 32 bits"
    largest = min(limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])
    if not 1 <= dispatch.specialization[0] <= largest:
        yield f"a workgroup of {dispatch.specialization[0]} invocations; the device allows 1 to {largest}"
    counts = tuple(min(count, 65_535) for count in limits.max_compute_work_group_count)
    if not all(1 <= groups <= count for groups, count in zip(dispatch.groups, counts, strict=True)):
        yield f"{dispatch.groups} workgroups; the counts may be from (1, 1, 1) to {counts}"
    if dispatch.seconds > MAXIMUM_SUBMISSION_SECONDS:
        yield f"it may take {dispatch.seconds} s; a watchdog allows {MAXIMUM_SUBMISSION_SECONDS} s"
    for capability in sorted(capabilities(dispatch.kernel)):
        if capability in CAPABILITY_PROPERTIES:
            if CAPABILITY_PROPERTIES[capability] not in profile.properties:
                yield f"it needs {CAPABILITY_PROPERTIES[capability]}, which the device lacks"
            continue
        if capability not in CAPABILITY_FEATURES:
            yield f"it declares SPIR-V capability {capability}, which this check does not know"
        feature = CAPABILITY_FEATURES.get(capability)
        lacks = feature is not None and feature not in profile.features
        if lacks or (feature == "shaderIntegerDotProduct" and not profile.has_integer_dot_product):
            yield f"it needs {feature}, which the device lacks"
    size = dispatch.subgroup_size
    if size and not profile.min_subgroup_size <= size <= profile.max_subgroup_size:
        yield f"subgroups of {size}; the device has {profile.min_subgroup_size} to {profile.max_subgroup_size}"


def _windows(dispatch: Dispatch, sizes: dict[str, int], writable: set[str], profile: DeviceProfile) -> Iterator[str]:
    limits = profile.limits
    for window in dispatch.windows:
        end = window.offset + window.size
        if window.offset % 16 or window.size % 16 or window.size <= 0:
            yield f"the offset and the size of {window} must be multiples of 16 bytes"
        # Bound from an aligned address below its start, the window must still fit the range.
        if window.size + profile.offset_alignment > limits.max_storage_buffer_range + 16:
            yield f"{window} is larger than a storage buffer may be, {limits.max_storage_buffer_range} bytes"
        if 16 % window.base_unit or window.base_word >= len(dispatch.push_constants):
            yield f"{window} has no push constant for its start"
        if end > -(-sizes[window.tensor] // 16) * 16:
            yield f"{window} ends past the {sizes[window.tensor]} bytes of the tensor"
        if window.offset // profile.segment_size != (end - 1) // profile.segment_size:
            yield f"{window} lies in several memory segments of {profile.segment_size} bytes"
        if window.access is Access.WRITE and window.tensor not in writable:
            yield f"{window} writes an input"


@dataclass(frozen=True)
class PlanCheck:
    """The result for one case on one recorded device.

    path: the planned path; empty if the case is not for this device.
    """

    case: str
    device: str
    path: str
    problems: tuple[str, ...] = ()


def check_plans(cases: Iterable[Case], devices: Sequence[str], path: str | None = None) -> Iterator[PlanCheck]:
    """Plan every case for every named device, and check each plan.

    devices: names of `recorded.NAMES`.
    path: the kernel path for cases that leave the choice to the planner.
    """
    for case in cases:
        if case.refusal is not None:
            continue  # there is nothing to plan
        workload = case.build()
        for device in devices:
            yield _checked(case, workload, device, case.path or path)


def _checked(case: Case, workload: Workload, device: str, path: str | None) -> PlanCheck:
    profile = load(device)
    if case.support is not None and isinstance(case.support(profile), NotSupported):
        return PlanCheck(case.name, device, "")
    profile = workload_profile(profile, DEVICE, workload)
    try:
        made = plan(workload.desc, profile, path=path)
    except PathError as error:
        return PlanCheck(case.name, device, "", () if path is not None else (str(error),))
    except ValueError as error:
        return PlanCheck(case.name, device, "", (f"it cannot be planned: {error}",))
    problems = dict.fromkeys(violations(made, workload.desc, profile))
    return PlanCheck(case.name, device, made.path, tuple(problems))
