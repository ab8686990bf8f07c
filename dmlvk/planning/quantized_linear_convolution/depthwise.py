"""The path `depthwise` of QUANTIZED_LINEAR_CONVOLUTION: one input channel for each output channel."""

from __future__ import annotations

import math

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import (
    View,
    dense,
)
from dmlvk.planning.plan import Plan
from dmlvk.planning.quantized_linear_convolution.depthwise_dispatch import (
    Depthwise,
    InputWords,
    depthwise_seconds,
    is_worth_a_table,
    multiplies_packed,
)
from dmlvk.planning.quantized_linear_convolution.parameters import Sources
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem
from dmlvk.planning.quantized_linear_convolution.stages import Stages
from dmlvk.tensor_desc import TensorFlags

# The loops of a tile are unrolled. The next limits bound its code and its registers.
LARGEST_TAP_COUNT = 49
LARGEST_REACH = 16
LARGEST_STRIDE = 4


def obstacle_to_depthwise(geometry: ConvolutionGeometry) -> Obstacle | None:
    """Why the kernel cannot take a convolution; None if it can."""
    if geometry.input_channels_per_group != 1:
        return Obstacle("input channels of a group", geometry.input_channels_per_group, "1")
    if (taps := math.prod(geometry.filter_size)) > LARGEST_TAP_COUNT:
        return Obstacle("filter taps", taps, f"at most {LARGEST_TAP_COUNT}")
    for k in range(2):
        extent = (geometry.filter_size[k] - 1) * geometry.dilations[k] + 1
        if extent > LARGEST_REACH:
            return Obstacle("rows or columns of the dilated filter", extent, f"at most {LARGEST_REACH}")
        if geometry.strides[k] > LARGEST_STRIDE:
            return Obstacle("stride", geometry.strides[k], f"at most {LARGEST_STRIDE}")
    return None


def _input_view(problem: Problem) -> View:
    """The input as the kernel reads it: an input that is OWNED_BY_DML is copied to a packed one."""
    geometry = problem.geometry
    if problem.desc.input_tensor.flags & TensorFlags.OWNED_BY_DML:
        return dense("input_tensor", 0, 1, (geometry.batch, geometry.input_channels, *geometry.input_size))
    return View("input_tensor", 0, 1, geometry.input_strides)


class DepthwisePath(Path[None]):
    """Every output channel sees one input channel: words of four channels or columns, straight from the tensors. On
    every device.
    """

    name = "depthwise"

    def obstacle_on(self, profile: DeviceProfile) -> None:
        return None

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        obstacle = obstacle_to_depthwise(problem.geometry)
        if obstacle is None and InputWords.of(problem.geometry, _input_view(problem)) is None:
            return Obstacle("input strides", problem.geometry.input_strides, "four neighbours in a 32-bit word")
        return obstacle

    def tiles(self, problem: Problem) -> tuple[None]:
        return (None,)

    def is_preferred(self, problem: Problem) -> bool:
        return device_traits.is_faster_with_depthwise(problem.profile)

    def seconds(self, problem: Problem, tile: None) -> float:
        geometry = problem.geometry
        words = InputWords.of(geometry, _input_view(problem))
        assert words is not None, "asked for after this was checked"
        extents = [geometry.batch, geometry.output_channels, *geometry.output_size]
        return depthwise_seconds(problem.profile, geometry, words, extents)

    def plan(self, problem: Problem, tile: None) -> Plan:
        stages = Stages(problem, problem.geometry, ("input_tensor", "filter_tensor"))
        table: View | None = None
        is_packed = multiplies_packed(problem.profile)
        if problem.profile.device_type is DeviceType.CPU:
            is_packed = is_packed and not stages.has_constants_alone and not is_worth_a_table(problem.geometry)
        if is_packed:
            parameters = stages.gathered_parameters()
        else:
            table = stages.parameter_table()
            parameters = Sources.of(problem.desc, stages.parameters)
        depthwise = Depthwise(
            stages.builder,
            problem.geometry,
            stages.views["input_tensor"],
            stages.views["output_tensor"],
            parameters,
            stages.views["filter_tensor"],
            table,
        )
        stages.add(depthwise.dispatches())
        return stages.plan(self.name)
