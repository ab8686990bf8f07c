"""SLICE1 in blocks: each invocation writes 16 bytes of the output, and reads the elements for them."""

from __future__ import annotations

import math

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.data_movement import BLOCKS, PieceArguments, has_whole_blocks
from dmlvk.planning.grid import workgroup_size
from dmlvk.planning.loop_nest import BLOCK_SIZE, LoopNest
from dmlvk.planning.slice1.path import (
    LINE_SIZE,
    QUICK_DIVISION,
    SECTOR_SIZE,
    Candidate,
    CopyCost,
    CopyPath,
    division,
    loops_of,
    sectors_of_box,
)

# Instructions, as Mesa's compiler for NVIDIA's GPUs counts them: of a block of consecutive elements that begin at a
# multiple of 16 bytes in the input, or anywhere; of a block of every second element; of a block, and each of its
# elements, with any other step.
ALIGNED_BLOCK = 90
SHIFTED_BLOCK = 150
STEPPING_BLOCK = 260
STRIDED_BLOCK = 90
STRIDED_ELEMENT = 9
# Of a block that lies across rows, and each of the rows; or each of the elements, if they are not consecutive.
BLOCK_ACROSS_ROWS = 100
ROW_OF_A_BLOCK = 110
ELEMENT_OF_A_BLOCK = 28


class BlocksPath(CopyPath):
    """Each invocation writes one 16-byte block of the output and reads the elements for it. For any layout."""

    name = BLOCKS

    def candidate(self, piece: LoopNest, profile: DeviceProfile) -> Candidate:
        specialization = {"ROW_STEP": row_step(piece) & 0xFFFFFFFF}
        return Candidate(_cost(piece, workgroup_size(profile)), PieceArguments(specialization=specialization))


def row_step(piece: LoopNest) -> int:
    """ROW_STEP in copy.glsl."""
    if piece.operands[0].element_size == BLOCK_SIZE:
        return 1  # a block is one element, so the distance to the next element does not matter
    step = piece.dimensions[-1].strides[1] if piece.run_rank else 0
    return step if abs(step) == 1 or (abs(step) == 2 and piece.operands[0].element_size < 4) else 0


def _cost(piece: LoopNest, workgroup: int) -> CopyCost:
    element_size, step = piece.operands[0].element_size, row_step(piece)
    loops = loops_of(piece)
    row = loops[0].size if piece.run_rank else 1
    rows = piece.element_count // row
    per_block = BLOCK_SIZE // element_size
    # A block of an output without runs is one element.
    count = piece.element_count / per_block if piece.run_rank else piece.element_count
    whole = has_whole_blocks(piece)
    across = 0.0 if whole or not piece.run_rank else count if row < 2 * per_block else min(count, 2.0 * rows)
    lines = 0.0
    if step == 0:
        instructions = count * (STRIDED_BLOCK + (per_block if piece.run_rank else 1) * STRIDED_ELEMENT)
        instructions += across * per_block * ELEMENT_OF_A_BLOCK
        distance = BLOCK_SIZE * abs(loops[0].source_stride) if loops else 0
        lines = piece.element_count * min(1.0, distance / LINE_SIZE)
    else:
        starts = [piece.operands[1].start, *(loop.source_stride for loop in loops[1:])]
        is_aligned = step == 1 and all(start % per_block == 0 for start in starts)
        instructions = count * (ALIGNED_BLOCK if is_aligned else SHIFTED_BLOCK if abs(step) == 1 else STEPPING_BLOCK)
        rows_of_block = (per_block + row - math.gcd(row, per_block)) / row
        of_row = ROW_OF_A_BLOCK if abs(step) == 1 else per_block / rows_of_block * ELEMENT_OF_A_BLOCK
        instructions += across * (BLOCK_ACROSS_ROWS + rows_of_block * of_row)
    instructions += count * max(0, len(loops) - 1) * (division(piece) - QUICK_DIVISION)
    written = count if not piece.run_rank else piece.element_count * element_size / SECTOR_SIZE
    return CopyCost(written + _sectors_read(piece, workgroup), instructions, lines)


def _sectors_read(piece: LoopNest, workgroup: int) -> float:
    """Sectors that workgroups read: each reads a sector once, since it reads all of its elements at about one time."""
    left = workgroup * BLOCK_SIZE // piece.operands[0].element_size if piece.run_rank else workgroup
    extents = []
    for loop in loops_of(piece):
        extents.append(min(loop.size, max(1, left)))
        left = -(-left // loop.size)
    return sectors_of_box(piece, 1, extents)
