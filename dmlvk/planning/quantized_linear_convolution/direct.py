"""The path `direct` of QUANTIZED_LINEAR_CONVOLUTION: groups of one channel, and operands too large to pack."""

from __future__ import annotations

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.grid import workgroup_size
from dmlvk.planning.plan import Plan
from dmlvk.planning.quantized_linear_convolution.direct_dispatch import COLUMNS_AT_A_TIME, Direct, direct_seconds
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem
from dmlvk.planning.quantized_linear_convolution.product import enough_workgroups
from dmlvk.planning.quantized_linear_convolution.stages import Stages, is_unsigned


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

    def is_preferred(self, problem: Problem) -> bool:
        return True

    def seconds(self, problem: Problem, tile: None) -> float:
        geometry = problem.geometry
        rows = geometry.batch * geometry.output_channels * geometry.output_size[0]
        workgroups = -(-rows * -(-geometry.output_size[1] // COLUMNS_AT_A_TIME) // workgroup_size(problem.profile))
        idle = max(1, enough_workgroups(problem.profile) / workgroups)
        return direct_seconds(problem.profile, rows, geometry.output_size[1], geometry.tap_count) * idle

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
        )
        stages.add(*direct.stages())
        return stages.plan(self.name)
