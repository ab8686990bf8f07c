"""The paths `direct` and `general` of QUANTIZED_LINEAR_CONVOLUTION: one output at a time, from the tensors in place."""

from __future__ import annotations

import math

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.plan import GENERAL_PATH, Plan
from dmlvk.planning.quantized_linear_convolution.direct_dispatch import COLUMNS_AT_A_TIME, Direct
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem
from dmlvk.planning.quantized_linear_convolution.stages import Stages
from dmlvk.planning.quantized_linear_convolution.tiles import packs_channels

# The last step of an output, in taps.
LAST_STEP_TAPS = 4.0
# How often a byte counts in channels-last tensors, where neighbouring invocations read bytes that are not neighbours.
SCATTERED = 5.6


class DirectPath(Path[None]):
    """One output at a time, from the tensors in place: for narrow groups, and for convolutions too large for the other
    paths. It takes every convolution on every device.
    """

    name = "direct"
    # Whether the sizes are push constants, so that all layers share a pipeline.
    is_general = False

    def obstacle_on(self, profile: DeviceProfile) -> None:
        return None

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        return None

    def tiles(self, problem: Problem) -> tuple[None, ...]:
        return (None,) if self.obstacle_to(problem) is None else ()

    def kernel_seconds(self, problem: Problem, tile: None) -> float:
        geometry, rates = problem.geometry, rates_of(problem.profile)
        outputs = geometry.batch * geometry.output_channels * math.prod(geometry.output_size)
        if problem.profile.device_type is DeviceType.CPU:
            return outputs * geometry.tap_count / rates.tap
        # Neighbouring invocations have neighbouring columns. Where these are not neighbours in memory, a load fetches
        # more than it needs: for channels-last tensors a whole sector for a byte.
        columns = geometry.output_size[1]
        padded = outputs * -(-columns // COLUMNS_AT_A_TIME) * COLUMNS_AT_A_TIME / columns
        scattered = min(SCATTERED, geometry.output_channels) if packs_channels(geometry) else 1
        busy = scattered * padded * (geometry.tap_count + LAST_STEP_TAPS) / rates.tap
        return rates.seconds(1, geometry.tap_count, busy)

    def plan(self, problem: Problem, tile: None) -> Plan:
        stages = Stages(problem, problem.geometry, ("input_tensor", "filter_tensor"))
        table, longest_seconds = stages.parameter_table(), self.longest_seconds(problem, tile)
        direct = Direct(stages.operands, table, self.is_general, longest_seconds)
        stages.add(*direct.stages())
        return stages.plan(self.name)


# Two sizes share a push constant.
LARGEST_SIZE = 0xFFFF


class GeneralPath(DirectPath):
    """The direct kernel with its sizes in push constants."""

    name = GENERAL_PATH
    is_general = True

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        geometry = problem.geometry
        largest = max(*geometry.filter_size, *geometry.strides, *geometry.dilations)
        if largest > LARGEST_SIZE:
            return Obstacle("the largest filter size, stride or dilation", largest, f"at most {LARGEST_SIZE}")
        return None
