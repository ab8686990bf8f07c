"""DIAGONAL_MATRIX1: a copy, or zeros, with the value over a band of diagonals or over all but a band."""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import DiagonalMatrix1Desc, DiagonalMatrixDesc
from dmlvk.planning.data_movement import BLOCKS, PieceArguments, dimension_constant, plan_data_movement
from dmlvk.planning.loop_nest import Dimension, LoopNest, LoopOperand, Role, simplified
from dmlvk.planning.plan import Plan, require_path

PATHS = (BLOCKS,)


def plan(
    desc: DiagonalMatrix1Desc | DiagonalMatrixDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan a DIAGONAL_MATRIX1 or a DIAGONAL_MATRIX."""
    require_path(desc.operator_name, path, PATHS)
    output, source = desc.output_tensor, desc.input_tensor
    rank = output.rank
    roles = [Role.NONE] * (rank - 2) + [Role.Y, Role.X]
    strides = [output.element_strides]
    operands = [LoopOperand("output_tensor", output.data_type.size_in_bytes)]
    if source is not None:
        strides.append(source.element_strides)
        operands.append(LoopOperand("input_tensor", output.data_type.size_in_bytes))
    dimensions = tuple(
        Dimension(output.sizes[i], tuple(operand[i] for operand in strides), roles[i]) for i in range(rank)
    )
    low, high, inside = desc.diagonal_range
    value = desc.value_bytes.ljust(8, b"\0")
    value_words = (int.from_bytes(value[:4], "little"), int.from_bytes(value[4:], "little"))

    def arguments(piece: LoopNest) -> PieceArguments:
        (x_start, width), (y_start, height) = piece.extent(Role.X), piece.extent(Role.Y)
        # The kernel counts diagonals from the piece's lower left corner.
        lowest = x_start - (y_start + height - 1)
        begin, end = (min(max(bound - lowest, 0), width + height - 1) for bound in (low, high))
        return PieceArguments(
            specialization={
                "X_DIMENSION": dimension_constant(piece, Role.X),
                "Y_DIMENSION": dimension_constant(piece, Role.Y),
                "FILL_OUTSIDE": int(not inside),
                "HAS_INPUT": int(source is not None),
                "IS_CONSECUTIVE": int(
                    source is not None and piece.run_rank > 0 and piece.dimensions[-1].strides[1] == 1
                ),
            },
            arguments=(begin, end - begin, *value_words),
        )

    nest = simplified(LoopNest(dimensions, tuple(operands)))
    return plan_data_movement("diagonal_matrix1/blocks", nest, profile, arguments, offsets=offsets)
