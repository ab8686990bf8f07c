"""The path `vectors`: which devices have it, when the input is read in place, tiles by name, and parts of K."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.work import LAYOUTS, desc_of
from dmlvk.conformance.profiles import PROFILES, narrowed_limits
from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError
from dmlvk.planning import device_traits
from dmlvk.planning.device_rates import LARGE_GPU, rates_of
from dmlvk.planning.device_traits import ROUNDING
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.plan import CLEAN, NO_OFFSETS, Dispatch
from dmlvk.planning.quantized_linear_convolution.choice import convolution_paths
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.path import Problem
from dmlvk.planning.quantized_linear_convolution.tiled_product import Runs
from dmlvk.planning.quantized_linear_convolution.vectors import (
    FEW_SUMS,
    HALF_STEP,
    MANY_HALF_STEPS,
    NARROW,
    VectorsPath,
    VectorsRules,
    _large_tile,
)
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import (
    DESCRIPTORS,
    OWNED,
    convolution,
    written_elements,
)

DEVICES = ("nvidia-h200", "amd-navi21", "intel-skl", "adreno-740", "apple-m1", "lavapipe-22.3", "swiftshader")
H200 = PROFILES["no-matrix"](profiles.load("nvidia-h200"))


def constant(dispatch: Dispatch, name: str) -> int:
    return dispatch.specialization[kernel_interface(dispatch.kernel).specialization_constants.index(name)]


# A batch of eight: several dispatches on each device, and not thousands on a CPU.
FIRST_LAYER = convolution(8, 3, (224, 224), 64, (7, 7), strides=(2, 2), padding=(3, 3))


@pytest.mark.half_by_day
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["odd", "NHWC", "ResNeXt", "all owned", "first layer"])
@pytest.mark.parametrize("parts", ["", "/3"])
def test_plans_keep_to_the_device(device: str, name: str, parts: str) -> None:
    profile, desc = profiles.load(device), FIRST_LAYER if name == "first layer" else DESCRIPTORS[name]
    found = plan(desc, profile, path="vectors" + parts)
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("max_per_stage_descriptor_storage_buffers", 10),
        ("max_compute_shared_memory_size", 16_384),
        ("max_compute_work_group_invocations", 64),
    ],
)
def test_small_devices_take_another_path(limit: str, value: int) -> None:
    small = replace(H200, limits=narrowed_limits(H200.limits, {limit: value}))
    assert "vectors" in convolution_paths(H200)
    assert "vectors" not in convolution_paths(small)
    with pytest.raises(PathError, match="no kernel path 'vectors'"):
        plan(DESCRIPTORS["NHWC"], small, path="vectors")


def test_a_device_without_the_memory_model_takes_another_path() -> None:
    without = replace(H200, features=H200.features - {"vulkanMemoryModel"})
    assert "vectors" not in convolution_paths(without)


@pytest.mark.parametrize(
    ("profile", "kernel"),
    [
        (H200, "vectors_dot4"),
        (PROFILES["no-dot-product"](H200), "vectors_float32"),
        (replace(PROFILES["no-dot-product"](H200), rates=replace(LARGE_GPU, float32=1e12)), "vectors_integer"),
        (profiles.load("intel-skl"), "vectors_float32"),  # emulates packed dot products
        (profiles.load("amd-polaris10"), "vectors_float32"),
        (profiles.load("apple-m1"), "vectors_float32"),
        (profiles.load("intel-hsw"), "vectors_float32"),  # has none
        (profiles.load("adreno-618"), "vectors_dot4"),
        (profiles.load("swiftshader"), "vectors_integer"),  # does not round to nearest even
        (profiles.load("lavapipe-22.3"), "vectors_dot4"),
    ],
)
def test_the_kernel_suits_the_device(profile: DeviceProfile, kernel: str) -> None:
    found = plan(DESCRIPTORS["NHWC"], profile, path="vectors")
    assert found.dispatches[-1].kernel == f"quantized_linear_convolution/{kernel}"


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "stride", "layout", "count"),
    [
        (64, 56, 1, 1, "nhwc", 1),
        (64, 56, 3, 2, "nhwc", 1),
        (64, 56, 1, 1, "nchw", 1),  # whole planes
        (64, 56, 3, 1, "nchw", 2),  # a copy with the channels last before
        (64, 7, 1, 1, "nchw", 2),  # planes of 49 bytes are not whole words
        (24, 56, 1, 1, "nhwc", 1),  # words: 24 channels are no whole vectors
        (18, 56, 1, 1, "nhwc", 2),  # packed before: 18 channels are no whole words
    ],
)
def test_the_input_is_read_as_it_lies(
    channels: int, size: int, kernel: int, stride: int, layout: str, count: int
) -> None:
    """With a filter that is given once, a layer is one dispatch where its channels allow that."""
    side = (size - 1) // stride + 1
    last = [(n * n * c, 1, n * c, c) if layout == "nhwc" else None for n, c in ((size, channels), (side, 64))]
    desc = convolution(
        *(1, channels, (size, size), 64, (kernel, kernel)),
        strides=(stride, stride),
        padding=(kernel // 2, kernel // 2),
        input_strides=last[0],
        output_strides=last[1],
        flags=OWNED,
    )
    found = plan(desc, H200)
    assert found.path == "vectors"
    parameters = [each for each in found.dispatches if "parameters" in each.kernel]
    assert len(found.dispatches) == count and not parameters


@pytest.mark.parametrize(
    ("batch", "channels", "size", "filters", "kernel", "is_cut"),
    [
        (1, 512, 7, 512, 3, True),
        (1, 2048, 7, 512, 1, True),
        (1, 64, 56, 64, 1, False),  # one step
        (64, 512, 7, 512, 3, False),  # many tiles
    ],
)
def test_k_is_cut_where_tiles_are_few_and_steps_many(
    batch: int, channels: int, size: int, filters: int, kernel: int, is_cut: bool
) -> None:
    desc = convolution(batch, channels, (size, size), filters, (kernel, kernel), padding=(kernel // 2, kernel // 2))
    found = plan(desc, H200)
    (product,) = found.stages[-1]
    parts = constant(product, "PARTS")
    assert (parts > 1) == is_cut == (found.clean_size > 0)
    assert product.groups[2] == parts
    assert [window.tensor for window in product.windows].count(CLEAN) == is_cut


def test_an_integrated_device_does_not_cut_k_that_fills_it() -> None:
    desc = convolution(1, 512, (7, 7), 512, (3, 3), padding=(1, 1))
    assert plan(desc, profiles.load("intel-skl"), path="vectors").clean_size == 0


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        ("32x64", "a tile is named like '32x64x128:4x4'"),
        ("32x48x128:4x4", "possible: powers of two"),
        ("32x64x128:64x4", "outputs of an invocation = .64, 4., possible: what divides the tile"),
        ("32x64x128:4x2", "outputs of an invocation = .4, 2., possible: multiples of .1, 4."),
        ("32x64x16:4x4", "bytes of a step = 16, possible: multiples of 32"),
        ("128x128x64:2x4", "invocations of a workgroup = 2048, possible: at most 1024"),
        ("16x128x512:16x8", "invocations that fetch a step = [0-9]+, possible: as many vectors of it for each"),
        ("256x256x128:8x8", "bytes of shared memory = [0-9]+, possible: at most"),
    ],
)
def test_tiles_that_there_cannot_be(tile: str, reason: str) -> None:
    with pytest.raises(PathError, match=reason):
        plan(DESCRIPTORS["NHWC"], H200, path=f"vectors:{tile}")


@pytest.mark.parametrize("tile", ["32x64x128:4x4", "64x64x64:8x4", "64x32x64:4x8*2", "16x128x64:4x8"])
def test_a_tile_may_be_forced(tile: str) -> None:
    for desc in (DESCRIPTORS["NHWC"], DESCRIPTORS["ResNet, 512 channels"]):
        found = plan(desc, H200, path=f"vectors:{tile}")
        check_plan(found, desc, H200)
        assert found.path == f"vectors:{tile}"
        product = found.dispatches[-1]
        sides = [int(side) for side in tile.split(":")[0].split("x")]
        assert [constant(product, "TILE_PIXELS"), constant(product, "TILE_CHANNELS")] == sides[:2]
        assert 16 * constant(product, "STEP") == sides[2]


@pytest.mark.parametrize(
    ("name", "device", "is_too_long"),
    [
        ("tensors past 2 GiB", "nvidia-h200", False),
        ("tensors past 2 GiB", "swiftshader", True),
        ("many groups", "nvidia-h200", False),
        ("many groups", "swiftshader", False),
        ("huge padding", "nvidia-h200", False),
        ("huge padding", "intel-skl", False),
        ("huge padding", "swiftshader", True),
    ],
)
def test_what_would_take_too_many_dispatches_is_refused(name: str, device: str, is_too_long: bool) -> None:
    profile, desc = profiles.load(device), DESCRIPTORS[name]
    if is_too_long:
        with pytest.raises(PathError, match=r"dispatches of 0\.08 s = \d+, possible: at most 6000;"):
            plan(desc, profile, path="vectors")
        return
    found = plan(desc, profile, path="vectors")
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    assert len(found.dispatches) < 6000


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("lacks", ["no-matrix", "no-dot-product"])
@pytest.mark.parametrize("device", ["nvidia-h200", "intel-skl"])
@pytest.mark.parametrize(
    "layer",
    [
        Layer(128, 28, 128, 3),
        Layer(64, 56, 32, 1),  # channels for half a tile
        Layer(512, 7, 512, 3),  # planes that are no whole words
        Layer(24, 56, 144, 1),  # K ends in the first half of a step
        Layer(96, 56, 144, 1),
        Layer(544, 56, 144, 1),  # after so many steps that the last hardly counts
        Layer(64, 56, 256, 1),  # K is no longer than a step
        Layer(3, 112, 64, 7),
    ],
    ids=str,
)
def test_tiles_follow_the_size(layer: Layer, device: str, lacks: str, batch: int, layout: str) -> None:
    """Whatever the number of processors: large tiles where each has many small ones, where an invocation has registers
    for their sums. With more processors, tiles never get larger.
    """
    desc, areas = desc_of(layer, batch, layout), []
    profile = PROFILES["no-matrix"](profiles.load(device))
    profile = PROFILES[lacks](profile) if lacks != "no-matrix" else profile
    for processors in (4, 16, 48, 132, 320, 2000):
        problem = Problem(desc, replace(profile, rates=replace(rates_of(profile), processors=processors)), NO_OFFSETS)
        (geometry,) = problem.product_geometries
        shape = VectorsPath().shape(problem, geometry)
        assert shape is not None and isinstance(shape.rules, VectorsRules)
        rules, of, tile = shape.rules, shape.rules.arithmetic, shape.tile
        is_narrow, size = layer.filters <= NARROW, Runs.of(geometry).size
        small = of.narrow if is_narrow else rules.laid(of.small)
        large = of.narrow_large if is_narrow else _large_tile(profile, geometry, rules)
        are_many = small.count(geometry) >= of.few_tiles * processors
        if replace(tile, parts=1) not in (small, of.short[0]):
            assert are_many and rules.suits(tile)
            if not is_narrow and _ends_early(size, rules.laid(of.large).step):
                assert tile.step == HALF_STEP
        elif are_many:
            assert small == large or not rules.suits(large)
        if tile == of.short[0] != small:
            assert size <= tile.step and of.short[1] == rules.in_words and not are_many
        if device_traits.has_few_registers(profile):
            assert tile.own_pixels * tile.own_channels <= FEW_SUMS
        areas.append(tile.pixels * tile.channels)
    assert areas == sorted(areas, reverse=True)


def _ends_early(size: int, step: int) -> bool:
    return 0 < size % step <= HALF_STEP and size < MANY_HALF_STEPS * HALF_STEP


def test_a_step_of_floats_is_no_longer_than_their_sums_are_exact() -> None:
    limits = replace(H200.limits, max_compute_shared_memory_size=1 << 20)
    profile = replace(PROFILES["no-dot-product"](H200), limits=limits)
    plan(DESCRIPTORS["NHWC"], profile, path="vectors:64x64x1024:8x8")
    with pytest.raises(PathError, match="products of bytes that float32 sums exactly = 2048, possible: at most 1024"):
        plan(DESCRIPTORS["NHWC"], profile, path="vectors:64x64x2048:8x8")


@pytest.mark.parametrize(
    ("device", "batch", "expected"),
    [
        ("nvidia-h200", 1, "vectors"),
        ("nvidia-h200", 64, "vectors"),
        ("intel-skl", 1, "vectors"),
        ("lavapipe-22.3", 1, "float"),
        ("swiftshader", 1, "integer"),
    ],
)
def test_without_dot_products_gpus_multiply_vectors(device: str, batch: int, expected: str) -> None:
    desc = convolution(batch, 256, (14, 14), 256, (3, 3), padding=(1, 1))
    profile = PROFILES["no-dot-product"](PROFILES["no-matrix"](profiles.load(device)))
    assert plan(desc, profile).path == expected


@pytest.mark.parametrize("batch", [1, 64])
def test_without_rounding_to_nearest_even_vectors_multiplies_32_bit_numbers(batch: int) -> None:
    desc = convolution(batch, 256, (14, 14), 256, (3, 3), padding=(1, 1))
    found = plan(desc, replace(H200, properties=H200.properties - {ROUNDING}))
    assert found.path == "vectors" and found.dispatches[-1].kernel.endswith("vectors_integer")


def test_sizes_take_no_push_constants() -> None:
    """Many devices without matrices have the 128 bytes of push constants that Vulkan guarantees."""
    for kernel in ("vectors_dot4", "vectors_float32", "vectors_integer"):
        interface = kernel_interface(f"quantized_linear_convolution/{kernel}")
        assert 4 * sum(words for _, words in interface.push_constants.values()) <= 128
