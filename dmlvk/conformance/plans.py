"""Checks plans without running them.

Does each plan keep to its device's limits, use only the device's features, and take the device's best path?
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dmlvk.conformance.case import Case, NotSupported, Workload
from dmlvk.conformance.profiles import DEVICE, workload_profile
from dmlvk.conformance.recorded import load
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError
from dmlvk.operators import OneHotDesc, OperatorDesc, QuantizedLinearConvolutionDesc, Slice1Desc, SliceDesc
from dmlvk.planning import (
    CLEAN,
    MAXIMUM_SUBMISSION_SECONDS,
    PERSISTENT,
    SCRATCH,
    Access,
    Dispatch,
    Plan,
    device_traits,
    plan,
)
from dmlvk.runtime.implementation import spirv
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

# A convolution of at least this size is worth a device's best path: channels of a group in and out, pixels out.
WORTHWHILE_CHANNELS = 32
WORTHWHILE_PIXELS = 32
# A transpose of at least this many rows and columns is worth shared memory, if that is faster than a cache. For 64
# rows of 64 elements of 8 bytes, a cache is about as fast.
WORTHWHILE_ROWS = 65


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


def missed_path(made: Plan, desc: OperatorDesc, profile: DeviceProfile) -> str | None:
    """The better path that a plan leaves unused although the work is worth it; None if the plan takes the best path.

    This test is cautious and independent of the planner: only convolutions with many channels on both sides, and
    transposes of many rows and columns, are worth it.
    """
    expect = EXPECTED_PATHS.get(type(desc))
    best = expect(desc, profile) if expect is not None else None
    if best is None or made.path in (best, *AS_GOOD.get(best, ())):
        return None
    try:
        plan(desc, profile, path=best)
    except PathError:
        return None  # the device has the path, but not for an operator of this size
    return best


def _expected_of_convolution(desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile) -> str | None:
    return _best_product(profile) if _is_worthwhile_product(desc) else None


def _expected_of_slice(desc: Slice1Desc | SliceDesc, profile: DeviceProfile) -> str | None:
    return "tiles" if profile.device_type is not DeviceType.CPU and _is_transpose(desc) else None


def _expected_of_one_hot(desc: OneHotDesc, profile: DeviceProfile) -> str | None:
    # GPUs write short rows whole.
    output = desc.output_tensor
    row_size = output.sizes[desc.axis] * output.data_type.size_in_bytes
    return "blocks" if profile.device_type is DeviceType.CPU or row_size > 256 else None


# Paths that are taken in place of others, and do as well.
AS_GOOD: Mapping[str, tuple[str, ...]] = {"matrix": ("halo", "split_k"), "tiles": ("boxes",)}

# The path that an operator is expected to take, for operators with several paths.
EXPECTED_PATHS: Mapping[type[OperatorDesc], Callable[[Any, DeviceProfile], str | None]] = {
    QuantizedLinearConvolutionDesc: _expected_of_convolution,
    Slice1Desc: _expected_of_slice,
    SliceDesc: _expected_of_slice,
    OneHotDesc: _expected_of_one_hot,
}


def _is_worthwhile_product(desc: QuantizedLinearConvolutionDesc) -> bool:
    geometry = desc.geometry
    channels = min(geometry.input_channels // geometry.group_count, geometry.output_channels_per_group)
    pixels = geometry.batch * geometry.output_size[0] * geometry.output_size[1]
    return channels >= WORTHWHILE_CHANNELS and pixels >= WORTHWHILE_PIXELS


def _is_transpose(desc: Slice1Desc | SliceDesc) -> bool:
    """Whether many neighbours in the output lie apart in the input, and many neighbours in the input in the output."""
    steps = [
        stride * window
        for stride, window in zip(desc.input_tensor.element_strides, desc.input_window_strides, strict=True)
    ]
    sizes, strides = desc.output_tensor.sizes, desc.output_tensor.element_strides
    many = [dimension for dimension, size in enumerate(sizes) if size >= WORTHWHILE_ROWS]
    across = [dimension for dimension in many if strides[dimension] == 1 and abs(steps[dimension]) > 1]
    along = [dimension for dimension in many if steps[dimension] == 1 and strides[dimension] > 1]
    return bool(across and along)


def _best_product(profile: DeviceProfile) -> str:
    is_cpu = profile.device_type is DeviceType.CPU
    int8 = ("sint8", "sint8", "sint32", "sint32", "subgroup")
    has_matrices = {"cooperativeMatrix", "shaderInt8", "vulkanMemoryModel"} <= profile.features and any(
        (matrix.a_type, matrix.b_type, matrix.c_type, matrix.result_type, matrix.scope) == int8
        for matrix in profile.cooperative_matrices
    )
    if has_matrices and not is_cpu and profile.has_integer_dot_product:
        return "matrix"
    if is_cpu and device_traits.can_run_float_kernel(profile):
        return "float"
    return "dot4" if profile.has_integer_dot_product else "integer"


@dataclass(frozen=True)
class PlanCheck:
    """The result for one case on one recorded device.

    Attributes
    ----------
    case, device : str
    path : str
        The planned path; empty if the case is not for this device.
    problems : tuple of str
    """

    case: str
    device: str
    path: str
    problems: tuple[str, ...] = ()


def check_plans(cases: Iterable[Case], devices: Sequence[str], path: str | None = None) -> Iterator[PlanCheck]:
    """Plan every case for every named device, and check each plan.

    Parameters
    ----------
    cases : iterable of Case
    devices : sequence of str
        Names of `recorded.NAMES`.
    path : str, optional
        The kernel path for cases that leave the choice to the planner.
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
    problems = list(dict.fromkeys(violations(made, workload.desc, profile)))
    missed = missed_path(made, workload.desc, profile) if path is None else None
    if missed is not None:
        problems.append(f"the planner chose path {made.path!r}, although the device has the better path {missed!r}")
    return PlanCheck(case.name, device, made.path, tuple(problems))
