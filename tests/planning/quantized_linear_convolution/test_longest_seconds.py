"""One estimate chooses a path and keeps its submissions short: its dispatches share it, times a factor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.device_profile import DeviceType
from dmlvk.planning.builder import DISPATCH_SECONDS, PlanBuilder, View, copies
from dmlvk.planning.device_rates import LARGE_GPU, SLOWEST, SLOWEST_MEASURED, longest
from dmlvk.planning.plan import NO_OFFSETS, PERSISTENT
from dmlvk.planning.quantized_linear_convolution.choice import offers
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixPath
from dmlvk.planning.quantized_linear_convolution.path import ObstacleError, Problem
from dmlvk.planning.quantized_linear_convolution.tiled_product import PLANES, fetch_in_place
from tests import profiles
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, convolution

# Batches of eight: long enough for several dispatches on each device, and not for thousands on a CPU.
LAYERS = {name: DESCRIPTORS[name] for name in ("odd", "NHWC", "ResNeXt", "all owned", "ResNet, 256 channels")} | {
    "first layer": convolution(8, 3, (224, 224), 64, (7, 7), strides=(2, 2), padding=(3, 3)),
    "cut in rows": convolution(8, 256, (14, 14), 256, (3, 3), padding=(1, 1)),
    "depthwise": convolution(8, 144, (56, 56), 144, (3, 3), groups=144, padding=(1, 1)),
}
DEVICES = ["nvidia-h200", "amd-navi21", "intel-bmg", "intel-skl", "apple-m1", "lavapipe-26.2", "swiftshader"]
# Rows and columns that fill no tile are counted once more in each dispatch; sums in several parts too.
MOST_PADDING = 1.6


@pytest.mark.quarter_by_day
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LAYERS)
def test_dispatches_share_the_estimate_of_the_choice(device: str, name: str) -> None:
    problem = Problem(LAYERS[name], profiles.load(device), NO_OFFSETS)
    for offer in offers(problem):
        kernel = offer.path.kernel_seconds(problem, offer.tile)
        assert 0 < kernel <= offer.seconds
        try:
            made = offer.plan(problem)
        except ObstacleError:
            continue
        products = [dispatch for dispatch in made.dispatches if dispatch.operations]
        expected = longest(problem.profile, kernel)
        assert expected == kernel * SLOWEST[problem.profile.device_type]
        if any(dispatch.seconds > DISPATCH_SECONDS for dispatch in products):
            assert "vectors" in offer.path.name and problem.profile.device_type is DeviceType.CPU, "a tile is too long"
            assert len(products) <= 2 * expected / DISPATCH_SECONDS, "a part of a tile takes as long as all of it"
            continue
        total = sum(dispatch.seconds for dispatch in products)
        assert expected * 0.999 <= total <= expected * MOST_PADDING, offer.path.name


def test_planes_are_read_in_place_if_one_of_them_is_short() -> None:
    desc = convolution(2, 64, (56, 56), 64, (1, 1))
    problem, path = Problem(desc, profiles.load("nvidia-h200"), NO_OFFSETS), MatrixPath()
    tile, *_ = path.tiles(problem)
    for seconds, fetch in ((DISPATCH_SECONDS, PLANES), (1.01 * DISPATCH_SECONDS, None)):
        whole = seconds * tile.padded_outputs(2 * 56 * 56) / tile.outputs_of_panels(1, 1, 56 * 56)
        assert fetch_in_place(problem.operands(desc.geometry), tile, whole) == fetch


def test_copies_keep_to_segments_wherever_a_tensor_starts() -> None:
    """Also after the same copy of a tensor that starts elsewhere."""
    profile = profiles.load("nvidia-h200")
    source, target = View("bias_tensor", 0, 4, (1,)), View(PERSISTENT, 0, 4, (1,))
    for offset, count in ((0, 1), (profile.segment_size - 128, 2), (0, 1)):
        found = copies(PlanBuilder(profile, {"bias_tensor": offset}), source, target, (64,))
        assert len(found) == count


def test_a_measured_device_is_less_slow_than_the_slowest() -> None:
    profile = profiles.load("nvidia-h200")
    assert longest(profile, 2.0) == 2.0 * SLOWEST[profile.device_type]
    assert longest(replace(profile, rates=LARGE_GPU), 2.0) == 2.0 * SLOWEST_MEASURED


def test_a_longer_estimate_makes_more_dispatches() -> None:
    desc = convolution(8, 512, (28, 28), 512, (3, 3), padding=(1, 1))
    problem = Problem(desc, profiles.load("swiftshader"), NO_OFFSETS)
    offer = next(offer for offer in offers(problem) if offer.path.name == "integer")
    products = [each for each in offer.plan(problem).dispatches if each.operations]
    least = offer.path.longest_seconds(problem, offer.tile) / DISPATCH_SECONDS
    assert least <= len(products) <= 2.5 * least and len(products) > 10
