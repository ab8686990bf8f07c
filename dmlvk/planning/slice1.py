"""SLICE1: a strided copy, widened to 16-byte elements where it can be."""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import Slice1Desc
from dmlvk.planning.data_movement import PieceArguments, plan_data_movement
from dmlvk.planning.loop_nest import Dimension, LoopNest, Operand, simplified, widened
from dmlvk.planning.plan import Plan


def plan_slice1(desc: Slice1Desc, profile: DeviceProfile, offsets: Mapping[str, int]) -> Plan:
    """Plan a SLICE1."""
    input_strides = desc.input_tensor.element_strides
    source_start = sum(start * stride for start, stride in zip(desc.copy_starts, input_strides, strict=True))
    dimensions = tuple(
        Dimension(size, (output_stride, window_stride * input_stride))
        for size, output_stride, window_stride, input_stride in zip(
            desc.output_tensor.sizes,
            desc.output_tensor.element_strides,
            desc.input_window_strides,
            input_strides,
            strict=True,
        )
    )
    element_size = desc.output_tensor.data_type.size_in_bytes
    operands = (Operand("output_tensor", element_size), Operand("input_tensor", element_size, source_start))
    nest = widened(simplified(LoopNest(dimensions, operands)))
    return plan_data_movement("slice1", nest, profile, lambda piece: PieceArguments(), offsets=offsets)
