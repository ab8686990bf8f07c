"""Groups side by side in one: how many, on which paths, and what is packed when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.plan import PERSISTENT, SCRATCH
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.path import Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import folded_geometry, joinable_counts
from dmlvk.tensor_desc import TensorDesc, TensorFlags
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import convolution, written_elements


def joined(device: str, channels: int, groups: int, filters: int, path: str | None = None) -> int:
    """How many groups the planner joins, by the words that it packs for an output channel."""
    desc = convolution(64, groups * channels, (28, 28), groups * filters, (3, 3), groups=groups, padding=(1, 1))
    found = plan(desc, profiles.load(device), path=path)
    (packing,) = (each for each in found.dispatches if "pack_filter" in each.kernel)
    check_plan(found, desc, profiles.load(device))
    assert written_elements(found, desc) == desc.output_tensor.element_count
    return packing.specialization[kernel_interface(packing.kernel).specialization_constants.index("JOINED")]


@pytest.mark.parametrize(
    ("device", "path", "channels", "groups", "filters", "count"),
    [
        ("nvidia-h200", "halo", 4, 32, 4, 16),  # 64 channels, as many as its tiles have
        ("nvidia-h200", "halo", 8, 32, 8, 8),
        ("nvidia-h200", "halo", 16, 32, 16, 4),
        ("nvidia-h200", "matrix", 4, 32, 4, 8),  # 32 channels fill the narrowest of its tiles
        ("nvidia-h200", None, 64, 4, 64, 1),
        ("nvidia-h200", None, 4, 7, 4, 7),  # all of a prime number of groups
        ("amd-navi21", None, 4, 32, 4, 8),  # 32 channels, by packed dot products
        ("swiftshader", None, 4, 32, 4, 2),  # panels of 8 channels
    ],
)
def test_groups_are_joined_up_to_a_tile_s_width(
    device: str, path: str | None, channels: int, groups: int, filters: int, count: int
) -> None:
    assert joined(device, channels, groups, filters, path) == count


def test_a_joined_convolution_has_the_same_work_and_a_wider_sum() -> None:
    geometry = folded_geometry(convolution(1, 128, (9, 9), 64, (3, 3), groups=32).geometry)
    wider = geometry.with_joined(8)
    assert (wider.group_count, wider.input_channels_per_group, wider.output_channels_per_group) == (4, 32, 16)
    assert (wider.tap_count, wider.own_tap_count, wider.filter_sizes) == (288, 36, (64, 4, 3, 3))
    assert list(joinable_counts(geometry)) == [1, 2, 4, 8, 16, 32]
    assert list(joinable_counts(folded_geometry(convolution(1, 512, (9, 9), 8, (1, 1), groups=2).geometry))) == [1]


def profile_of(name: str) -> DeviceProfile:
    return profiles.load(name)


def test_an_owned_filter_is_packed_at_each_call_if_its_zero_points_may_change() -> None:
    desc = convolution(64, 128, (28, 28), 128, (3, 3), groups=32, padding=(1, 1))
    owned = TensorDesc(desc.filter_tensor.data_type, desc.filter_tensor.sizes, flags=TensorFlags.OWNED_BY_DML)
    points = desc.filter_zero_point_tensor
    assert points is not None
    for zero_point, memory in ((points, SCRATCH), (replace(points, flags=TensorFlags.OWNED_BY_DML), PERSISTENT)):
        changed = replace(desc, filter_tensor=owned, filter_zero_point_tensor=zero_point)
        found = plan(changed, profile_of("nvidia-h200"), path="matrix")
        stages = found.stages if memory == SCRATCH else found.initialization
        (packing,) = (each for stage in stages for each in stage if "pack_filter" in each.kernel)
        assert packing.windows[1].tensor == memory
        assert packing.windows[0].tensor in (PERSISTENT, "filter_tensor")


def test_zero_points_that_no_window_shows_keep_groups_apart() -> None:
    desc = convolution(1, 8, (4, 4), 8, (3, 3), groups=4)
    points = desc.filter_zero_point_tensor
    assert points is not None
    apart = TensorDesc(points.data_type, (1, 8, 1, 1), (0, 1 << 30, 0, 0))
    desc = replace(desc, filter_zero_point_tensor=apart)
    assert [each.joined for each in Problem(desc, profile_of("nvidia-h200"), {}).product_geometries] == [1]
