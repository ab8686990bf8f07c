"""The path `depthwise` of QUANTIZED_LINEAR_CONVOLUTION: one input channel for each output channel."""

from __future__ import annotations

import math

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning import device_traits
from dmlvk.planning.builder import View, dense
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.plan import Plan
from dmlvk.planning.quantized_linear_convolution.depthwise_channels import PreparedChannels
from dmlvk.planning.quantized_linear_convolution.depthwise_dispatch import (
    Depthwise,
    InputWords,
    is_worth_a_table,
    multiplies_packed,
    padded_count,
)
from dmlvk.planning.quantized_linear_convolution.estimate import PARAMETER_WAITS, STORES_OF_A_BYTE
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem
from dmlvk.planning.quantized_linear_convolution.stages import Stages
from dmlvk.tensor_desc import TensorFlags

# Multiply-adds of the kernel in the time of one of the direct kernel's, and the last step of an output in taps.
TAPS_AT_A_TIME, LAST_STEP_TAPS = 10.0, 10.0
# Loads that an invocation waits for at each tap.
WAITS_OF_TAP = 0.15
# On CPU drivers: lavapipe, and the others, which are a little slower than with the direct kernel.
CPU_TAPS_AT_A_TIME, CPU_TAPS_OF_ONE = 8.0, 0.8

# Prepared channels are for short dispatches: an invocation waits less often. With words of columns, stride 1 and rows
# that are whole words, larger ones do without: their workgroups prepare a channel once for many tiles, and other
# workgroups run while one waits. On an H100 9.6 million outputs took 5% longer with prepared channels, 25.7 million
# 17%, and 3.6 million 3% less.
MOST_PREPARED_PLANES = 1 << 22

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


def _is_packed(problem: Problem) -> bool:
    """Whether taps are multiplied four at a time."""
    if not multiplies_packed(problem.profile):
        return False
    if problem.profile.device_type is not DeviceType.CPU:
        return True
    return not problem.has_owned_constants and not is_worth_a_table(problem.geometry)


def _is_prepared(problem: Problem) -> bool:
    """Whether channels are given once, and worth working out once."""
    geometry, words = problem.geometry, InputWords.of(problem.geometry, _input_view(problem))
    assert words is not None, "asked for after this was checked"
    if not problem.has_owned_constants or not _is_packed(problem):
        return False
    is_ragged = any(size % 4 for size in (geometry.input_size[1], geometry.output_size[1]))
    if words.channels_last or is_ragged or max(geometry.strides) > 1:
        return True
    return geometry.batch * geometry.output_channels * math.prod(geometry.output_size) <= MOST_PREPARED_PLANES


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

    def tiles(self, problem: Problem) -> tuple[None, ...]:
        return (None,) if self.obstacle_to(problem) is None else ()

    def kernel_seconds(self, problem: Problem, tile: None) -> float:
        geometry, profile = problem.geometry, problem.profile
        words = InputWords.of(geometry, _input_view(problem))
        assert words is not None, "asked for after this was checked"
        rates = rates_of(profile)
        extents = [geometry.batch, geometry.output_channels, *geometry.output_size]
        outputs = padded_count(words, extents)
        if profile.device_type is DeviceType.CPU:
            faster = CPU_TAPS_AT_A_TIME if device_traits.is_faster_with_depthwise(profile) else CPU_TAPS_OF_ONE
            return outputs * geometry.tap_count / (faster * rates.tap)
        is_ragged = not words.channels_last and any(
            size % 4 for size in (geometry.input_size[1], geometry.output_size[1])
        )
        stores = STORES_OF_A_BYTE if is_ragged else 1
        busy = outputs * stores * (geometry.tap_count + LAST_STEP_TAPS) / (TAPS_AT_A_TIME * rates.tap)
        waits = WAITS_OF_TAP * geometry.tap_count + (0 if _is_prepared(problem) else PARAMETER_WAITS)
        return rates.seconds(1, waits, busy)

    def plan(self, problem: Problem, tile: None) -> Plan:
        stages = Stages(problem, problem.geometry, ("input_tensor", "filter_tensor"))
        table: View | None = None
        prepared: PreparedChannels | None = None
        if _is_prepared(problem):
            prepared = stages.depthwise_channels()
        if _is_packed(problem):
            stages.gather_parameters()
        else:
            table = stages.parameter_table()
        depthwise = Depthwise(stages.operands, self.longest_seconds(problem, tile), table, prepared)
        stages.add(depthwise.dispatches())
        return stages.plan(self.name)
