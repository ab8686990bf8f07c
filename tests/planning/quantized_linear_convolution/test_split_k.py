"""The path `split_k`: its tiles on every device, tiles by name, the shared memory that they take, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.work import LAYOUTS, desc_of
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError
from dmlvk.planning import device_traits
from dmlvk.planning.plan import NO_OFFSETS, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.choice import convolution_paths
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.split_k import (
    KERNEL,
    SPLITS,
    SplitKPath,
    SplitKRules,
)
from dmlvk.planning.quantized_linear_convolution.tiled_product import BYTES, PLANES, PUSH_CONSTANTS_SIZE, Block, Tile
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.declared_memory import shared_bytes
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, NAMES, convolution, written_elements
from tests.planning.quantized_linear_convolution.matrix_devices import (
    MATRIX_DEVICES,
    SPLIT_K_DEVICES,
    constant,
    size_of,
)

H200 = profiles.load("nvidia-h200")
LAVAPIPE = profiles.load("lavapipe-26.2")
TYPES = ("sint8", "sint8", "sint32", "sint32", "subgroup")


def products(found: Plan) -> list[Dispatch]:
    return [dispatch for dispatch in found.dispatches if dispatch.kernel == KERNEL]


def tile_of(product: Dispatch) -> Tile:
    pixels, channels = constant(product, "TILE_PIXELS"), constant(product, "TILE_CHANNELS")
    return Tile(
        pixels, channels, 16 * constant(product, "STEP"), pixels, channels, splits=constant(product, "SUBGROUPS")
    )


def check_products(found: Plan, profile: DeviceProfile) -> None:
    """The driver lists the matrices, the tile is possible, and shared memory is as large as the planner thinks."""
    assert products(found)
    for product in products(found):
        m, n, k = (constant(product, f"MATRIX_{name}") for name in "MNK")
        matrix = next(
            each
            for each in profile.cooperative_matrices
            if (each.m, each.n, each.k) == (m, n, k)
            and (each.a_type, each.b_type, each.c_type, each.result_type, each.scope) == TYPES
        )
        tile, in_words = tile_of(product), bool(constant(product, "STORE_CHANNELS"))
        rules = SplitKRules(
            *(profile, KERNEL, in_words, profile.min_subgroup_size, (m, n), Block(m, n, k)),
            *(max(k, 16), (1, 1)),
        )
        assert matrix is not None and rules.obstacle(tile) is None
        assert (constant(product, "SUBGROUP_PIXELS"), constant(product, "SUBGROUP_CHANNELS")) == (
            tile.pixels,
            tile.channels,
        )
        lanes = constant(product, "LANES")
        assert lanes == product.subgroup_size == profile.min_subgroup_size
        assert product.specialization[0] == lanes * tile.splits
        assert shared_bytes(product) == rules.shared_memory(tile) <= device_traits.tile_memory(profile)
        assert tile.pixels * constant(product, "STEP") % lanes == 0
        assert constant(product, "FETCH") != PLANES


@pytest.mark.quarter_by_day
@pytest.mark.parametrize("device", SPLIT_K_DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_tiles_wherever_a_device_has_matrices_and_subgroups_of_32(name: str, device: str) -> None:
    profile, desc = profiles.load(device), DESCRIPTORS[name]
    try:
        found = plan(desc, profile, path="split_k")
    except PathError as error:
        assert "cannot take path 'split_k' here: " in str(error)
        return
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    check_products(found, profile)


@pytest.mark.half_by_day
@pytest.mark.parametrize("tile", ["", ":16x16x16:1", ":8x16x32:3", ":16x8x64:8", ":32x32x16:4"])
@pytest.mark.parametrize("name", ["odd", "NHWC", "ResNeXt", "all owned"])
def test_tiles_on_a_cpu(name: str, tile: str) -> None:
    """Subgroups of 8, and matrices whose rows of K are half a vector."""
    desc = DESCRIPTORS[name]
    found = plan(desc, LAVAPIPE, path=f"split_k{tile}")
    check_plan(found, desc, LAVAPIPE)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    check_products(found, LAVAPIPE)


@pytest.mark.parametrize("tile", ["32x32x64:8", "16x32x64:1", "16x16x32:5", "64x32x64:4", "32x64x128:2", "128x16x64:3"])
@pytest.mark.parametrize("name", ["NHWC", "ResNet, 512 channels"])
def test_a_tile_may_be_forced(tile: str, name: str) -> None:
    desc = DESCRIPTORS[name]
    found = plan(desc, H200, path=f"split_k:{tile}")
    check_plan(found, desc, H200)
    assert found.path == f"split_k:{tile}" and found.clean_size == 0
    check_products(found, H200)
    for product in products(found):
        cut = tile_of(product)
        assert f"{cut.pixels}x{cut.channels}x{cut.step}:{cut.splits}" == tile
        assert (constant(product, "PARTS"), size_of(product, "TURNS")) == (1, 1)


def test_a_forced_tile_may_have_parts() -> None:
    desc = DESCRIPTORS["NHWC"]
    found = plan(desc, H200, path="split_k:16x32x64:2/3")
    check_plan(found, desc, H200)
    (product,) = products(found)
    assert (found.path, tile_of(product).splits, size_of(product, "PARTS")) == ("split_k:16x32x64:2/3", 2, 3)
    assert found.clean_size > 0


@pytest.mark.parametrize(
    "tile",
    ["32x32x64", "32x32:8", "32x32x64:0", "0x32x64:8", "32x32x64:8x2", "32x32x64:8*2", "32x32x64:-8", "32x32x64:8 "],
)
def test_a_name_that_is_no_tile_s(tile: str) -> None:
    with pytest.raises(PathError, match=rf"a tile is named like '32x32x64:8', not '{tile}'".replace("*", r"\*")):
        plan(DESCRIPTORS["NHWC"], H200, path=f"split_k:{tile}")


WIDE = replace(H200, subgroup_size=64, min_subgroup_size=64, max_subgroup_size=64)


@pytest.mark.parametrize(
    ("profile", "tile", "reason"),
    [
        (H200, "48x32x64:8", "a tile's sizes = .*, possible: powers of two"),
        (H200, "32x48x64:8", "a tile's sizes = .*, possible: powers of two"),
        (H200, "32x32x96:8", "a tile's sizes = .*, possible: powers of two"),
        (H200, "8x32x64:8", "outputs of a subgroup = .*, possible: multiples of .16, 16."),
        (H200, "32x8x64:8", "outputs of a subgroup = .*, possible: multiples of .16, 16."),
        (H200, "32x32x16:8", "bytes of a step = .*, possible: multiples of 32"),
        (
            LAVAPIPE,
            "16x16x8:2",
            "bytes of a step = .*, possible: multiples of 16",
        ),  # a vector
        (LAVAPIPE, "4x16x16:2", "outputs of a subgroup = .*, possible: multiples of .8, 8."),
        (H200, "32x32x64:33", "invocations of a workgroup = 1056, possible: at most 1024"),
        (H200, "32x32x1024:1", "invocations that fetch a step = 32, possible: as many vectors"),
        (WIDE, "16x32x32:1", "invocations that fetch a step = 64, possible: as many vectors"),
        (WIDE, "32x16x32:1", "invocations that fetch a step = 64, possible: as many vectors"),
        (LAVAPIPE, "16x16x256:1", "invocations that fetch a step = 8, possible: as many vectors"),
        (H200, "64x64x64:8", "bytes of shared memory = 149040, possible: at most 49152"),
        (H200, "32x32x64:16", "bytes of shared memory = 82864, possible: at most 49152"),
        (LAVAPIPE, "32x32x64:8", "bytes of shared memory = 74672, possible: at most 32768"),
    ],
)
def test_a_tile_that_the_kernel_cannot_have_is_refused(profile: DeviceProfile, tile: str, reason: str) -> None:
    message = rf"tile '{tile}' is not possible on .*: {reason}"
    with pytest.raises(PathError, match=message):
        plan(DESCRIPTORS["NHWC"], profile, path=f"split_k:{tile}")


def test_a_workgroup_is_no_larger_than_the_device_s_and_has_less_memory_where_there_is_less() -> None:
    """Then fewer subgroups share a K, down to one."""
    desc = convolution(1, 2048, (7, 7), 64, (3, 3), padding=(1, 1))

    def splits(**changes: object) -> int:
        profile = replace(H200, limits=replace(H200.limits, **changes))  # type: ignore[arg-type]
        found = plan(desc, profile, path="split_k")
        check_plan(found, desc, profile)
        check_products(found, profile)
        (count,) = {tile_of(product).splits for product in products(found)}
        return count

    assert splits() == SPLITS[0]
    assert splits(max_compute_shared_memory_size=24_000) == 4
    assert splits(max_compute_work_group_invocations=128) == 4
    assert splits(max_compute_work_group_size=(128, 128, 64)) == 4


@pytest.mark.parametrize("device", sorted(set(MATRIX_DEVICES) - set(SPLIT_K_DEVICES)))
def test_gpus_with_smaller_subgroups_do_not_have_it(device: str) -> None:
    profile = profiles.load(device)
    lanes = profile.min_subgroup_size
    assert lanes < 32
    assert SplitKPath().obstacle_on(profile) == Obstacle("invocations of a subgroup", lanes, "at least 32")
    assert "split_k" not in convolution_paths(profile) and "matrix" in convolution_paths(profile)
    with pytest.raises(PathError, match=r"no kernel path 'split_k:32x32x64:8/2' on .*; it has .*'matrix'"):
        plan(DESCRIPTORS["NHWC"], profile, path="split_k:32x32x64:8/2")


def test_what_a_device_has_to_have() -> None:
    path = SplitKPath()
    assert path.obstacle_on(H200) is path.obstacle_on(LAVAPIPE) is None
    assert LAVAPIPE.min_subgroup_size == 8, "a CPU driver's may be smaller"
    gpu = path.obstacle_on(replace(LAVAPIPE, device_type=DeviceType.DISCRETE_GPU))
    assert gpu == Obstacle("invocations of a subgroup", 8, "at least 32")
    few = path.obstacle_on(replace(H200, limits=replace(H200.limits, max_push_constants_size=128)))
    assert few == Obstacle("bytes of push constants", 128, f"at least {PUSH_CONSTANTS_SIZE}")
    without = path.obstacle_on(replace(H200, cooperative_matrices=()))
    assert without is not None and without.quantity == "matrices of signed bytes"


def test_one_step_of_a_share_is_a_constant() -> None:
    """Then no loop over steps is left in the kernel."""
    desc = DESCRIPTORS["NHWC"]  # nine steps of 64 bytes
    for path, own_steps in (
        ("split_k:32x32x64:1", 9),
        ("split_k:32x32x64:4", 3),
        ("split_k:32x32x64:8", 2),
        ("split_k:16x32x64:4/2", 2),
        ("split_k:16x32x64:4/3", 1),
        ("split_k:16x16x64:9", 1),
        ("split_k:16x16x64:9/40", 1),
    ):
        (product,) = products(plan(desc, H200, path=path))
        assert (size_of(product, "part_steps"), constant(product, "PART_STEPS")) == (own_steps, own_steps == 1), path


@pytest.mark.parametrize(
    ("path", "is_whole"),
    [
        ("split_k:32x32x64:1", True),
        ("split_k:16x16x64:9", True),
        ("split_k:16x32x64:3/3", True),
        ("split_k:16x32x64:2", False),  # the second subgroup has four steps, and one past the end of K
        ("split_k:16x32x64:4/3", False),
        ("split_k:16x32x128:1", False),  # K ends in the middle of a step
        ("split_k:16x32x64:9/2", False),  # a part of nothing
    ],
)
def test_steps_past_the_end_of_k_are_looked_for(path: str, is_whole: bool) -> None:
    """Nine steps of 64 bytes, read in place and without a border."""
    (product,) = products(plan(DESCRIPTORS["NHWC"], H200, path=path))
    assert constant(product, "WHOLE_STEPS") == is_whole


@pytest.mark.parametrize("tile", ["", ":32x32x64:2", ":16x32x64:1", ":16x32x128:3", ":16x16x32:1"])
@pytest.mark.parametrize("kernel", [1, 3])
def test_any_tile_reads_planes_in_place(tile: str, kernel: int) -> None:
    desc = convolution(1, 64, (28, 28), 64, (kernel, kernel), padding=(kernel // 2, kernel // 2))
    found = plan(desc, H200, path=f"split_k{tile}")
    check_plan(found, desc, H200)
    check_products(found, H200)
    (product,) = products(found)
    assert constant(product, "FETCH") == BYTES and product.windows[0].tensor == "input_tensor"
    assert not any("pack_input" in each.kernel or "channels_last" in each.kernel for each in found.dispatches)


@pytest.mark.parametrize("name", ["odd", "NHWC", "ResNeXt", "all owned"])
@pytest.mark.parametrize("offset", [16, 4080])
def test_windows_of_tensors_that_begin_anywhere(name: str, offset: int) -> None:
    desc = DESCRIPTORS[name]
    small = replace(H200, limits=replace(H200.limits, max_storage_buffer_range=1 << 18, max_buffer_size=1 << 22))
    offsets = {"input_tensor": offset, "output_tensor": offset}
    found = plan(desc, small, path="split_k", offsets=offsets)
    check_plan(found, desc, small)
    assert written_elements(found, desc) == desc.output_tensor.element_count


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("filters", "channels", "widths"),
    [(2, 256, {16}), (16, 256, {16}), (24, 256, {32}), (32, 256, {32}), (64, 64, {32}), (64, 80, {32, 64})],
)
def test_tiles_are_as_wide_as_the_output_and_k_allow(
    filters: int, channels: int, widths: set[int], layout: str
) -> None:
    """With 64 images, 32 -> 16 112x112 takes 20 us by tiles of 16 channels, and 30 by tiles of 32 (H200, planes)."""
    (geometry,) = Problem(desc_of(Layer(channels, 28, filters, 1), 8, layout), H200, NO_OFFSETS).product_geometries
    assert {tile.channels for tile in SplitKPath().unsplit(H200, geometry)} == widths
