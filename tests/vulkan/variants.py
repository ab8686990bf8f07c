"""Devices with tighter limits or other ways of moving data than the driver's, and an operator that copies."""

from __future__ import annotations

import dataclasses
from typing import Any

import dmlvk

SMALL_SEGMENT = 1 << 16


def small_segments(profile: dmlvk.DeviceProfile) -> dmlvk.DeviceProfile:
    """The profile of a device whose buffers hold at most 64 KiB."""
    limits = dataclasses.replace(profile.limits, max_memory_allocation_size=SMALL_SEGMENT)
    return dataclasses.replace(profile, limits=limits)


def open_variant(device: dmlvk.Device, variant: str, **options: Any) -> dmlvk.Device:
    """Open the same device once more: "direct" or "staged", also "segmented-..." and "staged-copy-queue"."""
    if "segmented" in variant:
        options["profile"] = small_segments(device.profile)
    options["force_copy_queue"] = "copy-queue" in variant
    return dmlvk.Device(device.name, force_staging="staged" in variant, **options)


VARIANTS = ("direct", "staged", "segmented", "segmented-staged", "staged-copy-queue", "segmented-staged-copy-queue")


def copy_desc(desc: dmlvk.TensorDesc, output: dmlvk.TensorDesc | None = None) -> dmlvk.Slice1Desc:
    """SLICE1 that copies a whole tensor."""
    return dmlvk.Slice1Desc(
        input_tensor=desc,
        output_tensor=output or desc,
        input_window_offsets=[0] * desc.rank,
        input_window_sizes=desc.sizes,
        input_window_strides=[1] * desc.rank,
    )
