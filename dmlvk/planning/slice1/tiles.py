"""SLICE1 in tiles: rows of the output that are columns of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.data_movement import PieceArguments
from dmlvk.planning.grid import workgroup_size
from dmlvk.planning.loop_nest import BLOCK_SIZE, LoopNest
from dmlvk.planning.slice1.path import (
    SECTOR_SIZE,
    Candidate,
    CopyCost,
    CopyPath,
    Loop,
    division,
    loops_of,
    sectors_of_box,
)

# Elements of a tile along the output and across it, by the bytes of an element: 4 to 8 KiB of shared memory. Large
# tiles take up to 21 KiB, on devices with more than the 16 KiB that Vulkan requires.
TILE_SHAPES = {1: (64, 64), 2: (64, 64), 4: (64, 32), 8: (64, 16)}
LARGE_TILE_SHAPES = {**TILE_SHAPES, 1: (128, 128), 2: (128, 64)}
ENOUGH_SHARED_MEMORY = 32 << 10
# The most words of shared memory of a tile, where there is enough and where there is not.
LARGE_TILE_WORDS = 5632
TILE_WORDS = 2560

# Instructions, as Mesa's compiler for NVIDIA's GPUs counts them: of an invocation, of a vector that is read whole, or
# word by word; of a block that is written, by the bytes of an element, if its elements are turned over in registers or
# found one by one.
INVOCATION = 80
WHOLE_VECTOR = 40
SHIFTED_VECTOR = 100
TURNED_BLOCK = {1: 65, 2: 60, 4: 60, 8: 55}
GATHERED_BLOCK = {1: 190, 2: 120, 4: 60, 8: 55}
# The factor for a tile that reads vectors word by word: it waits for each of them.
WAITING = 4 / 3


@dataclass(frozen=True)
class Sides:
    """The dimensions of a tile, counted from the innermost dimension of the output.

    row_rank: the dimensions of the rows are the first ones, packed in the output.
    columns: the dimensions of the columns, packed in the input; the one with consecutive elements first.
    row_size, column_size: elements of a row of the output, and of a column.
    """

    row_rank: int
    columns: tuple[int, ...]
    row_size: int
    column_size: int


class TilesPath(CopyPath):
    """If rows of the output are columns of the input, workgroups transpose tiles in shared memory."""

    name = "tiles"

    def candidate(self, piece: LoopNest, profile: DeviceProfile) -> Candidate | None:
        sides = sides_of(piece)
        return None if sides is None else _tiles(piece, sides, profile)


def sides_of(nest: LoopNest) -> Sides | None:
    """The sides of tiles, if elements are consecutive along one dimension in the input and another in the output."""
    element_size = nest.operands[0].element_size
    if nest.run_rank == 0 or element_size not in TILE_SHAPES:
        return None
    loops = loops_of(nest)
    enough_rows, enough_columns = LARGE_TILE_SHAPES[element_size]
    consecutive = next((k for k, loop in enumerate(loops) if loop.source_stride == 1), 0)
    if consecutive == 0:
        return None
    row_rank, row_size = 1, loops[0].size
    columns, column_size = [consecutive], loops[consecutive].size
    # The shorter side takes the dimension that follows it, until both fill a tile.
    while True:
        following = (k for k in range(row_rank, len(loops)) if loops[k].source_stride == column_size)
        next_column = next((k for k in following if k not in columns), None)
        has_next_row = row_rank < nest.run_rank and row_rank not in columns
        wants_row, wants_column = row_size < enough_rows, column_size < enough_columns
        if has_next_row and wants_row and (row_size <= column_size or not wants_column or next_column is None):
            row_size *= loops[row_rank].size
            row_rank += 1
        elif next_column is not None and wants_column:
            columns.append(next_column)
            column_size *= loops[next_column].size
        else:
            break
    sides = Sides(row_rank, tuple(columns), row_size, column_size)
    return sides if _fill_sectors(loops, sides, element_size) else None


def _fill_sectors(loops: Sequence[Loop], sides: Sides, element_size: int) -> bool:
    """Whether memory is moved in whole sectors: rows and columns are as long, or blocks that follow each other."""
    for size, follows in (
        (sides.row_size, loops[sides.columns[0]].output_stride),
        (sides.column_size, loops[0].source_stride),
    ):
        if size * element_size < SECTOR_SIZE and (size * element_size < BLOCK_SIZE or follows != size):
            return False
    return True


@dataclass(frozen=True)
class _TileExtents:
    """Elements of a tile along a row and across it, and the rows that it reads besides."""

    rows: int
    columns: int
    extra_rows: int

    def words(self, element_size: int) -> int:
        """Words of shared memory."""
        rows = self.rows + self.extra_rows
        return rows * (self.columns * element_size // 4 + 1) + rows * element_size // BLOCK_SIZE + 1


def _shape(sides: Sides, element_size: int, largest_lead: int, extra_rows: int, profile: DeviceProfile) -> _TileExtents:
    """The shape of tiles: of a side that is short, no more than it has, and more of the other one."""
    is_large = profile.limits.max_compute_shared_memory_size >= ENOUGH_SHARED_MEMORY
    most_words = LARGE_TILE_WORDS if is_large else TILE_WORDS
    rows, columns = (LARGE_TILE_SHAPES if is_large else TILE_SHAPES)[element_size]
    per_block = BLOCK_SIZE // element_size
    while columns // 2 >= max(sides.column_size, per_block):
        rows, columns = 2 * rows, columns // 2
    while rows // 2 >= max(largest_lead + sides.row_size, per_block):
        rows //= 2
        if (
            columns < sides.column_size
            and _TileExtents(rows, 2 * columns, extra_rows).words(element_size) <= most_words
        ):
            columns *= 2
    return _TileExtents(rows, columns, extra_rows)


def _tiles(piece: LoopNest, sides: Sides, profile: DeviceProfile) -> Candidate:
    element_size = piece.operands[0].element_size
    per_block = BLOCK_SIZE // element_size
    # Windows begin at whole blocks, so rows have the same places within a block as in the tensor.
    outer = piece.dimensions[: len(piece.dimensions) - sides.row_rank]
    aligned = all(dimension.strides[0] % per_block == 0 for dimension in outer)
    largest_lead = piece.operands[0].start % per_block if aligned else per_block - 1
    shape = _shape(sides, element_size, largest_lead, 0 if aligned else per_block, profile)
    tiles_along = -(-(largest_lead + sides.row_size) // shape.rows)
    tiles_across = -(-sides.column_size // shape.columns)
    tile_count = tiles_along * tiles_across * (piece.element_count // (sides.row_size * sides.column_size))
    arguments = PieceArguments(
        kernel="slice1/tiles",
        specialization={
            "ROW_RANK": sides.row_rank,
            "COLUMN_DIMENSIONS": sum(dimension << 4 * place for place, dimension in enumerate(sides.columns)),
            "TILE_ROWS": shape.rows,
            "TILE_COLUMNS": shape.columns,
            "EXTRA_ROWS": shape.extra_rows,
        },
        arguments=(tiles_along, tiles_across, largest_lead),
        group_count=tile_count,
        divisors=(tiles_across, tiles_along),
    )
    return Candidate(_cost(piece, sides, shape, tile_count, workgroup_size(profile)), arguments)


def _cost(piece: LoopNest, sides: Sides, shape: _TileExtents, tile_count: int, workgroup: int) -> CopyCost:
    element_size, loops = piece.operands[0].element_size, loops_of(piece)
    per_block = BLOCK_SIZE // element_size
    starts = [piece.operands[1].start, sides.column_size]
    starts += [loop.source_stride for k, loop in enumerate(loops) if k not in sides.columns]
    is_whole = all(start % per_block == 0 for start in starts)
    of_division = division(piece)
    read = (shape.rows + shape.extra_rows) * shape.columns // per_block
    written = shape.rows * shape.columns // per_block
    of_read = (WHOLE_VECTOR if is_whole else SHIFTED_VECTOR) + (sides.row_rank - 1) * of_division
    of_block: Mapping[int, int] = TURNED_BLOCK if shape.extra_rows == 0 else GATHERED_BLOCK
    of_written = of_block[element_size] + (len(sides.columns) - 1) * of_division
    instructions = workgroup * (INVOCATION + len(loops) * of_division)
    instructions += max(read, workgroup) * of_read + max(written, workgroup) * of_written
    # A side that is shorter than the tile is read and written in pieces of its own size.
    rows, columns = min(shape.rows, sides.row_size), min(shape.columns, sides.column_size)
    extents = [1] * len(loops)
    for dimensions, left in ((range(sides.row_rank), rows), (sides.columns, columns)):
        for k in dimensions:
            extents[k] = min(loops[k].size, left)
            left = -(-left // loops[k].size)
    read_sectors = sectors_of_box(piece, 1, extents) * (1.0 if is_whole else WAITING)
    return CopyCost(read_sectors + sectors_of_box(piece, 0, extents), tile_count * float(instructions))
