"""The path `direct` of QUANTIZED_LINEAR_CONVOLUTION: groups of one channel, and operands too large to pack."""

from __future__ import annotations

import math

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.plan import Plan
from dmlvk.planning.quantized_linear_convolution.direct_dispatch import COLUMNS_AT_A_TIME, Direct
from dmlvk.planning.quantized_linear_convolution.matrix_shape import packs_channels
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem
from dmlvk.planning.quantized_linear_convolution.stages import Stages, is_unsigned

SCATTERED = 5.6
SCATTERED_BY_STRIDES = 1.6
RAGGED_ROWS = 1.5
WAITS_OF_TAP = 0.65


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

    def tiles(self, problem: Problem) -> tuple[None]:
        return (None,)

    def kernel_seconds(self, problem: Problem, tile: None) -> float:
        geometry, rates = problem.geometry, rates_of(problem.profile)
        outputs = geometry.batch * geometry.output_channels * math.prod(geometry.output_size)
        busy = outputs * geometry.tap_count / rates.tap
        # Neighbouring invocations have neighbouring columns. Where these are not neighbours in memory, a load fetches
        # more than it needs: for channels-last tensors a whole sector for a byte.
        if problem.profile.device_type is not DeviceType.CPU:
            busy *= SCATTERED if packs_channels(geometry) else SCATTERED_BY_STRIDES if geometry.strides[1] > 1 else 1
            busy *= RAGGED_ROWS if geometry.output_size[1] % COLUMNS_AT_A_TIME else 1
        return rates.seconds(1, WAITS_OF_TAP * geometry.tap_count, busy)

    def plan(self, problem: Problem, tile: None) -> Plan:
        desc = problem.desc
        stages = Stages(problem, problem.geometry, ("input_tensor", "filter_tensor"))
        direct = Direct(
            stages.builder,
            problem.geometry,
            stages.views["input_tensor"],
            stages.views["filter_tensor"],
            stages.parameter_table(),
            stages.views["output_tensor"],
            is_unsigned(desc, "input_tensor"),
            is_unsigned(desc, "filter_tensor"),
            is_unsigned(desc, "output_tensor"),
            self.is_general,
            self.longest_seconds(problem, tile),
        )
        stages.add(*direct.stages())
        return stages.plan(self.name)
