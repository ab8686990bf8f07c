"""Plans of QUANTIZED_LINEAR_CONVOLUTION on recorded devices: within every limit, every path, and all of the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import output_size
from dmlvk.planning.plan import PERSISTENT, SCRATCH, Access, Dispatch, PathError, Plan
from dmlvk.planning.quantized_linear_convolution.choice import convolution_paths
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.first_layer import first_layer_tile
from dmlvk.planning.quantized_linear_convolution.halo import Positions
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixTile, matrix_of, obstacle_to_tile
from dmlvk.planning.quantized_linear_convolution.stages import LARGEST_WORD_COUNT
from dmlvk.tensor_desc import TensorDesc, TensorFlags
from tests import profiles
from tests.planning.limits import check_plan

OWNED = TensorFlags.OWNED_BY_DML


def convolution(
    batch: int,
    channels: int,
    size: tuple[int, int],
    filters: int,
    kernel: tuple[int, int],
    *,
    groups: int = 1,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    input_strides: Sequence[int] | None = None,
    output_strides: Sequence[int] | None = None,
    filter_strides: Sequence[int] | None = None,
    bias_stride: int = 1,
    flags: TensorFlags = TensorFlags.NONE,
    everything_owned: bool = False,
) -> QuantizedLinearConvolutionDesc:
    """A convolution with all ten tensors, UINT8 but for the filter."""
    output = [output_size(size[k], kernel[k], strides[k], dilations[k], padding[k], padding[k]) for k in range(2)]
    parameter_flags = OWNED if everything_owned else TensorFlags.NONE
    filter_flags = OWNED if everything_owned else flags

    def parameter(data_type: DataType, count: int = 1, stride: int = 1) -> TensorDesc:
        return TensorDesc(data_type, [1, count, 1, 1], [0, stride, 0, 0], flags=parameter_flags)

    return QuantizedLinearConvolutionDesc(
        input_tensor=TensorDesc(DataType.UINT8, [batch, channels, *size], input_strides, flags=parameter_flags),
        input_scale_tensor=parameter(DataType.FLOAT32),
        input_zero_point_tensor=parameter(DataType.UINT8),
        filter_tensor=TensorDesc(
            DataType.INT8, [filters, channels // groups, *kernel], filter_strides, flags=filter_flags
        ),
        filter_scale_tensor=parameter(DataType.FLOAT32, filters),
        filter_zero_point_tensor=parameter(DataType.INT8, filters),
        bias_tensor=parameter(DataType.INT32, filters, bias_stride),
        output_scale_tensor=parameter(DataType.FLOAT32),
        output_zero_point_tensor=parameter(DataType.UINT8),
        output_tensor=TensorDesc(DataType.UINT8, [batch, filters, *output], output_strides),
        strides=strides,
        dilations=dilations,
        start_padding=padding,
        end_padding=padding,
        group_count=groups,
    )


DESCRIPTORS = {
    "one of everything": convolution(1, 1, (1, 1), 1, (1, 1)),
    "odd": convolution(3, 13, (9, 7), 17, (3, 2), strides=(2, 1), dilations=(1, 2), padding=(2, 1)),
    "ResNet, 256 channels": convolution(64, 256, (14, 14), 256, (3, 3), padding=(1, 1)),
    "ResNet, 512 channels": convolution(64, 512, (28, 28), 512, (3, 3), padding=(1, 1)),
    "first layer": convolution(64, 3, (224, 224), 64, (7, 7), strides=(2, 2), padding=(3, 3)),
    "filter owned": convolution(64, 64, (56, 56), 64, (3, 3), padding=(1, 1), flags=OWNED),
    "all owned": convolution(4, 32, (28, 28), 48, (3, 3), everything_owned=True),
    "all owned, depthwise": convolution(4, 33, (28, 28), 33, (3, 3), groups=33, everything_owned=True),
    "depthwise": convolution(64, 144, (56, 56), 144, (3, 3), groups=144, padding=(1, 1)),
    "ResNeXt": convolution(8, 256, (28, 28), 256, (3, 3), groups=32, padding=(1, 1)),
    "NHWC": convolution(
        8,
        64,
        (28, 28),
        80,
        (3, 3),
        input_strides=(28 * 28 * 64, 1, 28 * 64, 64),
        output_strides=(26 * 26 * 80, 1, 26 * 80, 80),
        filter_strides=(9 * 64, 1, 3 * 64, 64),
    ),
    "broadcast input": convolution(64, 64, (112, 112), 32, (3, 3), input_strides=(0, 0, 0, 1)),
    "planes of 64 MiB": convolution(1, 6, (8192, 8192), 5, (3, 3), padding=(1, 1)),
    "tensors past 2 GiB": convolution(1, 70, (5600, 5600), 70, (3, 3), groups=70),
    "channels 1 GiB apart": convolution(
        1,
        3,
        (4, 4),
        4,
        (3, 3),
        input_strides=(0, 1 << 30, 4, 1),
        output_strides=(0, 1 << 30, 2, 1),
        bias_stride=1 << 28,
    ),
    "filter of 1 GiB": convolution(1, 1 << 14, (2, 2), 1 << 14, (2, 2)),
    "filter rows 1 GiB apart": convolution(1, 4, (5, 5), 3, (3, 3), filter_strides=(36, 9, 1 << 30, 1)),
    "more taps than 32 bits": convolution(2, 1 << 18, (2, 2), 3, (2, 2)),
    "longest row of taps": convolution(1, 1, (1, 1 << 20), 2, (1, 1 << 20)),
    "taps 2 GiB apart": convolution(1, 3, (3, 3), 2, (3, 3), input_strides=(0, 3, (1 << 31) - 1, 1)),
    "huge padding": convolution(1, 2, (3, 3), 2, (3, 3), padding=(2000, 3000)),
    "huge dilation": convolution(1, 64, (5001, 5001), 8, (2, 2), dilations=(5000, 5000)),
    "many channels": convolution(1, 4, (1, 1), 3_000_000, (1, 1)),
    "many groups": convolution(1, 200_000, (2, 2), 400_000, (1, 1), groups=100_000),
}


def written_elements(plan_: Plan, desc: QuantizedLinearConvolutionDesc) -> int:
    """Outputs that the dispatches say they make: every one has the same number of operations."""
    taps = math.prod(desc.filter_tensor.sizes[1:])
    return sum(dispatch.operations for dispatch in plan_.dispatches) // (2 * taps)


def test_float_path_wants_64_bit_integers() -> None:
    """Its loads take two words at once."""
    profile = profiles.load("lavapipe-22.3")
    assert "float" in convolution_paths(profile)
    assert "float" not in convolution_paths(replace(profile, features=profile.features - {"shaderInt64"}))


@pytest.mark.parametrize("profile", [profiles.load(name) for name in profiles.NAMES], ids=profiles.NAMES)
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_a_plan_keeps_to_the_limits(name: str, profile: DeviceProfile) -> None:
    desc = DESCRIPTORS[name]
    found = plan(desc, profile)
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count


@pytest.mark.parametrize("name", ["odd", "NHWC", "ResNeXt", "depthwise", "all owned"])
@pytest.mark.parametrize("path", ["matrix", "dot4", "integer", "float", "direct"])
@pytest.mark.parametrize("device", ["lavapipe-22.3", "swiftshader", "lavapipe-26.2", "nvidia-h200", "intel-hsw"])
def test_a_path_is_taken_where_the_device_has_it(device: str, path: str, name: str) -> None:
    profile, desc = profiles.load(device), DESCRIPTORS[name]
    absent = {("float", "swiftshader"), ("float", "nvidia-h200"), ("float", "intel-hsw"), ("dot4", "intel-hsw")}
    absent |= {("matrix", name) for name in ("lavapipe-22.3", "swiftshader", "intel-hsw")}
    if (path, device) in absent:
        with pytest.raises(ValueError, match=f"no kernel path '{path}' on .*; it has .*'integer'.*'direct'"):
            plan(desc, profile, path=path)
        return
    found = plan(desc, profile, path=path)
    assert found.path == path
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count


@pytest.mark.parametrize(
    ("device", "name", "path"),
    [
        ("lavapipe-22.3", "ResNet, 256 channels", "float"),
        ("swiftshader", "ResNet, 256 channels", "dot4"),
        ("nvidia-h200", "ResNet, 512 channels", "matrix"),
        ("nvidia-h200", "first layer", "first_layer"),
        ("amd-navi31", "first layer", "first_layer"),
        ("lavapipe-26.2", "first layer", "float"),
        ("nvk-pascal", "ResNet, 512 channels", "dot4"),
        ("nvk-ampere", "ResNet, 512 channels", "matrix"),
        ("amd-navi31", "ResNet, 512 channels", "matrix"),
        ("amd-navi21", "ResNet, 512 channels", "dot4"),
        ("intel-dg2", "ResNet, 512 channels", "matrix"),
        ("intel-bmg", "ResNet, 512 channels", "matrix"),
        ("lavapipe-26.2", "ResNet, 512 channels", "float"),
        ("intel-hsw", "ResNet, 512 channels", "integer"),
        ("nvidia-h200", "depthwise", "depthwise"),
        ("lavapipe-22.3", "depthwise", "depthwise"),
        ("intel-hsw", "depthwise", "depthwise"),
        ("swiftshader", "depthwise", "direct"),
        ("nvidia-h200", "more taps than 32 bits", "direct"),
    ],
)
def test_the_planner_chooses(device: str, name: str, path: str) -> None:
    assert plan(DESCRIPTORS[name], profiles.load(device)).path == path


@pytest.mark.parametrize(
    ("device", "path"),
    [("nvidia-h200", "dot4"), ("intel-dg2", "matrix"), ("intel-ptl", "dot4"), ("amd-navi31", "dot4")],
)
def test_a_device_too_small_for_any_matrix_tile_takes_another_path(device: str, path: str) -> None:
    rich = profiles.load(device)
    limits = replace(rich.limits, max_compute_shared_memory_size=16_384, max_compute_work_group_invocations=128)
    poor = replace(rich, limits=limits)
    desc = DESCRIPTORS["ResNet, 512 channels"]
    assert plan(desc, rich).path == "matrix"
    assert plan(desc, poor).path == path
    check_plan(plan(desc, poor), desc, poor)


# Without lavapipe, which never chooses this path: the largest convolutions would be cut into millions of dispatches.
MATRIX_DEVICES = [
    name
    for name in profiles.NAMES
    if matrix_of(profiles.load(name)) is not None and profiles.load(name).device_type is not DeviceType.CPU
]


@pytest.mark.parametrize("device", MATRIX_DEVICES)
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_matrices_wherever_a_device_has_them(name: str, device: str) -> None:
    """The shape is one that the driver lists, tiles divide by it, and shared memory stays within 48 KiB."""
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
        tile = MatrixTile(
            dispatch.specialization[10],
            dispatch.specialization[11],
            16 * dispatch.specialization[14],
            dispatch.specialization[12],
            dispatch.specialization[13],
        )
        assert obstacle_to_tile(profile, matrix, lanes, tile, bool(dispatch.specialization[2])) is None
        assert dispatch.specialization[0] == lanes * tile.subgroups()


@pytest.mark.parametrize("device", MATRIX_DEVICES)
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_halos_wherever_a_device_has_matrices(name: str, device: str) -> None:
    """Tiles divide by the driver's matrices, and what they hold of the input stays within 48 KiB."""
    profile, desc = profiles.load(device), DESCRIPTORS[name]
    try:
        found = plan(desc, profile, path="halo")
    except PathError as error:
        assert "cannot take path 'halo' here: " in str(error)
        return
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    products = [dispatch for dispatch in found.dispatches if dispatch.kernel == "quantized_linear_convolution/halo"]
    assert products
    for dispatch in products:
        m, n, k, lanes, pixels, channels, own_pixels, own_channels, step, run = dispatch.specialization[6:16]
        runs_w, padding, vectors, pitch = (dispatch.specialization[i] for i in (17, 23, 24, 52))
        dilations = dispatch.specialization[20:22]
        halo = (vectors // run // runs_w - 1) * dilations[0] * pitch + (runs_w - 1) * dilations[1]
        rows = pixels + halo + 2 * channels
        assert 16 * rows * (step * max(1, 16 // k) + padding) <= 48 << 10
        assert run % step == 0 and 16 * step % (2 * k) == 0 and own_pixels % m == own_channels % (4 * n) == 0
        assert dispatch.specialization[0] == lanes * (pixels // own_pixels) * (channels // own_channels)


@pytest.mark.parametrize(
    ("batch", "channels", "size", "path"),
    [
        (64, 512, 7, "halo"),  # few workgroups
        (1, 128, 28, "halo"),
        (64, 64, 56, "matrix"),
        (64, 256, 14, "matrix"),
        (64, 512, 28, "matrix"),
    ],
)
def test_halos_where_they_are_faster(batch: int, channels: int, size: int, path: str) -> None:
    desc = convolution(batch, channels, (size, size), channels, (3, 3), padding=(1, 1))
    assert plan(desc, profiles.load("nvidia-h200")).path == path


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (convolution(1, 64, (9, 9), 64, (1, 1)), r"filter size = \(1, 1\), possible: several taps"),
        (convolution(1, 64, (9, 9), 64, (3, 3), strides=(2, 2)), r"strides = \(2, 2\), possible: 1"),
        (convolution(1, 40, (9, 9), 64, (3, 3)), "input channels of a group = 40, possible: multiples of 16"),
        (convolution(1, 64, (9, 900), 64, (9, 1)), "tiles that fit into shared memory with their halo = 0"),
    ],
)
def test_what_halos_do_not_take(desc: QuantizedLinearConvolutionDesc, reason: str) -> None:
    with pytest.raises(PathError, match=f"cannot take path 'halo' here: {reason}"):
        plan(desc, profiles.load("nvidia-h200"), path="halo")


def test_positions_share_the_border() -> None:
    same = convolution(2, 64, (5, 6), 64, (3, 3), padding=(1, 1)).geometry
    assert Positions.of(same, (5, 6)) == Positions(pitch=7, plane=42, halo=16), "one column and one row for both sides"
    assert Positions.of(same, (5, 4)) == Positions(pitch=6, plane=36, halo=14), "a part has real columns on both sides"
    whole = convolution(2, 64, (5, 6), 64, (3, 3)).geometry
    assert Positions.of(whole, (3, 4)) == Positions(pitch=6, plane=30, halo=14), "nothing is border"


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
        ("128x128x64:48x32", "its sizes are not powers of two"),
        ("128x128x64:64x256", "its subgroups do not divide it"),
        ("128x128x32:64x64", "its step is not an even number of matrices of 32 bytes of K"),
        ("128x128x64:64x32", "1 x 4 matrices of 16 x 16 do not divide its subgroups"),
        ("256x256x64:64x64", "81920|bytes of shared memory are more than 49152"),
        ("1024x1024x64:32x64", "invocations are more than 1024"),
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
    """A filter of one tap on square images; NCHW, or the input with strides of its own."""
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
    """The same in NHWC."""
    _, channels, height, width = tensor.sizes
    return replace(tensor, strides=(height * width * channels, 1, width * channels, channels))


@pytest.mark.parametrize(
    ("channels", "channels_last", "tile"),
    [
        (64, True, (64, 128)),
        (64, False, (128, 64)),  # planes are fetched four pixels at a time, which the other tile does not
        (128, True, (64, 128)),
        (192, True, (128, 128)),
    ],
)
def test_large_tiles_where_there_are_steps_enough(channels: int, channels_last: bool, tile: tuple[int, int]) -> None:
    desc = planes(64, channels, 256, 56)
    if channels_last:
        desc = replace(
            desc,
            input_tensor=channels_innermost(desc.input_tensor),
            output_tensor=channels_innermost(desc.output_tensor),
        )
    (product,) = plan(desc, profiles.load("nvidia-h200")).stages[-1]
    assert product.specialization[10:12] == tile
    assert product.windows[0].tensor == "input_tensor"


@pytest.mark.parametrize(
    ("batch", "channels", "size", "turns"),
    [
        (64, 256, 14, 1),  # as many workgroups as a large GPU has room for
        (64, 128, 28, 2),
        (64, 64, 56, 4),
        (36, 64, 56, 3),  # 2 turns would be 441 workgroups: a second round for the last few
        (64, 512, 28, 1),  # large tiles
    ],
)
def test_tiles_take_turns_while_a_gpu_stays_busy(batch: int, channels: int, size: int, turns: int) -> None:
    desc = convolution(batch, channels, (size, size), channels, (3, 3), padding=(1, 1))
    (product,) = plan(desc, profiles.load("nvidia-h200")).stages[-1]
    assert product.specialization[50] == turns
    pixels = batch * size * size // product.specialization[10]
    assert product.groups == (max(1, channels // product.specialization[11]), -(-pixels // turns), 1)


def test_planes_in_place_are_never_cut_apart() -> None:
    """Four pixels make a word: on a device so slow that a dispatch is a part of a plane, the input is turned first."""
    profile = profiles.load("lavapipe-26.2")
    for channels in (64, 16_000):
        found = plan(planes(1, channels, 6, 2), profile, path="matrix")
        products = [dispatch for dispatch in found.dispatches if dispatch.subgroup_size]
        assert len(products) == 1 or products[0].windows[0].tensor == SCRATCH


def test_matrices_want_their_rounding_mode() -> None:
    """The last step is float32 arithmetic, which only a promise to round to nearest even makes exact."""
    profile = profiles.load("nvidia-h200")
    assert matrix_of(profile) is not None
    assert matrix_of(replace(profile, properties=profile.properties - {"shaderRoundingModeRTEFloat32"})) is None


LAST = (56 * 56 * 144, 1, 56 * 144, 144)


@pytest.mark.parametrize("device", profiles.NAMES)
@pytest.mark.parametrize(
    "desc",
    [
        convolution(
            64, 144, (56, 56), 144, (3, 3), groups=144, padding=(1, 1), input_strides=LAST, output_strides=LAST
        ),
        convolution(1, 960, (7, 7), 960, (5, 5), groups=960, padding=(2, 2)),
        convolution(2, 12, (30, 50), 36, (7, 7), groups=12, strides=(2, 2), dilations=(2, 2), padding=(3, 3)),
        convolution(1, 7, (1, 1000), 7, (1, 9), groups=7, input_strides=(9000, 1001, 1001, 1)),
        convolution(1, 5, (1 << 13, 1 << 13), 5, (3, 3), groups=5),
    ],
    ids=["NHWC", "small planes", "multiplier", "unaligned rows", "large planes"],
)
def test_depthwise_wherever_words_hold_neighbours(desc: QuantizedLinearConvolutionDesc, device: str) -> None:
    profile = profiles.load(device)
    found = plan(desc, profile, path="depthwise")
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (DESCRIPTORS["odd"], "input channels of a group = 13, possible: 1"),
        (
            convolution(1, 4, (9, 9), 4, (3, 3), groups=4, input_strides=(648, 162, 18, 2)),
            "input strides = .*, possible: four neighbours",
        ),
        (convolution(1, 4, (9, 9), 4, (8, 8), groups=4), "filter taps = 64, possible: at most 49"),
        (
            convolution(1, 4, (99, 9), 4, (3, 3), groups=4, dilations=(9, 1)),
            "of the dilated filter = 19",
        ),
        (convolution(1, 4, (99, 9), 4, (3, 3), groups=4, strides=(5, 1)), "stride = 5, possible: at most 4"),
    ],
)
def test_what_depthwise_does_not_take(desc: QuantizedLinearConvolutionDesc, reason: str) -> None:
    profile = profiles.load("nvidia-h200")
    with pytest.raises(PathError, match=f"cannot take path 'depthwise' here: .*{reason}"):
        plan(desc, profile, path="depthwise")
    assert plan(desc, profile).path != "depthwise"


@pytest.mark.parametrize("device", MATRIX_DEVICES)
@pytest.mark.parametrize(
    "desc",
    [
        DESCRIPTORS["first layer"],
        convolution(1, 3, (224, 224), 32, (3, 3), strides=(2, 2), padding=(1, 1), output_strides=(401408, 1, 3584, 32)),
        convolution(2, 1, (28, 28), 100, (5, 5)),
        convolution(1, 4, (300, 301), 7, (3, 3), strides=(3, 3), flags=OWNED),
        convolution(1, 3, (1 << 13, 1 << 13), 8, (4, 4), strides=(4, 4)),
    ],
    ids=["ResNet", "MobileNet, NHWC", "one channel", "stride 3", "large"],
)
def test_first_layers_on_every_device_with_matrices(desc: QuantizedLinearConvolutionDesc, device: str) -> None:
    profile = profiles.load(device)
    found = plan(desc, profile, path="first_layer")
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    tile = first_layer_tile(profile, desc.geometry)
    limit = min(profile.limits.max_compute_shared_memory_size, 48 << 10)
    assert tile.shared_memory(desc.geometry) <= limit
    assert all(
        dispatch.subgroup_size == tile.lanes for dispatch in found.dispatches if "first_layer" in dispatch.kernel
    )


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (DESCRIPTORS["odd"], "input channels = 13, possible: at most 4"),
        (convolution(1, 3, (9, 9), 3, (3, 3), groups=3), "groups = 3, possible: 1"),
        (convolution(1, 3, (9, 9), 3, (3, 3), dilations=(2, 2)), r"dilations = \(2, 2\)"),
        (convolution(1, 3, (99, 99), 3, (12, 3)), "filter rows = 12, possible: at most 11"),
        (convolution(1, 3, (99, 99), 3, (3, 3), strides=(5, 5)), r"strides = \(5, 5\), possible: at most 4"),
        (convolution(1, 4, (99, 99), 64, (11, 5)), "bytes of shared memory = .*, possible: at most"),
    ],
)
def test_what_first_layer_does_not_take(desc: QuantizedLinearConvolutionDesc, reason: str) -> None:
    with pytest.raises(PathError, match=f"cannot take path 'first_layer' here: .*{reason}"):
        plan(desc, profiles.load("nvidia-h200"), path="first_layer")


def test_a_forced_path_that_could_overflow_is_refused() -> None:
    channels = 4 * LARGEST_WORD_COUNT
    profile = profiles.load("swiftshader")
    assert plan(convolution(1, channels, (1, 1), 2, (1, 1)), profile, path="integer").path == "integer"
    with pytest.raises(ValueError, match=r"words of four taps .* = 32768, possible: at most 32767"):
        plan(convolution(1, channels + 1, (1, 1), 2, (1, 1)), profile, path="integer")


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


def test_parameters_take_one_dispatch_or_none() -> None:
    """Three where a stage has room for four storage buffers only; none a call where all of them are owned."""
    profile = profiles.load("nvidia-h200")
    floor = replace(profile, limits=replace(profile.limits, max_per_stage_descriptor_storage_buffers=4))

    def count(stages: tuple[tuple[Dispatch, ...], ...]) -> int:
        return sum("parameters" in dispatch.kernel for stage in stages for dispatch in stage)

    for path in ("dot4", "direct"):  # the matrix path works them out in its product
        given, owned = (DESCRIPTORS[name] for name in ("odd", "all owned"))
        assert count(plan(given, profile, path=path).stages) == 1
        assert count(plan(given, floor, path=path).stages) == 3
        found = plan(owned, profile, path=path)
        assert (count(found.initialization), count(found.stages)) == (1, 0)

    depthwise = DESCRIPTORS["depthwise"]
    for device, dispatches, kernel in ((profile, 0, "dot4"), (floor, 3, "integer")):
        found = plan(depthwise, device, path="depthwise")
        assert count(found.stages) == dispatches
        assert found.dispatches[-1].kernel == f"quantized_linear_convolution/depthwise_{kernel}"


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
