"""What every plan has to keep to, whatever the operator and the device."""

from __future__ import annotations

from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import OperatorDesc
from dmlvk.planning import MAXIMUM_SUBMISSION_SECONDS, PERSISTENT, SCRATCH, Access, Plan
from dmlvk.planning.plan import Dispatch


def check_plan(plan: Plan, desc: OperatorDesc, profile: DeviceProfile) -> None:
    """Fail when the device could not carry out the plan, or when it touches memory that is not the operator's."""
    assert plan.stages and all(plan.stages)
    sizes = {field: tensor.total_size_in_bytes for field, tensor in desc.tensors.items()}
    sizes |= {SCRATCH: plan.scratch_size, PERSISTENT: plan.persistent_size}
    for stage in (*plan.initialization, *plan.stages):
        for dispatch in stage:
            check_dispatch(dispatch, sizes, set(desc.output_fields), profile)


def check_dispatch(dispatch: Dispatch, sizes: dict[str, int], outputs: set[str], profile: DeviceProfile) -> None:
    limits = profile.limits
    assert 1 <= len(dispatch.windows) <= limits.max_per_stage_descriptor_storage_buffers
    assert 4 * len(dispatch.push_constants) <= limits.max_push_constants_size
    assert all(0 <= word < 1 << 32 for word in dispatch.push_constants)
    assert all(0 <= word < 1 << 32 for word in dispatch.specialization)
    workgroup = dispatch.specialization[0]
    assert 1 <= workgroup <= min(limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])
    for groups, largest in zip(dispatch.groups, limits.max_compute_work_group_count, strict=True):
        assert 1 <= groups <= min(largest, 65_535)
    assert dispatch.seconds <= MAXIMUM_SUBMISSION_SECONDS
    for window in dispatch.windows:
        assert window.offset % 16 == 0 and window.size % 16 == 0 and window.size > 0
        # Bound from an aligned address below, it has to fit the range still.
        assert window.size + profile.offset_alignment <= limits.max_storage_buffer_range + 16
        assert 16 % window.base_unit == 0
        assert window.base_word < len(dispatch.push_constants)
        assert window.offset + window.size <= -(-sizes[window.tensor] // 16) * 16
        first = window.offset // profile.segment_size
        last = (window.offset + window.size - 1) // profile.segment_size
        assert first == last
        if window.access is Access.WRITE:
            assert window.tensor in outputs | {SCRATCH, PERSISTENT}
