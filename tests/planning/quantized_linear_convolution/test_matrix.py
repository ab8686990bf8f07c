"""The path `matrix`: matrices, tiles, and inputs that are read in place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.work import LAYOUTS, desc_of
from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning import device_traits
from dmlvk.planning.device_rates import LARGE_GPU
from dmlvk.planning.plan import NO_OFFSETS, SCRATCH
from dmlvk.planning.quantized_linear_convolution import matrix
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.matrix import (
    ENOUGH_LARGE_TILES,
    ENOUGH_TILES,
    FEW_TILES,
    LONG_K,
    MEDIUM_TILE,
    MOST_CHANNELS,
    NARROW,
    SMALL_TILE,
    MatrixPath,
    MatrixRules,
    matrix_of,
)
from dmlvk.planning.quantized_linear_convolution.path import Problem
from dmlvk.planning.quantized_linear_convolution.tiled_product import Block, Runs, Tile
from dmlvk.tensor_desc import TensorDesc, TensorFlags
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.declared_memory import shared_bytes
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, NAMES, convolution, written_elements
from tests.planning.quantized_linear_convolution.matrix_devices import MATRIX_DEVICES, push_constant


@pytest.mark.quarter_by_day
@pytest.mark.parametrize("device", MATRIX_DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_matrices_wherever_a_device_has_them(name: str, device: str) -> None:
    """The driver lists the matrix shape, tiles are multiples of it, and shared memory stays within 48 KiB."""
    profile, desc = profiles.load(device), DESCRIPTORS[name]
    try:
        found = plan(desc, profile, path="matrix")
    except ValueError as error:
        assert "'direct'" in str(error)
        return
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    for dispatch in found.dispatches:
        if not dispatch.subgroup_size:
            continue
        m, n, k, lanes = dispatch.specialization[6:10]
        types = ("sint8", "sint8", "sint32", "sint32", "subgroup")
        matrix = next(
            each
            for each in profile.cooperative_matrices
            if (each.m, each.n, each.k) == (m, n, k)
            and (each.a_type, each.b_type, each.c_type, each.result_type, each.scope) == types
        )
        assert profile.min_subgroup_size <= lanes == dispatch.subgroup_size <= profile.max_subgroup_size
        tile = Tile(
            dispatch.specialization[10],
            dispatch.specialization[11],
            16 * dispatch.specialization[14],
            dispatch.specialization[12],
            dispatch.specialization[13],
        )
        in_words = bool(dispatch.specialization[2])
        rules = MatrixRules.on(profile, Block(matrix.m, matrix.n, matrix.k), in_words)
        assert rules.obstacle(tile) is None
        declared = rules.shared_memory(tile)
        assert shared_bytes(dispatch) == declared <= device_traits.tile_memory(profile)
        assert dispatch.specialization[0] == lanes * tile.owners


def test_channels_last_are_read_in_place() -> None:
    found = plan(DESCRIPTORS["NHWC"], profiles.load("nvidia-h200"))
    assert [dispatch.kernel for dispatch in found.dispatches if "pack_input" in dispatch.kernel] == []
    (product,) = found.stages[-1]
    assert product.windows[0].tensor == "input_tensor"
    assert product.specialization[4] == 0, "no padding, so no border to check"


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        ("128x128", "a tile is named like"),
        ("128x128x64:48x32", "48, 32., possible: powers of two"),
        ("128x128x64:64x256", "outputs of a subgroup = .64, 256., possible: what divides the tile"),
        ("128x128x32:64x64", "bytes of a step = 32, possible: multiples of 64"),
        ("128x128x64:64x32", "outputs of a subgroup = .64, 32., possible: multiples of .16, 64."),
        ("256x256x64:64x64", "bytes of shared memory = [0-9]+, possible: at most 49152"),
        ("1024x1024x64:32x64", "invocations of a workgroup = [0-9]+, possible: at most 1024"),
    ],
)
def test_a_tile_that_the_kernel_cannot_have_is_refused(tile: str, reason: str) -> None:
    profile = profiles.load("nvidia-h200")
    assert plan(DESCRIPTORS["NHWC"], profile, path="matrix:128x128x64:64x64").dispatches[-1].groups[1] == 43
    with pytest.raises(ValueError, match=reason):
        plan(DESCRIPTORS["NHWC"], profile, path=f"matrix:{tile}")


def planes(
    batch: int, channels: int, filters: int, size: int, *, strides: list[int] | None = None
) -> QuantizedLinearConvolutionDesc:
    """A filter of one tap on square images. The input is NCHW unless it has strides of its own."""
    one = [1, 1, 1, 1]
    return QuantizedLinearConvolutionDesc(
        input_tensor=TensorDesc(DataType.UINT8, [batch, channels, size, size], strides),
        input_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        filter_tensor=TensorDesc(DataType.INT8, [filters, channels, 1, 1]),
        filter_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        output_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        output_tensor=TensorDesc(DataType.INT8, [batch, filters, size, size]),
        strides=[1, 1],
        dilations=[1, 1],
        start_padding=[0, 0],
        end_padding=[0, 0],
        group_count=1,
    )


@pytest.mark.parametrize(
    ("desc", "in_place"),
    [
        (planes(8, 64, 64, 28), True),
        (planes(8, 64, 64, 7), False),  # planes of 49 bytes
        (planes(8, 60, 64, 28), False),  # not whole vectors of channels
        (planes(8, 64, 64, 28, strides=[64 * 30 * 28, 30 * 28, 30, 1]), False),  # gaps between rows
        (planes(1, 16, 1, 3000), False),  # so large that a plane might be cut inside a word
    ],
)
def test_planes_are_read_in_place(desc: QuantizedLinearConvolutionDesc, in_place: bool) -> None:
    """NCHW inputs of filters with one tap, where four pixels are always a word."""
    found = plan(desc, profiles.load("nvidia-h200"), path="matrix")
    assert (found.stages[-1][0].windows[0].tensor == "input_tensor") == in_place


def channels_innermost(tensor: TensorDesc) -> TensorDesc:
    """The same tensor in NHWC."""
    _, channels, height, width = tensor.sizes
    return replace(tensor, strides=(height * width * channels, 1, width * channels, channels))


PROCESSORS = [4, 16, 48, 100, 132, 200, 320, 700, 2000]


@pytest.mark.parametrize("owned", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize(
    "layer",
    [
        Layer(64, 56, 256, 1),
        Layer(320, 56, 256, 3),
        Layer(512, 14, 512, 1),
        Layer(512, 7, 2048, 1),  # planes that are no whole words
        Layer(1024, 14, 256, 1),
        Layer(32, 28, 192, 1),  # two tiles of 128 channels would compute a quarter in vain
        Layer(32, 28, 32, 3),
    ],
    ids=str,
)
def test_tiles_are_enough_for_the_processors(layer: Layer, batch: int, layout: str, owned: bool) -> None:
    """Whatever their number: large tiles where each has many, and where few are left for each, small or medium ones.

    With more processors, tiles never get larger.
    """
    desc, areas = desc_of(layer, batch, layout), []
    if not owned:
        desc = replace(desc, filter_tensor=replace(desc.filter_tensor, flags=TensorFlags.NONE))
    for processors in PROCESSORS:
        profile = replace(profiles.load("nvidia-h200"), rates=replace(LARGE_GPU, processors=processors))
        problem, in_words = Problem(desc, profile, NO_OFFSETS), layout == "nhwc"
        assert problem.has_owned_constants == owned
        (geometry,) = problem.product_geometries
        shape = MatrixPath().shape(problem, geometry)
        assert shape is not None
        tile, smallest = shape.tile, min(_area(each) for each in matrix._tiles(profile, shape.block, in_words))
        of_each = tile.count(geometry) / processors
        if tile == MEDIUM_TILE:
            assert 1 < of_each <= 2 and Runs.of(geometry).size >= LONG_K
        elif replace(tile, step=0, channels=0) == replace(SMALL_TILE[in_words], step=0, channels=0):
            assert of_each <= FEW_TILES[in_words] or _area(tile) <= smallest
        elif tile.is_large:
            assert of_each >= ENOUGH_LARGE_TILES[owned]
        else:
            assert of_each >= ENOUGH_TILES or _area(tile) <= smallest
        computed = -(-layer.filters // tile.channels) * tile.channels
        assert tile.channels <= NARROW or computed < MOST_CHANNELS * -(-layer.filters // NARROW) * NARROW
        areas.append(_area(tile))
    assert areas == sorted(areas, reverse=True)


def _area(tile: Tile) -> int:
    return tile.pixels * tile.channels


@pytest.mark.parametrize(
    ("batch", "channels", "size", "turns"),
    [
        (64, 256, 14, 1),  # as many workgroups as a large GPU has room for
        (64, 128, 28, 2),
        (64, 64, 56, 4),
        (36, 64, 56, 3),  # 2 turns would be 441 workgroups, the last few in a second round
        (64, 512, 28, 1),  # large tiles
    ],
)
def test_tiles_take_turns_while_a_gpu_stays_busy(batch: int, channels: int, size: int, turns: int) -> None:
    desc = convolution(batch, channels, (size, size), channels, (3, 3), padding=(1, 1))
    (product,) = plan(desc, profiles.load("nvidia-h200"), path="matrix").stages[-1]
    assert push_constant(product, "turns") == turns
    pixels = batch * size * size // product.specialization[10]
    assert product.groups == (max(1, channels // product.specialization[11]), -(-pixels // turns), 1)


def test_planes_in_place_are_never_cut_apart() -> None:
    """Four pixels make a word. If a slow device makes a dispatch smaller than a plane, the input is converted first."""
    profile = profiles.load("lavapipe-26.2")
    for channels in (64, 16_000):
        found = plan(planes(1, channels, 6, 2), profile, path="matrix")
        products = [dispatch for dispatch in found.dispatches if dispatch.subgroup_size]
        assert len(products) == 1 or products[0].windows[0].tensor == SCRATCH


def test_matrices_want_their_rounding_mode() -> None:
    """The last step is float32 arithmetic. It is exact only if the driver promises to round to nearest even."""
    profile = profiles.load("nvidia-h200")
    assert matrix_of(profile) is not None
    assert matrix_of(replace(profile, properties=profile.properties - {"shaderRoundingModeRTEFloat32"})) is None
