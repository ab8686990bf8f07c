"""The path `depthwise`: on every recorded device, and the convolutions that it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.work import desc_of
from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.plan import PERSISTENT, Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.depthwise import (
    ENOUGH_INVOCATIONS,
    ENOUGH_NARROW_INVOCATIONS,
    FEW_COLUMNS,
    MOST_PREPARED_PLANES,
)
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, OWNED, convolution, written_elements

LAST = (56 * 56 * 144, 1, 56 * 144, 144)
PREPARATION = "quantized_linear_convolution/depthwise_prepare"


@pytest.mark.quarter_by_day
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


@pytest.mark.parametrize(
    ("channels", "size", "stride"),
    [(32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 2), (384, 14, 1), (576, 14, 2), (960, 7, 1)],
)
def test_one_image_fills_a_gpu(channels: int, size: int, stride: int) -> None:
    """MobileNetV2's layers in NHWC: about a workgroup for each multiprocessor of a large GPU, or more."""
    out = size // stride
    desc = convolution(
        1,
        channels,
        (size, size),
        channels,
        (3, 3),
        groups=channels,
        strides=(stride, stride),
        padding=(1, 1),
        input_strides=(size * size * channels, 1, size * channels, channels),
        output_strides=(out * out * channels, 1, out * channels, channels),
    )
    (dispatch,) = plan(desc, profiles.load("nvidia-h200"), path="depthwise").dispatches
    assert dispatch.groups[0] * dispatch.groups[1] >= 100
    assert dispatch.specialization[0] <= 64


@pytest.mark.parametrize(
    ("device", "is_last", "is_shared"),
    [("nvidia-h200", True, True), ("nvidia-h200", False, False), ("lavapipe-25.0", True, False)],
)
def test_words_of_channels_share_pipelines_on_gpus(device: str, is_last: bool, is_shared: bool) -> None:
    profile = profiles.load(device)
    found = []
    for size in (26, 28):
        strides = (144 * size * size, 1, 144 * size, 144) if is_last else None
        desc = convolution(
            64,
            144,
            (size, size),
            144,
            (3, 3),
            groups=144,
            padding=(1, 1),
            input_strides=strides,
            output_strides=strides,
        )
        dispatch = plan(desc, profile, path="depthwise").stages[-1][0]
        found.append(dispatch)
    assert (found[0].specialization == found[1].specialization) == is_shared
    names = kernel_interface(found[0].kernel).specialization_constants
    for dispatch in found:
        constants = dict(zip(names, dispatch.specialization, strict=True))
        assert all((constants[name] == 0) == is_shared for name in ("ROWS", "BLOCK", "ROW_LIMIT", "COLUMN_LIMIT"))


def in_network(*arguments: Any, **members: Any) -> QuantizedLinearConvolutionDesc:
    """A convolution of which everything but input and output is OWNED_BY_DML."""
    desc = convolution(*arguments, everything_owned=True, **members)
    return replace(desc, input_tensor=convolution(*arguments, **members).input_tensor)


NHWC = in_network(1, 144, (56, 56), 144, (3, 3), groups=144, padding=(1, 1), input_strides=LAST, output_strides=LAST)
NCHW = in_network(2, 70, (9, 30), 140, (5, 5), groups=70, dilations=(1, 2))


def limited(profile: DeviceProfile, **limits: Any) -> DeviceProfile:
    return replace(profile, limits=replace(profile.limits, **limits))


def constants(dispatch: Dispatch) -> dict[str, int]:
    names = kernel_interface(dispatch.kernel).specialization_constants
    return dict(zip(names, dispatch.specialization, strict=True))


@pytest.mark.parametrize("device", profiles.NAMES)
@pytest.mark.parametrize("desc", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_what_never_changes_is_prepared_once(desc: QuantizedLinearConvolutionDesc, device: str) -> None:
    """Wherever a GPU multiplies bytes four at a time; other devices read a table."""
    profile = profiles.load(device)
    found = plan(desc, profile, path="depthwise")
    check_plan(found, desc, profile)
    prepared = [dispatch for stage in found.initialization for dispatch in stage if dispatch.kernel == PREPARATION]
    assert len(prepared) == (found.dispatches[0].kernel == "quantized_linear_convolution/depthwise_dot4")
    if prepared:
        assert found.initialization[-1] == tuple(prepared)
        assert all(dispatch.kernel.endswith("/copy") for stage in found.initialization[:-1] for dispatch in stage)
        assert all(window.tensor == PERSISTENT for window in prepared[0].windows)


@pytest.mark.parametrize(
    ("batch", "size", "stride", "is_last", "is_prepared"),
    [
        (MOST_PREPARED_PLANES // (128 * 32 * 32), 32, 1, False, True),
        (MOST_PREPARED_PLANES // (128 * 32 * 32) + 1, 32, 1, False, False),
        (64, 32, 1, True, True),  # words of channels
        (64, 30, 1, False, True),  # rows that are no whole words
        (256, 32, 2, False, True),
    ],
)
def test_large_planes_are_not_prepared(batch: int, size: int, stride: int, is_last: bool, is_prepared: bool) -> None:
    """Where it was measured, the weights in shared memory are faster for them."""
    layout = {"input_strides": LAST, "output_strides": LAST} if is_last else {}
    arguments: Any = (batch, 128, (size, size), 128, (3, 3))
    desc = in_network(*arguments, groups=128, padding=(1, 1), strides=(stride, stride), **layout)
    found = plan(desc, profiles.load("nvidia-h200"), path="depthwise")
    kernels = {dispatch.kernel for stage in found.initialization for dispatch in stage}
    assert (PREPARATION in kernels) == is_prepared
    assert all(constants(dispatch)["PREPARED"] == is_prepared for dispatch in found.dispatches)


@pytest.mark.parametrize(
    ("batch", "channels", "size", "stride", "largest"),
    [
        (8, 480, 14, 1, 128),
        (8, 960, 7, 1, 128),
        (32, 1152, 7, 1, 128),
        (32, 576, 14, 2, 128),
        (32, 144, 56, 1, 256),  # each workgroup prepares its weights
    ],
)
def test_tiles_of_planes(batch: int, channels: int, size: int, stride: int, largest: int) -> None:
    """Tiles are no taller than leaves a GPU busy; and workgroups have few invocations if weights are there."""
    desc = desc_of(Layer(channels, size, channels, 3, stride, channels), batch, "nchw")
    (dispatch,) = plan(desc, profiles.load("nvidia-h200"), path="depthwise").dispatches
    rows, height, columns = constants(dispatch)["ROWS"], *desc.geometry.output_size
    tiles = batch * channels * -(-height // rows) * -(-columns // constants(dispatch)["COLUMNS"])
    enough = ENOUGH_NARROW_INVOCATIONS if columns <= FEW_COLUMNS else ENOUGH_INVOCATIONS[False]
    assert tiles >= enough or rows == 1
    assert largest // 2 < dispatch.specialization[0] <= largest


@pytest.mark.parametrize(("device", "is_held"), [("nvidia-h200", 1), ("intel-dg2", 0)])
@pytest.mark.parametrize(
    ("desc", "rows", "panels"), [(NHWC, 4 + 2 * 3, 3), (NCHW, 4 + 2 * 5 * 3, 3)], ids=["NHWC", "NCHW"]
)
def test_the_kernel_reads_what_is_prepared(
    desc: QuantizedLinearConvolutionDesc, rows: int, panels: int, device: str, is_held: int
) -> None:
    """Panels of 64 channels stand in place of the filter, and no tensor of parameters is read."""
    found = plan(desc, profiles.load(device), path="depthwise")
    (prepared,) = found.initialization[-1]
    assert len(prepared.windows) == 9
    written = prepared.windows[0]
    assert (written.access, written.size) == (Access.WRITE, panels * rows * 64 * 4)
    for dispatch in found.dispatches:
        source, *others = dispatch.windows
        assert (source.tensor, others[1].tensor, len(others)) == ("input_tensor", "output_tensor", 9)
        for window in (others[0], *others[2:]):
            assert (window.tensor, window.offset, window.size) == (PERSISTENT, written.offset, written.size)
        words = kernel_interface(dispatch.kernel).push_constants
        assert dispatch.push_constants[words["tiles"][0]] == 1
        # No other push constant than these is changed when windows are bound.
        assert {window.base_word for window in others[2:]} == {words["bias_start"][0]}
        values = constants(dispatch)
        assert (values["PREPARED"], values["HELD"]) == (1, is_held)


def test_parts_of_the_channels_read_the_same_panels() -> None:
    """Each part knows where its channels lie among all of them."""
    desc = in_network(1, 70, (5600, 5600), 70, (3, 3), groups=70)
    found = plan(desc, profiles.load("nvidia-h200"), path="depthwise")
    assert len(found.dispatches) > 1
    assert len({dispatch.windows[1] for dispatch in found.dispatches}) == 1
    words = kernel_interface(found.dispatches[0].kernel).push_constants
    firsts = {dispatch.push_constants[words["first_channel"][0]] for dispatch in found.dispatches}
    assert min(firsts) == 0 and len(firsts) > 1


@pytest.mark.parametrize(
    ("desc", "changes", "kernel", "is_prepared"),
    [
        (NHWC, {"max_per_stage_descriptor_storage_buffers": 10}, "depthwise_dot4", True),
        (NHWC, {"max_per_stage_descriptor_storage_buffers": 9}, "depthwise_integer", False),
        (NCHW, {"max_storage_buffer_range": 8192}, "depthwise_dot4", False),
        (convolution(1, 8, (9, 9), 8, (3, 3), groups=8), {}, "depthwise_dot4", False),
        (convolution(1, 8, (9, 9), 8, (3, 3), groups=8, flags=OWNED), {}, "depthwise_dot4", False),
        (convolution(1, 8, (9, 9), 8, (3, 3), groups=8, everything_owned=True), {}, "depthwise_dot4", True),
    ],
    ids=["ten buffers", "nine buffers", "small windows", "all bound", "filter owned", "input owned too"],
)
def test_when_it_is_prepared(
    desc: QuantizedLinearConvolutionDesc, changes: dict[str, int], kernel: str, is_prepared: bool
) -> None:
    """If nothing but the input changes, and one window shows all panels. No more buffers than without are needed."""
    profile = limited(profiles.load("nvidia-h200"), **changes)
    found = plan(desc, profile, path="depthwise")
    check_plan(found, desc, profile)
    assert {dispatch.kernel for dispatch in found.dispatches} == {f"quantized_linear_convolution/{kernel}"}
    assert is_prepared == (PREPARATION in {dispatch.kernel for stage in found.initialization for dispatch in stage})
    if kernel.endswith("dot4"):
        assert all(constants(dispatch)["PREPARED"] == is_prepared for dispatch in found.dispatches)


def test_layers_share_pipelines_whatever_their_parameters_are() -> None:
    """What only the preparation has to know is no constant of the kernel."""
    profile = profiles.load("nvidia-h200")
    others = [
        replace(NHWC, bias_tensor=None),
        replace(NHWC, filter_scale_tensor=NHWC.input_scale_tensor),
        replace(NHWC, input_zero_point_tensor=None),
    ]
    found = {plan(desc, profile, path="depthwise").dispatches[0].specialization for desc in (NHWC, *others)}
    assert len(found) == 1
