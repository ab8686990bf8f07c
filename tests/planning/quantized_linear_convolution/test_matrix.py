"""The path `matrix`: matrices, tiles, and inputs that are read in place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.work import desc_of
from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning import device_traits
from dmlvk.planning.plan import SCRATCH
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixRules, matrix_of
from dmlvk.planning.quantized_linear_convolution.tiled_product import Block, Tile
from dmlvk.tensor_desc import TensorDesc
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.declared_memory import shared_bytes
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, NAMES, convolution, written_elements
from tests.planning.quantized_linear_convolution.matrix_devices import MATRIX_DEVICES, constant, push_constant


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


@pytest.mark.parametrize(
    ("channels", "filters", "size", "channels_last", "tile", "without_parameters"),
    [
        (64, 256, 56, True, (128, 128), (64, 128)),
        (64, 256, 56, False, (128, 128), (128, 64)),  # planes are fetched four pixels at a time, by these tiles
        (320, 256, 56, True, (128, 128), (128, 128)),  # more steps
        (512, 512, 14, True, (128, 128), (64, 128)),  # 392 large tiles
        (1024, 256, 14, True, (64, 128), (64, 128)),  # 196 leave a part of a large GPU idle
        (1024, 256, 14, False, (128, 64), (64, 128)),
        (512, 2048, 7, True, (128, 128), (64, 128)),
        (512, 2048, 7, False, (64, 128), (64, 128)),  # planes that are no whole words
        (320, 1280, 7, True, (128, 128), (64, 128)),  # 250 are nearly two for each of 132 processors
        (1024, 1050, 7, True, (128, 128), (64, 128)),  # 225; the others would be 441, which is more than a round
        (1024, 1024, 7, True, (64, 128), (64, 128)),  # 200, and 392, which is a round
        (32, 192, 28, True, (128, 64), (128, 64)),  # by 128 channels a quarter would be computed in vain
        (32, 192, 28, False, (128, 64), (128, 64)),
    ],
)
def test_large_tiles_where_there_are_many(
    channels: int,
    filters: int,
    size: int,
    channels_last: bool,
    tile: tuple[int, int],
    without_parameters: tuple[int, int],
) -> None:
    """Where each workgroup has to work out its channels' parameters, there have to be more of them."""
    strides = [
        (size * size * count, 1, size * count, count) if channels_last else None for count in (channels, filters)
    ]
    for owned, expected in ((True, tile), (False, without_parameters)):
        desc = convolution(
            *(64, channels, (size, size), filters, (1, 1)),
            input_strides=strides[0],
            output_strides=strides[1],
            everything_owned=owned,
        )
        product = plan(desc, profiles.load("nvidia-h200"), path="matrix").stages[-1][0]
        assert product.specialization[10:12] == expected, owned


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


@pytest.mark.parametrize(
    ("batch", "layer", "layout", "tile"),
    [
        (8, Layer(1024, 14, 512, 1), "nhwc", (64, 64, 128)),  # 200 of them: 8.3 us, and 9.2 by the smaller tile
        (8, Layer(1024, 7, 2048, 1), "nhwc", (64, 64, 128)),  # 224: 8.2 and 9.4
        (8, Layer(448, 14, 512, 1), "nhwc", (32, 64, 128)),  # short K
        (8, Layer(1024, 14, 256, 1), "nhwc", (32, 64, 128)),  # 100 leave processors idle
        (32, Layer(1024, 14, 256, 1), "nhwc", (64, 128, 64)),  # 392 are three for some
        (8, Layer(1024, 7, 2048, 1), "nchw", (64, 64, 128)),  # 13.8 and 15.2
        (8, Layer(112, 14, 672, 1), "nchw", (64, 64, 64)),  # 275: 4.8 and 5.1
    ],
)
def test_tiles_of_long_steps_where_a_processor_has_two(
    batch: int, layer: Layer, layout: str, tile: tuple[int, int, int]
) -> None:
    """As they were measured on an H200, whose processors are 132."""
    product = plan(desc_of(layer, batch, layout), profiles.load("nvidia-h200"), path="matrix").stages[-1][0]
    pixels, channels = product.specialization[10:12]
    assert (pixels, channels, 16 * constant(product, "STEP")) == tile


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
