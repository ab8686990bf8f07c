"""SLICE1: a strided copy, widened to 16-byte elements if possible.

blocks
    Each invocation writes one 16-byte block of the output and reads the elements for it. For any layout.
tiles
    If rows of the output are columns of the input, workgroups transpose tiles in shared memory. Pieces of other shapes
    are copied in blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

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
        path = TILES if _across(nest) is not None and profile.device_type is not DeviceType.CPU else BLOCKS

    def arguments(piece: LoopNest) -> PieceArguments:
        across = _across(piece)
        if path == TILES and across is not None:
            return _tiles(piece, across, profile)
        return PieceArguments(specialization={"ROW_STEP": _row_step(piece) & 0xFFFFFFFF})

    return plan_data_movement("slice1/blocks", nest, profile, arguments, offsets=offsets, path=path)


def _row_step(piece: LoopNest) -> int:
    """ROW_STEP in slice1.glsl."""
    if piece.operands[0].element_size == BLOCK_SIZE:
        return 1  # a block is one element, so the distance to the next element does not matter
    step = piece.dimensions[-1].strides[1] if piece.run_rank else 0
    return step if abs(step) == 1 or (abs(step) == 2 and piece.operands[0].element_size < 4) else 0


def _across(nest: LoopNest) -> int | None:
    """The dimension with consecutive source elements, if output elements are so along another; None otherwise."""
    if nest.run_rank == 0 or nest.operands[0].element_size not in TILE_SHAPES:
        return None
    least = SECTOR_SIZE // nest.operands[0].element_size
    if nest.dimensions[-1].strides[1] == 1 or nest.dimensions[-1].size < least:
        return None
    for index, dimension in enumerate(nest.dimensions[:-1]):
        if dimension.strides[1] == 1 and dimension.size >= least:
            return index
    return None


def _tiles(piece: LoopNest, across: int, profile: DeviceProfile) -> PieceArguments:
    element_size = piece.operands[0].element_size
    elements_per_block = BLOCK_SIZE // element_size
    row, column = piece.dimensions[-1], piece.dimensions[across]
    has_enough = profile.limits.max_compute_shared_memory_size >= ENOUGH_SHARED_MEMORY
    rows, columns = (LARGE_TILE_SHAPES if has_enough else TILE_SHAPES)[element_size]
    while columns // 2 >= max(column.size, elements_per_block):
        rows, columns = 2 * rows, columns // 2
    # Windows begin at whole blocks, so rows have the same places within a block as in the tensor.
    aligned = all(dimension.strides[0] % elements_per_block == 0 for dimension in piece.dimensions[:-1])
    largest_lead = piece.operands[0].start % elements_per_block if aligned else elements_per_block - 1
    tiles_along = -(-(largest_lead + row.size) // rows)
    tiles_across = -(-column.size // columns)
    tile_count = tiles_along * tiles_across * (piece.element_count // (row.size * column.size))
    return PieceArguments(
        kernel="slice1/tiles",
        specialization={
            "ACROSS": len(piece.dimensions) - 1 - across,
            "TILE_ROWS": rows,
            "TILE_COLUMNS": columns,
            "EXTRA_ROWS": 0 if aligned else elements_per_block,
        },
        arguments=(tiles_along, tiles_across, largest_lead),
        group_count=tile_count,
        divisors=(tiles_across, tiles_along),
    )
