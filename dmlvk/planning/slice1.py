"""SLICE1: a strided copy, widened to 16-byte elements if possible.

blocks
    Each invocation writes one 16-byte block of the output and reads the elements for it. For any layout.
tiles
    If rows of the output are columns of the input, workgroups transpose tiles in shared memory. Short rows or columns
    are several dimensions that follow each other without a gap. Pieces of other shapes are copied in blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import Slice1Desc, SliceDesc
from dmlvk.planning.data_movement import BLOCKS, PieceArguments, plan_data_movement
from dmlvk.planning.loop_nest import BLOCK_SIZE, Dimension, LoopNest, Operand, simplified, widened
from dmlvk.planning.plan import Plan, require_path

TILES = "tiles"
PATHS = (BLOCKS, TILES)

# Elements of a tile along the output and across it, by the bytes of an element: 4 to 8 KiB of shared memory. Large
# tiles take up to 21 KiB, on devices with more than the 16 KiB that Vulkan requires.
TILE_SHAPES = {1: (64, 64), 2: (64, 64), 4: (64, 32), 8: (64, 16)}
LARGE_TILE_SHAPES = {**TILE_SHAPES, 1: (128, 128), 2: (128, 64)}
ENOUGH_SHARED_MEMORY = 32 << 10

# Rows shorter than a memory sector are not worth a tile.
SECTOR_SIZE = 32


def plan(
    desc: Slice1Desc | SliceDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan a SLICE1 or a SLICE.

    Parameters
    ----------
    desc : Slice1Desc or SliceDesc
    profile : DeviceProfile
    path : str, optional
        "blocks" or "tiles"; None chooses.
    offsets : mapping of str to int
        Bytes from the start of its memory to a tensor's own start, by field.
    """
    require_path(desc.operator_name, path, PATHS)
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
    if path is None:
        # Shared memory and barriers only cost time on a CPU.
        path = TILES if _sides(nest) is not None and profile.device_type is not DeviceType.CPU else BLOCKS

    def arguments(piece: LoopNest) -> PieceArguments:
        sides = _sides(piece)
        if path == TILES and sides is not None:
            return _tiles(piece, sides, profile)
        return PieceArguments(specialization={"ROW_STEP": _row_step(piece) & 0xFFFFFFFF})

    return plan_data_movement("slice1/blocks", nest, profile, arguments, offsets=offsets, path=path)


def _row_step(piece: LoopNest) -> int:
    """ROW_STEP in slice1.glsl."""
    if piece.operands[0].element_size == BLOCK_SIZE:
        return 1  # a block is one element, so the distance to the next element does not matter
    step = piece.dimensions[-1].strides[1] if piece.run_rank else 0
    return step if abs(step) == 1 or (abs(step) == 2 and piece.operands[0].element_size < 4) else 0


@dataclass(frozen=True)
class _Sides:
    """The dimensions of a tile, counted from the innermost dimension of the output.

    Attributes
    ----------
    row_rank : int
        The dimensions of the rows are the first ones, packed in the output.
    columns : tuple of int
        The dimensions of the columns, packed in the input; the one with consecutive elements first.
    row_size, column_size : int
        Elements of a row of the output, and of a column.
    """

    row_rank: int
    columns: tuple[int, ...]
    row_size: int
    column_size: int


def _sides(nest: LoopNest) -> _Sides | None:
    """The sides of tiles, if elements are consecutive along one dimension in the input and another in the output."""
    element_size = nest.operands[0].element_size
    if nest.run_rank == 0 or element_size not in TILE_SHAPES:
        return None
    dimensions = nest.dimensions[::-1]
    enough_rows, enough_columns = LARGE_TILE_SHAPES[element_size]
    consecutive = next((k for k, dimension in enumerate(dimensions) if dimension.strides[1] == 1), 0)
    if consecutive == 0:
        return None
    row_rank, row_size = 1, dimensions[0].size
    columns, column_size = [consecutive], dimensions[consecutive].size
    # The shorter side takes the dimension that follows it, until both fill a tile.
    while True:
        following = (k for k in range(row_rank, len(dimensions)) if dimensions[k].strides[1] == column_size)
        next_column = next((k for k in following if k not in columns), None)
        has_next_row = row_rank < nest.run_rank and row_rank not in columns
        wants_row, wants_column = row_size < enough_rows, column_size < enough_columns
        if has_next_row and wants_row and (row_size <= column_size or not wants_column or next_column is None):
            row_size *= dimensions[row_rank].size
            row_rank += 1
        elif next_column is not None and wants_column:
            columns.append(next_column)
            column_size *= dimensions[next_column].size
        else:
            break
    least = SECTOR_SIZE // element_size
    if row_size < least or column_size < least:
        return None
    return _Sides(row_rank, tuple(columns), row_size, column_size)


def _tiles(piece: LoopNest, sides: _Sides, profile: DeviceProfile) -> PieceArguments:
    element_size = piece.operands[0].element_size
    elements_per_block = BLOCK_SIZE // element_size
    has_enough = profile.limits.max_compute_shared_memory_size >= ENOUGH_SHARED_MEMORY
    rows, columns = (LARGE_TILE_SHAPES if has_enough else TILE_SHAPES)[element_size]
    while columns // 2 >= max(sides.column_size, elements_per_block):
        rows, columns = 2 * rows, columns // 2
    # Windows begin at whole blocks, so rows have the same places within a block as in the tensor.
    outer = piece.dimensions[: len(piece.dimensions) - sides.row_rank]
    aligned = all(dimension.strides[0] % elements_per_block == 0 for dimension in outer)
    largest_lead = piece.operands[0].start % elements_per_block if aligned else elements_per_block - 1
    tiles_along = -(-(largest_lead + sides.row_size) // rows)
    tiles_across = -(-sides.column_size // columns)
    tile_count = tiles_along * tiles_across * (piece.element_count // (sides.row_size * sides.column_size))
    return PieceArguments(
        kernel="slice1/tiles",
        specialization={
            "ROW_RANK": sides.row_rank,
            "COLUMN_DIMENSIONS": sum(dimension << 4 * place for place, dimension in enumerate(sides.columns)),
            "TILE_ROWS": rows,
            "TILE_COLUMNS": columns,
            "EXTRA_ROWS": 0 if aligned else elements_per_block,
        },
        arguments=(tiles_along, tiles_across, largest_lead),
        group_count=tile_count,
        divisors=(tiles_across, tiles_along),
    )
