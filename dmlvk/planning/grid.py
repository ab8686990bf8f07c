"""Workgroups: how many invocations one has, and how a long row of them is folded into a grid."""

from __future__ import annotations

from dmlvk.device_profile import DeviceProfile, DeviceType

# Vulkan guarantees 65,535 workgroups along each axis.
GUARANTEED_WORKGROUP_COUNT = 65_535


def workgroup_size(profile: DeviceProfile) -> int:
    """Invocations of a one-dimensional workgroup: 256, or as many as the device takes."""
    limits = profile.limits
    return min(256, limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])


def folded(group_count: int, profile: DeviceProfile) -> tuple[int, int, int]:
    """A grid of at least `group_count` workgroups within the device's limit along each axis.

    The kernel numbers its workgroups along x, then y, and leaves those past the end idle.
    """
    widest, highest, _ = profile.limits.max_compute_work_group_count
    rows = -(-group_count // min(widest, GUARANTEED_WORKGROUP_COUNT))
    if rows > highest:
        raise ValueError(f"{group_count} workgroups do not fit a grid of {widest} x {highest}")
    return -(-group_count // rows), rows, 1


# The lowest rates of a data-movement kernel, in bytes a second. They keep submissions short.
SLOWEST_BYTES_PER_SECOND = {
    DeviceType.CPU: 100e6,
    DeviceType.INTEGRATED_GPU: 5e9,
    DeviceType.DISCRETE_GPU: 50e9,
    DeviceType.VIRTUAL_GPU: 5e9,
    DeviceType.OTHER: 100e6,
}
