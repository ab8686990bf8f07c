"""The choice of a kernel path on recorded devices. Every plan keeps to the limits and writes the whole output."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.planning.plan import NO_OFFSETS
from dmlvk.planning.quantized_linear_convolution.choice import offers
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.path import ObstacleError, Offer, Problem
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, NAMES, written_elements


@pytest.mark.quarter_by_day
@pytest.mark.parametrize("profile", profiles.NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_the_plan_has_the_least_estimate_and_keeps_to_the_limits(name: str, profile: str) -> None:
    """Also where a path meets an obstacle only as it is planned."""
    problem = Problem(DESCRIPTORS[name], profiles.load(profile), NO_OFFSETS)
    chosen = plan(problem.desc, problem.profile)
    check_plan(chosen, problem.desc, problem.profile)
    assert written_elements(chosen, problem.desc) == problem.desc.output_tensor.element_count
    found = offers(problem)
    for offer in found:
        assert offer == Offer.of(offer.path, problem)
        assert offer.seconds == min(offer.path.seconds(problem, tile) for tile in offer.path.tiles(problem))
    cheaper = [offer for offer in found if offer.seconds < chosen.seconds]
    assert chosen.seconds in {offer.seconds for offer in found}
    assert not cheaper or "GiB" in name, "only parts of an input that lie too far apart for a window"
    for offer in cheaper:
        with pytest.raises(ObstacleError):
            offer.plan(problem)


@pytest.mark.half_by_day
@pytest.mark.parametrize("name", ["odd", "NHWC", "ResNeXt", "depthwise", "all owned"])
@pytest.mark.parametrize("path", ["matrix", "vectors", "integer", "float", "direct"])
@pytest.mark.parametrize("device", ["lavapipe-22.3", "swiftshader", "lavapipe-26.2", "nvidia-h200", "intel-hsw"])
def test_a_path_is_taken_where_the_device_has_it(device: str, path: str, name: str) -> None:
    profile, desc = profiles.load(device), DESCRIPTORS[name]
    absent = {("float", "swiftshader"), ("float", "nvidia-h200"), ("float", "intel-hsw")}
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
        ("swiftshader", "ResNet, 256 channels", "integer"),
        ("nvidia-h200", "ResNet, 512 channels", "matrix"),
        ("nvidia-h200", "first layer", "matrix"),
        ("amd-navi31", "first layer", "matrix"),
        ("lavapipe-26.2", "first layer", "float"),
        ("nvk-pascal", "ResNet, 512 channels", "vectors"),
        ("amd-navi21", "ResNet, 512 channels", "vectors"),
        ("intel-dg2", "ResNet, 512 channels", "matrix"),
        ("intel-bmg", "ResNet, 512 channels", "matrix"),
        ("lavapipe-26.2", "ResNet, 512 channels", "float"),
        ("intel-hsw", "ResNet, 512 channels", "vectors"),
        ("nvidia-h200", "depthwise", "depthwise"),
        ("nvidia-h200", "ResNeXt", "matrix"),
        ("intel-dg2", "ResNeXt", "matrix"),
        ("amd-navi21", "ResNeXt", "vectors"),
        ("lavapipe-22.3", "ResNeXt", "float"),
        ("swiftshader", "ResNeXt", "integer"),
        ("intel-hsw", "ResNeXt", "vectors"),
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
    [("nvidia-h200", "integer"), ("intel-dg2", "integer"), ("intel-ptl", "integer"), ("amd-navi31", "integer")],
)
def test_a_device_too_small_for_any_matrix_tile_takes_another_path(device: str, path: str) -> None:
    rich = profiles.load(device)
    limits = replace(rich.limits, max_compute_shared_memory_size=16_384, max_compute_work_group_invocations=128)
    poor = replace(rich, limits=limits)
    desc = DESCRIPTORS["ResNet, 512 channels"]
    assert plan(desc, rich).path in ("matrix", "halo")
    assert plan(desc, poor).path == path
    check_plan(plan(desc, poor), desc, poor)
