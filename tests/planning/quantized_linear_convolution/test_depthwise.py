"""The path `depthwise`: on every recorded device, and the convolutions that it refuses."""

from __future__ import annotations

import pytest

from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.plan import PathError
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, convolution, written_elements

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
