"""Plans of the data movement operators on recorded devices: they keep to every limit, and do the right work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dmlvk import DataType, DiagonalMatrix1Desc, DiagonalMatrixDesc, OneHotDesc, Slice1Desc, SliceDesc, TensorDesc
from dmlvk.device_profile import DeviceType
from dmlvk.operators import OperatorDesc
from dmlvk.planning import Access, plan, preferred_path
from dmlvk.planning.division import quick_division
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.tensor_desc import packed_strides
from tests import profiles
from tests.planning.limits import check_plan


def slice_desc(data_type: DataType, sizes: list[int], offsets: list[int], strides: list[int]) -> Slice1Desc:
    windows = [size - offset for size, offset in zip(sizes, offsets, strict=True)]
    output = [1 + (size - 1) // abs(stride) for size, stride in zip(windows, strides, strict=True)]
    return Slice1Desc(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(data_type, output),
        input_window_offsets=offsets,
        input_window_sizes=windows,
        input_window_strides=strides,
    )


def permuted(data_type: DataType, sizes: list[int], order: list[int]) -> Slice1Desc:
    """A packed tensor whose dimensions are put into another order."""
    strides = packed_strides(sizes)
    turned = [sizes[k] for k in order]
    return Slice1Desc(
        input_tensor=TensorDesc(data_type, turned, [strides[k] for k in order]),
        input_window_offsets=[0] * len(sizes),
        input_window_sizes=turned,
        input_window_strides=[1] * len(sizes),
    )


DESCRIPTORS: dict[str, OperatorDesc] = {
    "slice of bytes": slice_desc(DataType.UINT8, [3, 5, 7], [0, 1, 2], [1, -1, 2]),
    "slice of rank 8": slice_desc(DataType.FLOAT64, [3] * 8, [0, 1] * 4, [2, -1] * 4),
    "slice past 4 GiB": slice_desc(DataType.INT32, [3, 1 << 14, 1 << 15], [1, 5, 7], [1, 1, -1]),
    "transpose of 1 GiB": Slice1Desc(
        input_tensor=TensorDesc(DataType.FLOAT32, [1 << 14, 1 << 14], [1, 1 << 14]),
        output_tensor=TensorDesc(DataType.FLOAT32, [1 << 14, 1 << 14]),
        input_window_offsets=[0, 0],
        input_window_sizes=[1 << 14, 1 << 14],
        input_window_strides=[1, 1],
    ),
    "permutation of narrow dimensions": permuted(DataType.INT64, [2, 55924, 5, 3, 5], [4, 1, 3, 0, 2]),
    "permutation of 16-bit elements": permuted(DataType.INT16, [16, 49, 32, 1337], [2, 1, 3, 0]),
    "permutation of pixels": permuted(DataType.UINT8, [77, 512, 511, 3], [0, 3, 1, 2]),
    "permutation of floats": permuted(DataType.FLOAT32, [4096, 7, 5, 9], [0, 3, 2, 1]),
    "permutation past 4 GiB": permuted(DataType.UINT16, [7, 1 << 16, 5, 1 << 10], [3, 0, 2, 1]),
    "rows of 8 bytes": slice_desc(DataType.UINT8, [1 << 20, 11], [0, 3], [1, 1]),
    "rows of 3 halves": slice_desc(DataType.FLOAT16, [1 << 20, 5], [0, 2], [-1, 1]),
    "longest dimension": Slice1Desc(
        input_tensor=TensorDesc(DataType.UINT8, [(1 << 32) - 1]),
        output_tensor=TensorDesc(DataType.UINT8, [2]),
        input_window_offsets=[0],
        input_window_sizes=[(1 << 32) - 1],
        input_window_strides=[-(1 << 31)],
    ),
    "slice with a far stride": SliceDesc(
        input_tensor=TensorDesc(DataType.UINT8, [(1 << 32) - 1]), offsets=[5], sizes=[2], strides=[(1 << 32) - 9]
    ),
    "transpose by SLICE": SliceDesc(
        input_tensor=TensorDesc(DataType.INT8, [1 << 10, 1 << 10], [1, 1 << 10]),
        offsets=[0, 1],
        sizes=[1 << 10, 500],
        strides=[1, 2],
    ),
    "diagonal past 2^31 columns": DiagonalMatrixDesc(
        output_tensor=TensorDesc(DataType.UINT8, [1, (1 << 32) - 1]), offset=(1 << 31) - 1, value=1
    ),
    "identity": DiagonalMatrix1Desc(
        output_tensor=TensorDesc(DataType.FLOAT16, [3, 4, 5, 6]), value=1, diagonal_fill_begin=0, diagonal_fill_end=1
    ),
    "band over 2 GiB": DiagonalMatrix1Desc(
        input_tensor=TensorDesc(DataType.FLOAT64, [1 << 13, 1 << 15]),
        output_tensor=TensorDesc(DataType.FLOAT64, [1 << 13, 1 << 15]),
        value=1,
        diagonal_fill_begin=-(1 << 31),
        diagonal_fill_end=(1 << 31) - 1,
    ),
    "one-hot of 4 GiB": OneHotDesc(
        indices_tensor=TensorDesc(DataType.INT64, [1 << 20, 1]),
        values_tensor=TensorDesc(DataType.FLOAT32, [1, 2]),
        output_tensor=TensorDesc(DataType.FLOAT32, [1 << 20, 1 << 10]),
        axis=1,
    ),
    "one-hot with far values": OneHotDesc(
        indices_tensor=TensorDesc(DataType.UINT32, [1, 9]),
        values_tensor=TensorDesc(DataType.UINT8, [2, 1], [(1 << 32) - 1, 1]),
        output_tensor=TensorDesc(DataType.UINT8, [7, 9]),
        axis=0,
    ),
}


@pytest.mark.quarter_by_day
@pytest.mark.parametrize("profile", profiles.NAMES)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.sixteenth_by_day) if name == "permutation past 4 GiB" else name
        for name in DESCRIPTORS
    ],
)
def test_plans_keep_to_the_limits_of_every_recorded_device(name: str, profile: str) -> None:
    check_plan(plan(DESCRIPTORS[name], profiles.load(profile)), DESCRIPTORS[name], profiles.load(profile))


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_plans_keep_to_the_guaranteed_minimum(name: str) -> None:
    """A device with only the limits that Vulkan 1.2 requires, and allocations of at most 1 GiB."""
    rich = profiles.load("swiftshader")
    poor = replace(
        rich,
        features=frozenset(),
        extensions=frozenset(),
        properties=frozenset(),
        limits=replace(
            rich.limits,
            max_storage_buffer_range=1 << 27,
            max_push_constants_size=128,
            max_per_stage_descriptor_storage_buffers=4,
            max_compute_shared_memory_size=16_384,
            max_compute_work_group_count=(65_535, 65_535, 65_535),
            max_compute_work_group_size=(128, 128, 64),
            max_compute_work_group_invocations=128,
            min_storage_buffer_offset_alignment=256,
        ),
    )
    check_plan(plan(DESCRIPTORS[name], poor), DESCRIPTORS[name], poor)


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_every_output_element_is_counted_once(name: str) -> None:
    desc = DESCRIPTORS[name]
    output = desc.tensors["output_tensor"]
    found = plan(desc, profiles.load("lavapipe-25.0"))
    elements = sum(
        window.size // output.data_type.size_in_bytes
        for dispatch in found.dispatches
        for window in dispatch.windows
        if window.access is Access.WRITE
    )
    # Outputs are packed: the windows tile them, apart from rounding to blocks at the cuts.
    slack = 32 * len(found.dispatches)
    if name not in ("transpose of 1 GiB", "permutation past 4 GiB"):  # whose pieces' windows overlap
        assert output.element_count <= elements <= output.element_count + slack


def test_equal_layouts_of_any_type_share_a_kernel() -> None:
    profile = profiles.load("nvidia-h200")
    found = {
        plan(slice_desc(data_type, [4, 6], [1, 1], [1, -1]), profile).dispatches[0].specialization
        for data_type in (DataType.FLOAT32, DataType.INT32, DataType.UINT32)
    }
    assert len(found) == 1


def test_rows_of_whole_vectors_move_as_vectors() -> None:
    found = plan(slice_desc(DataType.UINT8, [64, 256], [2, 16], [1, 1]), profiles.load("nvidia-h200"))
    assert found.dispatches[0].specialization[1] == 16


def test_a_tensor_elsewhere_in_its_memory_is_cut_at_the_segments_there() -> None:
    profile = profiles.load("swiftshader")
    desc = slice_desc(DataType.UINT8, [1 << 20], [0], [1])
    whole = plan(desc, profile)
    assert len(whole.dispatches) == 1
    cut = plan(desc, profile, offsets={"input_tensor": profile.segment_size - 4096})
    assert {dispatch.windows[1].offset for dispatch in cut.dispatches} >= {0, 4096}


def test_transposes_take_tiles_on_a_gpu_and_blocks_on_a_cpu() -> None:
    desc = DESCRIPTORS["transpose of 1 GiB"]
    for profile in profiles.NAMES:
        found = plan(desc, profiles.load(profile))
        is_cpu = profiles.load(profile).device_type is DeviceType.CPU
        assert found.path == ("blocks" if is_cpu else "tiles")
        kernel = "slice1/blocks_by_rows" if is_cpu else "slice1/tiles"
        assert {dispatch.kernel for dispatch in found.dispatches} == {kernel}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("permutation of narrow dimensions", "boxes"),  # blocks read 32 bytes for each of its elements
        ("permutation of 16-bit elements", "tiles"),
        ("permutation of pixels", "boxes"),  # tiles read vectors of 16 bytes for 3
        ("permutation of floats", "boxes"),
        ("rows of 8 bytes", "boxes"),  # blocks put them together one by one
        ("rows of 3 halves", "boxes"),
        ("transpose of 1 GiB", "tiles"),
        ("slice past 4 GiB", "blocks"),  # long rows
        ("slice of bytes", "blocks"),  # too small for anything else
    ],
)
def test_the_path_with_the_least_transactions_and_instructions_is_taken(name: str, path: str) -> None:
    for device in ("nvidia-h200", "nvidia-h200-nvk", "amd-radeon-rx-7900-xtx"):
        if device in profiles.NAMES:
            assert plan(DESCRIPTORS[name], profiles.load(device)).path == path, device


def test_narrow_sides_of_tiles_leave_room_for_the_others() -> None:
    """Columns of 16 bytes that follow each other are read whole, and rows that are short get more columns."""
    found = plan(permuted(DataType.UINT8, [1 << 16, 16], [1, 0]), profiles.load("nvidia-h200"))
    (dispatch,) = found.dispatches
    assert (dispatch.kernel, dispatch.specialization[8:10]) == ("slice1/tiles", (1024, 16))
    found = plan(DESCRIPTORS["permutation of 16-bit elements"], profiles.load("nvidia-h200"))
    assert found.dispatches[0].specialization[8:10] == (16, 512)
    # 14 bytes are read with a vector that holds others' bytes as well.
    assert plan(permuted(DataType.UINT8, [1 << 16, 14], [1, 0]), profiles.load("nvidia-h200")).path == "boxes"


def test_a_path_for_all_operators_leaves_those_without_it_alone() -> None:
    desc = DESCRIPTORS["slice of bytes"]
    assert preferred_path(desc, "tiles") == "tiles"
    assert preferred_path(desc, "integer") is None
    with pytest.raises(ValueError, match=r"DMLVK_KERNEL = 'whole': no operator has a kernel path.*'matrix'"):
        preferred_path(desc, "whole")


def test_an_unknown_path_is_refused_with_those_that_exist() -> None:
    with pytest.raises(
        ValueError, match="SLICE1 has no kernel path 'integer'; it has 'blocks', 'elements', 'tiles', 'boxes'"
    ):
        plan(DESCRIPTORS["slice of bytes"], profiles.load("swiftshader"), path="integer")


@pytest.mark.parametrize(
    ("sizes", "offsets", "kernel", "edges"),
    [
        ([40, 64], [0, 32], "slice1/blocks_by_rows", 0),  # rows of two whole blocks
        ([40, 64], [0, 31], "slice1/blocks_by_rows", 1),  # each row of the output begins at another place in a block
        ([40, 64], [0, 33], "slice1/blocks", None),  # rows shorter than two blocks
        ([9, 64], [0, 31], "slice1/blocks", None),  # too few rows
    ],
)
def test_blocks_are_taken_by_rows_where_these_are_long_and_many(
    sizes: list[int], offsets: list[int], kernel: str, edges: int | None
) -> None:
    (dispatch,) = plan(slice_desc(DataType.UINT8, sizes, offsets, [1, 1]), profiles.load("nvidia-h200")).dispatches
    assert dispatch.kernel == kernel
    assert edges is None or dispatch.specialization[4] == edges


@pytest.mark.parametrize(
    ("device", "sizes", "offsets", "kernel", "is_long"),
    [
        ("nvidia-h200", [40, 64], [0, 33], "slice1/blocks", 1),
        ("nvidia-h200", [40, 64], [0, 47], "slice1/blocks", 1),  # rows of 17 bytes, which may hold a block
        ("nvidia-h200", [40, 64], [0, 51], "slice1/blocks", 0),  # rows of 13 bytes, which hold none
        ("lavapipe-22.3", [40, 64], [0, 31], "slice1/blocks", 0),  # a GPU takes these by rows
        ("swiftshader", [40, 128], [0, 31], "slice1/blocks", 1),
        ("swiftshader", [40, 96], [0, 33], "slice1/blocks", 0),  # rows of less than four blocks
    ],
)
def test_blocks_inside_rows_have_a_way_of_their_own_where_rows_are_long(
    device: str, sizes: list[int], offsets: list[int], kernel: str, is_long: int
) -> None:
    (dispatch,) = plan(slice_desc(DataType.UINT8, sizes, offsets, [1, 1]), profiles.load(device)).dispatches
    assert (dispatch.kernel, dispatch.specialization[4]) == (kernel, is_long)
    assert dispatch.specialization[6] == (device != "nvidia-h200"), "only on a CPU a gather is a loop"


@pytest.mark.parametrize(
    ("data_type", "count", "axis", "kernel"),
    [
        (DataType.UINT8, 160, 0, "one_hot/chunks"),
        (DataType.UINT8, 161, 0, "one_hot/words"),
        (DataType.UINT16, 161, 0, "one_hot/words"),
        (DataType.FLOAT32, 161, 0, "one_hot/words"),
        (DataType.UINT8, 16, 0, "one_hot/words"),
        (DataType.UINT8, 4, 0, "one_hot/words"),
        (DataType.UINT8, 3, 0, "one_hot/blocks"),
        (DataType.UINT8, 160, 1, "one_hot/blocks_by_rows"),
    ],
)
def test_one_hot_goes_along_the_indices_in_chunks(data_type: DataType, count: int, axis: int, kernel: str) -> None:
    """In blocks if rows of the output are whole blocks, otherwise in words. 200 is not a multiple of the chunk."""
    desc = OneHotDesc(
        indices_tensor=TensorDesc(DataType.INT32, [1, count] if axis == 0 else [count, 1]),
        values_tensor=TensorDesc(data_type, [1, 2]),
        output_tensor=TensorDesc(data_type, [200, count] if axis == 0 else [count, 200]),
        axis=axis,
    )
    for device in ("nvidia-h200", "lavapipe-22.3"):
        assert {dispatch.kernel for dispatch in plan(desc, profiles.load(device)).dispatches} == {kernel}


def one_hot(data_type: DataType, count: int, depth: int, axis: int) -> OneHotDesc:
    return OneHotDesc(
        indices_tensor=TensorDesc(DataType.INT64, [1, count] if axis == 0 else [count, 1]),
        values_tensor=TensorDesc(data_type, [1, 2]),
        output_tensor=TensorDesc(data_type, [depth, count] if axis == 0 else [count, depth]),
        axis=axis,
    )


@pytest.mark.parametrize(
    ("data_type", "mebibytes", "chunk", "parts"),
    [
        (DataType.UINT8, 256, 64, 1),
        (DataType.UINT8, 64, 64, 4),
        (DataType.UINT8, 16, 64, 4),
        (DataType.UINT8, 4, 32, 4),  # 64 workgroups of 64 coordinates would leave half of the processors without one
        (DataType.UINT8, 1, 8, 4),
        (DataType.FLOAT16, 256, 64, 0),
    ],
)
def test_chunks_of_one_hots_give_most_processors_a_workgroup(
    data_type: DataType, mebibytes: int, chunk: int, parts: int
) -> None:
    desc = one_hot(data_type, (mebibytes << 20) // (256 * data_type.size_in_bytes), 256, 0)
    for dispatch in plan(desc, profiles.load("nvidia-h200")).dispatches:
        names = kernel_interface(dispatch.kernel).specialization_constants
        constants = dict(zip(names, dispatch.specialization, strict=True))
        assert (constants["AXIS_CHUNK"], constants["PARTS"]) == (chunk, parts)


def test_one_hots_of_a_cpu_have_whole_chunks() -> None:
    (dispatch,) = plan(one_hot(DataType.UINT8, 4096, 256, 0), profiles.load("lavapipe-25.0")).dispatches
    constants = dict(
        zip(kernel_interface(dispatch.kernel).specialization_constants, dispatch.specialization, strict=True)
    )
    assert (constants["AXIS_CHUNK"], constants["PARTS"]) == (64, 0)


@pytest.mark.parametrize(
    ("path", "groups", "rows"),
    [
        ("rows", 1024, 64),  # 16 KiB are 64 rows
        ("rows:64", 256, 256),
        ("rows:9999", 64, 1024),  # as many rows as shared memory has room for
    ],
)
def test_a_workgroup_of_one_hot_writes_whole_rows(path: str, groups: int, rows: int) -> None:
    desc, profile = one_hot(DataType.UINT8, 1 << 16, 256, 1), profiles.load("nvidia-h200")
    found = plan(desc, profile, path=path)
    (dispatch,) = found.dispatches
    assert found.path == path
    assert (dispatch.kernel, dispatch.groups[0] * dispatch.groups[1]) == ("one_hot/rows", groups)
    assert dispatch.push_constants[kernel_interface("one_hot/rows").word_of("grouping")] == rows


@pytest.mark.parametrize(
    ("device", "data_type", "depth", "axis", "path"),
    [
        ("nvidia-h200", DataType.UINT8, 256, 1, "rows"),
        ("intel-dg2", DataType.FLOAT32, 64, 1, "rows"),
        ("nvidia-h200", DataType.FLOAT32, 65, 1, "blocks"),  # long rows are as fast in blocks
        ("nvidia-h200", DataType.UINT8, 256, 0, "blocks"),
        ("lavapipe-25.0", DataType.UINT8, 256, 1, "blocks"),
    ],
)
def test_gpus_write_short_rows_whole(device: str, data_type: DataType, depth: int, axis: int, path: str) -> None:
    assert plan(one_hot(data_type, 1 << 16, depth, axis), profiles.load(device)).path == path


@pytest.mark.parametrize("path", ["rows:0", "rows:", "rows:4:9", "rows:1000000", "twice"])
def test_a_size_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="ONE_HOT has no kernel path"):
        plan(one_hot(DataType.UINT8, 64, 64, 0), profiles.load("nvidia-h200"), path=path)


@pytest.mark.quarter_by_day
@pytest.mark.parametrize("profile", profiles.NAMES)
@pytest.mark.parametrize("axis", [0, 1])
def test_whole_rows_keep_to_the_limits_of_every_recorded_device(profile: str, axis: int) -> None:
    for data_type, count, depth in ((DataType.UINT8, 1 << 22, 256), (DataType.FLOAT32, 1 << 14, 1 << 13)):
        desc, device = one_hot(data_type, count, depth, axis), profiles.load(profile)
        for path in ("rows", "rows:1024"):
            check_plan(plan(desc, device, path=path), desc, device)


@given(st.integers(2, (1 << 32) - 1) | st.integers(2, 5000), st.integers(0, (1 << 31) - 1), st.integers(-1, 1))
@example(2, (1 << 31) - 1, 0)
@example((1 << 31) + 1, (1 << 31) - 1, 0)
def test_divisions_by_multiplication_are_exact(divisor: int, dividend: int, distance: int) -> None:
    multiplier, shift = quick_division(divisor)
    assert 0 < multiplier < 1 << 32 and shift < 32
    # The quotient changes at multiples of the divisor, so it would be wrong there first.
    for n in {dividend, dividend // divisor * divisor + distance}:
        if 0 <= n < 1 << 31:
            assert (n * multiplier >> 32) >> shift == n // divisor
