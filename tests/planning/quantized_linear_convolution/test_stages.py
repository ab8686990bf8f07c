"""The stages of a plan, its initialization, and the windows of its dispatches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.planning.plan import PERSISTENT, SCRATCH, Access
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from tests import profiles
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, OWNED, convolution, written_elements


@pytest.mark.parametrize("name", ["all owned", "all owned, depthwise", "filter owned"])
def test_owned_tensors_are_read_at_initialization_only(name: str) -> None:
    desc = DESCRIPTORS[name]
    owned = {field for field, tensor in desc.tensors.items() if tensor.flags & OWNED}
    for device in ("lavapipe-22.3", "nvidia-h200"):
        found = plan(desc, profiles.load(device))
        bound = {window.tensor for dispatch in found.dispatches for window in dispatch.windows}
        assert bound - {SCRATCH} == set(desc.tensors) - owned | {PERSISTENT}
        initialized = {
            (window.tensor, window.access)
            for stage in found.initialization
            for dispatch in stage
            for window in dispatch.windows
        }
        assert {tensor for tensor, access in initialized if access is Access.READ} - {PERSISTENT} == owned
        assert all(tensor == PERSISTENT for tensor, access in initialized if access is Access.WRITE)


@pytest.mark.parametrize("path", [None, "direct"])
@pytest.mark.parametrize("name", ["odd", "NHWC", "ResNeXt", "depthwise", "all owned"])
def test_small_windows_and_segments(name: str, path: str | None) -> None:
    profile, desc = profiles.load("swiftshader"), DESCRIPTORS[name]
    limits = replace(
        profile.limits, max_storage_buffer_range=1 << 16, max_memory_allocation_size=1 << 22, max_buffer_size=1 << 22
    )
    small = replace(profile, limits=limits)
    found = plan(desc, small, path=path, offsets={"input_tensor": 48, "output_tensor": 4080})
    segment = small.segment_size
    for dispatch in found.dispatches:
        for window in dispatch.windows:
            start = window.offset + {"input_tensor": 48, "output_tensor": 4080}.get(window.tensor, 0)
            assert start // segment == (start + window.size - 1) // segment
            assert window.size <= 1 << 16
    assert written_elements(found, desc) == desc.output_tensor.element_count


def test_a_stage_does_not_write_what_it_reads() -> None:
    profile = profiles.load("lavapipe-22.3")
    found = plan(convolution(256, 256, (60, 60), 64, (3, 3)), profile)
    assert len(found.stages) > 2
    for stage in found.stages:
        product = [dispatch for dispatch in stage if dispatch.operations]
        packing = [dispatch for dispatch in stage if not dispatch.operations]
        read = {(window.offset, window.size) for dispatch in product for window in dispatch.windows[:1]}
        written = [window for dispatch in packing for window in dispatch.windows if window.access is Access.WRITE]
        for offset, size in read:
            for window in written:
                assert window.offset + window.size <= offset or offset + size <= window.offset
