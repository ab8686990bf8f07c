"""The path `depthwise` of QUANTIZED_LINEAR_CONVOLUTION: one input channel for each output channel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk._common.rates import Rates
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
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Path, Problem
from dmlvk.planning.quantized_linear_convolution.stages import Stages
from dmlvk.tensor_desc import TensorFlags


@dataclass(frozen=True)
class Speed:
    """What the kernel makes of a GPU's rates, as `python -m bench.paths` measured it.

    Attributes
    ----------
    waits, waits_of_tap : float
        Loads that an invocation waits for: in any case, and for each tap.
    taps_at_a_time : float
        Multiply-adds for each of the direct kernel's.
    last_step_taps : float
        The last step of an output, in taps.
    ragged_rows : tuple of float
        How often each output counts in rows that are no whole words, of which each byte is stored by itself: by their
        length modulo 4.
    dispatches : float
        What a dispatch takes beside its work, in those of the rates.
    hides_waits : bool
        Whether other workgroups compute while one waits.
    """

    waits: float
    waits_of_tap: float
    taps_at_a_time: float
    last_step_taps: float
    ragged_rows: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    dispatches: float = 1.0
    hides_waits: bool = True

    def seconds(self, rates: Rates, outputs: float, taps: int, row_lengths: tuple[int, int]) -> float:
        """An estimate for a GPU."""
        ragged = max(self.ragged_rows[length % 4] for length in row_lengths)
        busy = outputs * ragged * (taps + self.last_step_taps) / (self.taps_at_a_time * rates.tap)
        waits = self.waits + self.waits_of_tap * taps
        if self.hides_waits:
            return rates.seconds(self.dispatches, waits, busy)
        return rates.seconds(self.dispatches, 0, busy) + waits * rates.wait


# By whether words hold channels, and whether there are strides. With prepared channels, which are waited for once: 520
# layers of networks and random ones on an H200. Without: 19 layers of networks on an H200.
PREPARED = {
    (True, False): Speed(0.639, 0.154, 11.5, 10.1, dispatches=0.826, hides_waits=False),
    (True, True): Speed(0.429, 0.172, 5.72, 7.29, dispatches=0.786, hides_waits=False),
    (False, False): Speed(0.35, 0.166, 11.8, 16.8, (1.0, 4.18, 2.77, 4.3), dispatches=0.861, hides_waits=False),
    (False, True): Speed(0.595, 0.0667, 114.0, 351.0, (1.0, 6.96, 2.3, 5.27), dispatches=1.18, hides_waits=False),
}
NOT_PREPARED = {
    (True, False): Speed(4.5, 0.0, 11.0, LAST_STEP_TAPS),
    (True, True): Speed(8.5, 0.0, 2.2, LAST_STEP_TAPS),
    (False, False): Speed(11.0, 0.0, 8.0, LAST_STEP_TAPS, (1.0, 8.0, 4.0, 8.0)),
    (False, True): Speed(15.0, 0.0, 3.5, LAST_STEP_TAPS, (1.0, 8.0, 4.0, 8.0)),
}
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
        speeds = PREPARED if _is_prepared(problem) else NOT_PREPARED
        speed = speeds[words.channels_last, max(geometry.strides) > 1]
        row_lengths = (geometry.input_size[1], geometry.output_size[1])
        return speed.seconds(rates, outputs, geometry.tap_count, row_lengths)

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
