"""K cut over workgroups and subgroups: into how many shares, which steps each one has, and the memory of their sums."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlvk.conformance.profiles import PROFILES
from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning import quantized_linear_convolution
from dmlvk.planning.device_rates import LARGE_GPU
from dmlvk.planning.plan import CLEAN, NO_OFFSETS, Access, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.choice import PATH_NAMES as PATHS
from dmlvk.planning.quantized_linear_convolution.choice import PATHS as REGISTERED
from dmlvk.planning.quantized_linear_convolution.choice import convolution_paths, offers
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.path import Problem
from dmlvk.planning.quantized_linear_convolution.split_k import MANY_STEPS, SplitKPath
from dmlvk.planning.quantized_linear_convolution.tiled_product import TiledPath
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, convolution, written_elements
from tests.planning.quantized_linear_convolution.matrix_devices import SPLIT_K_DEVICES, constant, size_of

H200 = profiles.load("nvidia-h200")
WITHOUT_MATRICES = PROFILES["no-matrix"](H200)
PIXEL_SUMS, COUNTER_WORDS = 1, 4  # words for each pixel beside its sums, and at the end of a tile


def products(found: Plan) -> list[Dispatch]:
    return [each for each in found.dispatches if each.operations]


def steps_of_shares(product: Dispatch) -> Counter[int]:
    """How often each step of K is multiplied, as split_k.comp and vectors.glsl say it."""
    parts = size_of(product, "PARTS")
    vectors, step = size_of(product, "VECTORS_OF_K"), constant(product, "STEP")
    total = -(-vectors // step)
    if product.kernel.endswith("/split_k"):
        subgroups = constant(product, "SUBGROUPS")
        own_steps = constant(product, "PART_STEPS") or size_of(product, "part_steps")
        first = [(part * subgroups + subgroup) * own_steps for part in range(parts) for subgroup in range(subgroups)]
        counted = Counter(start + n for start in first for n in range(own_steps))
        # Without a look for the end, no step may lie past it. What does lie there is 0.
        assert not constant(product, "WHOLE_STEPS") or (set(counted) == set(range(total)) and vectors % step == 0)
        return Counter({number: count for number, count in counted.items() if number < total})
    own_steps = -(-total // parts)
    ranges = [range(part * own_steps, min((part + 1) * own_steps, total)) for part in range(parts)]
    return Counter(number for each in ranges for number in each)


def step_count(product: Dispatch) -> int:
    return -(-size_of(product, "VECTORS_OF_K") // constant(product, "STEP"))


def test_the_page_has_every_path_and_says_which_of_them_cut_k() -> None:
    page = inspect.getdoc(quantized_linear_convolution) or ""
    listed = re.findall(r"^(\w[\w, ]*)\n    (\S.*(?:\n    .*)*)", page, re.MULTILINE)
    entries = {name: text for names, text in listed for name in names.split(", ")}
    assert tuple(entries) == PATHS
    problem = Problem(DESCRIPTORS["ResNet, 256 channels"], H200, NO_OFFSETS)
    possible = {offer.path.name for offer in offers(problem)}
    assert len(possible) > 4
    for path in REGISTERED:
        cuts = isinstance(path, TiledPath) and path.cuts_k
        assert ("It cuts K." in entries[path.name]) == cuts, path.name
        if not cuts and path.name in possible:
            with pytest.raises(PathError, match="does not cut K"):
                plan(problem.desc, H200, path=f"{path.name}/2")
    assert plan(problem.desc, H200, path="split_k/4").path == "split_k/4"


@pytest.mark.parametrize("path", ["split_k", "vectors"])
@settings(max_examples=100)
@given(
    channels=st.integers(1, 700),
    kernel=st.sampled_from([(1, 1), (3, 3), (2, 5)]),
    tile=st.sampled_from(["", ":16x16x32:1", ":16x32x64:3", ":32x32x64:8", ":16x16x128:5"]),
    parts=st.integers(1, 40),
    in_words=st.booleans(),
)
def test_no_step_is_left_out_or_counted_twice(
    path: str, channels: int, kernel: tuple[int, int], tile: str, parts: int, in_words: bool
) -> None:
    last = (9 * 9 * channels, 1, 9 * channels, channels) if in_words else None
    desc = convolution(1, channels, (9, 9), 40, kernel, input_strides=last, everything_owned=channels % 2 == 0)
    profile = H200 if path == "split_k" else WITHOUT_MATRICES
    found = plan(desc, profile, path=f"{path}{tile if path == 'split_k' else ''}/{parts}")
    check_plan(found, desc, profile)
    for product in products(found):
        assert steps_of_shares(product) == Counter(range(step_count(product)))
        assert size_of(product, "PARTS") == parts and product.groups[2] == parts


@given(channels=st.integers(16, 20_000), filters=st.integers(1, 600), size=st.integers(1, 20), kernel=st.integers(1, 3))
def test_no_part_is_without_a_step_where_the_planner_cuts(channels: int, filters: int, size: int, kernel: int) -> None:
    """Nor is a workgroup's half without a step: of three steps, each of four subgroups has one at most. A short K has
    no cut."""
    desc = convolution(1, channels, (size + 2, size + 2), filters, (kernel, kernel))
    for tile in SplitKPath().tiles(Problem(desc, H200, NO_OFFSETS)):
        cut, steps = tile.tile, tile.steps
        own_steps = -(-steps // (cut.parts * cut.splits))
        assert (cut.parts - 1) * cut.splits * own_steps < steps
        assert cut.splits & (cut.splits - 1) == 0 and cut.splits < 2 * steps
        assert cut.parts == 1 or -(-steps // cut.splits) >= MANY_STEPS


@pytest.mark.parametrize(
    ("path", "device", "batch", "channels", "size", "filters", "kernel", "is_cut"),
    [
        ("split_k", H200, 1, 2048, 7, 512, 3, True),
        ("split_k", H200, 1, 512, 7, 512, 3, False),  # few steps for each of eight subgroups
        ("split_k", H200, 1, 256, 14, 1024, 1, False),
        ("split_k", H200, 64, 2048, 7, 512, 3, False),  # many tiles
        ("vectors", WITHOUT_MATRICES, 1, 512, 7, 512, 3, True),
        ("vectors", WITHOUT_MATRICES, 1, 64, 56, 64, 1, False),  # one step
        ("vectors", WITHOUT_MATRICES, 64, 512, 7, 512, 3, False),
    ],
)
def test_k_is_cut_over_workgroups_where_tiles_are_few_and_steps_many(
    path: str, device: DeviceProfile, batch: int, channels: int, size: int, filters: int, kernel: int, is_cut: bool
) -> None:
    desc = convolution(batch, channels, (size, size), filters, (kernel, kernel), padding=(kernel // 2, kernel // 2))
    found = plan(desc, device, path=path)
    (product,) = found.stages[-1]
    parts = size_of(product, "PARTS")
    assert (parts > 1) == is_cut == (found.clean_size > 0)
    assert product.groups[2] == parts
    sums = [window for window in product.windows if window.tensor == CLEAN]
    assert all(window.access is Access.WRITE and window.size <= found.clean_size for window in sums)
    assert len(sums) == is_cut


@pytest.mark.half_by_day
@pytest.mark.parametrize("device", SPLIT_K_DEVICES)
@pytest.mark.parametrize("parts", [1, 3, 9999])
@pytest.mark.parametrize("path", ["split_k", "vectors"])
def test_any_number_of_parts_may_be_forced(path: str, device: str, parts: int) -> None:
    profile, desc = profiles.load(device), convolution(8, 512, (28, 28), 512, (3, 3), padding=(1, 1))
    found = plan(desc, profile, path=f"{path}/{parts}")
    check_plan(found, desc, profile)
    assert found.path == f"{path}/{parts}"
    assert written_elements(found, desc) == desc.output_tensor.element_count
    assert {size_of(each, "PARTS") for each in products(found)} == {parts}
    assert (found.clean_size > 0) == (parts > 1)


@pytest.mark.parametrize("path", ["split_k", "vectors"])
@pytest.mark.parametrize("name", ["odd", "NHWC", "ResNeXt", "all owned"])
def test_each_tile_of_each_dispatch_has_sums_of_its_own(path: str, name: str) -> None:
    """Dispatches of a stage run side by side. Each tile has its sums, those of its pixels, and the number of parts."""
    profile = H200 if path == "split_k" else WITHOUT_MATRICES
    found = plan(DESCRIPTORS[name], profile, path=f"{path}/3")
    regions = []
    for product in products(found):
        pixels, channels = constant(product, "TILE_PIXELS"), constant(product, "TILE_CHANNELS")
        tiles = product.groups[0] * product.groups[1] * product.groups[2] // 3
        words = pixels * channels + PIXEL_SUMS * pixels + COUNTER_WORDS
        (window,) = (each for each in product.windows if each.tensor == CLEAN)
        start = window.offset + 4 * size_of(product, "part_sums_start")
        assert window.access is Access.WRITE
        assert window.offset <= start and start + 4 * words * tiles <= window.offset + window.size <= found.clean_size
        regions.append((window.offset, window.offset + window.size))
    regions.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(regions))


@pytest.mark.parametrize(("path", "device"), [("split_k", H200), ("vectors", WITHOUT_MATRICES)])
def test_sums_that_no_window_shows_are_not_cut(path: str, device: DeviceProfile) -> None:
    # So many processors that many tiles are cut as well.
    device = replace(device, rates=replace(LARGE_GPU, processors=1e6))
    desc = convolution(1, 1600, (80, 80), 48, (3, 3), padding=(1, 1))
    small = replace(device, limits=replace(device.limits, max_storage_buffer_range=1 << 21))
    assert plan(desc, device, path=path).clean_size > 1 << 20
    assert plan(desc, small, path=path).clean_size == 0
    large = convolution(64, 64, (112, 112), 64, (3, 3), padding=(1, 1))
    small = replace(device, limits=replace(device.limits, max_storage_buffer_range=1 << 19))
    with pytest.raises(PathError, match=r"bytes of the sums of parts of K = \d+, possible: at most a window's"):
        plan(large, small, path=f"{path}/2")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("split_k/0", "after a slash, the parts of K are 1 to 9999"),
        ("split_k/", "after a slash, the parts of K are 1 to 9999"),
        ("split_k/12345", "after a slash, the parts of K are 1 to 9999"),
        ("split_k:32x32x64:8/-1", "after a slash, the parts of K are 1 to 9999"),
        ("direct/2", "path 'direct' does not cut K, so it has no 2 parts"),
        ("matrix/3", "path 'matrix' does not cut K, so it has no 3 parts"),
        ("matrix:128x128x64:64x64/2", "path 'matrix' does not cut K, so it has no 2 parts"),
        ("halo/2", "path 'halo' does not cut K, so it has no 2 parts"),
        ("vectors:32x64x128:4x4*4/2", "a workgroup of several tiles has the whole K of each, and not one of 2 parts"),
    ],
)
def test_parts_that_there_cannot_be(path: str, reason: str) -> None:
    desc: QuantizedLinearConvolutionDesc = DESCRIPTORS["NHWC"]
    with pytest.raises(PathError, match=reason):
        plan(desc, H200, path=path)


def test_several_tiles_and_one_part() -> None:
    for path in ("vectors:32x64x128:4x4*4/1", "vectors:32x64x128:4x4*4"):
        assert plan(DESCRIPTORS["NHWC"], WITHOUT_MATRICES, path=path).clean_size == 0


def test_devices_of_split_k_are_those_with_matrices_and_subgroups_of_32() -> None:
    assert {name for name in profiles.NAMES if "split_k" in convolution_paths(profiles.load(name))} == {
        *SPLIT_K_DEVICES,
        "lavapipe-26.2",
    }
