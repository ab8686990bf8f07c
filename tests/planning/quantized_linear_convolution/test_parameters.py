"""The dispatches that make the table of parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.conformance.profiles import PROFILES
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.plan import Dispatch
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.packing import PARAMETERS_KERNEL as KERNEL
from dmlvk.planning.quantized_linear_convolution.packing import PREPARED_ROWS
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, convolution
from tests.planning.quantized_linear_convolution.matrix_devices import constant, push_constant, size_of


def test_parameters_take_one_dispatch_or_none() -> None:
    """Three dispatches if a stage has only four storage buffers. None in a call if all parameters are owned."""
    profile = profiles.load("nvidia-h200")
    floor = replace(profile, limits=replace(profile.limits, max_per_stage_descriptor_storage_buffers=4))

    def count(stages: tuple[tuple[Dispatch, ...], ...]) -> int:
        return sum("parameters" in dispatch.kernel for stage in stages for dispatch in stage)

    for path in ("integer", "direct"):  # the kernel of the path `matrix` computes them itself
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


@pytest.mark.parametrize("path", ["matrix", "split_k", "split_k/3", "halo", "vectors"])
@pytest.mark.parametrize("is_owned", [False, True])
def test_rows_after_a_panel_s_words(path: str, is_owned: bool) -> None:
    """The sums; and of channels that never change the multipliers, constants, zero points, and a vector for all."""
    profile = profiles.load("nvidia-h200")
    desc = convolution(2, 64, (9, 9), 80, (3, 3), padding=(1, 1), everything_owned=is_owned)
    found = plan(desc, PROFILES["no-matrix"](profile) if path == "vectors" else profile, path=path)
    rows = 5 if is_owned else 1
    assert PREPARED_ROWS == 5
    for product in (each for each in found.dispatches if each.operations):
        width, step = constant(product, "TILE_CHANNELS"), constant(product, "STEP")
        steps = -(-size_of(product, "VECTORS_OF_K") // step)
        # In vectors: `width` for each vector of K, and words for each row.
        assert push_constant(product, "panel_stride") == steps * step * width + rows * width // 4
        assert constant(product, "PREPARED") == is_owned
    prepared = [dispatch for stage in found.initialization for dispatch in stage if dispatch.kernel == KERNEL]
    assert bool(prepared) == is_owned


@pytest.mark.parametrize(("groups", "filters"), [(1, 1000), (1, 40), (5, 300), (3, 24)])
@pytest.mark.parametrize("window", [1 << 30, 1 << 17])
def test_each_channel_is_prepared_once(groups: int, filters: int, window: int) -> None:
    """A workgroup a panel, and as many dispatches as windows need; as matrix_parameters.comp counts the channels."""
    profile = profiles.load("nvidia-h200")
    small = replace(profile, limits=replace(profile.limits, max_storage_buffer_range=window))
    desc = convolution(1, 64 * groups, (9, 9), filters * groups, (3, 3), groups=groups, everything_owned=True)
    found = plan(desc, small, path="split_k")
    check_plan(found, desc, small)
    channels: list[int] = []
    dispatches = [dispatch for stage in found.initialization for dispatch in stage if dispatch.kernel == KERNEL]
    assert (len(dispatches) > 1) == (window < 1 << 20 and filters > 40)
    for dispatch in dispatches:
        width, of_group, panels = (push_constant(dispatch, name) for name in ("width", "channels_of_group", "panels"))
        panels_of_group, first = -(-of_group // width), push_constant(dispatch, "first_panel")
        assert panels <= dispatch.groups[0] * dispatch.groups[1] < panels + dispatch.groups[1]
        # A scale for each channel, four bytes apart: where the dispatch's first channel is.
        word = kernel_interface(KERNEL).word_of("filter_scale_start")
        (scales,) = (window for window in dispatch.windows if window.base_word == word)
        start = scales.offset // 4 + push_constant(dispatch, "filter_scale_start")
        for panel in range(panels):
            group, place = divmod(first + panel, panels_of_group)
            begin = group * of_group + (place - first) * width
            channels += range(start + begin, start + begin + min(width, of_group - place * width))
    assert sorted(channels) == list(range(min(channels), min(channels) + desc.output_tensor.sizes[1]))
