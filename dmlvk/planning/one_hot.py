"""ONE_HOT: OffValue everywhere, and OnValue where the index says."""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import OneHotDesc
from dmlvk.planning.data_movement import FixedWindow, PieceArguments, dimension_constant, plan_data_movement
from dmlvk.planning.loop_nest import Dimension, LoopNest, Operand, Role, simplified
from dmlvk.planning.plan import Plan

BLOCKS_PER_INVOCATION = 4


def plan_one_hot(desc: OneHotDesc, profile: DeviceProfile, offsets: Mapping[str, int]) -> Plan:
    """Plan a ONE_HOT."""
    output, indices = desc.output_tensor, desc.indices_tensor
    dimensions = tuple(
        Dimension(
            output.sizes[i],
            # The indices do not step along the axis, where they have size 1 and may have any stride.
            (output.element_strides[i], 0 if i == desc.axis else indices.element_strides[i]),
            Role.AXIS if i == desc.axis else Role.NONE,
        )
        for i in range(output.rank)
    )
    element_size = output.data_type.size_in_bytes
    operands = (
        Operand("output_tensor", element_size),
        Operand("indices_tensor", indices.data_type.size_in_bytes),
    )
    fixed_windows = (
        FixedWindow("values_tensor", 0, element_size, argument=0),
        FixedWindow("values_tensor", desc.on_value_offset, element_size, argument=1),
    )
    depth = output.sizes[desc.axis]

    # A CPU driver runs invocations one after another and has nothing to overlap.
    blocks_per_invocation = 1 if profile.device_type is DeviceType.CPU else BLOCKS_PER_INVOCATION

    def arguments(piece: LoopNest) -> PieceArguments:
        axis_start, _ = piece.extent(Role.AXIS)
        return PieceArguments(
            specialization=(
                dimension_constant(piece, Role.AXIS),
                indices.data_type.size_in_bytes // 4,
                int(desc.indices_are_signed),
                blocks_per_invocation,
            ),
            arguments=(0, 0, axis_start, depth),
            blocks_per_invocation=blocks_per_invocation,
        )

    nest = simplified(LoopNest(dimensions, operands))
    return plan_data_movement("one_hot", nest, profile, arguments, fixed_windows=fixed_windows, offsets=offsets)
