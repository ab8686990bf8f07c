"""SLICE and DIAGONAL_MATRIX have the plans of their successors, whose kernels are tested on devices."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dmlvk import DiagonalMatrix1Desc, DiagonalMatrixDesc, Slice1Desc, SliceDesc, TensorDesc
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning import KERNEL_PATHS, plan
from tests import profiles
from tests.layouts import DATA_TYPES, input_strides, output_strides, sizes


@st.composite
def devices(draw: st.DrawFn) -> DeviceProfile:
    """A recorded device, or the same with memory in which small tensors are cut."""
    profile = profiles.load(draw(st.sampled_from(profiles.NAMES)))
    if draw(st.booleans()):
        return profile
    limits = replace(
        profile.limits, max_storage_buffer_range=1 << 12, max_memory_allocation_size=1 << 13, max_buffer_size=1 << 13
    )
    return replace(profile, limits=limits)


@st.composite
def slices(draw: st.DrawFn) -> SliceDesc:
    data_type = draw(DATA_TYPES)
    extents = draw(sizes(draw(st.integers(1, 8))))
    offsets, lengths, steps = [], [], []
    for extent in extents:
        offsets.append(draw(st.integers(0, extent - 1)))
        steps.append(draw(st.sampled_from([1, 1, 1, 2, 3, (1 << 31) - 1, (1 << 32) - 1])))
        most = 1 + (extent - 1 - offsets[-1]) // steps[-1]
        lengths.append(draw(st.one_of(st.just(most), st.integers(1, most))))
    return SliceDesc(
        input_tensor=TensorDesc(data_type, extents, draw(input_strides(extents))),
        output_tensor=TensorDesc(data_type, lengths, draw(output_strides(tuple(lengths)))),
        offsets=offsets,
        sizes=lengths,
        strides=steps,
    )


@given(slices(), devices(), st.sampled_from([None, *KERNEL_PATHS[SliceDesc]]))
def test_a_slice_is_planned_as_a_slice1(desc: SliceDesc, profile: DeviceProfile, path: str | None) -> None:
    successor = Slice1Desc(
        input_tensor=desc.input_tensor,
        output_tensor=desc.output_tensor,
        input_window_offsets=desc.offsets,
        input_window_sizes=[(size - 1) * step + 1 for size, step in zip(desc.sizes, desc.strides, strict=True)],
        # SLICE1's steps are signed. A step past the only element of a dimension says nothing.
        input_window_strides=[step if size > 1 else 1 for size, step in zip(desc.sizes, desc.strides, strict=True)],
    )
    assert plan(desc, profile, path=path) == plan(successor, profile, path=path)


@st.composite
def diagonals(draw: st.DrawFn) -> DiagonalMatrixDesc:
    output = draw(sizes(draw(st.integers(2, 4))))
    tensor = TensorDesc(draw(DATA_TYPES), output, draw(output_strides(output)))
    edges = st.sampled_from([-(1 << 31), (1 << 31) - 2, (1 << 31) - 1])
    offset = draw(st.one_of(st.integers(-60, 60), edges))
    return DiagonalMatrixDesc(output_tensor=tensor, offset=offset, value=draw(st.integers(0, 127)) + 0.75)


@given(diagonals(), devices())
def test_a_diagonal_matrix_is_planned_as_a_diagonal_matrix1(desc: DiagonalMatrixDesc, profile: DeviceProfile) -> None:
    begin = desc.offset
    if begin == (1 << 31) - 1:  # far outside of any matrix, as is the one before
        begin -= 1
    successor = DiagonalMatrix1Desc(
        output_tensor=desc.output_tensor,
        value=desc.value_bytes,
        diagonal_fill_begin=begin,
        diagonal_fill_end=begin + 1,
    )
    assert plan(desc, profile) == plan(successor, profile)
