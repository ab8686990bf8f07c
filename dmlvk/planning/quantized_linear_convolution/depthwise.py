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
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.plan import Plan
from dmlvk.planning.quantized_linear_convolution.depthwise_channels import PreparedChannels
from dmlvk.planning.quantized_linear_convolution.depthwise_dispatch import (
    LAST_STEP_TAPS,
    Depthwise,
    InputWords,
    is_worth_a_table,
    multiplies_packed,
    padded_count,
)
from dmlvk.planning.quantized_linear_convolution.parameters import Sources
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem
from dmlvk.planning.quantized_linear_convolution.stages import Stages
from dmlvk.tensor_desc import TensorFlags

# Multiply-adds for each of the direct kernel's, by whether words hold channels. Strides take away from them, and so do
# rows that are no whole words (by their length modulo 4), of which each byte is stored by itself.
TAPS_AT_A_TIME = {True: 11.0, False: 8.0}
SLOWER_WITH_STRIDES = {True: 5.0, False: 2.3}
RAGGED_ROWS = (1, 8, 4, 8)
# A tile's rows are fetched one after the other.
WAITS = {True: 4.5, False: 11}
WAITS_WITH_STRIDES = 4
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


def _is_short(problem: Problem) -> bool:
    """Whether it is worth working out channels once, if they are given once."""
    geometry, words = problem.geometry, InputWords.of(problem.geometry, _input_view(problem))
    assert words is not None, "asked for after this was checked"
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

    def tiles(self, problem: Problem) -> tuple[None]:
        return (None,)

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
        faster, waits = TAPS_AT_A_TIME[words.channels_last], WAITS[words.channels_last]
        if max(geometry.strides) > 1:
            faster /= SLOWER_WITH_STRIDES[words.channels_last]
            waits += WAITS_WITH_STRIDES
        if not words.channels_last:
            faster /= max(RAGGED_ROWS[size % 4] for size in (geometry.input_size[1], geometry.output_size[1]))
        taps = outputs * (geometry.tap_count + LAST_STEP_TAPS)
        return rates.seconds(1, waits, taps / (faster * rates.tap))

    def plan(self, problem: Problem, tile: None) -> Plan:
        stages = Stages(problem, problem.geometry, ("input_tensor", "filter_tensor"))
        table: View | None = None
        prepared: PreparedChannels | None = None
        is_packed = multiplies_packed(problem.profile)
        if problem.profile.device_type is DeviceType.CPU:
            is_packed = is_packed and not problem.has_owned_constants and not is_worth_a_table(problem.geometry)
        if is_packed and problem.has_owned_constants and _is_short(problem):
            prepared = stages.depthwise_channels()
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
            self.longest_seconds(problem, tile),
            stages.views["filter_tensor"],
            table,
            prepared,
        )
        stages.add(depthwise.dispatches())
        return stages.plan(self.name)
