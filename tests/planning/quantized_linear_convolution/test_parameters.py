"""The dispatches that make the table of parameters."""

from __future__ import annotations

from dataclasses import replace

from dmlvk.planning.plan import Dispatch
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from tests import profiles
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS


def test_parameters_take_one_dispatch_or_none() -> None:
    """Three dispatches if a stage has only four storage buffers. None in a call if all parameters are owned."""
    profile = profiles.load("nvidia-h200")
    floor = replace(profile, limits=replace(profile.limits, max_per_stage_descriptor_storage_buffers=4))

    def count(stages: tuple[tuple[Dispatch, ...], ...]) -> int:
        return sum("parameters" in dispatch.kernel for stage in stages for dispatch in stage)

    for path in ("dot4", "direct"):  # the kernel of the path `matrix` computes them itself
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
